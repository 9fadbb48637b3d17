#include "ptx/tma.h"

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/fence.h"
#include "ptx/tensor_map.h"

namespace flashladder {
namespace {

constexpr int threads = 64;

template <int rank>
using At = int[rank];

/// Loads a box onto poison, shows what shared memory holds then, and stores the box elsewhere.
template <int rank>
__global__ void move_box_kernel(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                                BoxCoordinates load_at, BoxCoordinates store_at, unsigned bytes, bool store,
                                std::uint16_t* shown) {
    auto* tile = dynamic_shared<std::uint16_t>();
    __shared__ ptx::Barrier loaded;
    for (int i = threadIdx.x; i < box_window; i += threads) tile[i] = box_poison;
    if (threadIdx.x == 0) {
        ptx::barrier_init(loaded, 1);
        ptx::fence_barrier_init();
        ptx::prefetch_tensor_map(from);
    }
    ptx::fence_proxy_async();
    __syncthreads();
    At<rank> load, stored;
    for (int i = 0; i < rank; ++i) {
        load[i] = load_at.at[i];
        stored[i] = store_at.at[i];
    }
    if (threadIdx.x == 0) {
        ptx::barrier_arrive_expect_tx(loaded, bytes);
        ptx::tma_load(tile, from, loaded, load);
    }
    ptx::barrier_wait(loaded, 0);
    for (int i = threadIdx.x; i < box_window; i += threads) shown[i] = tile[i];
    if (threadIdx.x == 0 && store) {
        ptx::tma_store(to, tile, stored);
        ptx::bulk_commit();
        ptx::bulk_wait<0>();
    }
}

template <int rank>
CUtensorMap map_of(const std::uint16_t* tensor, const Box& box) {
    std::array<std::uint64_t, rank> extents;
    std::array<std::uint64_t, rank - 1> strides{};
    std::array<std::uint32_t, rank> shape;
    std::uint64_t bytes = 2;
    for (int i = 0; i < rank; ++i) {
        extents[i] = box.extents[i];
        shape[i] = box.shape[i];
        bytes *= extents[i];
        if (i + 1 < rank) strides[i] = bytes;
    }
    return ptx::make_tensor_map(reinterpret_cast<const __nv_bfloat16*>(tensor), extents, strides, shape,
                                static_cast<ptx::Swizzle>(box.swizzle));
}

template <int rank>
MovedBox move_box_of_rank(const Bits16& tensor, const Box& box) {
    const DeviceArray<std::uint16_t> from(tensor), to(Bits16(tensor.size(), 0)), shown(box_window);
    unsigned bytes = 2;
    for (int i = 0; i < rank; ++i) bytes *= box.shape[i];
    launch_kernel(move_box_kernel<rank>, {1, threads, box_window * 2}, map_of<rank>(from.data(), box),
                  map_of<rank>(to.data(), box), box.load_at, box.store_at, bytes, box.store, shown.data());
    check_cuda(cudaDeviceSynchronize(), "moving a box");
    return {shown.download(), to.download()};
}

/// Ends are counted from as many rows before the tensor on as a box has: the last dimension goes back by 2^30 rows, as 2^64
/// bytes are none, and the one before it forth by nearly as many. Nobody touches what lies before the tensor.
CUtensorMap map_with_ends(const std::uint16_t* tensor, std::size_t rows) {
    constexpr std::uint64_t stride = ending_columns * sizeof(std::uint16_t), far = 1 << 30, turn = 1ull << 34;
    return ptx::make_tensor_map<__nv_bfloat16, 4>(reinterpret_cast<const __nv_bfloat16*>(tensor),
                                                  {ending_columns, ending_rows, far + rows + 1, far + 1},
                                                  {stride, stride, turn - stride}, {ending_columns, ending_rows, 1, 1},
                                                  ptx::Swizzle::none);
}

/// Floats: loaded as a run, added to as a box and as a run, by two blocks.
__global__ void add_kernel(const __grid_constant__ CUtensorMap sums_map, const float* x, float* sums, float* run_sums) {
    auto* tile = dynamic_shared<float>();
    __shared__ ptx::Barrier loaded;
    if (threadIdx.x == 0) {
        ptx::barrier_init(loaded, 1);
        ptx::fence_barrier_init();
        ptx::barrier_arrive_expect_tx(loaded, add_rows * add_columns * sizeof(float));
        ptx::bulk_load(tile, x + blockIdx.x * add_rows * add_columns, add_rows * add_columns * sizeof(float), loaded);
    }
    __syncthreads();
    ptx::barrier_wait(loaded, 0);
    for (int i = threadIdx.x; i < add_rows * add_columns; i += threads) tile[i] += 1;
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::tma_reduce_add(sums_map, tile, {4 * int(blockIdx.x), 1});
        ptx::bulk_commit();
        ptx::bulk_reduce_add(run_sums, tile, add_rows * add_columns * sizeof(float));
        ptx::bulk_commit();
        ptx::bulk_store(sums + add_rows * add_columns * (1 + blockIdx.x), tile, add_rows * add_columns * sizeof(float));
        ptx::bulk_commit();
        ptx::bulk_wait_read<1>();
        ptx::bulk_wait_read<0>();
    }
}

}  // namespace

MovedBox move_ending_box(const Bits16& tensor, int first, int rows) {
    const DeviceArray<std::uint16_t> from(tensor), to(Bits16(tensor.size(), 0)), shown(box_window);
    const std::size_t all = tensor.size() / ending_columns;
    const BoxCoordinates at{{0, ending_rows - rows, (1 << 30) - ending_rows + first + rows, 1 << 30}};
    launch_kernel(move_box_kernel<4>, {1, threads, box_window * 2}, map_with_ends(from.data(), all),
                  map_with_ends(to.data(), all), at, at, unsigned(ending_columns * ending_rows * 2), true, shown.data());
    check_cuda(cudaDeviceSynchronize(), "moving a box");
    return {shown.download(), to.download()};
}

MovedBox move_box(const Bits16& tensor, const Box& box) {
    switch (box.rank) {
        case 1:
            return move_box_of_rank<1>(tensor, box);
        case 2:
            return move_box_of_rank<2>(tensor, box);
        case 3:
            return move_box_of_rank<3>(tensor, box);
        case 4:
            return move_box_of_rank<4>(tensor, box);
        default:
            return move_box_of_rank<5>(tensor, box);
    }
}

Floats add_boxes(const Floats& x) {
    constexpr std::size_t n = add_rows * add_columns;
    const DeviceArray<float> x_device(x), sums(Floats(3 * n, 0.0f)), run_sums(Floats(n, 0.0f));
    const auto map = ptx::make_tensor_map<float, 2>(sums.data(), {add_columns, add_rows}, {add_columns * sizeof(float)},
                                                    {add_columns, add_rows}, ptx::Swizzle::none);
    launch_kernel(add_kernel, {2, threads, n * sizeof(float)}, map, x_device.data(), sums.data(), run_sums.data());
    Floats result = sums.download();
    const Floats more = run_sums.download();
    result.insert(result.end(), more.begin(), more.end());
    return result;
}

int try_map(const MapRequest& request) {
    const DeviceArray<char> memory(1 << 20);
    alignas(128) CUtensorMap maps[2];
    auto* map = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(maps) + request.map_offset);
    return ptx::tensor_map_encoder()(map, static_cast<CUtensorMapDataType>(request.type), request.rank,
                                     request.no_address ? nullptr : memory.data() + request.address_offset,
                                     request.extents, request.strides, request.box, request.element_strides,
                                     CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(request.swizzle),
                                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace flashladder
