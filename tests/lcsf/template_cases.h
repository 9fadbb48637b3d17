// Host functions around the kernels of template.cu: inputs in, result out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lcsf/schedule.h"

namespace flashladder {

using Bits = std::vector<std::uint16_t>;

constexpr int step_rows = 8, tile_columns = 64;  // of what a step needs
constexpr int unit_rows = 32;                    // of a consumer's tile: 8 of each warp
constexpr int step_elements = step_rows * tile_columns, unit_elements = unit_rows * tile_columns;
constexpr std::uint16_t untouched = 0xABCD;

/// A task of a test: how many steps it has, and which consumer has no work in it, if any has none.
struct TestTask {
    int steps, idle;  // -1: all work; `consumers`: none does
};

struct TemplateInputs {
    std::vector<TestTask> tasks;
    Bits first, second;  // a tile for each step of each task, (steps of all tasks, 8, 64)
    Bits own;            // (tasks, consumers, 32, 64)
};
struct TemplateOutputs {
    Bits output;               // like own; what nobody has stored is `untouched`
    std::vector<int> stores;   // (tasks, consumers): by how many warps
    std::vector<int> turns;    // of a team: counted by whose turn it was; 0 without turns
    std::vector<int> tasks_of; // of a block: how many were stored, times consumers and warps
    int blocks;
};

struct TemplateCase {
    int consumers, stages, own_slots;
    bool own_is_loaded, turns;
    lcsf::Schedule schedule;
    bool keeps;  // gives tiles back a step later, by their places
    int teams;   // of a block
    TemplateOutputs (*run)(const TemplateInputs& inputs);

    std::string describe() const {
        return std::to_string(consumers) + " consumers, " + std::to_string(stages) + " stages, " +
               std::to_string(own_slots) + " own slots, " + (own_is_loaded ? "loaded" : "not loaded") +
               (turns ? ", turns, " : ", no turns, ") + to_string(schedule) + (keeps ? ", keeps" : "") +
               (teams > 1 ? ", " + std::to_string(teams) + " teams" : "");
    }
};
std::vector<TemplateCase> template_cases();
/// Two consumers, one slot, no turns: what finds lanes that miss a tile.
TemplateCase fastest_ring();
/// One consumer by the dynamic schedule, which is not given its word of device memory.
TemplateOutputs run_without_taken(const TemplateInputs& inputs);
bool has_sm90a();

}  // namespace flashladder
