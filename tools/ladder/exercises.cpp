#include "exercises.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace flashladder {
namespace {

struct Line {
    std::string_view text;  // without the line's end
    int number;
};

std::vector<Line> split(std::string_view text) {
    std::vector<Line> lines;
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back({text.substr(0, end), number});
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

/// What follows "// KEYWORD " on a line, or nothing if the line is something else.
std::optional<std::string_view> marker(std::string_view line, std::string_view keyword) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string start = fmt::format("// {}", keyword);
    if (!line.starts_with(start)) return std::nullopt;
    line.remove_prefix(start.size());
    if (!line.empty() && line.front() != ' ') return std::nullopt;
    line.remove_prefix(std::min<std::size_t>(1, line.size()));
    return line;
}

std::string_view comment(std::string_view line) {
    const auto text = line.find("//");
    return text == line.find_first_not_of(' ') && text != std::string_view::npos
               ? line.substr(std::min(text + 3, line.size()))
               : "";
}

struct Region {
    Exercise exercise;
    std::string indent;
    std::vector<std::string_view> statement, starter, solution;
};

/// Calls `plain` with each line outside the regions and `region` with each region, in order.
template <class Plain, class OnRegion>
void walk(std::string_view text, Plain plain, OnRegion on_region) {
    std::optional<Region> open;
    bool in_statement = false;
    const auto fail = [](const Line& line, const std::string& why) {
        throw std::runtime_error(fmt::format("line {}: {}", line.number, why));
    };
    for (const Line& line : split(text)) {
        if (const auto start = marker(line.text, "EXERCISE")) {
            if (open) fail(line, fmt::format("EXERCISE inside EXERCISE {}", open->exercise.id));
            const std::size_t space = start->find(' ');
            if (space == std::string_view::npos) fail(line, "EXERCISE without a statement");
            open = Region{{std::string(start->substr(0, space)), std::string(start->substr(space + 1))},
                          std::string(line.text.substr(0, line.text.find("//"))), {line.text}, {}, {}};
            in_statement = true;
        } else if (const auto end = marker(line.text, "END")) {
            if (!open || *end != open->exercise.id) fail(line, fmt::format("END {} closes no exercise", *end));
            if (open->starter.empty()) fail(line, fmt::format("EXERCISE {} has no STARTER", open->exercise.id));
            on_region(*open);
            open.reset();
        } else if (!open) {
            plain(line.text);
        } else if (const auto starter = marker(line.text, "STARTER")) {
            in_statement = false;
            open->starter.push_back(*starter);
        } else if (in_statement && !comment(line.text).empty()) {
            open->statement.push_back(line.text);
            open->exercise.statement += fmt::format(" {}", comment(line.text));
        } else {
            in_statement = false;
            open->solution.push_back(line.text);
        }
    }
    if (open) throw std::runtime_error(fmt::format("EXERCISE {} has no END", open->exercise.id));
}

}  // namespace

std::vector<Exercise> exercises(std::string_view solution) {
    std::vector<Exercise> found;
    walk(solution, [](std::string_view) {}, [&](const Region& region) { found.push_back(region.exercise); });
    return found;
}

std::string make_starter(std::string_view solution, std::string_view open) {
    std::string out;
    bool found = false;
    const auto put = [&](std::string_view line) { out += fmt::format("{}\n", line); };
    walk(solution, put, [&](const Region& region) {
        const std::string& id = region.exercise.id;
        if (open != "all" && open != id) {
            for (std::string_view line : region.solution) put(line);
            return;
        }
        found = true;
        for (std::string_view line : region.statement) put(line);
        put(fmt::format("{}// TODO: your code, instead of this.", region.indent));
        for (std::string_view line : region.starter)
            if (!line.empty()) put(fmt::format("{}{}", region.indent, line));
        put(fmt::format("{}// END {}", region.indent, id));
    });
    if (!found && open != "all") throw std::runtime_error(fmt::format("there is no exercise {}", open));
    return out;
}

std::string without_markers(std::string_view solution) {
    std::string out;
    const auto put = [&](std::string_view line) { out += fmt::format("{}\n", line); };
    walk(solution, put, [&](const Region& region) {
        for (std::string_view line : region.solution) put(line);
    });
    return out;
}

std::string replace_once(std::string_view text, std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    if (from.empty() || at == std::string_view::npos) throw std::runtime_error(fmt::format("not found: {}", from));
    if (text.find(from, at + 1) != std::string_view::npos)
        throw std::runtime_error(fmt::format("found more than once: {}", from));
    return fmt::format("{}{}{}", text.substr(0, at), to, text.substr(at + from.size()));
}

std::vector<std::string> hints_for(std::string_view hints, std::string_view id) {
    std::vector<std::string> found;
    bool inside = false;
    for (const Line& line : split(hints)) {
        std::string_view text = line.text;
        if (text.starts_with("## ")) {
            inside = text.substr(3, text.find(' ', 3) - 3) == id;
            continue;
        }
        if (!inside) continue;
        const std::string number = fmt::format("{}. ", found.size() + 1);
        if (text.starts_with(number)) {
            found.emplace_back();
            text.remove_prefix(number.size());
        } else if (!found.empty() && text.starts_with("   ")) {
            text.remove_prefix(3);  // an item's further lines
        }
        if (found.empty() && text.empty()) continue;
        if (found.empty()) found.emplace_back();
        found.back() += fmt::format("{}\n", text);
    }
    for (std::string& text : found) text.erase(text.find_last_not_of('\n') + 1);
    return found;
}

}  // namespace flashladder
