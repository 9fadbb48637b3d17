// What the build includes before a learner's attention.cu that goes into a program beside the solution, which has the same
// name: it registers itself as `mine()`. tools/ladder/CMakeLists.txt does so for `ladder bench NN --mine`.
#pragma once

#include "harness/stage.h"

#define Registration MineRegistration
