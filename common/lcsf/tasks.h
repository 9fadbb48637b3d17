// The tasks of a persistent grid (rung 11): which one has which number, and how blocks come by them.
#pragma once

#include "tile/divisor.h"
#include "lcsf/ring.h"
#include "lcsf/schedule.h"

namespace flashladder::lcsf {

/// Tasks are T_r blocks of queries of each head, in each batch. They come section by section; within one, its heads
/// take turns. The last section may be smaller.
struct TaskOrder {
    int T_r, heads, batches;
    int section;  // heads that take turns, of all batches: at least 1

    struct Place {
        int block, head, batch;
    };

    __host__ __device__ int tasks() const { return T_r * heads * batches; }
    /// Where task n is, for n from 0 to tasks() - 1. `last_block_first` is for causal ones, which take the longer the
    /// later their queries are: what takes longest should not begin last.
    template <bool last_block_first>
    __device__ __forceinline__ Place place(int n) const {
        const int tasks_of_section = section * T_r, rest = n % tasks_of_section;
        const int first_head = n / tasks_of_section * section, turns = min(section, heads * batches - first_head);
        const int block = rest / turns, head = first_head + rest % turns;
        return {last_block_first ? T_r - 1 - block : block, head % heads, head / heads};
    }
};

/// trial: the same by divisors. Low blocks of all heads behind all others, if `apart`.
struct QuickOrder {
    int T_r, heads, all, section, sections_tasks, last_first, apart;  // last_first: first head of the last section
    Divisor by_section_tasks, by_section, by_last, by_heads;
    QuickOrder(int T_r, int heads, int batches, int section)
        : T_r(T_r), heads(heads), all(heads * batches), section(section), sections_tasks(section * T_r),
          last_first((heads * batches - 1) / section * section), by_section_tasks(unsigned(section * T_r > 0 ? section * T_r : 1)),
          by_section(unsigned(section)), by_last(unsigned(heads * batches - (heads * batches - 1) / section * section)),
          by_heads(unsigned(heads)) {}
    __host__ __device__ int tasks() const { return T_r * all; }
    __device__ __forceinline__ TaskOrder::Place place(int n) const {
        const int s = by_section_tasks.quotient(n), rest = n - s * sections_tasks, first_head = s * section;
        const bool last = first_head == last_first;
        const int block = (last ? by_last : by_section).quotient(rest), head = first_head + rest - block * (last ? all - last_first : section);
        const int batch = by_heads.quotient(head);
        return {T_r - 1 - block, head - batch * heads, batch};
    }
};

/// How the producer of a block tells its consumers which tasks are theirs; lives in shared memory.
struct TaskSlots {
    Ring<2> ring;
    int task[2];

    /// By one thread; then fence_barrier_init() and a barrier of the block. `warps` consume.
    __device__ __forceinline__ void init(unsigned warps) { ring.init(1, warps); }
};

/// The dynamic schedule, the producer's half: one thread. The first task of a team is its own number, of all teams of all
/// blocks; then it takes whichever nobody has taken yet. It goes on while `task` is one.
struct TaskProducer {
    int task;

    __device__ __forceinline__ explicit TaskProducer(int team = 0, int teams = 1)
        : task(blockIdx.x * teams + team), teams_of_grid_(gridDim.x * teams) {}

    /// Takes the next one, at the start of this one: the answer has time to come. `taken` is a word of device memory, 0
    /// at the launch.
    __device__ __forceinline__ void ask(unsigned* taken) { next_ = teams_of_grid_ + atomicAdd(taken, 1); }
    /// Tells the consumers, that there is no further one too, and goes on to it.
    __device__ __forceinline__ void advance(TaskSlots& slots) {
        slots.ring.wait_empty(at_);
        slots.task[at_.slot] = task = next_;
        ptx::barrier_arrive(slots.ring.full[at_.slot]);
        at_.advance();
    }
    /// The same by any schedule.
    template <Schedule schedule>
    __device__ __forceinline__ void next(TaskSlots& slots, int tasks) {
        if constexpr (schedule == Schedule::dynamic) advance(slots);
        if constexpr (schedule == Schedule::fixed) task += teams_of_grid_;
        if constexpr (schedule == Schedule::one_each) task = tasks;
    }

private:
    int teams_of_grid_, next_ = 0;
    RingPosition<2> at_;
};

/// The consumers' half: all lanes of a warp, in each warp.
struct TaskConsumer {
    int task;

    __device__ __forceinline__ explicit TaskConsumer(int team = 0, int teams = 1)
        : task(blockIdx.x * teams + team), teams_of_grid_(gridDim.x * teams) {}

    /// Goes on to the next task, once the producer has said which.
    __device__ __forceinline__ void advance(TaskSlots& slots) {
        slots.ring.wait_full(at_);
        task = slots.task[at_.slot];
        __syncwarp();  // all lanes have read it
        if (threadIdx.x % 32 == 0) slots.ring.release(at_);
        at_.advance();
    }
    /// The same by any schedule.
    template <Schedule schedule>
    __device__ __forceinline__ void next(TaskSlots& slots, int tasks) {
        if constexpr (schedule == Schedule::dynamic) advance(slots);
        if constexpr (schedule == Schedule::fixed) task += teams_of_grid_;
        if constexpr (schedule == Schedule::one_each) task = tasks;
    }

private:
    int teams_of_grid_;
    RingPosition<2> at_;
};

}  // namespace flashladder::lcsf
