// The template of common/lcsf/lcsf.h by a kernel of our own: every task is done once, by all consumers that have work
// in it, on the tiles that it asked for in their order, whatever the block has room for and however it comes by tasks.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "few_multiprocessors.h"
#include "launch.h"
#include "template_cases.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

/// So many tasks, of 1 to `most_steps` steps, of which each consumer has none to do now and then, and once nobody has.
TemplateInputs draw_inputs(Random& random, int consumers, int tasks, int most_steps) {
    TemplateInputs in;
    int steps = 0;
    for (int n = 0; n < tasks; ++n) {
        const int turn = n % (consumers + 3);
        in.tasks.push_back({draw(random, 1, most_steps), turn <= consumers ? turn : -1});
        steps += in.tasks.back().steps;
    }
    in.first = any_bits(random, std::size_t(steps) * step_elements);
    in.second = any_bits(random, std::size_t(steps) * step_elements);
    in.own = any_bits(random, std::size_t(tasks) * consumers * unit_elements);
    return in;
}

/// What template.cu makes of an element (row, column) of a consumer's tile, of a task that begins with this tile.
std::uint16_t mixed(const TemplateCase& c, const TemplateInputs& in, int task, int begin, int consumer, int element) {
    const int in_step = element % step_elements;  // the 8 rows of each warp alike
    const std::uint16_t own = in.own[std::size_t((task * c.consumers + consumer) * unit_elements + element)];
    unsigned mix = 0;
    if (c.own_is_loaded) mix = mix * 41 + own;
    for (int t = begin; t < begin + in.tasks[task].steps; ++t) {
        mix = mix * 31 + in.first[std::size_t(t * step_elements + in_step)];
        mix = mix * (37 + consumer) + in.second[std::size_t(t * step_elements + in_step)];
    }
    if (c.own_is_loaded) mix = mix * 41 + own;
    return std::uint16_t(mix ^ mix >> 16);
}

int blocks_of(const TemplateCase& c, int tasks) {
    const int enough = (tasks + c.teams - 1) / c.teams;
    if (c.schedule == lcsf::Schedule::one_each) return enough;
    return std::min(enough, device_attribute(cudaDevAttrMultiProcessorCount));
}

void check_outputs(const TemplateCase& c, const TemplateInputs& in, const TemplateOutputs& out) {
    const int tasks = int(in.tasks.size());
    int begin = 0, turns = 0, stored = 0;
    bool worked = false;
    std::size_t wrong = 0;
    for (int n = 0; n < tasks; begin += in.tasks[n++].steps)
        for (int consumer = 0; consumer < c.consumers; ++consumer) {
            const bool works = in.tasks[n].idle != consumer && in.tasks[n].idle != c.consumers;
            worked |= works;
            if (works) turns += in.tasks[n].steps, stored += 4;
            CHECK(out.stores[n * c.consumers + consumer] == (works ? 4 : 0));
            for (int i = 0; i < unit_elements; ++i)
                wrong += out.output[std::size_t((n * c.consumers + consumer) * unit_elements + i)] !=
                         (works ? mixed(c, in, n, begin, consumer, i) : untouched);
        }
    CHECK(wrong == 0);
    CHECK(std::accumulate(out.turns.begin(), out.turns.end(), 0) == (c.turns ? turns : 0));
    CHECK(std::accumulate(out.tasks_of.begin(), out.tasks_of.end(), 0) == stored);
    const int blocks = blocks_of(c, tasks);
    if (worked) CHECK(out.blocks == blocks);
    for (int block = blocks; block < tasks; ++block) CHECK(out.tasks_of[block] == 0);
}

/// As many tasks as one block has, fewer than there are multiprocessors, and several for each.
std::vector<int> numbers_of_tasks() {
    const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
    return {1, multiprocessors - 1, 3 * multiprocessors + 2};
}

TEST_CASE("template: every task once, from its own tiles in their order; consumers without work leave no trace") {
    if (!has_sm90a()) return;
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(3);
#endif
    Random random(test_seed());
    for (const TemplateCase& c : template_cases())
        for (const int tasks : numbers_of_tasks()) {
            INFO(c.describe(), ", ", tasks, " tasks");
            const TemplateInputs in = draw_inputs(random, c.consumers, tasks, 6);
            check_outputs(c, in, c.run(in));
        }
}

TEST_CASE("template: a consumer without work loses no tile, though nothing keeps its lanes together") {
    if (!has_sm90a()) return;
    Random random(test_seed());
    const TemplateCase c = fastest_ring();
    TemplateInputs in = draw_inputs(random, c.consumers, 8, 30);
    for (TestTask& task : in.tasks) task.idle = c.consumers;  // nobody computes, so that tiles go through fast
    TemplateOutputs out;
    REQUIRE_NOTHROW(out = c.run(in));
    check_outputs(c, in, out);
}

TEST_CASE("template: the dynamic schedule says what it needs") {
    if (!has_sm90a()) return;
    Random random(test_seed());
    std::string told;
    try {
        run_without_taken(draw_inputs(random, 1, 1, 1));
    } catch (const CudaError& error) {
        told = error.what();
    }
    CHECK_MESSAGE(told.starts_with("LCSF: the dynamic schedule needs `taken`, a word of device memory"), told);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("template: no races, by any of several seeds") {
    const FewMultiprocessors few(2);
    Random random(test_seed());
    for (const TemplateCase& c : template_cases())
        for (int i = 0; i < 3; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const TemplateInputs in = draw_inputs(random, c.consumers, 2 * c.consumers + 1, 5);
            const std::string report = emulator::find_race([&] { c.run(in); });
            CHECK_MESSAGE(report == "", c.describe(), ": ", report);
        }
}
#endif

}  // namespace
}  // namespace flashladder
