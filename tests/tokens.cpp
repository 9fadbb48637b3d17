#include "tokens.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace flashladder {

bool of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<Token> tokens_of(std::string_view text) {
    static constexpr std::array<std::string_view, 25> long_ones = {
        "<<=", ">>=", "...", "&&", "||", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=",
        "%=",  "^=",  "|=",  "&=", "++", "--", "<<", ">>", "->", "::", "//", "/*"};
    std::vector<Token> all;
    int line = 1;
    bool line_begins = true;
    const auto skip_to = [&](std::size_t at, std::size_t end) {
        line += static_cast<int>(
            std::count(text.begin() + static_cast<long>(at), text.begin() + static_cast<long>(end), '\n'));
        return end;
    };
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (std::isspace(static_cast<unsigned char>(c))) {
            if (c == '\n') ++line, line_begins = true;
            ++at;
            continue;
        }
        const std::string_view rest = text.substr(at);
        if (rest.starts_with("//") || (c == '#' && line_begins)) {
            at = skip_to(at, std::min(text.find('\n', at), text.size()));
            continue;
        }
        line_begins = false;
        if (rest.starts_with("/*")) {
            at = skip_to(at, std::min(text.find("*/", at), text.size() - 2) + 2);
            continue;
        }
        std::size_t end = at + 1;
        Kind kind = Kind::other;
        if (c == '"' || c == '\'') {
            while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
            ++end;
        } else if (of_word(c)) {
            kind = std::isdigit(static_cast<unsigned char>(c)) ? Kind::number : Kind::word;
            const auto goes_on = [&](char next) {
                if (of_word(next)) return true;
                const bool exponent = text[end - 1] == 'e' && !rest.starts_with("0x");
                return kind == Kind::number &&
                       (next == '.' || next == '\'' || (exponent && (next == '-' || next == '+')));
            };
            while (end < text.size() && goes_on(text[end])) ++end;
        } else {
            for (const std::string_view op : long_ones)
                if (rest.starts_with(op)) {
                    end = at + op.size();
                    break;
                }
        }
        end = std::min(end, text.size());
        all.push_back({kind, text.substr(at, end - at), at, line});
        at = end;
    }
    return all;
}

}  // namespace flashladder
