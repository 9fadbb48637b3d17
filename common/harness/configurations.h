// What rung 14 can be built of, and which of that is the fastest for a problem.
#pragma once

#include <array>
#include <climits>
#include <string>

#include "lcsf/schedule.h"
#include "problem.h"

namespace flashladder {

/// A block has so many consumers, each with 64 queries at a time, and so many slots for tiles of B_c keys; O leaves while
/// other queries are there already if there are two slots for them.
struct Configuration {
    int d, consumers, B_c, stages;
    bool turns = true;
    lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    int own_slots = 2;
    int section = lcsf::most_of_L2;  // if causal: heads take turns whose K and V have room in so many percent of L2
    bool shown = false;  // in tables of the lesson alone: never chosen
};

/// tools/tune.py reads this list too: one a line, as they are here.
inline constexpr std::array configurations = {
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4},
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .turns = false, .section = 17},
    Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false, .section = 33},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::fixed, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 1, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 2, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 3, .shown = true},
    // the only one whose tiles fit
    Configuration{.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1},
};

/// "3 x 64 keys, 4 slots, dynamic, turns"
inline std::string to_string(const Configuration& c) {
    return std::to_string(c.consumers) + " x " + std::to_string(c.B_c) + " keys, " + std::to_string(c.stages) +
           (c.stages == 1 ? " slot, " : " slots, ") + to_string(c.schedule) + (c.turns ? ", turns" : "") +
           (c.section == lcsf::most_of_L2 ? "" : ", sections of " + std::to_string(c.section) + "% of L2");
}

/// A row of the table of choices: up to so many keys, this one of `configurations`.
struct Choice {
    int d;
    bool causal;
    int n_k, configuration;
};

}  // namespace flashladder

#include "harness/choices.h"

namespace flashladder {

/// The number of the configuration that is best for a shape of this d.
constexpr int configuration_for(int d, bool causal, int n_k) {
    for (const Choice& choice : choices)
        if (choice.d == d && choice.causal == causal && n_k <= choice.n_k) return choice.configuration;
    return -1;
}
/// Whether it is best for any number of keys.
constexpr bool is_chosen(int configuration, bool causal) {
    for (const Choice& choice : choices)
        if (choice.configuration == configuration && choice.causal == causal) return true;
    return false;
}

}  // namespace flashladder
