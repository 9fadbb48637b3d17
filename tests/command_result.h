// What a command printed, and its exit status.
#pragma once

#include <string>

namespace flashladder {

struct CommandResult {
    int status;
    std::string output;
    bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
    /// Exactly one line, if it complains.
    bool one_line() const { return !output.empty() && output.find('\n') == output.size() - 1; }
    std::string last_line() const {
        const std::size_t end = output.find_last_not_of('\n');
        return output.substr(output.rfind('\n', end) + 1, end - output.rfind('\n', end));
    }
};

}  // namespace flashladder
