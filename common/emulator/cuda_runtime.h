// CUDA for the CPU backend. Found instead of the toolkit's header of the same name, it lets a host C++20 compiler build
// CUDA C++ kernels. What is here behaves as the CUDA programming guide says; what is not here does not compile.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>

#include "count_divisions.h"
#include "device_functions.h"
#include "runtime_api.h"
#include "vector_types.h"
