// LazySoftmax over several blocks of keys, against the softmax of whole rows in double; when it raises m, and by what.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

constexpr int blocks = 6, warp_rows = 16;
constexpr float scales_log2[] = {0.1803369f, 0.0901684f, 1.442695f, 4.0f, 0.01f};

/// Scores of a warp that come in blocks. `slack`: by how much they may grow.
struct Warp {
    std::string name;
    float (*level)(int row, int block, float slack);
    bool hides;  // some keys, and some rows altogether or for some blocks
};
// clang-format off
const Warp warps[] = {
    {"scores that stay", [](int, int, float) { return 0.0f; }, false},
    {"one row grows by the slack now and then", [](int row, int block, float slack) {
        return row == 7 ? (block >= 4 ? 2.2f : block >= 2 ? 1.1f : 0.0f) * slack : 0.0f; }, false},
    {"another row does", [](int row, int block, float slack) {
        return row == 12 ? (block >= 5 ? 2.2f : block >= 1 ? 1.1f : 0.0f) * slack : 0.0f; }, false},
    {"all grow by less than the slack", [](int, int block, float slack) { return block * 0.15f * slack; }, false},
    {"all grow over it again and again", [](int, int block, float slack) { return block * 0.7f * slack; }, false},
    {"all negative, and falling", [](int, int block, float slack) { return -2 * slack - block * 0.6f * slack; }, false},
    {"all negative, and growing", [](int, int block, float slack) { return (block - 9) * 2.5f * slack; }, false},
    {"10000 up and down", [](int row, int block, float) { return (row + block) % 3 == 0 ? 1e4f : -1e4f; }, false},
    {"10000, then nothing like it", [](int row, int block, float) { return row % 2 || block ? 0.0f : 1e4f; }, false},
    {"hidden keys", [](int, int block, float slack) { return block * 0.3f * slack; }, true},
    {"hidden keys, all negative", [](int row, int block, float slack) { return (row % 3 - 12 - block) * slack; }, true},
};
bool hides(int row, int block) {
    switch (row) {
        case 0: return true;           // sees nothing
        case 1: return block < 5;      // nothing until the last block
        case 2: return block > 0;      // nothing after the first one
        case 3: return block % 2 == 0;
        default: return false;
    }
}
// clang-format on

Floats draw_scores(Random& random, const Warp* const (&of)[2], int keys, const LazyScales& scale, float slack) {
    const int columns = blocks * keys;
    Floats S(std::size_t(lazy_rows) * columns);
    std::normal_distribution<float> normal;
    for (int i = 0; i < int(S.size()); ++i) {
        const Warp& warp = *of[i / columns / warp_rows];
        const int row = i / columns % warp_rows, block = i % columns / keys;
        S[i] = warp.level(row, block, slack) + normal(random) / scale.log2;
        if (warp.hides && (hides(row, block) || draw(random, 0, 7) == 0)) S[i] = -INFINITY;
    }
    return S;
}

/// What the comments in tile/lazy_softmax.h say of m, with plain loops: whether a warp raises it behind a block, and to what.
/// Where a sum is so near to the most that floats may tell otherwise, what was found is believed.
void check_m(const LazyCase& c, const Floats& S, const LazyScales& scale, const LazyAttended& found, int (&raises)[2]) {
    Floats m(lazy_rows, scale.lowest);
    for (int j = 0; j < blocks; ++j)
        for (int warp = 0; warp < 2; ++warp) {
            bool raised = j == 0, near = false;
            Floats largest(m);
            for (int row = warp * warp_rows; row < (warp + 1) * warp_rows; ++row) {
                double sums[4] = {};  // of the lanes of a row: two columns of eight each
                for (int key = 0; key < c.keys; ++key) {
                    const float score = S[(row * blocks + j) * c.keys + key];
                    sums[key % 8 / 2] += std::exp2((double(score) - m[row]) * scale.log2);
                    largest[row] = std::fmax(largest[row], score);
                }
                for (const double sum : sums) raised |= sum > c.most, near |= std::fabs(sum / c.most - 1) < 1e-3;
            }
            const int first = (j * lazy_rows + warp * warp_rows) * 4;
            if (near) raised = false;
            for (int i = 0; near && i < warp_rows * 4; ++i) raised |= found.m[first + i] != m[warp * warp_rows + i / 4];
            if (raised) m = largest;
            if (j > 0) ++raises[raised];
            for (int i = 0; i < warp_rows * 4; ++i) REQUIRE(found.m[first + i] == m[warp * warp_rows + i / 4]);
        }
}
void check_lanes(const LazyCase& c, const LazyAttended& found) {
    for (const float largest : found.largest) REQUIRE(largest <= c.most);
    for (const int freed : found.freed) REQUIRE(freed == 1);
}

void check_attention(const LazyCase& c, const LazyScales& scale, const Floats& S, const Bits16& V,
                     const LazyAttended& found) {
    for (int row = 0; row < lazy_rows; ++row) {
        INFO("row ", row);
        const float* scores = &S[std::size_t(row) * blocks * c.keys];
        double largest = -INFINITY, size = 0, sum = 0;
        for (int j = 0; j < blocks * c.keys; ++j) {
            largest = std::fmax(largest, double(scores[j]));
            if (std::isfinite(scores[j])) size = std::fmax(size, std::fabs(scores[j] * scale.log2));
        }
        std::vector<double> O(c.d);
        for (int j = 0; largest > -INFINITY && j < blocks * c.keys; ++j) {
            const double p = std::exp2((scores[j] - largest) * scale.log2);
            sum += p;
            for (int x = 0; x < c.d; ++x) O[x] += p * from_bits(c.element, V[j * c.d + x]);
        }
        const double of_P = c.element == Element::bf16 ? 0x1p-8 : 0x1p-11;
        const double of_float = 4e-6 + 0x1p-22 * size;  // exponents are as exact as large ones can be
        if (sum == 0) {
            REQUIRE(found.lse[row] == -INFINITY);
        } else {
            const double lse = largest * scale.log2 * std::log(2.0) + std::log(sum);
            REQUIRE(!(std::fabs(found.lse[row] - lse) > of_float + 1.5e-7 * std::fabs(lse)));
        }
        for (int x = 0; x < c.d; ++x) {
            const double o = found.O[row * c.d + x];
            if (sum == 0)
                REQUIRE(o == 0);
            else
                REQUIRE(!(std::fabs(o - O[x] / sum) > 9 * (2 * of_P + of_float)));
        }
    }
}

TEST_CASE("lazy softmax: softmax, whether scores grow by less than the slack or by more; m is raised when they do") {
    Random random(test_seed());
    int raised[2] = {};
    for (const LazyCase& c : lazy_cases()) {
        const float scale_log2 = scales_log2[draw(random, 0, 4)];
        const LazyScales scale = c.scale(scale_log2);
        for (std::size_t w = 0; w < std::size(warps); ++w) {
            const Warp* const both[] = {&warps[w],
                                        &warps[(w + 1 + random() % (std::size(warps) - 1)) % std::size(warps)]};
            INFO(std::string(c.element == Element::bf16 ? "bf16, " : "f16, "), c.keys, " keys, d ", c.d, ", scale ",
                 scale_log2, ": ", both[0]->name, "; ", both[1]->name);
            const Floats S = draw_scores(random, both, c.keys, scale, std::log2(c.most) / scale_log2);
            const Bits16 V = whole_elements(random, c.element, std::size_t(blocks) * c.keys * c.d);  // up to 9
            const LazyAttended found = c.attend(S, V, scale_log2);
            check_m(c, S, scale, found, raised);
            check_lanes(c, found);
            check_attention(c, scale, S, V, found);
        }
    }
    CHECK(raised[0] > 30);  // and both have been seen
    CHECK(raised[1] > 30);
}

TEST_CASE("lazy scale: P as large as its type bears, and an m to begin with that is finite however it is scaled") {
    for (const LazyCase& c : lazy_cases())
        for (const float scale_log2 : scales_log2) {
            const LazyScales scale = c.scale(scale_log2);
            CHECK(scale.log2 == scale_log2);
            CHECK(c.most == (c.element == Element::bf16 ? 0x1p24f : 0x1p8f));
            CHECK(std::isfinite(scale.lowest));
            CHECK(std::isfinite(scale.lowest * scale_log2));
            CHECK(scale.lowest * std::max(scale_log2, 1.0f) < -3.4e38f);
        }
}

}  // namespace
}  // namespace flashladder
