// The turns of common/lcsf/turns.h: one consumer after the other, whoever lags; and on the emulator, that without one of
// their parts this would not be so, and is reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../test_seed.h"
#include "turn_cases.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

TEST_CASE("turns: consumers come one after the other, session after session") {
    for (const TurnCase& of : turn_cases())
        for (const int sessions : {1, 2, 3})
            for (const int turns : {1, 2, 9}) {
                INFO(of.consumers, " consumers, ", sessions, " sessions of ", turns, " turns");
                const auto before = of.run(sessions, turns);
                for (int consumer = 0; consumer < of.consumers; ++consumer)
                    for (int t = 0; t < sessions * turns; ++t)
                        CHECK(before[consumer * sessions * turns + t] == t * of.consumers + consumer);
            }
}

TEST_CASE("turns that are off: nobody waits, and a single consumer may take them") {
    for (const TurnCase& of : turn_cases_off()) {
        const auto before = of.run(2, 5);
        for (int i = 0; i < int(before.size()); ++i) CHECK(before[i] == i % 10);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("turns: no races, by any of several seeds") {
    for (const TurnCase& of : turn_cases())
        for (int i = 0; i < 5; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const std::string report = emulator::find_race([&] { of.run(2, 6); });
            CHECK_MESSAGE(report.empty(), of.consumers, " consumers: ", report);
        }
}

/// How reports of a fault may begin.
std::vector<std::string> verdict_of(TurnFault fault) {
    switch (fault) {
        case TurnFault::passed_early: return {"race"};
        case TurnFault::wait_forgotten:
        case TurnFault::not_closed:
        case TurnFault::sessions_mixed: return {"deadlock", "race"};  // a barrier has got arrivals of two turns
        default: return {"deadlock"};
    }
}

TEST_CASE("turns: what is left out or done wrongly is reported, by each of several seeds") {
    for (const TurnCase& of : faulty_turn_cases())
        for (int i = 0; i < 5; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const std::string report = emulator::find_race([&] { of.run(2, 6); });
            INFO("fault ", int(of.fault), ": ", report);
            CHECK(std::ranges::any_of(verdict_of(of.fault), [&](const auto& kind) { return report.starts_with(kind); }));
        }
}
#endif

}  // namespace
}  // namespace flashladder
