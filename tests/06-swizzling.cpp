// Rung 06. A layout changes no result, so the exercises are judged by what the emulator counts, each on variants of the
// stage to which the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "operations/attention/counts.h"
#include "tile/check_layout.h"
#include "tile/swizzled.h"
#endif

namespace flashladder::attention {
namespace {

#ifndef FLASHLADDER_GPU
using emulator::Access;
using emulator::SharedWork;

/// What the four kinds of accesses to shared memory cost, of a warp each.
struct SharedAccesses {
    SharedWork copies_in, ldmatrix, O_stores, copies_out;
    std::size_t shared_bytes = 0;  // of a block
};

/// One head with so many queries and keys that all tiles are full: then the bytes of an access say what it is. ldmatrix
/// counts once a matrix, 8 rows of 16 bytes; a store of O has 4 bytes of each lane, a copy 16.
SharedAccesses count_accesses(const Stage& stage, int d, int n_q = 128, int n_k = 128) {
    const auto work = count_stage(stage, make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed())).work;
    SharedAccesses all;
    all.shared_bytes = work.launches.at(0).dynamic_shared_bytes;
    for (const auto& [line, of_line] : work.launches.at(0).lines) {
        const SharedWork &read = of_line.shared_of(Access::read), &written = of_line.shared_of(Access::write);
        (read.requested_bytes == 128 * read.accesses ? all.ldmatrix : all.copies_out) += read;
        (written.requested_bytes == 128 * written.accesses ? all.O_stores : all.copies_in) += written;
    }
    return all;
}

std::string name_of(const std::string& variant) {
    return stage_under_test().name() + (variant.empty() ? "" : "/" + variant);
}

/// With so much unused behind each row of Q_i, K_j and V_j.
std::uint64_t bytes_of_tiles(int d, int space) { return std::uint64_t(128 + 2 * 64) * (d + space) * 2; }

/// Results of a variant, then what its layout costs: shared memory; no conflicts of ldmatrix and of stores of O; and of
/// a warp's copy so many at most.
void check_layout_of(const std::string& variant, int d, int space, std::uint64_t copy_conflicts) {
    const Stage& stage = find_stage(name_of(variant));
    const std::string where = fmt::format("{}, d {}", stage.name(), d);
    const std::string wrong = [&]() -> std::string {
        try {
            return fault(stage, make_inputs(shape_of(1, 130, 100, d), Values::normal, test_seed()));
        } catch (const std::invalid_argument& error) {  // tile::check_layout, before anything is launched
            return error.what();
        }
    }();
    CHECK_MESSAGE(wrong.empty(), where, ": ", wrong);
    if (!wrong.empty()) return;
    const SharedAccesses all = count_accesses(stage, d);
    const auto check_conflicts = [&](const char* what, const SharedWork& work, std::uint64_t each) {
        CHECK_MESSAGE(
            (work.conflicts <= each * work.accesses),
            fmt::format("{}: {} {} took {} wavefronts, of which {} are conflicts, expected {}{}", where, work.accesses,
                        what, work.wavefronts, work.conflicts, each > 0 ? "at most " : "", each * work.accesses));
    };
    check_conflicts("matrices read by ldmatrix", all.ldmatrix, 0);
    check_conflicts("stores of O by a warp", all.O_stores, 0);
    check_conflicts("copies of a warp to shared memory", all.copies_in, copy_conflicts);
    check_conflicts("copies of a warp from shared memory", all.copies_out, copy_conflicts);
    check_count(where + ": bytes of shared memory", all.shared_bytes, bytes_of_tiles(d, space));
}

TEST_CASE("EXERCISE 6.1: space between rows, and no more than it takes") {
    for (const int d : {64, 128}) check_layout_of("padded", d, 8, 0);  // three times as much would do as well
}

TEST_CASE("EXERCISE 6.2: a layout without conflicts, and without padding") {
    for (const int d : {64, 128})
        // 8 lanes of a copy want 128 bytes of a row. Of a narrow panel they are in 2 or 4 panels, and may lie in the
        // same banks; a warp has four times 8 lanes.
        for (const auto& [panels, copy_conflicts] : {std::pair("", 0), {"64 bytes", 4 * 1}, {"32 bytes", 4 * 3}})
            check_layout_of(panels, d, 0, std::uint64_t(copy_conflicts));
}

TEST_CASE("the stage has no conflict in shared memory at all") {
    for (const int d : stage_under_test().supports.head_dims) {
        const std::string conflicts = "conflicts in shared memory, d " + std::to_string(d);
        const StageCounts full =
            count_stage(stage_under_test(), make_inputs(shape_of(2, 256, 320, d), Values::normal, test_seed()));
        check_count(conflicts, full.work.total().all_shared().conflicts, 0);
        AttentionShape ragged = shape_of(2, 201, 190, d);
        ragged.causal = true;
        const StageCounts causal =
            count_stage(stage_under_test(), make_inputs(ragged, Values::normal, test_seed()), true);
        check_count(conflicts + ", causal", causal.work.total().all_shared().conflicts, 0);
    }
}

TEST_CASE("conflicts of every access of every layout") {
    struct Expected {
        std::string variant;
        std::uint64_t ldmatrix, O_store, copy;  // conflicts of a matrix, and of a warp's store and copy
    };
    // Without a swizzle 8 rows meet in 4 banks. A narrow panel has less than 128 bytes of a row, and those of the next
    // panel lie in the same banks: 8 lanes of a copy, 128 bytes of a row, take 2 wavefronts with 64 bytes, 4 with 32;
    // and a warp has four times 8 lanes.
    for (const auto& [variant, ldmatrix, O_store, copy] : {Expected{"", 0, 0, 0},
                                                           {"tiles of 05", 0, 0, 0},
                                                           {"unswizzled", 7, 7, 0},
                                                           {"padded", 0, 0, 0},
                                                           {"64 bytes", 0, 0, 4 * 1},
                                                           {"32 bytes", 0, 0, 4 * 3}})
        for (const int d : stage_under_test().supports.head_dims) {
            const SharedAccesses all = count_accesses(find_stage(name_of(variant)), d);
            const auto check_conflicts = [&](const char* of, const SharedWork& work, std::uint64_t least,
                                             std::uint64_t most) {
                check_count(name_of(variant) + ", d " + std::to_string(d) + ": conflicts of " + of, work.conflicts,
                            least * work.accesses, most * work.accesses);
            };
            check_conflicts("ldmatrix", all.ldmatrix, ldmatrix, ldmatrix);
            check_conflicts("the stores of O", all.O_stores, O_store, O_store);
            check_conflicts("the copies to shared memory", all.copies_in, 0, copy);  // ours has so many
            check_conflicts("the copies from shared memory", all.copies_out, 0, copy);
        }
}

TEST_CASE("how much is read and written, and shared memory of a block: the lesson's arithmetic") {
    for (const std::uint64_t d : {64, 128}) {
        constexpr std::uint64_t N_q = 256, N_k = 320, B_r = 128, B_c = 64, warps = 4;
        constexpr std::uint64_t T_r = N_q / B_r, T_c = N_k / B_c;
        const SharedAccesses all = count_accesses(stage_under_test(), int(d), N_q, N_k);
        // Matrices of 8 x 8. Q_i is read once where it stays in registers, in each step where it does not.
        const std::uint64_t K_and_V = 2 * warps * (B_c / 8) * (d / 8), Q = (B_r / 8) * (d / 8);
        const std::string with_d = ", d " + std::to_string(d);
        check_count("matrices that ldmatrix reads" + with_d, all.ldmatrix.accesses,
                    T_r * (T_c * K_and_V + (d == 64 ? 1 : T_c) * Q));
        // Copies of a warp move 512 bytes, its stores of O 128.
        check_count("a warp's copies to shared memory" + with_d, all.copies_in.accesses,
                    T_r * (B_r + T_c * 2 * B_c) * d * 2 / 512);
        check_count("a warp's copies from shared memory" + with_d, all.copies_out.accesses, T_r * B_r * d * 2 / 512);
        check_count("a warp's stores of O" + with_d, all.O_stores.accesses, T_r * B_r * d * 2 / 128);

        check_count("bytes of shared memory" + with_d, all.shared_bytes, bytes_of_tiles(int(d), 0));
        for (const char* other : {"64 bytes", "32 bytes", "unswizzled"})
            check_count(std::string(other) + ": bytes of shared memory" + with_d,
                        count_accesses(find_stage(name_of(other)), int(d)).shared_bytes, all.shared_bytes);
        check_count("padded: bytes of shared memory" + with_d,
                    count_accesses(find_stage(name_of("padded")), int(d)).shared_bytes, bytes_of_tiles(int(d), 8));
    }
}

using tile::chunk;
namespace solution {
#include "layout.h"  // Swizzled, cut out of the solution: there nobody else can see it
}  // namespace solution

/// A tile of `rows` of `columns` elements.
template <class Layout, int bytes, int rows, int columns>
void check_layout() {
    CAPTURE(bytes);
    CAPTURE(columns);
    const auto offset = [](int row, int column) { return Layout::template offset<rows, columns>(row, column); };
    std::set<int> places;
    for (int c = 0; c < columns; c += chunk)
        for (int first = 0; first < rows; first += 8) {
            std::set<int> banks;  // four at a time
            for (int row = first; row < first + 8; ++row) {
                const int at = offset(row, c);
                places.insert(at);
                banks.insert(at / chunk % 8);
                REQUIRE(at % chunk == 0);
                for (int x = 1; x < chunk; ++x) REQUIRE(offset(row, c + x) == at + x);
                if (row >= 8) REQUIRE(at == offset(row - 8, c) + 8 * Layout::template stride<columns>);
            }
            REQUIRE(banks.size() == 8);
            // The same in one formula for all widths: bits 7 and up of the address in bytes XOR into bits 4 and up, as
            // many as a panel's row has places.
            for (int row = first; row < first + 8; ++row) {
                const int panel = c * 2 / bytes, address = (panel * rows + row) * bytes + c * 2 % bytes;
                REQUIRE(2 * offset(row, c) == (address ^ (address >> 7) % (bytes / 16) << 4));
            }
        }
    CHECK(places.size() == rows * columns / chunk);
    CHECK(*places.rbegin() == rows * columns - chunk);
    CHECK(Layout::template elements<rows, columns> == rows * columns);
}

/// Both fulfil the same formula, so they are the same. A learner's own layout is not asked here: it may be another one.
template <int bytes, int rows, int columns>
void check_swizzled() {
    check_layout<solution::Swizzled<bytes>, bytes, rows, columns>();
    check_layout<tile::Swizzled<bytes>, bytes, rows, columns>();
}

TEST_CASE("the solution's layout and common/tile's: the one of TMA, a place for each chunk, all banks for a column") {
    check_swizzled<128, 64, 64>();
    check_swizzled<128, 128, 128>();
    check_swizzled<64, 64, 64>();
    check_swizzled<64, 128, 128>();
    check_swizzled<64, 16, 32>();
    check_swizzled<32, 64, 64>();
    check_swizzled<32, 128, 128>();
    check_swizzled<32, 16, 16>();
    CHECK(std::is_same_v<tile::SwizzledFor<64>, tile::Swizzled<128>>);
    CHECK(std::is_same_v<tile::SwizzledFor<128>, tile::Swizzled<128>>);
    CHECK(std::is_same_v<tile::SwizzledFor<96>, tile::Swizzled<64>>);
    CHECK(std::is_same_v<tile::SwizzledFor<80>, tile::Swizzled<32>>);
}

struct BothAtOne : tile::RowMajor {
    template <int rows, int columns>
    static int offset(int row, int column) {
        return row * columns + (row == 2 && column >= 8 && column < 16 ? column - 8 : column);
    }
};
struct BehindTheEnd : tile::RowMajor {
    template <int columns>
    static constexpr int stride = columns + 8;
    template <int rows, int columns>
    static int offset(int row, int column) {
        return row * (columns + 8) + column;
    }
};
struct OtherStride : tile::RowMajor {
    template <int columns>
    static constexpr int stride = 2 * columns;
};
struct HalfAChunk : tile::RowMajor {
    template <int columns>
    static constexpr int stride = columns + 4;
    template <int rows, int columns>
    static constexpr int elements = rows * (columns + 4);
    template <int rows, int columns>
    static int offset(int row, int column) {
        return row * (columns + 4) + column;
    }
};
struct Backwards : tile::RowMajor {
    template <int rows, int columns>
    static int offset(int row, int column) {
        return row * columns + column / 8 * 8 + (8 - column % 8) % 8;
    }
};
struct Before : tile::RowMajor {
    template <int rows, int columns>
    static int offset(int row, int column) {
        return row * columns + column - 8;
    }
};

TEST_CASE("a layout that cannot be is told in rows and columns, before anything is launched") {
    const auto says = [](const std::string& fault, const std::string& words) {
        CHECK_MESSAGE(fault == "a tile of 16 rows and 16 columns, (row, column) in elements: " + words, fault);
    };
    says(tile::layout_fault<BothAtOne, 16, 16>(), "(2, 0) and (2, 8) both lie at offset 32");
    says(tile::layout_fault<BehindTheEnd, 16, 16>(), "(11, 0) lies at offset 264, behind the tile's 256 elements");
    says(tile::layout_fault<OtherStride, 16, 16>(),
         "(8, 0) lies at offset 128, not 8 strides of 32 behind row - 8: (0, 0) lies at offset 0");
    says(tile::layout_fault<HalfAChunk, 16, 16>(),
         "(1, 0) lies at offset 20, and a chunk of 8 begins at a multiple of 8 elements, 16 bytes");
    says(tile::layout_fault<Backwards, 16, 16>(),
         "(0, 1) lies at offset 7, not behind its neighbour in the chunk: (0, 0) lies at offset 0");
    says(tile::layout_fault<Before, 16, 16>(), "(0, 0) lies at offset -8, before the tile");
    CHECK(tile::layout_fault<tile::RowMajor, 16, 16>() == "");
    CHECK_THROWS_AS((tile::check_layout<Before, 16, 16>()), std::invalid_argument);
}

TEST_CASE("counted: no block of keys behind the diagonal is loaded, neither of K nor of V") {
    check_no_keys_behind_the_diagonal(64, 128, 64);
}
#endif

TEST_CASE("causal: N_k - N_q beside a multiple of a block of keys") {
    for (const int d : {64, 128})
        for (const int more : more_keys_near(64, test_seed())) {
            const int n_q = std::max(70, 1 - more);
            const std::string wrong = fault(stage_under_test(), inputs(1, n_q, n_q + more, d, true, test_seed()));
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
}

TEST_CASE("agrees with the reference: lengths near the edges of tiles, causal too") { check_lengths_near(128, 64); }

TEST_CASE("needs no memory beyond inputs and outputs") {
    check_count("bytes of scratch", stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)), 0);
}

}  // namespace
}  // namespace flashladder::attention
