#include "kernels.h"

#include "../../solutions/06-swizzling/attention.cu"  // for its layouts, which it shows to nobody else
#include "ptx/ldmatrix.h"
#include "ptx/mma.h"

namespace flashladder {
namespace {

using namespace attention;

constexpr int warp = 32;

/// A and B say of each element which it is, and `ldmatrix` shows who gets it. With other A and B the product is
/// 8 i + j in row i, column j: so `mma` itself shows who has which element of C.
__global__ void fragments_kernel(FragmentMap* map) {
    __shared__ __align__(16) std::uint16_t A_smem[16][16], B_smem[16][8];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += warp) A_smem[i / 16][i % 16] = std::uint16_t(i);
    for (int i = lane; i < 128; i += warp) B_smem[i / 8][i % 8] = std::uint16_t(i);
    __syncwarp();
    std::uint32_t a[4], b[2];
    ptx::ldmatrix(a, &A_smem[lane % 16][lane / 16 * 8]);
    ptx::ldmatrix_trans(b, &B_smem[lane % 16][0]);
    for (int r = 0; r < 4; ++r)
        for (int half = 0; half < 2; ++half) map->A[lane][r][half] = a[r] >> (16 * half) & 0xFFFF;
    for (int r = 0; r < 2; ++r)
        for (int half = 0; half < 2; ++half) map->B[lane][r][half] = b[r] >> (16 * half) & 0xFFFF;
    __syncwarp();
    auto* A = reinterpret_cast<__half(*)[16]>(A_smem);
    auto* B = reinterpret_cast<__half(*)[8]>(B_smem);
    for (int i = lane; i < 256; i += warp)
        A[i / 16][i % 16] = __half(i % 16 == 0 ? 8.0f * (i / 16) : i % 16 == 1 ? 1.0f : 0.0f);
    for (int i = lane; i < 128; i += warp)
        B[i / 8][i % 8] = __half(i / 8 == 0 ? 1.0f : i / 8 == 1 ? float(i % 8) : 0.0f);
    __syncwarp();
    ptx::ldmatrix(a, &A_smem[lane % 16][lane / 16 * 8]);
    ptx::ldmatrix_trans(b, &B_smem[lane % 16][0]);
    float c[4] = {};
    ptx::mma_m16n8k16<__half>(c, a, b);
    for (int r = 0; r < 4; ++r) map->C[lane][r] = int(c[r]);
}

template <class Layout>
BankMap bank_map(const char* name) {
    BankMap map{name, {}};
    for (int row = 0; row < 8; ++row)
        for (int c = 0; c < 8; ++c) map.group[row][c] = Layout::template offset<64, 64>(row, c * chunk) / chunk % 8;
    return map;
}

}  // namespace

FragmentMap record_fragments() {
    FragmentMap map, *device_map;
    check_cuda(cudaMalloc(&device_map, sizeof map), "allocating the map");
    launch_kernel(fragments_kernel, {1, warp}, device_map);
    check_cuda(cudaMemcpy(&map, device_map, sizeof map, cudaMemcpyDeviceToHost), "reading the map");
    check_cuda(cudaFree(device_map), "freeing the map");
    return map;
}

std::vector<BankMap> bank_maps() {
    return {bank_map<tile::RowMajor>("unswizzled"), bank_map<Padded>("padded by 16 bytes"),
            bank_map<Swizzled<32>>("32-byte swizzle"), bank_map<Swizzled<64>>("64-byte swizzle"),
            bank_map<Swizzled<128>>("128-byte swizzle")};
}

}  // namespace flashladder
