// A kernel's text as the compiler reads it.
#pragma once

#include <string_view>
#include <vector>

namespace flashladder {

enum class Kind { word, number, other };

struct Token {
    Kind kind;
    std::string_view text;
    std::size_t at;
    int line;

    std::size_t end() const { return at + text.size(); }
};

bool of_word(char c);

/// No comments, no strings' insides, no lines of the preprocessor. The tokens are views of the text.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace flashladder
