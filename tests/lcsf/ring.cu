#include "lcsf/ring.h"

#include "../emulator/device_array.h"
#include "cases.h"
#include "launch.h"
#include "ptx/fence.h"
#include "ptx/tma.h"

namespace flashladder {
namespace {

constexpr int warp_size = 32, threads = warp_size * (1 + consumer_warps);

template <int slots>
struct Shared {
    alignas(128) unsigned tile[slots][tile_words];
    lcsf::Ring<slots> ring;
};

/// Until all others have gone on as far as they can. On the emulator one sleep is one turn for somebody else: with no more,
/// by one order in fifty, the producer had no turn before all releases had come, and expecting too few went well.
__device__ void lag() {
    for (int i = 0; i < 100; ++i) __nanosleep(20);
}

/// Warp 0 produces, the others consume. Each in its turn lags: the others are a round ahead, if the ring lets them. Then all
/// but the first lag: one release has come, and no other, which is enough for a producer that expects too few.
template <int slots, bool by_bulk_load, Fault f>
__global__ void ring_kernel(const unsigned* tiles, int n, unsigned* sums) {
    auto& smem = *dynamic_shared<Shared<slots>>();
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    constexpr int more = f == Fault::one_release_too_many_expected ? 1 : 0;
    if (threadIdx.x == 0) {
        smem.ring.init(by_bulk_load ? 1 : warp_size, f == Fault::one_release_expected ? 1 : consumer_warps + more);
        ptx::fence_barrier_init();
    }
    __syncthreads();

    lcsf::RingPosition<slots> at;
    if (warp == 0) {
        if (by_bulk_load && lane > 0) return;
        if (f == Fault::producer_at_the_consumers_parity) at.parity = 1;
        for (int t = 0; t < n; ++t) {
            if (f != Fault::no_wait_for_empty) smem.ring.wait_empty(at);
            unsigned* tile = smem.tile[at.slot];
            const unsigned* source = tiles + t * tile_words;
            if (by_bulk_load) {
                ptx::barrier_arrive_expect_tx(smem.ring.full[at.slot], tile_words * sizeof(unsigned));
                ptx::bulk_load(tile, source, tile_words * sizeof(unsigned), smem.ring.full[at.slot]);
            } else {
                for (int i = lane; i < tile_words; i += warp_size) tile[i] = source[i];
                ptx::barrier_arrive(smem.ring.full[at.slot]);
            }
            if (f != Fault::producer_does_not_advance) at.advance();
        }
        return;
    }
    unsigned sum = 0;
    for (int t = 0; t < n; ++t) {
        if (f != Fault::no_wait_for_full) smem.ring.wait_full(at);
        if (f == Fault::released_early && lane == 0) smem.ring.release(at);
        const int round = t / slots % (consumer_warps + 1);
        if (round == 0 ? warp > 1 : warp == round) lag();
        const unsigned* tile = smem.tile[at.slot];
        for (int i = tile_words - 1 - lane; i >= 0; i -= warp_size) sum = 31 * sum + tile[i];  // others stored it
        if (f != Fault::released_by_a_lane) __syncwarp();
        const int releasing = f == Fault::released_by_two_lanes ? 2 : f == Fault::never_released ? 0 : 1;
        if (f != Fault::released_early && lane < releasing) smem.ring.release(at);
        at.advance();
    }
    sums[(warp - 1) * warp_size + lane] = sum;
}

template <int slots, bool by_bulk_load, Fault f>
Words run(const Words& tiles) {
    const DeviceArray<unsigned> tiles_device(tiles), sums(consumer_warps * warp_size);
    launch_kernel(ring_kernel<slots, by_bulk_load, f>, {1, threads, sizeof(Shared<slots>)}, tiles_device.data(),
                  int(tiles.size() / tile_words), sums.data());
    check_cuda(cudaDeviceSynchronize(), "running a ring");
    return sums.download();
}

template <int slots>
__global__ void positions_kernel(int n, int* positions) {
    lcsf::RingPosition<slots> at;
    for (int t = 0; t < n; ++t, at.advance()) positions[2 * t] = at.slot, positions[2 * t + 1] = int(at.parity);
}

template <int slots>
std::vector<int> positions_of(int n) {
    const DeviceArray<int> positions(2 * n);
    launch_kernel(positions_kernel<slots>, {1, 1}, n, positions.data());
    return positions.download();
}

template <int slots>
void add_case(std::vector<RingCase>& cases) {
    cases.push_back({slots, true, Fault::none, run<slots, true, Fault::none>});
    cases.push_back({slots, false, Fault::none, run<slots, false, Fault::none>});
}

#ifndef FLASHLADDER_GPU
template <Fault f>
void add_fault(std::vector<RingCase>& cases) {
    cases.push_back({2, true, f, run<2, true, f>});
    cases.push_back({2, false, f, run<2, false, f>});
}
#endif

}  // namespace

std::vector<RingCase> ring_cases() {
    std::vector<RingCase> cases;
    add_case<1>(cases), add_case<2>(cases), add_case<3>(cases), add_case<4>(cases), add_case<7>(cases);
    return cases;
}

#ifndef FLASHLADDER_GPU
std::vector<RingCase> faulty_ring_cases() {
    std::vector<RingCase> cases;
    add_fault<Fault::no_wait_for_full>(cases);
    add_fault<Fault::no_wait_for_empty>(cases);
    add_fault<Fault::released_early>(cases);
    add_fault<Fault::released_by_a_lane>(cases);
    add_fault<Fault::released_by_two_lanes>(cases);
    add_fault<Fault::never_released>(cases);
    add_fault<Fault::one_release_expected>(cases);
    add_fault<Fault::one_release_too_many_expected>(cases);
    add_fault<Fault::producer_at_the_consumers_parity>(cases);
    add_fault<Fault::producer_does_not_advance>(cases);
    return cases;
}
#endif

std::vector<Positions> positions() {
    return {{1, positions_of<1>}, {2, positions_of<2>}, {3, positions_of<3>}, {5, positions_of<5>}};
}

}  // namespace flashladder
