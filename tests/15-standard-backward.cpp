#include "attention_backward_suite.h"
