// Attention by one warp that loads (TMA) and two warpgroups that multiply (wgmma), through a ring of two stages of K
// and V: a kernel that uses all that common/ptx has for Hopper at once. It is a test, and explains nothing; chapters
// do.
#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/elect.h"
#include "ptx/ex2.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "ptx/tensor_map.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using T = __nv_bfloat16;

constexpr int warpgroup = 128, warp = 32;
constexpr int consumers = 2, stages = 2;
constexpr int B_r = 64, B_c = 64, d = 128;  // rows of Q for each consumer, rows of K and V, columns
constexpr int panel_columns = 64;           // 128 bytes: as wide as the swizzle
constexpr int panels = d / panel_columns;
constexpr unsigned panel_bytes = 64 * 128;  // 64 rows
constexpr unsigned group_bytes = 8 * 128;   // eight rows, where the swizzle repeats
constexpr unsigned tile_bytes = panels * panel_bytes;

struct Shared {
    alignas(1024) unsigned char Q[consumers][tile_bytes];  // and, in the end, O
    unsigned char K[stages][tile_bytes], V[stages][tile_bytes];
    ptx::Barrier q_full, k_full[stages], v_full[stages], k_empty[stages], v_empty[stages];
};

__global__ void __launch_bounds__((1 + consumers) * warpgroup, 1)
    attention_kernel(const __grid_constant__ CUtensorMap Q, const __grid_constant__ CUtensorMap K,
                     const __grid_constant__ CUtensorMap V, const __grid_constant__ CUtensorMap O, int N,
                     float scale_log2) {
    auto& smem = *dynamic_shared<Shared>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    const int head = blockIdx.y, batch = blockIdx.z, first_row = blockIdx.x * consumers * B_r;
    const int tiles = (N + B_c - 1) / B_c;
    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.q_full, 1);
        for (int stage = 0; stage < stages; ++stage) {
            ptx::barrier_init(smem.k_full[stage], 1);
            ptx::barrier_init(smem.v_full[stage], 1);
            ptx::barrier_init(smem.k_empty[stage], consumers);
            ptx::barrier_init(smem.v_empty[stage], consumers);
        }
        ptx::fence_barrier_init();
    }
    __syncthreads();

    if (role == 0) {
        ptx::registers_decrease<40>();
        if (threadIdx.x / warp == 0 && ptx::elect_one()) {
            const auto load = [&](unsigned char* tile, const CUtensorMap& map, ptx::Barrier& full, int row) {
                for (int panel = 0; panel < panels; ++panel)
                    ptx::tma_load(tile + panel * panel_bytes, map, full, {panel * panel_columns, row, head, batch});
            };
            ptx::barrier_arrive_expect_tx(smem.q_full, consumers * tile_bytes);
            for (int consumer = 0; consumer < consumers; ++consumer)
                load(smem.Q[consumer], Q, smem.q_full, first_row + consumer * B_r);
            for (int j = 0; j < tiles; ++j) {
                const int stage = j % stages, parity = j / stages % 2;
                ptx::barrier_wait(smem.k_empty[stage], parity ^ 1);
                ptx::barrier_arrive_expect_tx(smem.k_full[stage], tile_bytes);
                load(smem.K[stage], K, smem.k_full[stage], j * B_c);
                ptx::barrier_wait(smem.v_empty[stage], parity ^ 1);
                ptx::barrier_arrive_expect_tx(smem.v_full[stage], tile_bytes);
                load(smem.V[stage], V, smem.v_full[stage], j * B_c);
            }
        }
        return;
    }

    ptx::registers_increase<232>();
    const int consumer = role - 1, self = threadIdx.x % warpgroup, lane = self % warp;
    const int column = lane % 4 * 2;  // of this thread's first element, in eight columns
    unsigned char* Q_smem = smem.Q[consumer];
    float O_reg[d / 2], S_reg[B_c / 2], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < d / 2; ++i) O_reg[i] = 0;

    ptx::barrier_wait(smem.q_full, 0);
    for (int j = 0; j < tiles; ++j) {
        const int stage = j % stages, parity = j / stages % 2;

        ptx::barrier_wait(smem.k_full[stage], parity);
        ptx::wgmma_fence(S_reg);
#pragma unroll
        for (int k = 0; k < d; k += 16) {
            const unsigned at = k / panel_columns * panel_bytes + k % panel_columns * sizeof(T);
            ptx::wgmma<T>(S_reg, ptx::matrix_descriptor(Q_smem, 16, group_bytes, ptx::Swizzle::bytes_128) + at,
                          ptx::matrix_descriptor(smem.K[stage], 16, group_bytes, ptx::Swizzle::bytes_128) + at, k > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(S_reg);
        if (self == 0) ptx::barrier_arrive(smem.k_empty[stage]);

#pragma unroll
        for (int i = 0; i < B_c / 2; ++i)
            if (j * B_c + i / 4 * 8 + column + i % 2 >= N) S_reg[i] = -INFINITY;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float m_new = m[half];
#pragma unroll
            for (int i = 0; i < B_c / 2; ++i)
                if (i / 2 % 2 == half) m_new = fmaxf(m_new, S_reg[i]);
            m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, 1));
            m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, 2));
            const float rescale = ptx::ex2_approx((m[half] - m_new) * scale_log2);
            m[half] = m_new;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < B_c / 2; ++i)
                if (i / 2 % 2 == half) sum += S_reg[i] = ptx::ex2_approx((S_reg[i] - m_new) * scale_log2);
            l[half] = l[half] * rescale + sum;
#pragma unroll
            for (int i = 0; i < d / 2; ++i)
                if (i / 2 % 2 == half) O_reg[i] *= rescale;
        }
        std::uint32_t P_reg[B_c / 16][4];
#pragma unroll
        for (int i = 0; i < B_c / 2; i += 2) {
            const __nv_bfloat162 two = __floats2bfloat162_rn(S_reg[i], S_reg[i + 1]);
            memcpy(&P_reg[i / 8][i / 2 % 4], &two, sizeof two);
        }

        ptx::barrier_wait(smem.v_full[stage], parity);
        ptx::pin(P_reg);
        ptx::wgmma_fence(O_reg);
#pragma unroll
        for (int k = 0; k < B_c / 16; ++k)
            ptx::wgmma<T, ptx::Major::mn>(
                O_reg, P_reg[k],
                ptx::matrix_descriptor(smem.V[stage], panel_bytes, group_bytes, ptx::Swizzle::bytes_128) +
                    k * 2 * group_bytes,
                true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(O_reg);
        if (self == 0) ptx::barrier_arrive(smem.v_empty[stage]);
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        l[half] += __shfl_xor_sync(0xFFFFFFFFu, l[half], 1);
        l[half] += __shfl_xor_sync(0xFFFFFFFFu, l[half], 2);
    }
    // The last wait was for products of the whole warpgroup, so nobody reads Q any more.
#pragma unroll
    for (int i = 0; i < d / 2; i += 8) {  // 16 columns: four 8x8 matrices, of which stmatrix takes a row from each lane
        std::uint32_t matrices[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const __nv_bfloat162 two =
                __floats2bfloat162_rn(O_reg[i + 2 * r] / l[r % 2], O_reg[i + 2 * r + 1] / l[r % 2]);
            memcpy(&matrices[r], &two, sizeof two);
        }
        const int to_row = self / warp * 16 + lane % 16, chunk = i / 4 + lane / 16;  // chunks of 8 columns
        ptx::stmatrix(&Q_smem[chunk / 8 * panel_bytes + to_row * 128 + ((chunk % 8) ^ (to_row % 8)) * 16], matrices);
    }
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(role, warpgroup);
    if (self == 0) {
        for (int panel = 0; panel < panels; ++panel)
            ptx::tma_store(O, Q_smem + panel * panel_bytes,
                           {panel * panel_columns, first_row + consumer * B_r, head, batch});
        ptx::bulk_commit();
        ptx::bulk_wait_read<0>();
    }
}

}  // namespace

Bits16 attend(const Bits16& Q, const Bits16& K, const Bits16& V, int batch, int heads, int N, float scale) {
    const DeviceArray<std::uint16_t> Q_device(Q), K_device(K), V_device(V), O_device(Q.size());
    const auto map = [&](const DeviceArray<std::uint16_t>& x) {
        const std::uint64_t row = d * sizeof(T);
        return ptx::make_tensor_map<T, 4>(
            reinterpret_cast<const T*>(x.data()), {d, std::uint64_t(N), std::uint64_t(heads), std::uint64_t(batch)},
            {row, row * N, row * N * heads}, {panel_columns, 64, 1, 1}, ptx::Swizzle::bytes_128);
    };
    const unsigned blocks = unsigned((N + consumers * B_r - 1) / (consumers * B_r));
    constexpr float log2_e = 1.44269504f;
    launch_kernel(attention_kernel,
                  {{blocks, unsigned(heads), unsigned(batch)}, (1 + consumers) * warpgroup, sizeof(Shared)},
                  map(Q_device), map(K_device), map(V_device), map(O_device), N, scale * log2_e);
    return O_device.download();
}

}  // namespace flashladder
