// Host functions around the kernels of tasks.cu: inputs in, result out.
#pragma once

#include <vector>

#include "operations/attention/problem.h"

namespace flashladder {

struct Places {
    std::vector<int> blocks, heads, batches;  // by number of the task
};
/// What TaskOrder says of every task.
Places places(int T_r, int heads, int batches, int section, bool last_block_first, int late = 0);

/// What attention::task_order() says: blocks of queries, heads, batches, heads that take turns.
struct Order {
    int T_r, heads, batches, section;
    bool operator==(const Order&) const = default;
};
Order order_of(const attention::AttentionShape& shape, int B_r);

constexpr int task_warps = 3;  // that consume

/// What the warps of a grid have done, each block behind the other and each warp behind the other.
struct Taken {
    std::vector<int> done;   // (tasks, task_warps): lanes that came to a task
    std::vector<int> order;  // (blocks, task_warps, tasks): the tasks of a warp, in its order; then -1
};
/// A grid of so many blocks takes all tasks.
Taken take_tasks(int tasks, int blocks);

}  // namespace flashladder
