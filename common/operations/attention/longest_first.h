// The order of tasks of unlike length, as rung 26 has made it: what takes longest should not begin last.
#pragma once

#include <cuda_runtime.h>

namespace flashladder::attention {

constexpr int buckets = 512;  // and threads of a block

#if defined(__CUDACC__) || !defined(FLASHLADDER_GPU)  // g++ reads this for its constant
/// Puts the tasks find(0) to find(places - 1) that have steps into `plan`, side by side, those with the most steps
/// first, and returns how many they are. Only with more steps than buckets do several lengths share one, in any order.
/// By all threads of a block of `buckets`.
template <class Task, class Find>
__device__ int plan_longest_first(Task* plan, int places, Find find) {
    __shared__ int behind[buckets];  // first how many tasks a bucket has, then the place behind its last one
    __shared__ int longest;
    const int own = threadIdx.x;
    behind[own] = 0;
    if (own == 0) longest = 0;
    __syncthreads();
    for (int x = own; x < places; x += buckets) atomicMax(&longest, find(x).steps);
    __syncthreads();
    const int most = longest, width = most / buckets + 1;
    const auto bucket_of = [&](int steps) { return (most - steps) / width; };
    for (int x = own; x < places; x += buckets)
        if (const int steps = find(x).steps) atomicAdd(&behind[bucket_of(steps)], 1);
    __syncthreads();
    for (int distance = 1; distance < buckets; distance *= 2) {  // sums of 2, 4, 8, ... buckets up to each
        const int before = own >= distance ? behind[own - distance] : 0;
        __syncthreads();
        behind[own] += before;
        __syncthreads();
    }
    const int tasks = behind[buckets - 1];
    __syncthreads();  // all have read it
    for (int x = own; x < places; x += buckets) {
        const Task task = find(x);
        if (task.steps > 0) plan[atomicAdd(&behind[bucket_of(task.steps)], -1) - 1] = task;
    }
    return tasks;
}
#endif

}  // namespace flashladder::attention
