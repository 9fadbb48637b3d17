// The order in which tasks are taken, in device memory: a stage that plans its tasks has it at the start of its
// scratch.
#pragma once

namespace flashladder::block_sparse_attention {

/// A block of queries of a head, and which blocks of keys it goes over: blocks[end - steps] to blocks[end - 1].
struct alignas(16) PlannedTask {
    int block, head;  // of queries; of the heads of all batches, one after the other
    int end, steps;
};

/// Keys of a step, by d. Of d = 64 a block of threads has two tasks at a time, with two consumers for each: with four
/// consumers S has to be narrow.
template <int d>
constexpr int keys_of_step = d == 64 ? 64 : 128;

}  // namespace flashladder::block_sparse_attention
