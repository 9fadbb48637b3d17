#include "translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <vector>

namespace flashladder {
namespace {

enum class Kind { space, word, string, other };  // space: comments and line ends too; word: numbers too

struct Token {
    Kind kind;
    std::string_view source;
    std::string text;           // what is written in its place
    bool in_directive = false;  // such as the body of a macro
    bool is(std::string_view words) const { return kind != Kind::space && source == words; }
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || (c & 0x80); }

/// Takes a source to pieces. Every `<` and `>` is a token of its own.
class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(source) {}

    std::vector<Token> tokens() {
        while (at_ < source_.size()) {
            const std::size_t begin = at_;
            const Kind kind = skip_token();
            const std::string_view piece = source_.substr(begin, at_ - begin);
            const bool line_end = piece == "\n";
            if (line_end) directive_ = false;
            if (piece == "#" && line_begins_) directive_ = true;
            if (line_end || kind != Kind::space) line_begins_ = line_end;
            tokens_.push_back({kind, piece, std::string(piece), directive_});
        }
        return std::move(tokens_);
    }

private:
    bool starts_with(std::string_view text) const { return source_.substr(at_).starts_with(text); }
    char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
    void skip_to(std::size_t end) { at_ = std::min(end, source_.size()); }  // npos too
    std::size_t behind(std::string_view text, std::size_t from) const {
        const std::size_t found = source_.find(text, from);
        return found == source_.npos ? found : found + text.size();
    }

    Kind skip_token() {
        const char c = peek();
        if (c == '\n') return ++at_, Kind::space;
        if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')))
            return at_ += peek(1) == '\n' ? 2 : 3, Kind::space;
        if (std::isspace(static_cast<unsigned char>(c))) return ++at_, Kind::space;
        if (starts_with("//")) return skip_line_comment(), Kind::space;
        if (starts_with("/*")) return skip_to(behind("*/", at_ + 2)), Kind::space;
        if (c == '"' || c == '\'') return skip_literal(c), Kind::string;
        if (std::isdigit(static_cast<unsigned char>(c)) ||
            (c == '.' && std::isdigit(static_cast<unsigned char>(peek(1)))))
            return skip_number(), Kind::word;
        if (in_word(c)) return skip_word();
        at_ += starts_with("::") || starts_with("->") ? 2 : 1;
        return Kind::other;
    }
    void skip_line_comment() {
        while (at_ < source_.size() && peek() != '\n') at_ += peek() == '\\' && peek(1) == '\n' ? 2 : 1;
    }
    void skip_literal(char quote) {
        ++at_;
        while (at_ < source_.size() && peek() != quote && peek() != '\n') at_ += peek() == '\\' ? 2 : 1;
        skip_to(peek() == quote ? at_ + 1 : at_);
    }
    void skip_number() {  // 1'000'000, 0x1p-3f, 1e+5
        for (; at_ < source_.size(); ++at_) {
            const char c = peek(), before = source_[at_ - (at_ > 0)];
            const bool sign = (c == '+' || c == '-') && std::string_view("eEpP").find(before) != std::string_view::npos;
            if (!in_word(c) && c != '.' && !sign && !(c == '\'' && in_word(peek(1)))) break;
        }
    }
    Kind skip_word() {
        const std::size_t begin = at_;
        while (in_word(peek())) ++at_;
        const std::string_view word = source_.substr(begin, at_ - begin);
        constexpr std::array raw = {"R", "LR", "uR", "UR", "u8R"};
        constexpr std::array plain = {"L", "u", "U", "u8"};
        if (peek() == '"' && std::find(raw.begin(), raw.end(), word) != raw.end()) {
            const std::size_t open = source_.find('(', at_);
            if (open == source_.npos) return skip_to(open), Kind::string;
            const std::string end = fmt::format("){}\"", source_.substr(at_ + 1, open - at_ - 1));
            return skip_to(behind(end, open)), Kind::string;
        }
        if ((peek() == '"' || peek() == '\'') && std::find(plain.begin(), plain.end(), word) != plain.end())
            return skip_literal(peek()), Kind::string;
        return Kind::word;
    }

    std::string_view source_;
    std::size_t at_ = 0;
    bool directive_ = false, line_begins_ = true;
    std::vector<Token> tokens_;
};

class Translator {
public:
    explicit Translator(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    std::string translate(const ResolveInclude& resolve) {
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            if (tokens_[i].is("#") && tokens_[i].in_directive)
                directive(i, resolve);
            else if (tokens_[i].is("{") && !tokens_[i].in_directive)
                scopes_.push_back(opens_namespace(i));
            else if (tokens_[i].is("}") && !tokens_[i].in_directive && !scopes_.empty())
                scopes_.pop_back();
            else if (is_run(i, "<", 3) || (is_run(i, "<", 2) && is(next(i + 1), "<")))
                launch(i);
            else if (tokens_[i].is("__shared__"))
                shared_variable(i);
            else if (tokens_[i].is("asm") || tokens_[i].is("__asm__") || tokens_[i].is("__asm"))
                inline_assembly(i);
            else if (tokens_[i].is("__CUDACC__"))
                tokens_[i].text = "FLASHLADDER_CUDACC";
            else if (tokens_[i].is("__noinline__") && !is(previous(i), "("))  // a macro would be in libstdc++'s way
                tokens_[i].text = "__attribute__((noinline))";
            else if (tokens_[i].is("cudaLaunchKernel") || tokens_[i].is("cudaLaunchCooperativeKernel"))
                typed_kernel(i);
            else if (tokens_[i].is("__launch_bounds__"))
                launch_bounds(i);
        }
        std::string text;
        for (const Token& token : tokens_) text += token.text;
        return text;
    }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    // ---- finding one's way

    /// The next and the previous token that is no space, or `none`. Code looks over directives, and these at no other.
    std::size_t next(std::size_t i) const {
        const bool in_directive = tokens_[i].in_directive;
        while (++i < tokens_.size()) {
            if (in_directive && !tokens_[i].in_directive) return none;
            if (tokens_[i].kind != Kind::space && tokens_[i].in_directive == in_directive) return i;
        }
        return none;
    }
    std::size_t previous(std::size_t i) const {
        const bool in_directive = tokens_[i].in_directive;
        while (i-- > 0) {
            if (in_directive && !tokens_[i].in_directive) return none;
            if (tokens_[i].kind != Kind::space && tokens_[i].in_directive == in_directive) return i;
        }
        return none;
    }
    bool is(std::size_t i, std::string_view words) const { return i < tokens_.size() && tokens_[i].is(words); }
    bool is_word(std::size_t i) const { return i < tokens_.size() && tokens_[i].kind == Kind::word; }
    bool opens(std::size_t i) const { return is(i, "(") || is(i, "[") || is(i, "{"); }
    bool closes(std::size_t i) const { return is(i, ")") || is(i, "]") || is(i, "}"); }
    /// Whether exactly so many of these stand side by side, beginning at `i`.
    bool is_run(std::size_t i, std::string_view mark, std::size_t length) const {
        if (i > 0 && is(i - 1, mark)) return false;
        for (std::size_t k = 0; k < length; ++k)
            if (!is(i + k, mark)) return false;
        return !is(i + length, mark);
    }
    /// The bracket that belongs to the one at `i`.
    std::size_t closing(std::size_t i) const {
        for (int depth = 0; i != none; i = next(i)) {
            depth += opens(i) - closes(i);
            if (depth == 0) return i;
        }
        return none;
    }
    std::size_t opening(std::size_t i) const {
        for (int depth = 0; i != none; i = previous(i)) {
            depth += closes(i) - opens(i);
            if (depth == 0) return i;
        }
        return none;
    }
    /// The `<` that begins the template arguments which end at `i`.
    std::size_t opening_angle(std::size_t i) const {
        for (int depth = 0; i != none; i = previous(i)) {
            if (closes(i)) {
                if ((i = opening(i)) == none) return none;
                continue;
            }
            if (is(i, ";") || opens(i)) return none;
            depth += is(i, ">") - is(i, "<");
            if (depth == 0) return i;
        }
        return none;
    }

    // ---- kernel<<<grid, block>>>(arguments)

    void launch(std::size_t open) {
        const std::size_t before = previous(open);
        if (before == none || is(before, "operator")) return;
        const std::size_t opened = next(next(open));  // a formatter that does not know CUDA makes it << <
        const std::size_t first = first_of_kernel(before), close = end_of_configuration(opened);
        if (first == none || close == none) return;
        tokens_[first].text = "::emulator::prepare(FLASHLADDER_KERNEL(" + tokens_[first].text;
        tokens_[open].text = "),";
        tokens_[close].text = ")";
        for (std::size_t k : {next(open), opened, next(close), next(next(close))}) tokens_[k].text = "";
    }

    /// The first token of the expression that ends at `i`: ns::kernel<float, 32>, table[i], (*pointer), object->kernel.
    std::size_t first_of_kernel(std::size_t i) const {
        for (;;) {
            if (is(i, ">")) {
                const std::size_t open = opening_angle(i);
                i = open == none ? none : previous(open);
                if (!is_word(i)) return none;
            } else if (is(i, ")") || is(i, "]")) {
                i = opening(i);
                if (i == none) return none;
                const std::size_t before = previous(i);
                const bool goes_on = (is_word(before) && !is_keyword(before)) || is(before, ">") || is(before, "]") ||
                                     (is(before, ")") && !is_condition(before));
                if (!goes_on) return i;
                i = before;
                continue;
            } else if (!is_word(i)) {
                return none;
            }
            const std::size_t before = previous(i);
            if (is(before, "template")) {
                i = previous(before);  // object.template kernel<3>
            } else if (is(before, "::") || is(before, "->") || is(before, ".")) {
                i = before;
            } else {
                return i;
            }
            const std::size_t qualifier = previous(i);
            const bool qualified = (is_word(qualifier) && !is_keyword(qualifier)) || is(qualifier, ">") ||
                                   (!is(i, "::") && closes(qualifier));
            if (!qualified) return i;  // ::kernel
            i = qualifier;
        }
    }
    bool is_keyword(std::size_t i) const {
        constexpr std::array words = {"return", "else",  "do",  "case",   "throw",
                                      "if",     "while", "for", "switch", "co_return"};
        return std::any_of(words.begin(), words.end(), [&](auto word) { return is(i, word); });
    }
    /// Whether the parenthesis that ends at `i` is that of `if (...)`, behind which a statement begins.
    bool is_condition(std::size_t i) const {
        const std::size_t open = opening(i);
        return open != none && is_keyword(previous(open));
    }

    /// The first of the three `>` that end what begins with `<<<`: the last three of their run, in front of a "(". Also
    /// `>> >`.
    std::size_t end_of_configuration(std::size_t opened) const {
        for (std::size_t i = next(opened); i != none; i = next(i)) {
            if (opens(i)) {
                if ((i = closing(i)) == none) return none;
                continue;
            }
            if (closes(i) || is(i, ";")) return none;
            if (!is(i, ">") || is(i - 1, ">")) continue;
            std::size_t last = i;
            while (is(last + 1, ">")) ++last;
            if (last >= i + 2 && is(next(last), "(")) return last - 2;
            const std::size_t third = next(last);
            if (last == i + 1 && is(third, ">") && third != none && is(next(third), "(")) return i;
        }
        return none;
    }

    // ---- extern __shared__ type name[];

    void shared_variable(std::size_t i) {
        const std::size_t before = previous(i), after = next(i);
        for (const std::size_t neighbour : {before, after})
            if (is(neighbour, "static")) tokens_[neighbour].text = "";  // the macro says it already
        if (is(after, "alignas")) tokens_[after].text = "__align__";    // which may stand here
        // `extern` is among the specifiers, on either side of __shared__.
        std::size_t begin = i, external = none;
        for (std::size_t k = i; is_word(k) || is(k, ")"); k = previous(k)) {
            if (is(k, ")")) {
                k = opening(k);
                if (k == none || !is_alignment(previous(k))) break;
                continue;
            }
            if (is_keyword(k)) break;
            begin = k;
            if (is(k, "extern")) external = k;
        }
        std::size_t end = i;
        for (; end != none && !is(end, ";") && !is(end, "{") && !is(end, "="); end = next(end)) {
            if (is(end, "extern")) external = end;
            if (opens(end) && (end = closing(end)) == none) break;
        }
        if (external == none || !is(end, ";")) return;
        declare_dynamic(begin, end);
    }
    bool is_alignment(std::size_t i) const { return is(i, "__align__") || is(i, "alignas") || is(i, "__attribute__"); }

    /// The tokens of the type stay; the words of what replaces the rest are given to those that go.
    void declare_dynamic(std::size_t begin, std::size_t end) {
        std::vector<std::size_t> names;  // the words in front of the first "[" of each declarator
        std::vector<std::size_t> type;
        const auto drop = [&](std::size_t from, std::size_t to) {
            for (std::size_t k = from; k <= to; ++k)
                if (tokens_[k].kind != Kind::space) tokens_[k].text = "";
        };
        bool in_declarator = false;
        for (std::size_t k = begin; k != end; k = next(k)) {
            if (is_alignment(k)) {
                const std::size_t last = closing(next(k));
                drop(k, last);
                k = last;
            } else if (is(k, "extern") || is(k, "__shared__") || is(k, "static")) {
                drop(k, k);
            } else if (is(k, ",") && in_declarator) {
                in_declarator = false;
            } else if (is(next(k), "[") && !in_declarator && is_word(k)) {
                names.push_back(k);
                const std::size_t open = next(k), close = closing(open);
                drop(open, close);
                in_declarator = true;
                k = close;
            } else if (names.empty()) {
                type.push_back(k);
            }
        }
        if (names.empty() || type.empty()) return;
        std::string type_text;
        for (std::size_t k = type.front(); k <= type.back(); ++k)
            if (tokens_[k].kind != Kind::space) type_text += tokens_[k].text + ' ';
        const bool in_function =
            tokens_[begin].in_directive || std::find(scopes_.begin(), scopes_.end(), false) != scopes_.end();
        // As an object of a namespace it asks anew each time it is used.
        const auto declaration = [&](std::size_t name) {
            const std::string_view word = tokens_[name].source;
            return in_function ? fmt::format("auto* {} = ::emulator::dynamic_array<{}", word, type_text)
                               : fmt::format("static const ::emulator::DynamicArray<{}", type_text);
        };
        const auto ending = [&](std::size_t name) {
            return in_function ? std::string(">()") : fmt::format("> {}{{}}", tokens_[name].source);
        };
        for (const std::size_t k : type) tokens_[k].text = "";
        for (std::size_t n = 0; n < names.size(); ++n) {
            const bool last = n + 1 == names.size();
            std::size_t stop = end;
            if (!last)
                for (stop = names[n]; !is(stop, ","); stop = next(stop)) {
                }
            tokens_[stop].text = ending(names[n]) + ";";
            tokens_[names[n]].text = declaration(names[n]);
        }
    }

    // ---- asm volatile("..." : outputs : inputs)

    void inline_assembly(std::size_t i) {
        std::size_t open = next(i);
        while (is(open, "volatile") || is(open, "__volatile__") || is(open, "goto")) open = next(open);
        const std::size_t close = is(open, "(") ? closing(open) : none;
        if (close == none) return;
        tokens_[i].text = "::emulator::inline_ptx";
        for (std::size_t k = next(i); k != open; k = next(k)) tokens_[k].text = "";
        bool operands = false;
        for (std::size_t k = next(open); k != close; k = next(k)) {
            operands |= is(k, ":") || is(k, "::");
            if (operands) tokens_[k].text = "";
        }
    }

    // ---- cudaLaunchKernel((void*)kernel, ...)

    /// Leaves out the cast, with which the types of the kernel's parameters would be lost.
    void typed_kernel(std::size_t i) {
        const std::size_t call = next(i), open = call == none ? none : next(call);
        if (!is(call, "(") || !is(open, "(")) return;
        const std::size_t close = closing(open);
        bool is_cast = close != none;
        for (std::size_t k = next(open); is_cast && k != close; k = next(k))
            is_cast = is(k, "void") || is(k, "const") || is(k, "*");
        if (!is_cast) return;
        for (std::size_t k = open; k != close; k = next(k)) tokens_[k].text = "";
        tokens_[close].text = "";
    }

    // ---- __global__ void __launch_bounds__(128) kernel(...) {

    /// The kernel looks itself: nothing else of it carries the number, which may be a template's argument.
    void launch_bounds(std::size_t i) {
        const std::size_t open = next(i), close = is(open, "(") ? closing(open) : none;
        if (close == none) return;
        std::size_t body = next(close);
        while (body != none && !is(body, "{") && !is(body, ";")) body = next(is(body, "(") ? closing(body) : body);
        if (!is(body, "{")) return;
        std::string bounds;
        for (std::size_t k = next(open); k != close; k = next(k)) bounds += tokens_[k].text + ' ';
        tokens_[body].text = fmt::format("{{ ::emulator::check_launch_bounds({});", bounds);
    }

    // ---- what else there is to know

    bool opens_namespace(std::size_t brace) const {
        std::size_t k = previous(brace);
        if (k != none && tokens_[k].kind == Kind::string) return is(previous(k), "extern");  // extern "C" {
        while (k != none && !is(k, "namespace") && (is_word(k) || is(k, "::"))) k = previous(k);
        return is(k, "namespace");
    }

    void directive(std::size_t hash, const ResolveInclude& resolve) {
        const std::size_t word = next(hash);
        if (is(word, "if") || is(word, "ifdef") || is(word, "ifndef")) {
            branches_.push_back(scopes_);
        } else if (is(word, "else") || is(word, "elif")) {  // its braces are instead of those above
            if (!branches_.empty()) scopes_ = branches_.back();
        } else if (is(word, "endif")) {
            if (!branches_.empty()) branches_.pop_back();
        } else if (is(word, "include") && resolve) {
            include(next(word), resolve);
        }
    }
    void include(std::size_t first, const ResolveInclude& resolve) {
        if (first == none || !tokens_[first].in_directive) return;
        const bool in_quotes = tokens_[first].kind == Kind::string;
        if (!in_quotes && !is(first, "<")) return;  // a macro
        std::string name(in_quotes ? tokens_[first].source.substr(1, tokens_[first].source.size() - 2) : "");
        std::size_t last = first;
        if (!in_quotes) {
            while (++last < tokens_.size() && !is(last, ">") && tokens_[last].in_directive)
                name += tokens_[last].source;
        }
        const auto path = resolve(name, in_quotes);
        if (!path) return;
        for (std::size_t k = first; k <= last; ++k) tokens_[k].text = "";
        tokens_[first].text = fmt::format("\"{}\"", *path);
    }

    std::vector<Token> tokens_;
    std::vector<bool> scopes_;                 // the open braces: whether of a namespace
    std::vector<std::vector<bool>> branches_;  // what was open at each #if
};

}  // namespace

std::string translate(std::string_view source, const ResolveInclude& resolve) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (source.starts_with(byte_order_mark)) source.remove_prefix(byte_order_mark.size());
    return Translator(Lexer(source).tokens()).translate(resolve);
}

}  // namespace flashladder
