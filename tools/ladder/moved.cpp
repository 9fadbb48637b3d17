#include "moved.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "files.h"
#include "harness/project_root.h"

namespace flashladder {
namespace {

std::size_t indentation(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

bool begins_with(std::string_view line, std::initializer_list<std::string_view> words) {
    line.remove_prefix(indentation(line));
    return std::ranges::any_of(words, [&](std::string_view word) { return line.starts_with(word); });
}

/// POSIX's, since <regex> takes two seconds to compile.
class Pattern {
public:
    explicit Pattern(const char* text) { regcomp(&compiled_, text, REG_EXTENDED); }
    Pattern(const Pattern&) = delete;
    ~Pattern() { regfree(&compiled_); }

    /// What the last of `groups` groups holds, where the whole line matches; "" where it does not.
    std::string group_of(std::string_view line, std::size_t groups) const {
        std::vector<regmatch_t> found(groups + 1);
        const std::string text(line);
        if (regexec(&compiled_, text.c_str(), found.size(), found.data(), 0) != 0) return "";
        const regmatch_t& last = found.back();
        return text.substr(static_cast<std::size_t>(last.rm_so), static_cast<std::size_t>(last.rm_eo - last.rm_so));
    }

private:
    regex_t compiled_;
};

/// What a line begins to define; "" if nothing. A call has no type before its name, and a variable an '='.
std::string name_in(std::string_view line) {
    static const Pattern type(R"(^\s*(struct|enum class) (\w+)[^;(]*\{)"),
        function(R"(^\s*[[:alnum:]_:<>,&* ]*[[:alnum:]_>&*] [&*]?(\w+)\()");
    if (const std::string name = type.group_of(line, 2); !name.empty()) return name;
    if (begins_with(line, {"return", "else", "using", "//", "#", "template <"})) return "";
    const std::string name = function.group_of(line, 1);
    return name.starts_with("__") ? "" : name;  // __launch_bounds__ of a kernel
}

std::set<std::string> names_in(std::string_view text) {
    std::set<std::string> names;
    for (const Definition& d : definitions(text)) names.insert(d.name);
    return names;
}

std::vector<std::string> includes(std::string_view text) {
    std::vector<std::string> all;
    const std::string_view begin = "#include \"";
    for (std::string_view line : lines_of(text))
        if (line.starts_with(begin)) all.emplace_back(line.substr(begin.size(), line.rfind('"') - begin.size()));
    return all;
}

void add_headers(std::map<std::string, std::string>& headers, std::string_view text) {
    for (const std::string& name : includes(text)) {
        const std::string path = project_root() + "/common/" + name;
        if (!std::filesystem::exists(path) || headers.contains(name)) continue;
        headers[name] = read_file(path);
        add_headers(headers, std::string(headers[name]));
    }
}

}  // namespace

std::vector<Definition> definitions(std::string_view text) {
    const std::vector<std::string_view> lines = lines_of(text);
    std::vector<Definition> all;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const std::string name = name_in(lines[i]);
        if (name.empty()) continue;
        std::size_t first = i, last = i;  // its head ends with a body, or else it is only declared
        while (last + 1 < lines.size() && last < i + 3 && lines[last].find_first_of("{;") == std::string::npos) ++last;
        const std::string_view head = lines[last];
        if (head.find('{') == std::string::npos || (head.find(';') < head.find('{'))) continue;
        if (head.ends_with("{"))
            while (++last + 1 < lines.size())
                if (begins_with(lines[last], {"}"}) && indentation(lines[last]) <= indentation(lines[i])) break;
        while (first > 0 && begins_with(lines[first - 1], {"//", "template <"}) &&
               indentation(lines[first - 1]) == indentation(lines[i]))
            --first;
        all.push_back({name, first, std::min(last, lines.size() - 1)});
    }
    return all;
}

std::map<std::size_t, Moved> moved_lines(std::string_view below, std::string_view above,
                                         const std::map<std::string, std::string>& headers) {
    const std::set<std::string> kept = names_in(above);
    std::map<std::string, std::string> where;
    for (const auto& [header, text] : headers)
        for (const std::string& name : names_in(text)) where.emplace(name, header);
    std::map<std::size_t, Moved> moved;
    std::set<std::size_t> gone;  // lines of what is in neither, members and all
    for (const Definition& d : definitions(below)) {  // a struct comes before its members
        const bool has_moved = !kept.contains(d.name) && where.contains(d.name) && !gone.contains(d.first);
        for (std::size_t line = d.first; line <= d.last; ++line) {
            if (has_moved) moved[line] = {d.name, where.at(d.name)};
            else moved.erase(line);
            if (!has_moved && !kept.contains(d.name)) gone.insert(line);
        }
    }
    return moved;
}

std::map<std::string, std::string> new_headers(std::string_view below, std::string_view above) {
    std::map<std::string, std::string> old, all;
    add_headers(old, below);
    add_headers(all, above);
    std::erase_if(all, [&](const auto& header) { return old.contains(header.first); });
    return all;
}

std::string idea_first(std::string_view difference, const std::map<std::size_t, Moved>& moved) {
    struct Hunk {
        std::size_t below = 0, above = 0;  // where it begins, from 1
        std::string text;
        std::size_t lines_below = 0, lines_above = 0;
        bool changes = false;
    } hunk;
    std::string idea;
    std::map<std::string, std::pair<std::vector<std::string>, std::string>> by_header;  // names, lines
    std::size_t at = 0;
    const auto end_hunk = [&] {
        if (hunk.changes)
            idea += fmt::format("@@ -{},{} +{},{} @@\n{}", hunk.below, hunk.lines_below, hunk.above, hunk.lines_above,
                                hunk.text);
        hunk = {};
    };
    for (std::string_view line : lines_of(difference)) {
        if (line.starts_with("--- ") || line.starts_with("+++ ")) {
            if (at == 0) idea += fmt::format("{}\n", line);
            if (at == 0) continue;
        }
        if (line.starts_with("@@ -")) {
            end_hunk();
            hunk.below = at = std::stoul(std::string(line.substr(4)));
            hunk.above = std::stoul(std::string(line.substr(line.find('+') + 1)));
            continue;
        }
        const bool removed = line.starts_with("-"), added = line.starts_with("+");
        const auto found = removed ? moved.find(at - 1) : moved.end();
        at += !added;
        if (found != moved.end()) {
            auto& [names, lines] = by_header[found->second.header];
            if (std::ranges::find(names, found->second.name) == names.end()) names.push_back(found->second.name);
            lines += fmt::format("{}\n", line);
            continue;
        }
        hunk.text += fmt::format("{}\n", line);
        hunk.lines_below += !added, hunk.lines_above += !removed;
        hunk.changes |= removed || added;
    }
    end_hunk();
    for (const auto& [header, names_and_lines] : by_header)
        idea += fmt::format("\nMoved to common/{}: {}\n{}", header, fmt::join(names_and_lines.first, ", "),
                            names_and_lines.second);
    return idea;
}

}  // namespace flashladder
