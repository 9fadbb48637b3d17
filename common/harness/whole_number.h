// Numbers as people write them, in an option or in the environment.
#pragma once

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace flashladder {

/// The number that the text is, all of it: digits alone. Throws std::invalid_argument with one line that begins with
/// `name`: "LADDER_SEED takes a whole number, not '7x'".
inline std::uint64_t whole_number(const std::string& name, const std::string& text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [behind, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || behind != end)
        throw std::invalid_argument(name + " takes a whole number, not '" + text + "'");
    return number;
}

}  // namespace flashladder
