// What every finished rung of ring attention must do and no more. Not for chapters, where another way to the right
// result is as good.
#include <doctest/doctest.h>

#include "ring_attention_suite.h"
