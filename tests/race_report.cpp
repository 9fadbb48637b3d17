#include "race_report.h"

#include <doctest/doctest.h>

#include <string>

#include "emulator/device_array.h"
#include "emulator/emulator.h"
#include "test_seed.h"

namespace flashladder {
namespace {

constexpr int most_lines = 8;

/// Looks for races until the end of the scope.
struct WithRaces {
    WithRaces() { emulator::settings().races = true; }
    ~WithRaces() { emulator::settings().races = before; }
    const bool before = emulator::settings().races;
};

/// The report, and the lines that were noted; no report if the launch succeeds.
std::string run(const RacyLaunch& launch, std::uint64_t seed, std::vector<int>& noted) {
    const WithRaces races;
    emulator::reseed(seed);
    const DeviceArray<int> lines(std::vector<int>(most_lines, 0));
    std::string report;
    try {
        launch(lines.data());
    } catch (const CudaError&) {
        report = emulator::last_report();
    }
    noted = lines.download();
    return report;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Of 10 seeds, the first report of one of these kinds; the lines that were noted then.
std::string first_report(const RacyLaunch& launch, const std::vector<std::string>& kinds, std::vector<int>& noted) {
    std::string others;
    for (int i = 0; i < 10; ++i) {
        const std::string report = run(launch, test_seed() + std::uint64_t(i), noted);
        for (const std::string& kind : kinds)
            if (report.starts_with(kind + ": ")) return report;
        if (!report.empty()) others += "\n" + report;
    }
    FAIL_CHECK("10 seeds, and no report of a ", kinds.front(), others);
    return "";
}

}  // namespace

void check_race(const RacyLaunch& launch, const std::vector<int>& lines, const RaceWords& words) {
    std::vector<int> noted;
    const std::string report = first_report(launch, {"race"}, noted);
    INFO(report);
    CHECK(contains(report, "missing    "));
    CHECK(contains(report, words.missing));
    for (const int line : lines)
        CHECK(contains(report, words.file + ":" + std::to_string(noted[static_cast<std::size_t>(line)])));
}

void check_report(const RacyLaunch& launch, const std::vector<std::string>& kinds, const std::string& words) {
    std::vector<int> noted;
    const std::string report = first_report(launch, kinds, noted);
    INFO(report);
    CHECK(contains(report, words));
}

void check_no_race(const RacyLaunch& launch, int seeds) {
    std::vector<int> noted;
    for (int i = 0; i < seeds; ++i) REQUIRE(run(launch, test_seed() + std::uint64_t(i), noted) == "");
}

}  // namespace flashladder
