#ifndef FLASHLADDER_GPU

#include "profile_page.h"

#include <cstdint>
#include <filesystem>
#include <map>

#include "files.h"
#include "harness/project_root.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using emulator::Work;

struct Count {
    const char* name;
    const char* meaning;
    std::uint64_t (*of)(const Work&);
};
constexpr Count counts[] = {
    {"requested bytes", "what the threads ask of device memory, each for itself",
     [](const Work& w) { return w.all_global().requested_bytes; }},
    {"moved bytes", "32 for each sector of device memory that a warp's access touches",
     [](const Work& w) { return w.all_global().sectors * emulator::sector_bytes; }},
    {"wavefronts", "how often shared memory must answer", [](const Work& w) { return w.all_shared().wavefronts; }},
    {"conflicts", "wavefronts that bank conflicts cost", [](const Work& w) { return w.all_shared().conflicts; }},
    {"exponentials", "by each thread", [](const Work& w) { return w.exponentials; }},
    {"divisions", "by each thread", [](const Work& w) { return w.divisions; }},
    {"barriers", "of blocks, once a block", [](const Work& w) { return w.barriers; }},
    {"named barriers", "once for each time that all have come", [](const Work& w) { return w.named_barriers; }},
    {"matrix instructions", "mma once a warp, wgmma once a warpgroup",
     [](const Work& w) { return w.matrix_instructions; }}};

}  // namespace

nlohmann::json profile_page(const emulator::CountedWork& work, const std::string& own_file,
                            const emulator::CountedWork* solution) {
    using nlohmann::json;
    const Work total = work.total(), beside = solution ? solution->total() : Work{};
    json result = {{"counts", json::array()}, {"files", json::array()}};
    for (const Count& c : counts) {
        result["counts"].push_back({{"name", c.name}, {"meaning", c.meaning}, {"total", c.of(total)}});
        if (solution) result["counts"].back()["solution"] = c.of(beside);
    }

    std::map<std::string, std::map<int, Work>> files;
    files[own_file];
    for (const auto& launch : work.launches)
        for (const auto& [place, of_line] : launch.lines) {
            const std::size_t colon = place.rfind(':');
            const bool has_line = colon != std::string::npos;
            files[place.substr(0, colon)][has_line ? std::stoi(place.substr(colon + 1)) : 0] += of_line;
        }
    for (const auto& [path, lines] : files) {
        const fs::path file = fs::path(project_root()) / path;
        const bool is_ours = !fs::path(path).is_absolute() && fs::is_regular_file(file);
        json shown = {
            {"path", path}, {"text", is_ours ? json(read_file(file.string())) : json()}, {"lines", json::array()}};
        for (const auto& [number, of_line] : lines) {
            json line = {number};
            for (const Count& c : counts) line.push_back(c.of(of_line));
            if (!is_ours) line.push_back(source_line(path + ":" + std::to_string(number)));
            shown["lines"].push_back(std::move(line));
        }
        auto& all = result["files"];
        all.insert(path == own_file ? all.begin() : all.end(), std::move(shown));
    }
    return result;
}

}  // namespace flashladder

#endif
