#pragma once

#include <string>

namespace flashladder {

/// The folder of the project: with CMakePresets.json and solutions/, above the running program or the working
/// directory. Throws std::runtime_error if there is none.
std::string project_root();

}  // namespace flashladder
