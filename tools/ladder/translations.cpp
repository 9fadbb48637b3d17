#include "translations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <sstream>
#include <stdexcept>

#include "docs.h"

namespace flashladder {
namespace {

const std::string mark_begin = "<!-- original: ", mark_end = " -->";

/// As GitHub makes it: small letters, no punctuation, a dash for each space; what is not ASCII stays, but for the
/// punctuation of Chinese.
std::string anchor_of(const std::string& heading) {
    std::string anchor;
    for (std::size_t i = 0; i < heading.size(); ++i) {
        const unsigned char c = heading[i];
        if (c >= 0x80) {
            static const std::vector<std::string> punctuation = {"（", "）", "：", "；", "，", "。", "？", "！", "、", "“", "”"};
            const auto dropped = std::ranges::find_if(
                punctuation, [&](const std::string& sign) { return heading.compare(i, sign.size(), sign) == 0; });
            if (dropped == punctuation.end()) anchor += heading[i];
            else i += dropped->size() - 1;
        } else if (std::isalnum(c) || c == '_' || c == '-') {
            anchor += static_cast<char>(std::tolower(c));
        } else if (c == ' ') {
            anchor += '-';
        }
    }
    return anchor;
}

/// Without what generators write.
std::string written(const std::string& text) {
    std::string out;
    for (std::size_t at = 0;;) {
        const std::size_t begin = text.find(generated_begin, at), end = text.find(generated_end, begin);
        if (begin == std::string::npos || end == std::string::npos) return out + text.substr(at);
        out += text.substr(at, text.find('\n', begin) - at);
        at = end;
    }
}

std::uint32_t fnv_1a(const std::string& text) {
    std::uint32_t hash = 2166136261u;
    for (const unsigned char c : text) hash = (hash ^ c) * 16777619u;
    return hash;
}

/// The mark in a section of a translation, and the name in it; both "" without one.
struct Mark {
    std::string whole, name;
};
Mark mark_in(const Section& section) {
    const std::size_t begin = section.text.find(mark_begin), end = section.text.find(mark_end, begin);
    if (begin == std::string::npos || end == std::string::npos) return {};
    const std::size_t name = begin + mark_begin.size();
    return {section.text.substr(begin, end + mark_end.size() - begin),
            section.text.substr(name, section.text.find(' ', name) - name)};
}

}  // namespace

std::vector<Section> sections_of(const std::string& document) {
    std::vector<Section> sections;
    std::istringstream lines(document);
    bool in_code = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.find_first_not_of(' ') == line.find("```") && line.find("```") != line.npos) in_code = !in_code;
        const std::size_t level = line.find_first_not_of('#');
        if (!in_code && level != line.npos && level > 0 && line[level] == ' ') {
            const std::string heading = line.substr(level + 1), anchor = anchor_of(heading);
            const auto alike = std::ranges::count(sections, anchor, [](const Section& s) { return anchor_of(s.heading); });
            sections.push_back({heading, alike ? fmt::format("{}-{}", anchor, alike) : anchor, ""});
        } else if (!sections.empty()) {
            sections.back().text += line + "\n";
        }
    }
    return sections;
}

std::string original_mark(const Section& section) {
    std::istringstream words(section.heading + "\n" + written(section.text));
    std::string text;
    for (std::string word; words >> word;) text += word + " ";
    return fmt::format("{}{} {:08x}{}", mark_begin, section.name, fnv_1a(text), mark_end);
}

std::vector<Behind> behind(const std::string& translation, const std::string& original) {
    const std::vector<Section> originals = sections_of(original), translated = sections_of(translation);
    std::vector<Behind> all;
    for (const Section& section : originals) {
        const auto found =
            std::ranges::find(translated, section.name, [](const Section& t) { return mark_in(t).name; });
        const std::string mark = original_mark(section);
        if (found == translated.end()) all.push_back({section, "is not translated", mark});
        else if (mark_in(*found).whole != mark) all.push_back({*found, "has changed", mark});
    }
    for (const Section& section : translated)
        if (std::ranges::find(originals, mark_in(section).name, &Section::name) == originals.end())
            all.push_back({section, mark_in(section).name.empty() ? "has no mark of its original" : "is gone", ""});
    return all;
}

std::string translation_of(const std::string& path) { return path.substr(0, path.rfind(".md")) + ".zh.md"; }

std::string age_in_words(const std::string& translation, const std::string& original) {
    const std::vector<Section> there = sections_of(translation);
    std::vector<std::string> names;
    for (const Behind& one : behind(translation, original)) {
        const bool has_anchor = std::ranges::find(there, one.section.name, &Section::name) != there.end();
        names.push_back(has_anchor ? fmt::format("[{}](#{})", one.section.heading, one.section.name)
                                   : one.section.heading);
    }
    if (names.empty()) return "译文与英文原文一致。\n";
    return fmt::format("以下各节的英文原文已有改动，译文尚未跟上，请以原文为准：{}。\n", fmt::join(names, "、"));
}

}  // namespace flashladder
