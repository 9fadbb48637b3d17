#include "reports.h"

#include <fmt/format.h>

#include <algorithm>

#include "../emulator/device_array.h"
#include "emulator/emulator.h"

namespace flashladder {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The line, and not one that begins with the same figures.
bool names_line(const std::string& report, int line) {
    const std::string place = fmt::format(".cu:{}", line);
    for (std::size_t at = 0; (at = report.find(place, at)) != std::string::npos; at += place.size())
        if (at + place.size() == report.size() || !std::isdigit(report[at + place.size()])) return true;
    return false;
}

}  // namespace

Outcome look_for_races(const SyncKernel& kernel, std::uint64_t seed) {
    emulator::reseed(seed);
    const DeviceArray<int> lines(std::vector<int>(noted_lines, 0));
    Outcome outcome;
    outcome.report = emulator::find_race([&] { outcome.right = kernel.run(lines.data()); });
    std::ranges::copy(lines.download(), outcome.lines);
    return outcome;
}

bool matches(const Verdict& verdict, const Outcome& outcome) {
    // The lines of both sides, of a race; the one behind "source" says nothing more.
    const std::string body =
        verdict.kind == "race" ? outcome.report.substr(0, outcome.report.find("\n  kernel ")) : outcome.report;
    return outcome.kind() == verdict.kind &&
           std::ranges::all_of(verdict.words, [&](const auto& words) { return contains(outcome.report, words); }) &&
           std::ranges::all_of(verdict.lines, [&](int i) { return names_line(body, outcome.lines[i]); });
}

}  // namespace flashladder
