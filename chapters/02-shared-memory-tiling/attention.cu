// Rung 02: the same algorithm with tiles as large as shared memory, and threads that own a piece of a tile, not a row.
//
// Idea      256 threads share every tile. Each keeps 4 rows times a few columns of S and of O in registers, so that one
//           value read from shared memory serves several products; loads are 16 bytes wide and coalesced.
// Saves     K and V are read once. Q, O, l and m travel once a block of keys: their traffic is proportional to N / B_c, and
//           B_c is as large as M, the shared memory, allows. Twice M, half the traffic.
// Source    FlashAttention (Dao et al., 2022), Algorithm 1 with its block sizes
// Supports  float; d 64, 128; any N_q and N_k
#include "launch.h"
#include "operations/attention/stage.h"

namespace flashladder::attention {
namespace {

constexpr int threads_x = 16, threads_y = 16;  // of a block: 16 neighbours share 4 rows
constexpr int threads = threads_x * threads_y;
constexpr int rows = 4;                // of S and O that a thread owns
constexpr int B_r = threads_y * rows;  // 64 queries
constexpr int pad = 4;                 // floats after each row of K_j, so that rows start in different banks

/// Shared memory of a block, in bytes: Q_i, K_j, V_j, P, l, m.
constexpr int shared_bytes(int B_c, int d) { return 4 * (B_r * d + B_c * (d + pad) + B_c * d + B_r * B_c + 2 * B_r); }

/// Rows of d floats into a tile, neighbouring threads 16 bytes apart; rows past the end become 0.
template <int d, int stride>
__device__ void load_tile(float* tile, const float* tensor, int first_row, int tile_rows, int N) {
    // EXERCISE 2.1 Let each load and each store move 16 bytes, and those of a warp be neighbours. The starter moves floats.
    // TODO: your code, instead of this.
    for (int e = threadIdx.x; e < tile_rows * d; e += threads) {
        const bool there = first_row + e / d < N;
        tile[e / d * stride + e % d] = there ? tensor[std::size_t(first_row) * d + e] : 0;
    }
    // END 2.1
}

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ void multiply_add(float4& sum, float a, float4 b) {
    sum.x += a * b.x, sum.y += a * b.y, sum.z += a * b.z, sum.w += a * b.w;
}

/// Sum and maximum over the 16 threads that share a row.
__device__ float row_sum(float x) {
    for (int lanes = threads_x / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}
__device__ float row_max(float x) {
    for (int lanes = threads_x / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
    return x;
}

/// One block owns one (batch, head), as in rung 01. Of every tile, `threads_x` neighbouring threads own `rows` rows.
template <int d, int B_c>
__global__ void __launch_bounds__(threads, 1) tiled_flash(const float* Q, const float* K, const float* V, float* O, float* l,
                                                          float* m, int N_q, int N_k, float scale) {
    float* Q_i = dynamic_shared<float>();  // (B_r, d)
    float* K_j = Q_i + B_r * d;            // (B_c, d + pad)
    float* V_j = K_j + B_c * (d + pad);    // (B_c, d)
    float* P = V_j + B_c * d;              // (B_r, B_c)
    float* l_i = P + B_r * B_c;            // (B_r)
    float* m_i = l_i + B_r;                // (B_r)
    const std::size_t head = blockIdx.x;
    Q += head * N_q * d, O += head * N_q * d, l += head * N_q, m += head * N_q;
    K += head * N_k * d, V += head * N_k * d;

    for (int j = 0; j < N_k; j += B_c) {  // from here on, j and i are first rows, not numbers of blocks
        load_tile<d, d + pad>(K_j, K, j, B_c, N_k);
        load_tile<d, d>(V_j, V, j, B_c, N_k);
        for (int i = 0; i < N_q; i += B_r) {
            load_tile<d, d>(Q_i, Q, i, B_r, N_q);
            if (threadIdx.x < B_r) {  // l and m of the blocks before, if there were any
                const bool known = j > 0 && i + int(threadIdx.x) < N_q;
                l_i[threadIdx.x] = known ? l[i + threadIdx.x] : 0;
                m_i[threadIdx.x] = known ? m[i + threadIdx.x] : -INFINITY;
            }
            __syncthreads();  // all tiles are there

            // EXERCISE 2.2 Build: lines 9 to 13, for 256 threads. O, l and m in device memory say what is known of the keys
            // before j, and l_i and m_i have it; make O, l and m say it of this block's keys too. Keys from N_k on do not
            // exist, and their rows in the tiles are 0. What a thread has read from shared memory serves several products,
            // and hardly any access is a conflict. The starter is right, and slow: rung 01's, where a thread owns a row.
            // TODO: your code, instead of this.
            const int r = threadIdx.x, keys = min(B_c, N_k - j);
            if (r < B_r && i + r < N_q) {
                float m_ij = -INFINITY, l_ij = 0;
                for (int c = 0; c < keys; ++c) {
                    float s = 0;
                    for (int x = 0; x < d; ++x) s += Q_i[r * d + x] * K_j[c * (d + pad) + x];
                    m_ij = fmaxf(m_ij, P[r * B_c + c] = scale * s);
                }
                for (int c = 0; c < keys; ++c) l_ij += P[r * B_c + c] = expf(P[r * B_c + c] - m_ij);
                const float m_new = fmaxf(m_i[r], m_ij), now = expf(m_ij - m_new);
                const float before = expf(m_i[r] - m_new) * l_i[r];
                for (int x = 0; x < d; ++x) {
                    float& o = O[std::size_t(i + r) * d + x];
                    float sum = j > 0 ? before * o : 0;
                    for (int c = 0; c < keys; ++c) sum += now * P[r * B_c + c] * V_j[c * d + x];
                    o = sum / (before + now * l_ij);
                }
                l[i + r] = before + now * l_ij, m[i + r] = m_new;
            }
            // END 2.2
            __syncthreads();  // Q_i, l_i and m_i are about to be overwritten, and after the last i so are K_j and V_j
        }
    }
}

/// The largest B_c, of those that were compiled, whose tiles fit into M bytes of shared memory; 0 if none does.
int block_columns(int M, int d) {
    for (const int B_c : {256, 128, 64, 32})
        if (B_c * d <= 128 * 128 && shared_bytes(B_c, d) <= M) return B_c;
    return 0;
}

template <int d>
void launch_tiled(const ForwardArgs& args, int B_c) {
    const unsigned heads = args.shape.batch * args.shape.heads;
    auto* l = static_cast<float*>(args.scratch);
    float* m = l + std::size_t(heads) * args.shape.n_q;
    const auto kernel = B_c == 256 ? tiled_flash<d, d == 64 ? 256 : 128>  // d = 128 has no kernel for 256
                        : B_c == 128 ? tiled_flash<d, 128>
                        : B_c == 64 ? tiled_flash<d, 64> : tiled_flash<d, 32>;
    launch_kernel(kernel, {heads, threads, std::size_t(shared_bytes(B_c, d)), args.stream}, static_cast<const float*>(args.Q),
                  static_cast<const float*>(args.K), static_cast<const float*>(args.V), static_cast<float*>(args.O), l, m,
                  args.shape.n_q, args.shape.n_k, args.scale);
}

const Support supports{.stage = "02-shared-memory-tiling", .head_dims = {64, 128}};

/// l and m of every row.
std::size_t scratch_bytes(const AttentionShape& s) { return 2 * sizeof(float) * s.batch * s.heads * std::size_t(s.n_q); }

void launch(const ForwardArgs& args) {
    int device = 0, M = 0;
    check_cuda(cudaGetDevice(&device), "device");
    check_cuda(cudaDeviceGetAttribute(&M, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
    const int B_c = block_columns(M, args.shape.head_dim);
    if (B_c == 0) throw std::invalid_argument(supports.stage + ": the device has only " + std::to_string(M) + " bytes of shared memory a block");
    const auto launch_d = args.shape.head_dim == 64 ? launch_tiled<64> : launch_tiled<128>;
    launch_d(args, B_c);
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
