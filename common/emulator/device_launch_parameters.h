// Programs made for Visual Studio include it; what it declares is in device_functions.h.
#pragma once

#include "cuda_runtime.h"
