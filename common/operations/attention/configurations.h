// What rung 14 can be built of, and which of that is the fastest for a problem.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "lcsf/schedule.h"
#include "operations/attention/problem.h"

namespace flashladder::attention {

/// A block has so many consumers, each with 64 queries at a time, and so many slots for tiles of B_c keys; O leaves while
/// other queries are there already if there are two slots for them.
struct Configuration {
    int d, consumers, B_c, stages;
    bool turns = true;
    lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    int own_slots = 2;
    int section = lcsf::most_of_L2;  // if causal: heads take turns whose K and V have room in so many percent of L2
    bool shown = false;  // in tables of the lesson alone: never chosen
    int d_v = 0;         // of V and O; 0: d, as everywhere but in rung 26b
};

/// tools/measure/tune.py reads this list too: one a line, as they are here.
inline constexpr std::array configurations = {
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4},
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4},
    Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 64, .consumers = 2, .B_c = 128, .stages = 4, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 64, .consumers = 1, .B_c = 128, .stages = 4, .turns = false, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false, .section = 33},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 128, .consumers = 1, .B_c = 128, .stages = 2, .turns = false, .schedule = lcsf::Schedule::one_each},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::fixed, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 1, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 2, .shown = true},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 3, .shown = true},
    // the only one whose tiles fit
    Configuration{.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1},
    // as rung 26 is: a table has both
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2},
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2, .turns = false},
    Configuration{.d = 64, .consumers = 2, .B_c = 128, .stages = 4},
};

/// "3 x 64 keys, 4 slots, dynamic, turns"
inline std::string to_string(const Configuration& c) {
    return std::to_string(c.consumers) + " x " + std::to_string(c.B_c) + " keys, " + std::to_string(c.stages) +
           (c.stages == 1 ? " slot, " : " slots, ") + to_string(c.schedule) + (c.turns ? ", turns" : "") +
           (c.section == lcsf::most_of_L2 ? "" : ", sections of " + std::to_string(c.section) + "% of L2");
}

/// What a launch takes, in microseconds: once `launch`; then of each task that a multiprocessor has, one after the other,
/// `task` and of each of its steps `step`. Fitted to times by tools/measure/tune.py.
struct ConfigurationCost {
    int configuration;
    bool causal;
    double launch, task, step;
};

}  // namespace flashladder::attention

#include "operations/attention/costs.h"

namespace flashladder::attention {

/// How long tasks take, one after the other, in tasks of all consumers: `large` such ones, and behind them `small` ones, each
/// of which takes `part` as long. A multiprocessor that is done takes the next one.
constexpr double rounds_of(std::int64_t large, std::int64_t small, double part, std::int64_t multiprocessors) {
    const std::int64_t busy = large % multiprocessors, idle = multiprocessors - busy;  // when all have had as many
    double end = 0, by_idle = part, by_busy = 1 + part;
    for (std::int64_t done = 0; done < small;) {
        double& next = by_idle <= by_busy ? by_idle : by_busy;
        done += by_idle <= by_busy ? idle : busy;
        end = next, next += part;
    }
    return static_cast<double>(large / multiprocessors) + std::max(end, busy > 0 ? 1.0 : 0.0);
}

/// The queries of a head as tasks of all consumers, of which the first `low` have one unit of 64 queries less; how long all
/// heads' tasks take, in such tasks, if all keys are seen.
struct QueryTasks {
    int tasks, low;
    double rounds;
    int late = 0;  // of the first tasks, that come behind those of all heads
};

/// What a task with one unit less takes of one with all: assumed, a little more than its part of the products, since what a
/// softmax waits for is hidden by one consumer less.
constexpr double part_with_one_less(int consumers) { return consumers == 2 ? 0.7 : consumers == 3 ? 0.76 : 0.8; }

/// As few tasks as can be. But where rounds are few, and the last one leaves multiprocessors without work, some more tasks of
/// one unit less, if they would fill it. A fixed schedule gives them to whoever has a long one, too.
constexpr QueryTasks query_tasks(const Configuration& c, const AttentionShape& s, int multiprocessors) {
    const std::int64_t units = (std::int64_t(s.n_q) + 63) / 64, heads = std::int64_t(s.heads) * s.batch;
    std::int64_t tasks = (units + c.consumers - 1) / c.consumers, low = tasks * c.consumers - units;
    QueryTasks best = {int(tasks), int(std::min(low, tasks)), double((tasks * heads + multiprocessors - 1) / multiprocessors)};
    constexpr int few = 8;
    if (s.causal || best.rounds > few || c.consumers == 1 || c.schedule == lcsf::Schedule::fixed) return best;
    for (; 2 * low <= tasks && low * heads <= 2 * multiprocessors; ++tasks, low += c.consumers) {
        const double rounds =
            rounds_of((tasks - low) * heads, low * heads, part_with_one_less(c.consumers), multiprocessors);
        if (rounds < best.rounds) best = {int(tasks), int(low), rounds, int(low)};
    }
    return best;
}

/// How long a launch may take by a configuration, in microseconds. If not causal, some multiprocessor has more tasks than
/// others. If causal the longest come first: no launch is shorter than one of these, and in many tasks all multiprocessors have
/// as much to do.
constexpr double expected_time(const ConfigurationCost& cost, const AttentionShape& s, int multiprocessors) {
    const Configuration& c = configurations[static_cast<std::size_t>(cost.configuration)];
    const auto divide_up = [](std::int64_t x, std::int64_t y) { return (x + y - 1) / y; };
    const std::int64_t B_r = std::int64_t(64) * c.consumers, n_q = s.n_q, n_k = s.n_k;
    const double longest = static_cast<double>(divide_up(n_k, c.B_c));
    const auto time = [&](double rounds, double steps) {
        return cost.launch + rounds * (cost.task + steps * cost.step);
    };
    const QueryTasks of_head = query_tasks(c, s, multiprocessors);
    if (!s.causal) return time(of_head.rounds, longest);
    const std::int64_t tasks = std::int64_t(of_head.tasks) * s.heads * s.batch;
    // From the first task of a head that sees a key to the last one, each has as much more to do as the one before.
    const std::int64_t seen_by_all = std::max<std::int64_t>(0, n_k - n_q);
    const double without_keys = static_cast<double>(std::max<std::int64_t>(0, n_q - n_k)) / static_cast<double>(n_q);
    const double shortest = static_cast<double>(divide_up(std::min(n_k, seen_by_all + B_r), c.B_c));
    const double mean = without_keys + (1 - without_keys) * (shortest + longest) / 2;
    return std::max(time(1, longest), time(static_cast<double>(tasks) / multiprocessors, mean));
}

/// The number of the configuration that is expected to be the fastest, of those for which is_compiled(number); -1 if there is
/// none of this d.
template <class IsCompiled>
constexpr int configuration_for(const AttentionShape& s, int multiprocessors, IsCompiled is_compiled) {
    const ConfigurationCost* best = nullptr;
    for (const ConfigurationCost& cost : configuration_costs) {
        const Configuration& c = configurations[static_cast<std::size_t>(cost.configuration)];
        if (c.d != s.head_dim || cost.causal != s.causal || !is_compiled(cost.configuration)) continue;
        if (!best || expected_time(cost, s, multiprocessors) < expected_time(*best, s, multiprocessors)) best = &cost;
    }
    return best ? best->configuration : -1;
}
/// The same of all.
constexpr int configuration_for(const AttentionShape& s, int multiprocessors) {
    return configuration_for(s, multiprocessors, [](int) { return true; });
}
/// Whether it is for any problem.
constexpr bool is_chosen(int configuration, bool causal) {
    for (const ConfigurationCost& cost : configuration_costs)
        if (cost.configuration == configuration && cost.causal == causal) return true;
    return false;
}

}  // namespace flashladder::attention
