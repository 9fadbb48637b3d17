// What a rung has moved to common/: functions and structs of the rung below that stand in a header now.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

/// A function or struct in a text, comments and template<> above it included; lines are counted from 0.
struct Definition {
    std::string name;
    std::size_t first, last;
};

/// As far as their layout is that of .clang-format.
std::vector<Definition> definitions(std::string_view text);

struct Moved {
    std::string name, header;
};

/// For each line of `below` that is of a definition which `above` does not have, but one of the headers (texts by name)
/// has: which one, and where it is now.
std::map<std::size_t, Moved> moved_lines(std::string_view below, std::string_view above,
                                         const std::map<std::string, std::string>& headers);

/// The headers of common/ that `above` includes, or they, and that `below` does not.
std::map<std::string, std::string> new_headers(std::string_view below, std::string_view above);

/// A difference as diff(1) shows it, of `below` to something, first without the lines that have moved; then these, by
/// header.
std::string idea_first(std::string_view difference, const std::map<std::size_t, Moved>& moved);

}  // namespace flashladder
