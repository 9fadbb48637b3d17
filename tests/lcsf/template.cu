// A kernel for the template that is neither attention nor a matrix product: whatever comes, in its order, is mixed into
// a number for each element, so that a tile too many, too few, too late or of another task is seen.
//
// Supports  sm_90a
#include "lcsf/lcsf.h"

#include "../emulator/device_array.h"
#include "template_cases.h"
#include "tile/global_tile.h"

namespace flashladder {
namespace {

constexpr int warp_rows = 8;

/// Everything a task does to an element: see mixed() in template.cpp.
template <int consumers_, int stages_, int own_slots_, bool own_is_loaded_, bool turns_, lcsf::Schedule schedule_,
          bool keeps = false, int teams_ = 1>
struct Mix {
    static constexpr int consumers = consumers_, stages = stages_, own_slots = own_slots_;
    static constexpr bool own_is_loaded = own_is_loaded_, turns = turns_;
    static constexpr int teams = teams_;
    static constexpr lcsf::Schedule schedule = schedule_;
    static_assert(!keeps || stages >= 2, "what is kept needs a slot beside what comes");
    using Layout = tile::Swizzled<128>;
    using FirstTile = tile::SharedTile<__half, step_rows, tile_columns, Layout>;
    using SecondTile = FirstTile;
    using OwnTile = tile::SharedTile<__half, unit_rows, tile_columns, Layout>;
    using OutputTile = tile::SharedTile<__half, warp_rows, tile_columns, Layout>;
    using Consumer = lcsf::Consumer<Mix>;
    using Place = lcsf::RingPosition<stages>;

    struct Problem {
        tile::TensorMap<FirstTile> first, second;
        tile::TensorMap<OwnTile> own;
        tile::TensorMap<OutputTile> output;
        int tasks;
        const int *steps, *idle, *begin;  // of each task; begin: its first tile
        int *stores, *turns_of, *tasks_of, *blocks;
    };
    struct Task {
        int number, steps, idle, begin;
    };
    struct State {
        unsigned mix[warp_rows][2];  // a lane has two columns
        Place first, second;         // kept from the step before
    };

    __host__ __device__ static int tasks(const Problem& p) { return p.tasks; }
    __device__ static Task task(const Problem& p, int n) { return {n, p.steps[n], p.idle[n], p.begin[n]}; }
    __device__ static int steps(const Task& task) { return task.steps; }

    __device__ static void load_first(FirstTile tile, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(tile, p.first, full, (task.begin + t) * step_rows, 0, 0);
    }
    __device__ static void load_second(SecondTile tile, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(tile, p.second, full, (task.begin + t) * step_rows, 0, 0);
    }
    __device__ static int own_row(const Task& task, int consumer) {
        return (task.number * consumers + consumer) * unit_rows;
    }
    __device__ static void load_own(OwnTile tile, ptx::Barrier& full, const Problem& p, const Task& task,
                                    int consumer) {
        tile::load(tile, p.own, full, own_row(task, consumer), 0, 0);
    }

    __device__ static bool works(const Task& task, int consumer) {
        return task.idle != consumer && task.idle != consumers;
    }
    __device__ static void begin(State& s, Consumer& c, const Problem& p, const Task&) {
        for (auto& row : s.mix) row[0] = row[1] = 0;
        mix_own(s, c);
        step<true>(s, c, p);
    }
    __device__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {
        for (int t = 1; t < task.steps; ++t) step<false>(s, c, p);
    }
    template <bool first_of_task>
    __device__ static void step(State& s, Consumer& c, const Problem& p) {
        const FirstTile first = c.first.take();
        c.turns.wait();
        const int team = (threadIdx.x / lcsf::warpgroup - 1) / consumers;
        if (turns && threadIdx.x % lcsf::warpgroup == 1)
            ++p.turns_of[blockIdx.x * teams + team];  // nothing but turns protects it
        mix(s, first, 31);
        c.turns.pass();
        const Place first_place = c.first.keep();
        if (!keeps) give_back(c.first, first_place);
        mix(s, c.second.take(), 37 + c.number);
        const Place second_place = c.second.keep();
        if (!keeps) give_back(c.second, second_place);
        if (keeps && !first_of_task) give_back_kept(s, c);
        s.first = first_place, s.second = second_place;
    }
    template <class Reader>
    __device__ static void give_back(Reader& reader, const Place& place) {
        __syncwarp();
        reader.give_back(place);
    }
    __device__ static void give_back_kept(State& s, Consumer& c) {
        give_back(c.first, s.first);
        give_back(c.second, s.second);
    }
    __device__ static void finish(State& s, Consumer& c, const Problem&, const Task&) {
        if (keeps) give_back_kept(s, c);
        mix_own(s, c);  // it is still there
        for_each(output_of_warp(c), [&](int row, int e, auto& element) {
            element = static_cast<std::uint16_t>(s.mix[row][e] ^ s.mix[row][e] >> 16);
        });
    }
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        tile::store(p.output, output_of_warp(c), own_row(task, c.number) + c.warp * warp_rows, 0, 0);
        atomicAdd(p.stores + task.number * consumers + c.number, 1);
        atomicAdd(p.tasks_of + blockIdx.x, 1);
        atomicMax(p.blocks, static_cast<int>(gridDim.x));
    }

    __device__ static OutputTile output_of_warp(const Consumer& c) {
        return {c.own().data + c.warp * OutputTile::elements};
    }
    template <class Use>
    __device__ static void for_each(const OutputTile& tile, Use use) {
        for (int row = 0; row < warp_rows; ++row)
            for (int e = 0; e < 2; ++e)
                use(row, e, *reinterpret_cast<std::uint16_t*>(tile.at(row, threadIdx.x % 32 * 2 + e)));
    }
    __device__ static void mix(State& s, const OutputTile& tile, unsigned factor) {
        for_each(tile, [&](int row, int e, auto& element) { s.mix[row][e] = s.mix[row][e] * factor + element; });
    }
    __device__ static void mix_own(State& s, const Consumer& c) {
        if (own_is_loaded) mix(s, output_of_warp(c), 41);
    }
};

template <class Tile>
tile::TensorMap<Tile> map_of(const DeviceArray<std::uint16_t>& tensor, std::size_t elements) {
    return tile::make_tensor_map<Tile>(tensor.data(), {tile_columns, tile_columns, tile_columns}, 1, 1,
                                       int(elements / tile_columns));
}

template <class Kernel, bool gives_taken = true>
TemplateOutputs run(const TemplateInputs& in) {
    std::vector<int> steps, idle, begin;
    int all = 0;
    for (const TestTask& task : in.tasks) {
        steps.push_back(task.steps), idle.push_back(task.idle), begin.push_back(all);
        all += task.steps;
    }
    const std::size_t n = in.tasks.size();
    const std::vector<int> zeros(n), zeros_of_teams(n + Kernel::teams), zeros_of_consumers(n * Kernel::consumers);
    const DeviceArray<std::uint16_t> first(in.first), second(in.second), own(in.own),
        output(Bits(in.own.size(), untouched));
    const DeviceArray<int> steps_device(steps), idle_device(idle), begin_device(begin), stores(zeros_of_consumers),
        turns(zeros_of_teams), tasks_of(zeros), blocks(std::vector<int>{0});
    const DeviceArray<unsigned> taken(std::vector<unsigned>{12345});  // whatever was there
    lcsf::launch<Kernel>(
        {map_of<typename Kernel::FirstTile>(first, in.first.size()),
         map_of<typename Kernel::SecondTile>(second, in.second.size()),
         map_of<typename Kernel::OwnTile>(own, in.own.size()),
         map_of<typename Kernel::OutputTile>(output, in.own.size()), int(n), steps_device.data(), idle_device.data(),
         begin_device.data(), stores.data(), turns.data(), tasks_of.data(), blocks.data()},
        gives_taken && Kernel::schedule == lcsf::Schedule::dynamic ? taken.data() : nullptr, nullptr);
    check_cuda(cudaDeviceSynchronize(), "running a kernel of the template");
    return {output.download(), stores.download(), turns.download(), tasks_of.download(), blocks.download()[0]};
}

template <int consumers, int stages, int own_slots, bool own_is_loaded, bool turns, lcsf::Schedule schedule,
          bool keeps = false, int teams = 1>
TemplateCase template_case() {
    return {consumers, stages, own_slots, own_is_loaded, turns, schedule, keeps, teams,
            run<Mix<consumers, stages, own_slots, own_is_loaded, turns, schedule, keeps, teams>>};
}

}  // namespace

std::vector<TemplateCase> template_cases() {
    using enum lcsf::Schedule;
    return {template_case<1, 1, 1, true, false, one_each>(),    template_case<1, 2, 2, true, false, dynamic>(),
            template_case<2, 1, 1, true, false, fixed>(),       template_case<2, 2, 2, true, true, dynamic>(),
            template_case<2, 4, 1, false, true, one_each>(),    template_case<2, 2, 2, false, false, dynamic, true>(),
            template_case<3, 1, 2, true, true, dynamic>(),      template_case<3, 2, 1, false, false, fixed>(),
            template_case<3, 4, 2, true, false, one_each>(),    template_case<3, 4, 1, true, true, fixed, true>(),
            template_case<4, 1, 2, false, true, fixed>(),       template_case<4, 2, 1, true, false, dynamic>(),
            template_case<4, 4, 2, true, true, dynamic, true>(),
            template_case<2, 2, 2, true, true, dynamic, false, 2>(), template_case<1, 1, 1, true, false, fixed, false, 3>(),
            template_case<2, 1, 2, false, true, one_each, false, 2>()};
}
TemplateOutputs run_without_taken(const TemplateInputs& in) {
    return run<Mix<1, 2, 2, true, false, lcsf::Schedule::dynamic>, false>(in);
}
TemplateCase fastest_ring() { return template_case<2, 1, 1, false, false, lcsf::Schedule::one_each>(); }

bool has_sm90a() { return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9; }

}  // namespace flashladder
