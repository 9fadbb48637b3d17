#include "tile/warpgroup.h"

#include "fragments.h"
#include "ptx/fence.h"

namespace flashladder {
namespace rung_09 {
#include "descriptors.h"  // what solutions/09 spells out: see tests/CMakeLists.txt
}

namespace {

constexpr int warpgroups = 2, threads = 128 * warpgroups;

template <class T, int keys, int d>
struct Tiles {
    using A = tile::SharedTile<T, 64, d, tile::Swizzled<128>>;  // of a warpgroup
    using B = tile::SharedTile<T, keys, d, tile::Swizzled<128>>;
    static constexpr std::size_t bytes = (warpgroups * A::elements + 2 * B::elements) * sizeof(T);
};

template <class T, int keys, int d>
__global__ void __launch_bounds__(threads)
    multiply_kernel(const std::uint16_t* A, const std::uint16_t* B_t, const std::uint16_t* P, const std::uint16_t* B,
                    const float* C, bool together, float* transposed, float* plain) {
    using All = Tiles<T, keys, d>;
    T* memory = dynamic_shared<T>();
    for (int w = 0; w < warpgroups; ++w)
        write(typename All::A{memory + w * All::A::elements}, A + w * All::A::elements);
    const typename All::A A_smem{memory + threadIdx.x / 128 * All::A::elements};
    const typename All::B B_t_smem{memory + warpgroups * All::A::elements}, B_smem{B_t_smem.data + All::B::elements};
    write(B_t_smem, B_t), write(B_smem, B);
    ptx::fence_proxy_async();
    __syncthreads();

    const int first = threadIdx.x / warp * 16;
    tile::Accumulator<16, keys> S_reg;
    tile::fill(S_reg, 7);  // nothing is added to this
    tile::Accumulator<16, d> C_reg;
    read(C_reg, C + first * d);
    tile::Operand<T, 16, keys> P_reg;
    read(P_reg, P + first * keys);
    tile::begin_multiply_transposed(S_reg, A_smem, B_t_smem);
    if (!together) tile::wait<0>(S_reg);
    tile::begin_multiply(C_reg, P_reg, B_smem);
    if (together) tile::wait<1>(S_reg);  // the other product may go on
    write(transposed + first * keys, S_reg);
    tile::wait<0>(C_reg);
    write(plain + first * d, C_reg);
}

/// C + P B + next_P B + P B, with A B_t^T under way meanwhile; P is overwritten as soon as its product is done.
template <class T, int keys, int d>
__global__ void __launch_bounds__(threads)
    reuse_kernel(const std::uint16_t* A, const std::uint16_t* B_t, const std::uint16_t* P, const std::uint16_t* next_P,
                 const std::uint16_t* B, const float* C, float* transposed, float* plain) {
    using All = Tiles<T, keys, d>;
    T* memory = dynamic_shared<T>();
    for (int w = 0; w < warpgroups; ++w)
        write(typename All::A{memory + w * All::A::elements}, A + w * All::A::elements);
    const typename All::A A_smem{memory + threadIdx.x / 128 * All::A::elements};
    const typename All::B B_t_smem{memory + warpgroups * All::A::elements}, B_smem{B_t_smem.data + All::B::elements};
    write(B_t_smem, B_t), write(B_smem, B);
    ptx::fence_proxy_async();
    __syncthreads();

    const int first = threadIdx.x / warp * 16;
    tile::Accumulator<16, keys> S_reg;
    tile::Accumulator<16, d> C_reg;
    read(C_reg, C + first * d);
    tile::Operand<T, 16, keys> P_reg;
    read(P_reg, P + first * keys);
    tile::begin_multiply(C_reg, P_reg, B_smem);
    tile::begin_multiply_transposed(S_reg, A_smem, B_t_smem);
    tile::wait<1>(C_reg, P_reg);  // S may go on
    read(P_reg, next_P + first * keys);
    tile::begin_multiply(C_reg, P_reg, B_smem);
    tile::wait<1>(S_reg);
    write(transposed + first * keys, S_reg);
    tile::wait<0>(C_reg, P_reg);
    read(P_reg, P + first * keys);
    tile::begin_multiply(C_reg, P_reg, B_smem);
    tile::wait<0>(C_reg, P_reg);
    write(plain + first * d, C_reg);
}

template <class T, int keys, int d>
WarpgroupProducts reuse(const Bits16& A, const Bits16& B_t, const Bits16& P, const Bits16& next_P, const Bits16& B,
                        const Floats& C) {
    const DeviceArray<std::uint16_t> A_device(A), B_t_device(B_t), P_device(P), next_P_device(next_P), B_device(B);
    const DeviceArray<float> C_device(C), transposed(std::size_t(warpgroups) * 64 * keys), plain(C.size());
    launch_kernel(reuse_kernel<T, keys, d>, {1, threads, Tiles<T, keys, d>::bytes}, A_device.data(), B_t_device.data(),
                  P_device.data(), next_P_device.data(), B_device.data(), C_device.data(), transposed.data(),
                  plain.data());
    return {transposed.download(), plain.download()};
}

template <class T, int keys, int d>
WarpgroupProducts multiply(const Bits16& A, const Bits16& B_t, const Bits16& P, const Bits16& B, const Floats& C,
                           bool together) {
    const DeviceArray<std::uint16_t> A_device(A), B_t_device(B_t), P_device(P), B_device(B);
    const DeviceArray<float> C_device(C), transposed(std::size_t(warpgroups) * 64 * keys), plain(C.size());
    launch_kernel(multiply_kernel<T, keys, d>, {1, threads, Tiles<T, keys, d>::bytes}, A_device.data(),
                  B_t_device.data(), P_device.data(), B_device.data(), C_device.data(), together, transposed.data(),
                  plain.data());
    return {transposed.download(), plain.download()};
}

template <class T, int keys, int d>
WarpgroupCase warpgroup_case() {
    return {element_of<T>, keys, d, multiply<T, keys, d>, reuse<T, keys, d>};
}

template <class T, Factors factors, int columns, int depth>
struct SharedProduct {
    static constexpr bool A_t = factors == Factors::first_transposed, B_t = factors == Factors::second_transposed;
    using A = tile::SharedTile<T, A_t ? depth : 64, A_t ? 64 : depth, tile::Swizzled<128>>;  // of a warpgroup
    using B = tile::SharedTile<T, B_t ? columns : depth, B_t ? depth : columns, tile::Swizzled<128>>;
    static constexpr std::size_t bytes = (warpgroups * A::elements + B::elements) * sizeof(T);
};

template <class T, Factors factors, int columns, int depth>
__global__ void __launch_bounds__(threads)
    shared_product_kernel(const std::uint16_t* A, const std::uint16_t* B, const float* C, bool add, float* D) {
    using All = SharedProduct<T, factors, columns, depth>;
    T* memory = dynamic_shared<T>();
    for (int w = 0; w < warpgroups; ++w)
        write(typename All::A{memory + w * All::A::elements}, A + w * All::A::elements);
    const typename All::A A_smem{memory + threadIdx.x / 128 * All::A::elements};
    const typename All::B B_smem{memory + warpgroups * All::A::elements};
    write(B_smem, B);
    ptx::fence_proxy_async();
    __syncthreads();

    const int first = threadIdx.x / warp * 16;
    tile::Accumulator<16, columns> C_reg;
    read(C_reg, C + first * columns);
    if constexpr (factors == Factors::plain) tile::begin_multiply(C_reg, A_smem, B_smem, add);
    if constexpr (All::B_t) tile::begin_multiply_transposed(C_reg, A_smem, B_smem, add);
    if constexpr (All::A_t) tile::begin_multiply_of_transposed(C_reg, A_smem, B_smem, add);
    tile::wait<0>(C_reg);
    write(D + first * columns, C_reg);
}

template <class T, Factors factors, int columns, int depth>
Floats multiply_from_shared(const Bits16& A, const Bits16& B, const Floats& C, bool add) {
    const DeviceArray<std::uint16_t> A_device(A), B_device(B);
    const DeviceArray<float> C_device(C), D(C.size());
    launch_kernel(shared_product_kernel<T, factors, columns, depth>,
                  {1, threads, SharedProduct<T, factors, columns, depth>::bytes}, A_device.data(), B_device.data(),
                  C_device.data(), add, D.data());
    return D.download();
}

template <class T, Factors factors, int columns, int depth>
SharedProductCase shared_product_case() {
    return {element_of<T>, factors, columns, depth, multiply_from_shared<T, factors, columns, depth>};
}

constexpr int tile_rows = 64, tile_columns = 128;

__global__ void describe_kernel(unsigned address, std::uint64_t* columns, std::uint64_t* columns_09,
                                std::uint64_t* rows, std::uint64_t* rows_09) {
    auto* memory = dynamic_shared<unsigned char>();
    memory += address - ptx::shared_address(memory);
    const tile::SharedTile<__half, tile_rows, tile_columns, tile::Swizzled<128>> tile{
        reinterpret_cast<__half*>(memory)};
    for (int i = 0; i < tile_columns / 16; ++i) {
        columns[i] = tile::columns_of(tile, 16 * i).bits;
        columns_09[i] = rung_09::columns_of(tile, 16 * i).bits;
    }
    for (int i = 0; i < tile_rows / 16; ++i) {
        rows[i] = tile::rows_of(tile, 16 * i).bits;
        rows_09[i] = rung_09::rows_of(tile, 16 * i).bits;
    }
}

}  // namespace

bool has_warpgroups() {
    int device = 0, major = 0;
    check_cuda(cudaGetDevice(&device), "the current device");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "its compute capability");
    return major == 9;
}

std::vector<WarpgroupCase> warpgroup_cases() {
    return {warpgroup_case<__nv_bfloat16, 64, 64>(),  warpgroup_case<__half, 64, 128>(),
            warpgroup_case<__half, 128, 64>(),        warpgroup_case<__nv_bfloat16, 128, 128>(),
            warpgroup_case<__nv_bfloat16, 176, 64>(), warpgroup_case<__half, 176, 128>(),
            warpgroup_case<__half, 192, 64>(),        warpgroup_case<__nv_bfloat16, 192, 128>()};
}

std::vector<SharedProductCase> shared_product_cases() {
    using enum Factors;
    return {shared_product_case<__nv_bfloat16, plain, 64, 64>(),
            shared_product_case<__half, plain, 128, 128>(),
            shared_product_case<__half, plain, 192, 64>(),
            shared_product_case<__nv_bfloat16, plain, 256, 64>(),
            shared_product_case<__half, plain, 256, 128>(),
            shared_product_case<__nv_bfloat16, plain, 128, 192>(),
            shared_product_case<__half, second_transposed, 64, 64>(),
            shared_product_case<__nv_bfloat16, second_transposed, 64, 128>(),
            shared_product_case<__half, second_transposed, 128, 192>(),
            shared_product_case<__nv_bfloat16, first_transposed, 64, 64>(),
            shared_product_case<__half, first_transposed, 128, 64>(),
            shared_product_case<__nv_bfloat16, first_transposed, 128, 192>()};
}

Descriptors describe_tile(unsigned address) {
    const DeviceArray<std::uint64_t> columns(tile_columns / 16), columns_09(tile_columns / 16), rows(tile_rows / 16),
        rows_09(tile_rows / 16);
    launch_kernel(describe_kernel, {1, 1, std::size_t(address) + tile_rows * tile_columns * 2}, address, columns.data(),
                  columns_09.data(), rows.data(), rows_09.data());
    return {columns.download(), columns_09.download(), rows.download(), rows_09.download()};
}

}  // namespace flashladder
