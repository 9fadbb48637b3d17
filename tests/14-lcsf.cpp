// Rung 14. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include "rung_suite.h"
