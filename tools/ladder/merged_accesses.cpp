#include "merged_accesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

namespace flashladder {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::size_t, 3> widths = {4, 8, 16};  // emulator::merged_widths

struct Place {
    std::string file;
    unsigned line;
};

Place place_of(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    return {text.substr(0, colon), static_cast<unsigned>(std::strtoul(text.c_str() + colon + 1, nullptr, 10))};
}

/// Accesses of one kind by one line, or by several whose accesses become one.
struct Lines {
    std::string file;
    std::string access;  // "read" or "write"
    unsigned first, last;
    std::size_t bytes, widest;
    std::array<std::int64_t, widths.size()> saved;
    std::int64_t wavefronts = 0;  // as written

    bool has(const Place& place) const { return place.file == file && place.line >= first && place.line <= last; }
    std::string name() const {
        const std::string begin = fmt::format("{}:{}", fs::path(file).filename().string(), first);
        return first == last ? begin : fmt::format("{} to {}", begin, last);
    }
    std::string accesses() const { return access == "read" ? "loads" : "stores"; }
    std::string instruction(std::size_t width) const {
        return fmt::format("{}{}", access == "read" ? "LDS" : "STS", width == 16 ? ".128" : width == 8 ? ".64" : "");
    }
    std::int64_t merged(std::size_t width) const {
        return wavefronts - saved[static_cast<std::size_t>(std::ranges::find(widths, width) - widths.begin())];
    }
};

/// Those that have a line in common are one.
std::vector<Lines> mergeable_lines(const nlohmann::json& launches) {
    std::vector<Lines> all;
    for (const auto& launch : launches)
        for (const auto& work : launch.at("mergeable")) {
            const Place a = place_of(work.at("first_line")), b = place_of(work.at("last_line"));
            if (a.file != b.file) continue;
            all.push_back({a.file, work.at("access"), std::min(a.line, b.line), std::max(a.line, b.line),
                           work.at("bytes"), work.at("widest"), work.at("saved")});
        }
    std::ranges::sort(all, {}, [](const Lines& l) { return std::tuple(l.file, l.access, l.first); });
    std::vector<Lines> groups;
    for (const Lines& lines : all) {
        if (groups.empty() || groups.back().access != lines.access || !groups.back().has({lines.file, lines.first})) {
            groups.push_back(lines);
            continue;
        }
        Lines& group = groups.back();
        group.last = std::max(group.last, lines.last);
        group.bytes = std::min(group.bytes, lines.bytes);
        group.widest = std::max(group.widest, lines.widest);
        for (std::size_t i = 0; i < widths.size(); ++i) group.saved[i] += lines.saved[i];
    }
    for (const auto& launch : launches)
        for (const auto& line : launch.at("lines")) {
            const nlohmann::json& work = line.at("work");
            for (Lines& group : groups)
                if (group.has(place_of(line.at("line"))) && work.contains("shared") &&
                    work.at("shared").contains(group.access))
                    group.wavefronts += work.at("shared").at(group.access).at("wavefronts").get<std::int64_t>();
        }
    std::erase_if(groups, [](const Lines& g) { return g.merged(g.widest) >= g.wavefronts; });
    std::ranges::stable_sort(groups, std::ranges::greater(), [](const Lines& g) { return g.saved.back(); });
    return groups;
}

/// Bytes of the widest access that nvcc has made of these lines; 0 if it has left no trace of them.
std::size_t width_in(const MachineCode& code, const Lines& lines, const fs::path& root) {
    std::size_t width = 0;
    for (unsigned line = lines.first; line <= lines.last; ++line) {
        const auto found = code.lines.find(fmt::format("{}:{}", (root / lines.file).lexically_normal().string(), line));
        if (found != code.lines.end())
            width = std::max(width, lines.access == "read" ? found->second.load : found->second.store);
    }
    return width;
}

}  // namespace

std::string describe_mergeable(const nlohmann::json& launches, const fs::path& root, std::size_t most,
                               const std::function<std::optional<MachineCode>()>& machine_code) {
    const std::vector<Lines> all = mergeable_lines(launches);
    if (all.empty()) return "";
    const std::optional<MachineCode> code = machine_code();
    std::string text =
        "Neighbouring addresses, by one thread: nvcc may make one access of several (docs/counting.md).\n";
    for (std::size_t i = 0; i < std::min(most, all.size()); ++i) {
        const Lines& lines = all[i];
        const std::size_t made = code ? width_in(*code, lines, root) : 0;
        const std::size_t width = made == 0 ? lines.widest : std::min(made, lines.widest);
        const std::string one = fmt::format("one {} of every {}", lines.instruction(width), width / lines.bytes);
        text += fmt::format("  {}: {} wavefronts of {}; ", lines.name(), lines.wavefronts, lines.accesses());
        if (!code)
            text += fmt::format("{} if nvcc makes {}\n", lines.merged(width), one);
        else if (made == 0)
            text += fmt::format("{} if {}, which has them at another line, makes {}\n", lines.merged(width),
                                code->compiler, one);
        else if (made <= lines.bytes)
            text += fmt::format("{} leaves them apart\n", code->compiler);
        else
            text += fmt::format("{}, as {} makes {}\n", lines.merged(width), code->compiler, one);
    }
    if (all.size() > most) text += fmt::format("  and {} more\n", all.size() - most);
    return text;
}

}  // namespace flashladder
