// The race detector: what it must report of each mutant, and that correct kernels have no races.
// The long run is `build/cpu/bin/races --seeds=200`.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "../test_seed.h"
#include "reports.h"

namespace flashladder {
namespace {

TEST_CASE("races: each kernel has a name of its own, by which its results are found") {
    std::set<std::string> names;
    for (const SyncKernel& kernel : sync_kernels()) CHECK_MESSAGE(names.insert(kernel.name()).second, kernel.name());
}

TEST_CASE("races: each mutant is reported as what it is, by each of ten seeds") {
    int mutants = 0;
    for (const SyncKernel& kernel : sync_kernels()) {
        if (kernel.silent()) continue;
        ++mutants;
        CAPTURE(kernel.name());
        int reported = 0;
        for (int i = 0; i < seeds; ++i) {
            const Outcome outcome = look_for_races(kernel, test_seed() + std::uint64_t(i));
            if (outcome.report.empty()) continue;
            ++reported;
            CHECK_MESSAGE(
                std::ranges::any_of(kernel.verdicts, [&](const Verdict& verdict) { return matches(verdict, outcome); }),
                outcome.report);
        }
        CHECK(reported == seeds);  // whatever the order
    }
    CHECK(mutants >= 24);
}

TEST_CASE("races: where the order decides which report it is, each occurs, but for rare ones") {
    for (const SyncKernel& kernel : sync_kernels()) {
        CAPTURE(kernel.name());
        std::vector<Verdict> missing = kernel.verdicts;
        std::erase_if(missing, [](const Verdict& verdict) { return verdict.rare; });
        for (int i = 0; i < 500 && !missing.empty(); ++i) {
            const Outcome outcome = look_for_races(kernel, test_seed() + std::uint64_t(i));
            std::erase_if(missing, [&](const Verdict& verdict) { return matches(verdict, outcome); });
        }
        CHECK(missing.empty());
    }
}

TEST_CASE("races: correct kernels have none, nor have equivalent mutants, and the result is right") {
    for (const SyncKernel& kernel : sync_kernels()) {
        if (!kernel.silent()) continue;
        CAPTURE(kernel.name());
        CHECK(kernel.mutant.empty() == kernel.equivalent.empty());
        for (int i = 0; i < seeds; ++i) {
            const Outcome outcome = look_for_races(kernel, test_seed() + std::uint64_t(i));
            CHECK(outcome.report == "");
            CHECK(outcome.right);
        }
    }
}

TEST_CASE("races: a block whose only thread that can go on is held has others of its cluster wait") {
    const auto kernels = sync_kernels();
    const auto announce = std::ranges::find(kernels, "announce", &SyncKernel::name);
    REQUIRE(announce != kernels.end());
    for (int i = 0; i < 4000; ++i)  // which was called a deadlock once in about 800
        CHECK(look_for_races(*announce, test_seed() + std::uint64_t(i)).report == "");
}

}  // namespace
}  // namespace flashladder
