#include "mutations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "blame.h"
#include "exercises.h"
#include "tokens.h"

namespace flashladder {
namespace {

class Finder {
public:
    explicit Finder(std::string_view text) : text_(text), tokens_(tokens_of(text)) {
        mates_.assign(tokens_.size(), 0);
        std::vector<std::size_t> open;
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            in_parentheses_.push_back(!open.empty() && is(open.back(), "("));
            if (is(i, "(") || is(i, "[") || is(i, "{")) open.push_back(i);
            if ((is(i, ")") || is(i, "]") || is(i, "}")) && !open.empty()) {
                mates_[i] = open.back(), mates_[open.back()] = i;
                open.pop_back();
            }
        }
        // The markers of a solution are those of a learner's file, and nothing is open in it.
        for (const Answer& answer : answers(text, ""))
            for (int line = answer.first; line <= answer.last; ++line) exercise_[line] = answer.id;
        mark_kernels();
    }

    std::vector<Mutation> find() {
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            if (!inside_[i] && !exercise_.contains(tokens_[i].line)) continue;
            change_operator(i);
            change_choice(i);
            change_step(i);
            change_number(i);
            change_name(i);
            swap_indices(i);
            swap_arguments(i);
            change_condition(i);
            leave_out_statement(i);
        }
        std::ranges::stable_sort(found_, {}, &Mutation::at);
        return std::move(found_);
    }

private:
    bool is(std::size_t i, std::string_view text) const { return i < tokens_.size() && tokens_[i].text == text; }
    bool is_word(std::size_t i) const { return i < tokens_.size() && tokens_[i].kind == Kind::word; }
    std::string between(std::size_t at, std::size_t end) const { return std::string(text_.substr(at, end - at)); }
    bool space_around(const Token& token) const {
        return token.at > 0 && std::isspace(static_cast<unsigned char>(text_[token.at - 1])) &&
               std::isspace(static_cast<unsigned char>(text_[token.end()]));
    }

    /// Bodies of functions that run on a GPU; and where the function that a token is in begins, with its arguments.
    void mark_kernels() {
        inside_.assign(tokens_.size(), false);
        function_.assign(tokens_.size(), no_function);
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            if (!is(i, "__global__") && !is(i, "__device__")) continue;
            std::size_t j = i;
            while (j < tokens_.size() && !is(j, "{") && !is(j, ";")) j = is(j, "(") ? mates_[j] + 1 : j + 1;
            if (!is(j, "{")) continue;
            std::fill(inside_.begin() + static_cast<long>(j), inside_.begin() + static_cast<long>(mates_[j]), true);
            std::fill(function_.begin() + static_cast<long>(i), function_.begin() + static_cast<long>(mates_[j]), i);
        }
        for (std::size_t i = 0; i + 3 < tokens_.size(); ++i)
            if (function_[i] == no_function && is_word(i) && is(i + 1, "=") && (is(i + 3, ",") || is(i + 3, ";")))
                constants_[tokens_[i].text] = tokens_[i + 2].text;
    }

    /// Whether `name` could stand at token i: it is a member or a namespace's, occurs before in the same function or
    /// outside of all, or is CUDA's. Not if it is a constant of the same value.
    bool in_scope(std::size_t i, const std::string& name) const {
        static const std::set<std::string_view> of_cuda = {"min", "max", "fminf", "fmaxf"};
        const auto value = constants_.find(name), here = constants_.find(tokens_[i].text);
        if (value != constants_.end() && here != constants_.end() && value->second == here->second) return false;
        if (of_cuda.contains(name) || (i > 0 && (is(i - 1, ".") || is(i - 1, "->") || is(i - 1, "::")))) return true;
        for (std::size_t j = 0; j < i; ++j)
            if (tokens_[j].text == name && (function_[j] == function_[i] || function_[j] == no_function) &&
                !(j > 0 && (is(j - 1, ".") || is(j - 1, "->"))))
                return true;
        return false;
    }

    void add(std::size_t at, std::size_t end, const std::string& with, const std::string& what, int line) {
        const std::string before = between(at, end);
        std::string changed = fmt::format("{}{}{}", text_.substr(0, at), with, text_.substr(end));
        if (before == with || !seen_.insert(std::move(changed)).second) return;
        const auto times = ++named_[{line, what}];
        const auto exercise = exercise_.find(line);
        found_.push_back({times == 1 ? what : fmt::format("{} ({})", what, times), line,
                          exercise == exercise_.end() ? "" : exercise->second, at, end - at, with});
    }
    void replace(std::size_t i, const std::string& with) {
        const Token& token = tokens_[i];
        add(token.at, token.end(), with, fmt::format("'{}' for '{}'", with, token.text), token.line);
    }

    /// Behind what the operator at `i` takes from the right: names with what is called or indexed, and, of a sum,
    /// factors.
    std::size_t behind_operand(std::size_t i, bool with_factors) const {
        std::size_t j = i + 1;
        for (;;) {
            while (is(j, "-") || is(j, "!") || is(j, "&")) ++j;
            if (is(j, "("))
                j = mates_[j] + 1;
            else
                ++j;
            while (is(j, "(") || is(j, "[") || is(j, ".") || is(j, "->") || is(j, "::") ||
                   (is(j, "<") && !space_around(tokens_[j]))) {
                if (is(j, "(") || is(j, "["))
                    j = mates_[j] + 1;
                else if (is(j, "<"))
                    return 0;  // template arguments: too much to read
                else
                    j += 2;
            }
            if (!with_factors || !(is(j, "*") || is(j, "/") || is(j, "%"))) return j;
            ++j;
        }
    }

    void change_operator(std::size_t i) {
        static const std::map<std::string_view, std::string> others = {
            {"<", "<="},  {"<=", "<"},  {">", ">="}, {">=", ">"}, {"==", "!="}, {"!=", "=="}, {"+", "-"},  {"-", "+"},
            {"*", "+"},   {"/", "*"},   {"%", "/"},  {"+=", "="}, {"-=", "+="}, {"*=", "="},  {"/=", "="}, {"^", "|"},
            {"&&", "||"}, {"||", "&&"}, {"|", "&"},  {"&", "|"},  {"<<", ">>"}, {">>", "<<"}};
        const Token& token = tokens_[i];
        if (token.kind != Kind::other || !space_around(token)) return;
        if (const auto other = others.find(token.text); other != others.end()) replace(i, other->second);
        if (token.text == "<" || token.text == "<=" || token.text == ">" || token.text == ">=")
            if (const std::size_t behind = behind_operand(i, true); behind > 0) {
                const std::string bound = between(tokens_[i + 1].at, tokens_[behind - 1].end());
                for (const char* by : {" - 1", " + 1"})
                    add(tokens_[behind - 1].end(), tokens_[behind - 1].end(), by,
                        fmt::format("'{0} {1}{2}' for '{0} {1}'", token.text, bound, by), token.line);
            }
        const bool sum = token.text == "+" || token.text == "-", product = token.text == "*" || token.text == "%";
        if (!sum && !product) return;
        if (const std::size_t behind = behind_operand(i, sum); behind > 0) {
            const std::size_t begin = tokens_[i - 1].end(), end = tokens_[behind - 1].end();
            add(begin, end, "", fmt::format("no '{}'", between(token.at, end)), token.line);
        }
    }

    /// a ? b : c becomes a ? c : b, b or c.
    void change_choice(std::size_t i) {
        if (!is(i, "?")) return;
        std::size_t colon = i + 1;
        for (int deep = 1; colon < tokens_.size(); ++colon) {
            if (is(colon, "?")) ++deep;
            if (is(colon, ":") && --deep == 0) break;
            if (is(colon, "(") || is(colon, "[") || is(colon, "{")) colon = mates_[colon];
        }
        std::size_t end = colon + 1;
        while (end < tokens_.size() && !is(end, ";") && !is(end, ",") && !is(end, ")") && !is(end, "]") &&
               !is(end, "}"))
            end = is(end, "(") || is(end, "[") || is(end, "{") ? mates_[end] + 1 : end + 1;
        if (end >= tokens_.size()) return;
        const std::size_t begin = tokens_[i].at, last = tokens_[end - 1].end();
        const std::string yes = between(tokens_[i + 1].at, tokens_[colon - 1].end()),
                          no = between(tokens_[colon + 1].at, last);
        const auto becomes = [&](const std::string& with) {
            add(begin, last, with, fmt::format("'{}' for '{}'", with, between(begin, last)), tokens_[i].line);
        };
        becomes(fmt::format("? {} : {}", no, yes));
        becomes(fmt::format("? {} : {}", yes, yes));
        becomes(fmt::format("? {} : {}", no, no));
    }

    void change_step(std::size_t i) {
        if (is(i, "++") && in_parentheses_[i] && is_word(i + 1) && !(i > 0 && is_word(i - 1)))
            add(tokens_[i].at, tokens_[i + 1].end(), fmt::format("{} += 2", tokens_[i + 1].text),
                fmt::format("'{0} += 2' for '++{0}'", tokens_[i + 1].text), tokens_[i].line);
    }

    void change_number(std::size_t i) {
        const Token& token = tokens_[i];
        if (token.text == "true") replace(i, "false");
        if (token.text == "false") replace(i, "true");
        if (token.text == "INFINITY") replace(i, "0.0f");
        if (token.kind != Kind::number || token.text.starts_with("0x")) return;
        const std::string digits(token.text.substr(0, token.text.find_first_not_of("0123456789'.")));
        const std::string suffix(token.text.substr(digits.size()));
        if (digits.find('.') != std::string::npos || suffix.find('e') != std::string::npos) {
            replace(i, std::stod(digits) == 0 ? "1" + suffix : fmt::format("(2 * {})", token.text));
            return;
        }
        const unsigned long long n = std::stoull(digits);
        const bool large = n >= 16;
        replace(i, fmt::format("{}{}", large ? 2 * n : n + 1, suffix));
        if (n > 0) replace(i, fmt::format("{}{}", large ? n / 2 : n - 1, suffix));
    }

    void change_name(std::size_t i) {
        static const std::map<std::string_view, std::string> pairs = [] {
            std::map<std::string_view, std::string> both;
            static constexpr std::array<std::pair<const char*, const char*>, 20> list = {
                {{"row", "column"}, {"rows", "columns"}, {"K", "V"},         {"i", "j"},        {"q", "k"},
                 {"r", "c"},        {"x", "y"},          {"tx", "ty"},       {"m", "l"},        {"first", "second"},
                 {"full", "empty"}, {"min", "max"},      {"fminf", "fmaxf"}, {"lane", "warp"},  {"old", "new"},
                 {"Q", "O"},        {"S", "P"},          {"wait", "arrive"}, {"first", "last"}, {"head", "batch"}}};
            for (const auto& [a, b] : list) both.emplace(a, b), both.emplace(b, a);
            return both;
        }();
        if (!is_word(i)) return;
        const std::string_view name = tokens_[i].text;
        for (std::size_t begin = 0; begin < name.size();) {
            const std::size_t end = std::min(name.find('_', begin), name.size());
            if (const auto pair = pairs.find(name.substr(begin, end - begin)); pair != pairs.end()) {
                const std::string other = fmt::format("{}{}{}", name.substr(0, begin), pair->second, name.substr(end));
                if (in_scope(i, other)) replace(i, other);
            }
            begin = end + 1;
        }
    }

    void swap_indices(std::size_t i) {
        if (!is(i, "[") || !is(mates_[i] + 1, "[")) return;
        const std::size_t next = mates_[i] + 1, end = tokens_[mates_[next]].end();
        const std::string a = between(tokens_[i].at, tokens_[mates_[i]].end()), b = between(tokens_[next].at, end);
        add(tokens_[i].at, end, b + a, fmt::format("'{}{}' for '{}{}'", b, a, a, b), tokens_[i].line);
    }

    void swap_arguments(std::size_t i) {
        static const std::set<std::string_view> symmetric = {"fmaxf", "fminf", "max", "min"};
        if (!is(i, "(") || i == 0 || !(is_word(i - 1) || is(i - 1, ">")) || is(i - 1, "if") || is(i - 1, "for") ||
            is(i - 1, "while") || symmetric.contains(tokens_[i - 1].text))
            return;
        std::vector<std::pair<std::size_t, std::size_t>> arguments;  // positions in the text
        std::size_t begin = i + 1;
        for (std::size_t j = i + 1; j <= mates_[i]; ++j) {
            if (j != mates_[i] && (is(j, "(") || is(j, "[") || is(j, "{")))
                j = mates_[j];
            else if ((is(j, ",") || j == mates_[i]) && j > begin) {
                arguments.emplace_back(tokens_[begin].at, tokens_[j - 1].end());
                begin = j + 1;
            }
        }
        for (std::size_t a = 0; a + 1 < arguments.size(); ++a) {
            const std::string first = between(arguments[a].first, arguments[a].second),
                              second = between(arguments[a + 1].first, arguments[a + 1].second);
            add(arguments[a].first, arguments[a + 1].second, fmt::format("{}, {}", second, first),
                fmt::format("{}'s '{}' and '{}' the other way round", tokens_[i - 1].text, first, second),
                tokens_[i].line);
        }
    }

    void change_condition(std::size_t i) {
        if (!is(i, "if")) return;
        const std::size_t open = is(i + 1, "constexpr") ? i + 2 : i + 1;
        if (!is(open, "(")) return;
        const std::size_t begin = tokens_[open].end(), end = tokens_[mates_[open]].at;
        const std::string condition = between(begin, end);
        add(begin, end, fmt::format("!({})", condition), fmt::format("if not ({})", condition), tokens_[i].line);
        add(begin, end, fmt::format("true || ({})", condition), fmt::format("always, for if ({})", condition),
            tokens_[i].line);
    }

    /// Behind the ';' of a statement that begins with token i; 0 if none does.
    std::size_t behind_statement(std::size_t i) const {
        static const std::set<std::string_view> no_such = {"const", "constexpr", "using",  "static", "auto",    "float",
                                                           "int",   "unsigned",  "return", "if",     "for",     "while",
                                                           "else",  "template",  "case",   "do",     "typename"};
        if (!is_word(i) || in_parentheses_[i] || no_such.contains(tokens_[i].text)) return 0;
        if (!(i > 0 && (is(i - 1, ";") || is(i - 1, "{") || is(i - 1, "}") || is(i - 1, ")") || is(i - 1, "else"))))
            return 0;
        std::size_t j = i;
        while (j < tokens_.size() && !is(j, ";") && !is(j, "}"))
            j = is(j, "(") || is(j, "[") || is(j, "{") ? mates_[j] + 1 : j + 1;
        return is(j, ";") ? j + 1 : 0;
    }
    void leave_out_statement(std::size_t i) {
        const std::size_t behind = behind_statement(i);
        if (behind == 0) return;
        const std::size_t begin = tokens_[i].at, end = tokens_[behind - 1].end();
        const std::string statement = between(begin, end);
        add(begin, end, ";", fmt::format("no '{}'", statement), tokens_[i].line);
        if (const std::size_t last = behind_statement(behind); last > 0) {
            const std::string next = between(tokens_[behind].at, tokens_[last - 1].end());
            add(begin, tokens_[last - 1].end(), next + between(end, tokens_[behind].at) + statement,
                fmt::format("'{}' before '{}'", next, statement), tokens_[i].line);
        }
    }

    std::string_view text_;
    std::vector<Token> tokens_;
    std::vector<std::size_t> mates_;    // of each bracket, the other one
    std::vector<bool> in_parentheses_;  // of a call or of for's head, and not within braces there
    std::vector<bool> inside_;          // a function that runs on a GPU
    static constexpr std::size_t no_function = -1;
    std::vector<std::size_t> function_;                       // the token that the function begins with
    std::map<std::string_view, std::string_view> constants_;  // `name = value;` outside of functions
    std::map<int, std::string> exercise_;
    std::set<std::string> seen_;                        // texts
    std::map<std::pair<int, std::string>, int> named_;  // how often something is done to a line
    std::vector<Mutation> found_;
};

}  // namespace

std::string mutated(std::string_view text, const Mutation& mutation) {
    return fmt::format("{}{}{}", text.substr(0, mutation.at), mutation.with,
                       text.substr(mutation.at + mutation.length));
}

std::vector<Mutation> mutations(std::string_view text) { return Finder(text).find(); }

std::vector<Mutation> most_telling(const std::vector<Mutation>& all, std::size_t least) {
    std::vector<Mutation> chosen, others;
    for (const Mutation& mutation : all) (mutation.exercise.empty() ? others : chosen).push_back(mutation);
    const std::size_t missing = least > chosen.size() ? std::min(least - chosen.size(), others.size()) : 0;
    for (std::size_t k = 0; k < missing; ++k) chosen.push_back(others[k * others.size() / missing]);
    std::ranges::stable_sort(chosen, {}, &Mutation::at);
    return chosen;
}

}  // namespace flashladder
