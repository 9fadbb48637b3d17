// OnlineSoftmax over several blocks of keys, against the softmax of whole rows in double.
#include <doctest/doctest.h>

#include <cmath>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

constexpr int blocks = 4;
constexpr double float_error = 4e-6;  // a tensor core drops digits where float arithmetic rounds

/// Of row i: hides(i, block) says whether it sees nothing of a block, level(i, block) is about how large its scores
/// are. Rows 16 apart are alike.
// clang-format off
bool hides(int row, int block) {
    switch (row % 16) {
        case 0: return true;           // sees nothing
        case 1: return block < 3;      // nothing until the last block
        case 2: return block > 0;      // nothing after the first one
        case 3: return block % 2 != 1;
        default: return false;
    }
}
float level(int row, int block) {
    switch (row % 16) {
        case 4: return 3.0f * block;      // a growing maximum
        case 5: return -3.0f * block;     // a falling one
        case 6: return 60.0f * block;     // nothing of a block remains beside the next one
        case 7: return -1000;             // 2^-1000 is no float
        case 8: return 1000;
        case 9: return block == 2 ? 7.0f : 0;
        default: return 0;
    }
}
// clang-format on

/// Scores in base 2. `whole`: their exponentials are exact in 16 bits.
Floats draw_scores(Random& random, const SoftmaxCase& c, bool whole) {
    const int columns = blocks * c.keys;
    Floats S(std::size_t(2) * c.rows * columns);
    std::normal_distribution<float> normal;
    for (int i = 0; i < int(S.size()); ++i) {
        const int row = i / columns, block = i % columns / c.keys;
        S[i] = level(row, block) + (whole ? float(draw(random, -8, 0)) : 2 * normal(random));
        if (hides(row, block) || draw(random, 0, 7) == 0) S[i] = -INFINITY;
        if (row % 16 == 10 && i % columns != columns / 2 + 5) S[i] = -INFINITY;  // one key alone
    }
    return S;
}

struct Row {
    std::vector<double> O;
    double lse, largest;
};
Row softmax(const float* S, const Bits16& V, const SoftmaxCase& c) {
    Row row{std::vector<double>(c.d), -INFINITY, -INFINITY};
    for (int j = 0; j < blocks * c.keys; ++j) row.largest = std::fmax(row.largest, S[j]);
    if (row.largest == -INFINITY) return row;
    double sum = 0;
    for (int j = 0; j < blocks * c.keys; ++j) {
        const double p = std::exp2(S[j] - row.largest);
        sum += p;
        for (int x = 0; x < c.d; ++x) row.O[x] += p * from_bits(c.element, V[j * c.d + x]);
    }
    for (double& o : row.O) o /= sum;
    row.lse = (row.largest + std::log2(sum)) * std::log(2.0);
    return row;
}

/// `error` is that of a P; what float does comes on top.
void check(const SoftmaxCase& c, bool whole, double error) {
    Random random(test_seed());
    for (const bool in_pieces : {false, true})
        for (const int N : {2 * c.rows, 2 * c.rows - 5, c.rows, 3}) {
            const Floats S = draw_scores(random, c, whole);
            const Bits16 V = whole_elements(random, c.element, std::size_t(blocks) * c.keys * c.d);  // up to 9
            const Attended found = c.attend(S, V, in_pieces, N);
            for (int row = 0; row < 2 * c.rows; ++row) {
                INFO(c.rows, " rows, ", c.keys, " keys, d ", c.d, ", by lanes ", c.sums_by_lanes, ", in pieces ",
                     in_pieces, ", row ", row);
                const Row expected = softmax(&S[std::size_t(row) * blocks * c.keys], V, c);
                if (row >= N)
                    REQUIRE(found.lse[row] == -1);
                else if (expected.lse == -INFINITY)
                    REQUIRE(found.lse[row] == -INFINITY);
                else
                    REQUIRE(!(std::fabs(found.lse[row] - expected.lse) >
                              error + float_error + 1.5e-7 * std::fabs(expected.lse)));
                for (int x = 0; x < c.d; ++x) {
                    const double o = found.O[row * c.d + x];
                    if (expected.lse == -INFINITY)
                        REQUIRE(o == 0);
                    else
                        REQUIRE(!(std::fabs(o - expected.O[x]) > 9 * (2 * error + float_error)));
                }
                for (int lane = 1; lane < 4; ++lane) REQUIRE(found.lanes[row * 4 + lane] == found.lanes[row * 4]);
            }
        }
}

TEST_CASE("online softmax: whole scores, whose exponentials have no rounding") {
    for (const SoftmaxCase& c : softmax_cases()) check(c, true, 0);
}

TEST_CASE("online softmax: any scores, within the rounding of P") {
    for (const SoftmaxCase& c : softmax_cases()) check(c, false, c.element == Element::bf16 ? 0x1p-8 : 0x1p-11);
}

}  // namespace
}  // namespace flashladder
