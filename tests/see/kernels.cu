#include "kernels.h"

#include "../emulator/device_array.h"
#include "ptx/fence.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/swizzled.h"
#include "tile/warpgroup.h"

namespace flashladder {
namespace {

constexpr int rows = 64, columns = 64, warp = 32, threads = 128;

/// A tile, row by row, that writes down which place each lane of the first warp asks for first.
struct RecordingTile {
    using Element = __half;
    static constexpr int rows = flashladder::rows, columns = flashladder::columns, stride = columns;
    Element* data;
    Places* places;

    __device__ Element* at(int row, int column) const {
        if (threadIdx.x < warp && (*places)[threadIdx.x][0] < 0) (*places)[threadIdx.x] = {row, column};
        return data + row * columns + column;
    }
};

__global__ void record_kernel(TilePlaces* all, const __half* tensor, float* result) {
    auto* data = dynamic_shared<__half>();
    for (int i = threadIdx.x; i < rows * columns; i += threads) data[i] = __half(0);
    __syncthreads();
    tile::copy_in<threads>(RecordingTile{data, &all->copy_in}, tensor, 0, rows);
    __syncthreads();
    if (threadIdx.x >= warp) return;
    tile::Operand<__half, 16, columns> A;
    tile::Accumulator<16, rows> S{};
    tile::Accumulator<16, columns> O{};
    tile::load(A, RecordingTile{data, &all->load}, 0);
    tile::multiply_transposed(S, A, RecordingTile{data, &all->multiply_transposed});
    tile::multiply(O, tile::to_operand<__half>(S), RecordingTile{data, &all->multiply});
    __syncwarp();
    tile::store(RecordingTile{data, &all->store}, O, 0);
    result[threadIdx.x] = O.fragment[0][0][0];
}

using Offset = int (*)(int row, int column);

/// `offset` of a layout, in elements of 2 bytes, for tiles of `unit`, 2 unit, ... columns that are whole numbers of
/// panels.
template <class Layout, int rows, int unit, int panel, int... i>
constexpr auto offsets(std::integer_sequence<int, i...>) {
    const auto of = []<int columns>() -> Offset {
        if constexpr (columns % panel == 0) return Layout::template offset<rows, columns>;
        return nullptr;
    };
    return std::array<Offset, sizeof...(i)>{of.template operator()<(i + 1) * unit>()...};
}

template <int rows>
Offset offset_of(int width, int padding, int swizzle) {
    using Widths = std::make_integer_sequence<int, 1024 / 16>;
    static constexpr auto by_128 = offsets<tile::Swizzled<128>, rows, tile::chunk, 64>(Widths{});
    static constexpr auto by_64 = offsets<tile::Swizzled<64>, rows, tile::chunk, 32>(Widths{});
    static constexpr auto by_32 = offsets<tile::Swizzled<32>, rows, tile::chunk, 16>(Widths{});
    // Padding is that of a wider row.
    static constexpr auto plain =
        offsets<tile::RowMajor, rows, 2, 2>(std::make_integer_sequence<int, (1024 + 64) / 4>{});
    const int chunks = width / 16, words = (width + padding) / 4;
    if (swizzle == 0) return plain.at(static_cast<std::size_t>(words - 1));
    const auto& swizzled = swizzle == 128 ? by_128 : swizzle == 64 ? by_64 : by_32;
    return swizzled.at(static_cast<std::size_t>(chunks - 1));
}

// ---- who holds what

__device__ void unpack(std::array<int, 2>& two, std::uint32_t bits) {
    const auto value = [](std::uint32_t half) {
        const auto low = static_cast<std::uint16_t>(half);
        return int(float(reinterpret_cast<const __half&>(low)));
    };
    two = {value(bits), value(bits >> 16)};
}

/// Every element is its own number, exact in 11 bits.
__global__ void registers_kernel(RegisterMaps* maps) {
    __shared__ __align__(16) __half A_smem[16 * 16], B_smem[16 * 8], M_smem[32 * 8];
    const int thread = threadIdx.x, lane = thread % warp;
    for (int i = thread; i < 256; i += threads) A_smem[i] = M_smem[i] = __half(float(i));
    for (int i = thread; i < 128; i += threads) B_smem[i] = __half(float(i));
    __syncthreads();
    tile::Accumulator<16, 16> numbers;
    for (int c = 0; c < 2; ++c)
        for (int e = 0; e < 4; ++e)
            numbers.fragment[0][c][e] = (thread / warp * 16 + tile::row_of(0, e / 2)) * 16 + tile::column_of(c, e);
    const auto wgmma_A = tile::to_operand<__half>(numbers);
    for (int r = 0; r < 4; ++r) unpack(maps->wgmma_A[thread][r], wgmma_A.fragment[0][0][r]);
    if (thread >= warp) return;

    tile::Operand<__half, 16, 16> A;
    tile::load(A, tile::SharedTile<__half, 16, 16>{A_smem}, 0);
    std::uint32_t b[2], m[4], m_trans[4];
    ptx::ldmatrix_trans(b, &B_smem[lane % 16 * 8]);
    ptx::ldmatrix(m, &M_smem[lane * 8]);
    ptx::ldmatrix_trans(m_trans, &M_smem[lane * 8]);
    float c[4] = {};
    ptx::mma_m16n8k16<__half>(c, A.fragment[0][0], b);
    for (int r = 0; r < 4; ++r) {
        unpack(maps->A[lane][r], A.fragment[0][0][r]);
        unpack(maps->ldmatrix[lane][r], m[r]);
        unpack(maps->ldmatrix_trans[lane][r], m_trans[r]);
        maps->C[lane][r] = {tile::row_of(0, r / 2) * 8 + tile::column_of(0, r)};
        maps->product[lane][r] = c[r];
    }
    for (int r = 0; r < 2; ++r) unpack(maps->B[lane][r], b[r]);
}

template <int n>
__global__ void accumulator_kernel(int* numbers) {
    for (int c = 0; c < n / 8; ++c)
        for (int e = 0; e < 4; ++e)
            numbers[threadIdx.x * (n / 2) + 4 * c + e] =
                (int(threadIdx.x) / warp * 16 + tile::row_of(0, e / 2)) * n + tile::column_of(c, e);
}

/// Calls use.operator()<n>() for an n that wgmma is wrapped for.
template <class Use>
void with_width(int n, Use use) {
    switch (n) {
        case 64:
            return use.template operator()<64>();
        case 128:
            return use.template operator()<128>();
        case 176:
            return use.template operator()<176>();
        case 192:
            return use.template operator()<192>();
        default:
            return use.template operator()<256>();
    }
}

// ---- where an operand lies

/// The tile's elements are their numbers, first the lowest ten bits, then the others. The other factor has a 1 for each
/// k, so that the product is the operand.
template <int n, bool is_A, ptx::Major major>
__global__ void operand_kernel(OperandQuestion q, int divisor, float* found, std::uint64_t* bits) {
    auto* memory = dynamic_shared<unsigned char>();
    auto* data = reinterpret_cast<__half*>(memory + (q.start - ptx::shared_address(memory)));
    for (int i = threadIdx.x; i < q.elements; i += threads) data[i] = __half(float(i / divisor % 1024));
    __half* ones = data + q.elements;  // K-major, not swizzled: 64 of n, of which 16 are used
    for (int i = threadIdx.x; i < 64 * 16; i += threads) {
        const int column = i / 16, k = i % 16;
        ones[column % 8 * 8 + column / 8 * 64 + k / 8 * 512 + k % 8] = __half(column == k ? 1.0f : 0.0f);
    }
    ptx::fence_proxy_async();
    __syncthreads();

    const auto operand = ptx::matrix_descriptor(data, q.leading, q.stride, ptx::Swizzle(q.swizzle)) + q.begin;
    tile::Accumulator<16, 16> one_each;
    for (int c = 0; c < 2; ++c)
        for (int e = 0; e < 4; ++e)
            one_each.fragment[0][c][e] = tile::row_of(0, e / 2) == tile::column_of(c, e) ? 1.0f : 0.0f;
    auto A = tile::to_operand<__half>(one_each);
    tile::Accumulator<16, n> D;
    auto& d = tile::registers(D);
    ptx::wgmma_fence(d);
    if constexpr (is_A)
        ptx::wgmma<__half, major>(d, operand, ptx::matrix_descriptor(ones, 1024, 128, ptx::Swizzle::none), false);
    else
        ptx::wgmma<__half, major>(d, A.fragment[0][0], operand, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    const int first_row = int(threadIdx.x) / warp * 16;
    for (int c = 0; c < n / 8; ++c)
        for (int e = 0; e < 4; ++e) {
            const int row = first_row + tile::row_of(0, e / 2), column = tile::column_of(c, e);
            if (is_A && column < 16) found[row * 16 + column] = D.fragment[0][c][e];
            if (!is_A && row < 16) found[column * 16 + row] = D.fragment[0][c][e];
        }
    if (threadIdx.x == 0) *bits = operand.bits;
}

template <int n, bool is_A, ptx::Major major>
OperandAnswer operand_of(const OperandQuestion& q) {
    OperandAnswer answer{0, std::vector<int>(n * 16)};
    const DeviceArray<std::uint64_t> bits(1);
    for (const int divisor : {1, 1024}) {
        const DeviceArray<float> found(n * 16);
        const std::size_t bytes = q.start + std::size_t(q.elements + 64 * 16) * sizeof(__half);
        launch_kernel(operand_kernel<n, is_A, major>, {1, threads, bytes}, q, divisor, found.data(), bits.data());
        const auto values = found.download();
        for (std::size_t i = 0; i < values.size(); ++i) answer.element[i] += int(values[i]) * divisor;
    }
    answer.descriptor = bits.download()[0];
    return answer;
}

template <int rows, int columns>
__global__ void describe_kernel(unsigned start, bool of_rows, int from, std::uint64_t* bits) {
    auto* memory = dynamic_shared<unsigned char>();
    const tile::SharedTile<__half, rows, columns, tile::Swizzled<128>> tile{
        reinterpret_cast<__half*>(memory + (start - ptx::shared_address(memory)))};
    *bits = of_rows ? tile::rows_of(tile, from).bits : tile::columns_of(tile, from).bits;
}

}  // namespace
}  // namespace flashladder

std::uintptr_t address_in_tile(int width, int padding, int swizzle, int rows, int row, int byte) {
    using namespace flashladder;
    const auto of = rows == 16    ? offset_of<16>
                    : rows == 32  ? offset_of<32>
                    : rows == 64  ? offset_of<64>
                    : rows == 128 ? offset_of<128>
                    : rows == 176 ? offset_of<176>
                    : rows == 192 ? offset_of<192>
                                  : offset_of<256>;
    return static_cast<std::uintptr_t>(of(width, padding, swizzle)(row, byte / 2) * 2 + byte % 2);
}

TilePlaces record_places() {
    using namespace flashladder;
    Places none;
    none.fill({-1, -1});
    const DeviceArray<TilePlaces> all(std::vector<TilePlaces>{{none, none, none, none, none}});
    const DeviceArray<__half> tensor(std::vector<__half>(rows * columns, __half(0)));
    const DeviceArray<float> result(warp);
    launch_kernel(record_kernel, {1, threads, rows * columns * sizeof(__half)}, all.data(), tensor.data(),
                  result.data());
    return all.download()[0];
}

RegisterMaps record_registers() {
    const flashladder::DeviceArray<RegisterMaps> maps(1);
    flashladder::launch_kernel(flashladder::registers_kernel, {1, flashladder::threads}, maps.data());
    return maps.download()[0];
}

std::vector<int> record_accumulator(int n) {
    using namespace flashladder;
    const DeviceArray<int> numbers(std::size_t(threads) * n / 2);
    with_width(n, [&]<int width>() { launch_kernel(accumulator_kernel<width>, {1, threads}, numbers.data()); });
    return numbers.download();
}

OperandAnswer record_operand(const OperandQuestion& q) {
    using namespace flashladder;
    constexpr auto k = ptx::Major::k, mn = ptx::Major::mn;
    OperandAnswer answer;
    if (q.is_A) return q.mn_major ? operand_of<64, true, mn>(q) : operand_of<64, true, k>(q);
    with_width(q.n, [&]<int n>() { answer = q.mn_major ? operand_of<n, false, mn>(q) : operand_of<n, false, k>(q); });
    return answer;
}

std::uint64_t tile_descriptor(int rows, int columns, unsigned start, bool of_rows, int from) {
    using namespace flashladder;
    const DeviceArray<std::uint64_t> bits(1);
    const auto kernel = rows == 64 ? (columns == 64 ? describe_kernel<64, 64> : describe_kernel<64, 128>)
                                   : (columns == 64 ? describe_kernel<128, 64> : describe_kernel<128, 128>);
    const std::size_t bytes = start + std::size_t(rows) * columns * sizeof(__half);
    launch_kernel(kernel, {1, 1, bytes}, start, of_rows, from, bits.data());
    return bits.download()[0];
}
