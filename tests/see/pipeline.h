// A pipeline of lcsf::Ring and lcsf::Turns whose loads, products and exponentials take so many clocks each.
#pragma once

#include <vector>

namespace flashladder {

/// How steps go: one thing after the other, as in rungs 10 and 11; S of a block and P V of the block before begun together,
/// as in rung 12; or by warps that load for themselves, as in rung 07.
enum class Steps { one_after_the_other, together, own_loads };

struct Plan {
    int consumers, stages;
    Steps steps_as = Steps::one_after_the_other;
    bool turns = false, within = false;  // of `together`: turns; the softmax under the warpgroup's own P V
    bool persistent = false;             // else the next task begins when all have ended the one before
    int tasks = 1, steps = 1;            // steps of a task
    int latency = 1, pace = 0;           // of a tile: clocks until it comes, and for which it keeps the way busy
    int S = 1, softmax = 1, PV = 1;
};

enum class Did { wait_K, wait_V, turn, S, softmax, PV, slot_K, slot_V, ask_K, ask_V };
/// What an actor did from clock `from` to clock `to`; `step` counts through all tasks. Of S and P V: from the wait for them
/// on. Of a load: from when it is asked for until it comes.
struct Event {
    Did what;
    int step, from, to;
};
/// When the tensor cores had a product: from its first clock to its last.
struct Product {
    int consumer, step, is_PV, first, end;
};
struct Timeline {
    std::vector<std::vector<Event>> consumers;
    std::vector<Event> loader;
    std::vector<Product> products;  // as they ended
};

/// Runs it on the emulator. A clock ends when nobody can go on.
Timeline run_pipeline(const Plan& plan);

}  // namespace flashladder
