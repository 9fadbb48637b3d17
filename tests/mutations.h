// Small mistakes in a kernel, made one at a time: which of them do the tests not see?
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

/// One mistake: `length` characters from `at` on become `with`.
struct Mutation {
    std::string what;      // "'<' for '<='", "no '__syncthreads();'", "'0' for '1' (2)" the second on its line
    int line = 0;          // of the text, counted from 1
    std::string exercise;  // that the line is an answer to; "" if it is given
    std::size_t at = 0, length = 0;
    std::string with;
};

/// The text with the mistake.
std::string mutated(std::string_view text, const Mutation& mutation);

// clang-format off
/// The mistakes that one makes in the functions that run on a GPU, and in the answers of a solution with its markers.
/// In the order of the lines, no two with the same text:
///   operators    < for <=, + for -, && for ||, = for +=; a term or a factor left out; c ? a : b turned round, or always one
///   bounds       of a comparison one less, one more; a loop in steps of two
///   numbers      one more, one less; twice or half from 16 on and of what is no integer; true for false
///   names        the other of a pair, where that is known: row, column; K, V; i, j; q, k; r, c; m, l; full, empty; min, max
///   indices      [a][b] for [b][a]; two neighbouring arguments of a call the other way round
///   conditions   the opposite; always
///   statements   left out, also barriers and waits; two neighbours the other way round
/// Expects clang-format's spaces around operators. Some do not compile, some change nothing.
// clang-format on
std::vector<Mutation> mutations(std::string_view text);

/// At least `least` of them, if there are as many: all in answers, and as many others as it needs, evenly over the
/// text.
std::vector<Mutation> most_telling(const std::vector<Mutation>& all, std::size_t least);

}  // namespace flashladder
