// Variables of the environment.
#pragma once

#include <cstdlib>
#include <string>

namespace flashladder {

/// The variable's value; `otherwise` if it is not set.
inline std::string environment(const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}

}  // namespace flashladder
