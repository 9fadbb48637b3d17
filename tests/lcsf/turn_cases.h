// Host functions around the kernels of turns.cu: inputs in, result out.
#pragma once

#include <vector>

namespace flashladder {

/// What is left out or done wrongly. All but the first are run on the emulator alone.
enum class TurnFault { none, not_opened, not_closed, wait_forgotten, pass_forgotten, passed_early, one_turn_less, sessions_mixed };

struct TurnCase {
    int consumers;
    bool on;  // else nobody waits for anybody
    TurnFault fault;
    /// So many turns, in so many sessions, each between open() and close(). Of each turn, in the order of consumers, and
    /// for each of them of its turns: how many turns all had taken before.
    std::vector<int> (*run)(int sessions, int turns);
};
std::vector<TurnCase> turn_cases();
std::vector<TurnCase> turn_cases_off();
std::vector<TurnCase> faulty_turn_cases();

}  // namespace flashladder
