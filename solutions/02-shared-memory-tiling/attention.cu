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
    // STARTER for (int e = threadIdx.x; e < tile_rows * d; e += threads) {
    // STARTER     const bool there = first_row + e / d < N;
    // STARTER     tile[e / d * stride + e % d] = there ? tensor[std::size_t(first_row) * d + e] : 0;
    // STARTER }
    constexpr int chunks = d / 4;  // of 16 bytes
    for (int e = threadIdx.x; e < tile_rows * chunks; e += threads) {
        const int r = e / chunks, x = e % chunks * 4;
        float4 values{0, 0, 0, 0};
        if (first_row + r < N) values = reinterpret_cast<const float4&>(tensor[std::size_t(first_row + r) * d + x]);
        reinterpret_cast<float4&>(tile[r * stride + x]) = values;
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
            // STARTER const int r = threadIdx.x, keys = min(B_c, N_k - j);
            // STARTER if (r < B_r && i + r < N_q) {
            // STARTER     float m_ij = -INFINITY, l_ij = 0;
            // STARTER     for (int c = 0; c < keys; ++c) {
            // STARTER         float s = 0;
            // STARTER         for (int x = 0; x < d; ++x) s += Q_i[r * d + x] * K_j[c * (d + pad) + x];
            // STARTER         m_ij = fmaxf(m_ij, P[r * B_c + c] = scale * s);
            // STARTER     }
            // STARTER     for (int c = 0; c < keys; ++c) l_ij += P[r * B_c + c] = expf(P[r * B_c + c] - m_ij);
            // STARTER     const float m_new = fmaxf(m_i[r], m_ij), now = expf(m_ij - m_new);
            // STARTER     const float before = expf(m_i[r] - m_new) * l_i[r];
            // STARTER     for (int x = 0; x < d; ++x) {
            // STARTER         float& o = O[std::size_t(i + r) * d + x];
            // STARTER         float sum = j > 0 ? before * o : 0;
            // STARTER         for (int c = 0; c < keys; ++c) sum += now * P[r * B_c + c] * V_j[c * d + x];
            // STARTER         o = sum / (before + now * l_ij);
            // STARTER     }
            // STARTER     l[i + r] = before + now * l_ij, m[i + r] = m_new;
            // STARTER }
            // Thread (tx, ty) owns rows 4 ty to 4 ty + 3; of S the columns tx, tx + 16, ..., of O 4 tx to 4 tx + 3, and if d =
            // 128 those 64 further.
            constexpr int columns = B_c / threads_x, chunks = d / (4 * threads_x);
            const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * rows;

            // S = Q_i K_j^T: 4 + columns reads of 16 bytes for 4 * 4 * columns products.
            float S[rows][columns] = {};
            for (int x = 0; x < d; x += 4) {
                float4 q[rows];
                for (int r = 0; r < rows; ++r) q[r] = reinterpret_cast<const float4&>(Q_i[(row + r) * d + x]);
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    const float4 k = reinterpret_cast<const float4&>(K_j[(tx + c * threads_x) * (d + pad) + x]);
                    for (int r = 0; r < rows; ++r) S[r][c] += dot(q[r], k);
                }
            }

            // P relative to the new maximum; what this thread's rows held so far is rescaled to it.
            float rescale[rows], l_new[rows];
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                float m_ij = -INFINITY, l_ij = 0;
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    S[r][c] = j + tx + c * threads_x < N_k ? scale * S[r][c] : -INFINITY;
                    m_ij = fmaxf(m_ij, S[r][c]);
                }
                const float m_old = m_i[row + r], m_new = fmaxf(m_old, row_max(m_ij));
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    const float p = expf(S[r][c] - m_new);
                    P[(row + r) * B_c + tx + c * threads_x] = p;
                    l_ij += p;
                }
                rescale[r] = expf(m_old - m_new) * l_i[row + r];
                l_new[r] = rescale[r] + row_sum(l_ij);
                if (tx == 0 && i + row + r < N_q) l[i + row + r] = l_new[r], m[i + row + r] = m_new;
            }
            __syncwarp();  // the rows of P that a thread reads below were written by its own half warp

            // P V_j: rows + 4 * chunks reads of 16 bytes for 4 * 4 * 4 * chunks products.
            float4 PV[rows][chunks] = {};
            for (int c = 0; c < B_c; c += 4) {
                float4 p[rows];
                for (int r = 0; r < rows; ++r) p[r] = reinterpret_cast<const float4&>(P[(row + r) * B_c + c]);
                for (int x = 0; x < chunks; ++x) {
                    const float* V_column = V_j + c * d + 4 * (tx + x * threads_x);
                    float4 v[4];
                    for (int k = 0; k < 4; ++k) v[k] = reinterpret_cast<const float4&>(V_column[k * d]);
#pragma unroll
                    for (int r = 0; r < rows; ++r) {
                        multiply_add(PV[r][x], p[r].x, v[0]);
                        multiply_add(PV[r][x], p[r].y, v[1]);
                        multiply_add(PV[r][x], p[r].z, v[2]);
                        multiply_add(PV[r][x], p[r].w, v[3]);
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                if (i + row + r >= N_q) continue;
                for (int x = 0; x < chunks; ++x) {
                    float4& O_global = reinterpret_cast<float4&>(O[std::size_t(i + row + r) * d + 4 * (tx + x * threads_x)]);
                    if (j > 0) multiply_add(PV[r][x], rescale[r], O_global);
                    float4 result{0, 0, 0, 0};
                    multiply_add(result, 1 / l_new[r], PV[r][x]);
                    O_global = result;
                }
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
