// ldmatrix, stmatrix and mma.sync: the fragments that each lane holds, as the PTX ISA lays them out.
#include <cmath>
#include <cstring>

#include "access.h"
#include "calls.h"
#include "collective.h"
#include "float16.h"
#include "for_each_processor.h"
#include "ptx_functions.h"

extern "C" float __real_exp2f(float);  // that of the library, which is not counted

namespace emulator {
namespace {

using Row = std::array<std::uint16_t, 8>;

std::uint32_t pack(std::uint16_t low, std::uint16_t high) { return low | std::uint32_t(high) << 16; }

struct LoadOperands {
    std::uint32_t* matrices;
    const void* row;
};
struct StoreOperands {
    const std::uint32_t* matrices;
    void* row;
};

/// Where the rows of matrix m lie: its lanes have brought them.
template <class Operands>
std::array<std::uintptr_t, matrix_rows> row_addresses(const WarpOperands<Operands>& lanes, std::size_t m) {
    std::array<std::uintptr_t, matrix_rows> rows;
    for (std::size_t i = 0; i < matrix_rows; ++i)
        rows[i] = reinterpret_cast<std::uintptr_t>(lanes[m * matrix_rows + i]->row);
    return rows;
}

/// The rest of the scope is the opposite lane's. The PTX ISA does not say which lane of a warp reads what: each is
/// taken to read everything. Two of them stand for all: what one has written itself or waited for alone, the other one
/// does not know of.
class AsOppositeLane {
public:
    AsOppositeLane() { current += warp_size - 1 - 2 * static_cast<int>(current->lane()); }
    ~AsOppositeLane() { current = self_; }
    AsOppositeLane(const AsOppositeLane&) = delete;

private:
    Thread* const self_ = current;
};

struct Fragments {
    float* d;
    const std::uint32_t *a, *b;
};

/// A and B of a warp's product, from the fragments of its lanes. `value` is what 16 bits mean.
template <class Value>
void unpack(const WarpOperands<Fragments>& lanes, float (&A)[16][16], float (&B)[16][8], Value value) {
    const auto two = [&](float* to, std::size_t distance, std::uint32_t bits) {
        to[0] = value(static_cast<std::uint16_t>(bits));
        to[distance] = value(static_cast<std::uint16_t>(bits >> 16));
    };
    for (int lane = 0; lane < warp_size; ++lane) {
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) two(&A[group + i % 2 * 8][pair + i / 2 * 8], 1, lanes[lane]->a[i]);
        for (int i = 0; i < 2; ++i) two(&B[pair + i * 8][group], 8, lanes[lane]->b[i]);
    }
}

/// The products of 16-bit numbers are exact in float, but for bf16 beyond float's exponents: whether a processor fuses them with
/// the addition does not matter.
FOR_EACH_PROCESSOR void multiply(const float (&A)[16][16], const float (&B)[16][8], float (&products)[16][8]) {
    for (int row = 0; row < 16; ++row) {
        float sums[8] = {};
        for (int k = 0; k < 16; ++k)
            for (int column = 0; column < 8; ++column) sums[column] += A[row][k] * B[k][column];
        for (int column = 0; column < 8; ++column) products[row][column] = sums[column];
    }
}

}  // namespace

void ldmatrix(std::uint32_t* matrices, int n, bool transposed, const void* row, const Where& where) {
    const char* name = transposed ? "ldmatrix_trans" : "ldmatrix";
    LoadOperands own{matrices, row};
    perform_together(name, own, where, [&](const WarpOperands<LoadOperands>& lanes) {
        const Operand operand{name, with_calls(where)};
        for (std::size_t m = 0; m < static_cast<std::size_t>(n); ++m) {
            if (counting) trace_matrix(Access::read, row_addresses(lanes, m), where);
            std::array<Row, matrix_rows> rows;
            for (std::size_t i = 0; i < matrix_rows; ++i) {
                const void* p = lanes[m * matrix_rows + i]->row;
                check_shared_read(p, matrix_row_bytes, matrix_row_bytes, operand);
                std::memcpy(&rows[i], p, matrix_row_bytes);
                if (!watching) continue;
                const AsOppositeLane other;
                check_shared_read(p, matrix_row_bytes, matrix_row_bytes, operand);
            }
            for (int lane = 0; lane < warp_size; ++lane) {
                const int i = lane / 4, j = lane % 4 * 2;
                lanes[lane]->matrices[m] =
                    transposed ? pack(rows[j][i], rows[j + 1][i]) : pack(rows[i][j], rows[i][j + 1]);
            }
        }
    });
}

void stmatrix(void* row, const std::uint32_t* matrices, int n, bool transposed, const Where& where) {
    const char* name = transposed ? "stmatrix_trans" : "stmatrix";
    StoreOperands own{matrices, row};
    perform_together(name, own, where, [&](const WarpOperands<StoreOperands>& lanes) {
        const Operand operand{name, with_calls(where)};
        for (std::size_t m = 0; m < static_cast<std::size_t>(n); ++m) {
            if (counting) trace_matrix(Access::write, row_addresses(lanes, m), where);
            std::array<Row, matrix_rows> rows;
            for (int lane = 0; lane < warp_size; ++lane) {
                const int i = lane / 4, j = lane % 4 * 2;
                const std::uint32_t two = lanes[lane]->matrices[m];
                (transposed ? rows[j][i] : rows[i][j]) = static_cast<std::uint16_t>(two);
                (transposed ? rows[j + 1][i] : rows[i][j + 1]) = static_cast<std::uint16_t>(two >> 16);
            }
            for (std::size_t i = 0; i < matrix_rows; ++i) {
                void* p = lanes[m * matrix_rows + i]->row;
                note_shared_write(p, matrix_row_bytes, matrix_row_bytes, operand);
                std::memcpy(p, &rows[i], matrix_row_bytes);
            }
        }
    });
}

void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, bool bf16, const Where& where) {
    Fragments own{d, a, b};
    perform_together("mma_m16n8k16", own, where, [&](const WarpOperands<Fragments>& lanes) {
        if (counting) {
            trace_product(2 * 16 * 8 * 16, where);
            trace_product_of_warp(current - current->lane());
        }
        if (recording) note_of_lane(0, Doing::product, where);
        float A[16][16], B[16][8], products[16][8];
        if (bf16)
            unpack(lanes, A, B, [](std::uint16_t bits) { return float_from_bf16(bits); });
        else
            unpack(lanes, A, B, [](std::uint16_t bits) { return float_from_f16(bits); });
        multiply(A, B, products);
        for (int lane = 0; lane < warp_size; ++lane)
            for (int i = 0; i < 4; ++i)
                lanes[lane]->d[i] += products[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    });
}

float ex2_approx(float x) {
    if (counting) trace_exponential(__builtin_return_address(0));
    if (std::fabs(x) < 0x1p-126f) x = 0;
    const float y = __real_exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}

}  // namespace emulator
