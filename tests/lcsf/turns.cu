#include "lcsf/turns.h"

#include "../emulator/device_array.h"
#include "launch.h"
#include "turn_cases.h"

namespace flashladder {
namespace {

constexpr int consumer_threads = 128;

/// Each consumer in its turn reads and writes a word that nothing else protects. One thread does, so that others of its
/// warpgroup are ahead; and each consumer lags now and then.
template <int consumers, bool on, TurnFault f>
__global__ void turns_kernel(int sessions, int turns, int* before) {
    __shared__ int taken;
    const int consumer = threadIdx.x / consumer_threads, thread = threadIdx.x % consumer_threads;
    const lcsf::Turns<consumers, on> turn{consumer};
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    int n = 0;
    for (int session = 0; session < sessions; ++session) {
        if (f != TurnFault::not_opened) turn.open();
        for (int t = 0; t < turns; ++t, ++n) {
            if (f == TurnFault::one_turn_less && consumer == 1 && t == 1) continue;
            if ((n + consumer) % 3 == 0) __nanosleep(2000);
            if (f != TurnFault::wait_forgotten || consumer != 1) turn.wait();
            if (f == TurnFault::passed_early) turn.pass();
            if (thread == consumer_threads / 2) {
                if (on) before[consumer * sessions * turns + n] = taken++;
                else before[consumer * sessions * turns + n] = n;
            }
            if (f != TurnFault::passed_early && (f != TurnFault::pass_forgotten || consumer != 1)) turn.pass();
        }
        for (int lag = 0; consumer == 0 && lag < 50; ++lag) __nanosleep(1000);  // the last one has long passed
        if (f != TurnFault::not_closed) turn.close();
        if (f != TurnFault::sessions_mixed) __syncthreads();
    }
}

template <int consumers, bool on, TurnFault f>
std::vector<int> run(int sessions, int turns) {
    const DeviceArray<int> before(std::vector<int>(consumers * sessions * turns, -1));
    launch_kernel(turns_kernel<consumers, on, f>, {1, consumers * consumer_threads}, sessions, turns, before.data());
    check_cuda(cudaDeviceSynchronize(), "taking turns");
    return before.download();
}

template <int consumers, bool on = true, TurnFault f = TurnFault::none>
TurnCase turn_case() {
    return {consumers, on, f, run<consumers, on, f>};
}

}  // namespace

std::vector<TurnCase> turn_cases() { return {turn_case<2>(), turn_case<3>(), turn_case<4>()}; }
std::vector<TurnCase> turn_cases_off() { return {turn_case<1, false>(), turn_case<3, false>()}; }

#ifndef FLASHLADDER_GPU
std::vector<TurnCase> faulty_turn_cases() {
    return {turn_case<3, true, TurnFault::not_opened>(),     turn_case<3, true, TurnFault::not_closed>(),
            turn_case<3, true, TurnFault::wait_forgotten>(), turn_case<3, true, TurnFault::pass_forgotten>(),
            turn_case<3, true, TurnFault::passed_early>(),   turn_case<3, true, TurnFault::one_turn_less>(),
            turn_case<3, true, TurnFault::sessions_mixed>()};
}
#endif

}  // namespace flashladder
