// The tasks of a persistent grid (rung 11): which one has which number, and how blocks come by them.
#pragma once

#include <algorithm>

#include "lcsf/ring.h"
#include "lcsf/schedule.h"
#include "tile/divisor.h"

namespace flashladder::lcsf {

/// Tasks are T_r blocks of queries of each head, in each batch. They come section by section; within one, its heads
/// take turns. The last section may be smaller. But the first `late` blocks of each head, which may be smaller, come behind
/// all others, whatever their head: block `late` - 1 of each head, then the one before.
struct TaskOrder {
    int T_r, heads, batches;
    int section;  // heads that take turns, of all batches: at least 1
    int late;

    struct Place {
        int block, head, batch;
    };

    TaskOrder(int T_r, int heads, int batches, int section, int late = 0)
        : T_r(T_r), heads(heads), batches(batches), section(section), late(late), all_(heads * batches),
          first_head_of_last_((all_ - 1) / section * section), by_tasks_(std::max(section * (T_r - late), 1)),
          by_heads_(heads), by_all_(all_), by_turns_(section), by_turns_of_last_(all_ - first_head_of_last_) {}

    __host__ __device__ int tasks() const { return T_r * heads * batches; }
    /// Where task n is, for n from 0 to tasks() - 1. `last_block_first`: causal ones take the longer the
    /// later their queries are, and what takes longest should not begin last.
    template <bool last_block_first>
    __device__ __forceinline__ Place place(int n) const {
        const int early = T_r - late, number = n - early * all_;  // of those that come last
        int block, head;
        if (number < 0) {
            const int section_of_n = by_tasks_.quotient(n), rest = n - section_of_n * section * early;
            const int first_head = section_of_n * section;
            const Divisor& by_turns = first_head == first_head_of_last_ ? by_turns_of_last_ : by_turns_;
            const int turn = by_turns.quotient(rest);
            block = last_block_first ? T_r - 1 - turn : late + turn;
            head = first_head + rest - turn * int(by_turns.number);
        } else {
            const int turn = by_all_.quotient(number);
            block = late - 1 - turn, head = number - turn * all_;
        }
        const int batch = by_heads_.quotient(head);
        return {block, head - batch * heads, batch};
    }

private:
    int all_, first_head_of_last_;  // section
    Divisor by_tasks_, by_heads_, by_all_, by_turns_, by_turns_of_last_;
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
    unsigned before = 0;  // tasks of this team

    __device__ __forceinline__ explicit TaskProducer(int team = 0, int teams = 1)
        : task(blockIdx.x * teams + team), teams_(teams) {}

    /// Takes the next one, before it is needed: the answer needs time to come. `taken` is a word of device memory, 0 at the
    /// launch.
    __device__ __forceinline__ void ask(unsigned* taken) {
        unsigned blocks = gridDim.x;
#ifdef __CUDACC__
        asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));  // or a register would keep it from task to task
#endif
        next_ = int(blocks * teams_) + atomicAdd(taken, 1);
    }
    /// Tells the consumers, that there is no further one too, and goes on to it.
    __device__ __forceinline__ void advance(TaskSlots& slots) {
        const RingPosition<2> at = {int(before % 2), before / 2 % 2};
        slots.ring.wait_empty(at);
        slots.task[at.slot] = task = next_;
        ptx::barrier_arrive(slots.ring.full[at.slot]);
        ++before;
    }
    /// The same by any schedule.
    template <Schedule schedule>
    __device__ __forceinline__ void next(TaskSlots& slots, int tasks) {
        if constexpr (schedule == Schedule::dynamic) advance(slots);
        if constexpr (schedule == Schedule::fixed) task += int(gridDim.x * teams_), ++before;
        if constexpr (schedule == Schedule::one_each) task = tasks, ++before;
    }

private:
    int teams_, next_ = 0;
};

/// The consumers' half: all lanes of a warp, in each warp.
struct TaskConsumer {
    int task;
    unsigned before = 0;  // tasks of this team

    __device__ __forceinline__ explicit TaskConsumer(int team = 0, int teams = 1)
        : task(blockIdx.x * teams + team), teams_(teams) {}

    /// Goes on to the next task, once the producer has said which.
    __device__ __forceinline__ void advance(TaskSlots& slots) {
        const RingPosition<2> at = {int(before % 2), before / 2 % 2};
        slots.ring.wait_full(at);
        task = slots.task[at.slot];
        __syncwarp();  // all lanes have read it
        if (threadIdx.x % 32 == 0) slots.ring.release(at);
        ++before;
    }
    /// The same by any schedule.
    template <Schedule schedule>
    __device__ __forceinline__ void next(TaskSlots& slots, int tasks) {
        if constexpr (schedule == Schedule::dynamic) advance(slots);
        if constexpr (schedule == Schedule::fixed) task += int(gridDim.x * teams_), ++before;
        if constexpr (schedule == Schedule::one_each) task = tasks, ++before;
    }

private:
    int teams_;
};

}  // namespace flashladder::lcsf
