// Capstone 3: two products with one left factor, which nobody may load twice, and a gate between them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "operations/gated_product/operation.h"
#include "operations/gated_product/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#include "lcsf/few_multiprocessors.h"
#include "warp_activity.h"
#endif

namespace flashladder::gated_product {
namespace {

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }
Data fresh(const Shape& s) { return operation().inputs(problem_of(s), test_seed()); }

float at(const Data& data, const char* name, int row, int column, int columns) {
    return data.tensors.at(
        name)[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)];
}

/// Another thing that C may be, of the element's sums.
struct Way {
    const char* as_if;
    double (*value)(double u, double g);
};
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
const Way wrong_ways[] = {
    {"nothing were gated: it is A B", [](double u, double) { return u; }},
    {"B and G had changed places", [](double u, double g) { return g * u * sigmoid(u); }},
    {"the gate were a sigmoid", [](double u, double g) { return u * sigmoid(g); }},
    {"the gate were A G itself", [](double u, double g) { return u * g; }},
    {"the gate were all of it: it is silu(A G)", [](double, double g) { return g * sigmoid(g); }},
    {"the sign in the exponential were wrong", [](double u, double g) { return u * g * sigmoid(-g); }},
    {"2 to a power were taken for e to a power", [](double u, double g) { return u * g * sigmoid(g * std::log(2.0)); }},
    {"A B were added to the gate, not multiplied by it", [](double u, double g) { return u + g * sigmoid(g); }},
    {"it were a product with B alone: (A B) silu(A B)", [](double u, double) { return u * u * sigmoid(u); }},
    {"it were a product with G alone: (A G) silu(A G)", [](double, double g) { return g * g * sigmoid(g); }},
    {"nothing had been added up", [](double, double) { return 0.0; }},
};

/// What is wrong with C, in words: the element that is, and what all of C looks like; "" if nothing is.
std::string fault(const Shape& s) {
    const Data in = fresh(s);
    const auto nothing_written = [&] {
        return fmt::format(
            "C is NaN in every place, as nobody has written it: launch() is yours to write, and the kernel that it "
            "starts; chapters/{}/README.md says what they must do ({})",
            stage_under_test().folder(), to_string(problem_of(s)));
    };
    Data out;
    try {
        out = run(stage_under_test(), in);
    } catch (const CudaError& error) {
        return last_launch.entry ? error.what() : nothing_written();
    }
    const std::vector<float>& C = out.tensors.at("C");
    if (std::ranges::all_of(C, [](float x) { return std::isnan(x); })) return nothing_written();
    const Judgement j = operation().reference(in, 1, std::size_t(1) << 20)(out);
    if (j.passed) return "";
    const auto looks_like = [&](const Way& way) {  // by some elements of all of C
        for (int e = 0; e < 40; ++e) {
            const int i = e * 37 % s.M, x = e * 53 % s.N;
            double u = 0, g = 0;
            for (int k = 0; k < s.K; ++k) {
                const double a = at(in, "A", i, k, s.K);
                u += a * at(in, "B", k, x, s.N), g += a * at(in, "G", k, x, s.N);
            }
            const double wanted = way.value(u, g);
            if (!(std::abs(at(out, "C", i, x, s.N) - wanted) <= 0.02 * std::abs(wanted) + 1e-3)) return false;
        }
        return true;
    };
    for (const Way& way : wrong_ways)
        if (looks_like(way)) return fmt::format("C looks as if {}: {}", way.as_if, j.description);
    return j.description;
}

void check_shapes(const std::vector<Shape>& shapes) {
    for (const Shape& s : shapes) {
        const std::string wrong = fault(s);
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) break;  // what is wrong with the next ones is likely the same
    }
}

TEST_CASE("EXERCISE capstone-3.1: one step, whole tiles") { check_shapes({{128, 128, 64}, {256, 256, 64}}); }
TEST_CASE("EXERCISE capstone-3.1: several steps") {
    check_shapes({{128, 128, 128}, {128, 256, 512}, {256, 256, 1000}});
}
TEST_CASE("EXERCISE capstone-3.1: several tasks for each block, of sizes that divide nothing") {
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(2);
#endif
    check_shapes({{8, 8, 8}, {136, 264, 72}, {520, 136, 328}, {200, 520, 200}, {776, 264, 16}});
}

TEST_CASE("sizes of every residue") {
    for (std::uint64_t i = 0; i < 6; ++i) {
        const auto size = [&](std::uint64_t which, int most) {
            return 8 * (1 + static_cast<int>((test_seed() * 7 + i * 5 + which * 3 + which * i) %
                                             static_cast<unsigned>(most)));
        };
        check_shapes({{size(1, 33), size(2, 33), size(3, 25)}});
    }
}

TEST_CASE("a large gate is A G, a small one nothing; NaN in a row of A is in its row of C alone") {
    const Shape s{136, 136, 72};
    Data in = fresh(s);
    for (float& g : in.tensors.at("G")) g *= 64;  // a power of 2: still bf16
    Data out = run(stage_under_test(), in);
    const Judgement j = operation().reference(in, 1, std::size_t(1) << 20)(out);
    CHECK_MESSAGE(j.passed, "G 64 times as large: ", j.description);
    constexpr int ill = 70;
    in.tensors.at("A")[ill * 72 + 5] = std::numeric_limits<float>::quiet_NaN();
    out = run(stage_under_test(), in);
    for (int i = 0; i < s.M; ++i) {
        const bool is_nan = std::isnan(at(out, "C", i, 9, s.N));
        CHECK_MESSAGE((is_nan == (i == ill)),
                      fmt::format("row {} of A alone has a NaN, but C[{}][9] is {}", ill, i,
                                  found_text(at(out, "C", i, 9, s.N))));
    }
}

TEST_CASE("nothing behind the end of C is written") {
    const Shape s{72, 200, 64};
    constexpr std::size_t guard = 64;  // rows
    const Data in = fresh(s);
    const DeviceProblem problem(stage_under_test(), in);
    DeviceBuffer C((static_cast<std::size_t>(s.M) + guard) * static_cast<std::size_t>(s.N) * 2,
                   "C and what is behind it");
    C.fill(0xFF);
    DeviceData data = problem.data();
    data.tensors.at("C") = C.data();
    stage_under_test().launch(data);
    check_cuda(cudaDeviceSynchronize(), "launch");
    const std::vector<float> all = C.download(C.bytes() / 2, DType::bf16);
    for (std::size_t x = static_cast<std::size_t>(s.M * s.N); x < all.size(); ++x) {
        CHECK_MESSAGE(std::isnan(all[x]),
                      fmt::format("element {} behind the end of C is {}: nobody may write there ({})",
                                  x - static_cast<std::size_t>(s.M * s.N), all[x], to_string(problem_of(s))));
        if (!std::isnan(all[x])) break;
    }
}

TEST_CASE("gives the same bits again") {
    const Data in = fresh({200, 264, 328});
    CHECK_MESSAGE((run(stage_under_test(), in).tensors == run(stage_under_test(), in).tensors),
                  "C has other bits than in the run before");
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Data in = fresh({64, 64, 64});
    const DeviceProblem problem(stage, in);
    const DeviceData data = problem.data();
    const auto check_refusal = check_refusal_of(stage, Args{{64, 64, 64}, data.tensors.at("A"), data.tensors.at("B"),
                                                            data.tensors.at("G"), data.tensors.at("C")});
    check_refusal([](Args& a) { a.shape.N = 260; }, "N is 260, but must be a positive multiple of 8");
    check_refusal([](Args& a) { a.shape.M = 0; }, "M is 0, but must be a positive multiple of 8");
    check_refusal([](Args& a) { a.G = nullptr; }, "G is a null pointer");
    check_refusal([](Args& a) { a.B = static_cast<const char*>(a.B) + 2; }, "B is at ");
    CHECK(stage.why_unsupported(problem_of({64, 64, 64}).in(DType::f16)) ==
          stage.name() + ": dtype f16 is not supported (only bf16)");
}

TEST_CASE("the reference, by hand and with NaN") {
    Data in = fresh({8, 8, 8});
    for (auto& [name, values] : in.tensors) std::ranges::fill(values, 0.0f);
    in.tensors.at("A")[0] = 2, in.tensors.at("B")[0] = 3, in.tensors.at("G")[0] = 0.5f;  // 6 silu(1)
    Data out{in.problem, {{"C", std::vector<float>(64)}}};
    const Reference reference = operation().reference(in, 1, 100);
    CHECK_FALSE(reference(out).passed);
    out.tensors.at("C")[0] = static_cast<float>(6 / (1 + std::exp(-1.0)));
    CHECK(reference(out).passed);
    // The neighbours of 4.38635 are 4.375 and 4.40625.
    out.tensors.at("C")[0] = 4.375f;
    CHECK(reference(out).passed);
    out.tensors.at("C")[0] = 4.40625f;
    CHECK_FALSE(reference(out).passed);
    const std::string twice =
        "C[0][0] is 4.40625, expected 4.38635: off by 1.99e-02, where one rounding to bf16 allows "
        "1.56e-02: perhaps rounded more than once, or not to the nearest; C's";
    CHECK_MESSAGE(reference(out).description.find(twice) != std::string::npos, reference(out).description);
    out.tensors.at("C")[9] = -std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(reference(out).passed);
    out.tensors.at("C")[0] = 4.375f;
    CHECK(reference(out).description.find("C[1][1] is nan (which was computed), expected 0") != std::string::npos);
}

#ifndef FLASHLADDER_GPU
using emulator::Access;

void check_at_most(const std::string& what, double found, double most, const Shape& where) {
    CHECK_MESSAGE((found <= most), fmt::format("{}: found {}, expected at most {} ({})", what, found, most,
                                               to_string(problem_of(where))));
}

StageCounts counts_of(const Shape& s) {
    try {
        return count_stage(stage_under_test(), fresh(s));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

constexpr int tile = 128;  // rows and columns of C, in which targets are counted
const Shape counted_shapes[] = {{256, 512, 192}, {512, 128, 320}};

TEST_CASE(
    "counted: A is asked for once for both products, B and G once a tile of rows, C leaves once, and all by TMA") {
    for (const Shape& s : counted_shapes) {
        const StageCounts counts = counts_of(s);
        const emulator::Work work = counts.work.total();
        const auto times = [&](const char* name, bool written) {  // that all of a tensor's bytes are moved
            const auto found = counts.tensors.find(name);
            if (found == counts.tensors.end()) return 0.0;
            const double bytes = 2.0 * double(fresh(s).tensors.contains(name) ? fresh(s).tensors.at(name).size()
                                                                              : std::size_t(s.M) * std::size_t(s.N));
            return double((written ? found->second.written : found->second.read).requested_bytes) / bytes;
        };
        check_at_most("times that A is asked for, once for every 128 columns of C", times("A", false), s.N / tile, s);
        check_at_most("times that B is asked for, once for every 128 rows of C", times("B", false), s.M / tile, s);
        check_at_most("times that G is asked for, once for every 128 rows of C", times("G", false), s.M / tile, s);
        check_at_most("times that C is written", times("C", true), 1, s);
        check_at_most("times that C is read", times("C", false), 0, s);
        check_at_most(
            "bytes that threads read and write themselves",
            double(work.global_of(Access::read).requested_bytes + work.global_of(Access::write).requested_bytes), 0, s);
    }
}

TEST_CASE(
    "counted: products are the tensor cores' and no more, a gate for each element, no bank conflicts, no memory more") {
    for (const Shape& s : counted_shapes) {
        const StageCounts counts = counts_of(s);
        const emulator::Work work = counts.work.total();
        CHECK_MESSAGE((double(work.matrix_flops) == s.flops()),
                      fmt::format("FLOP by tensor cores: found {}, expected {} ({})", work.matrix_flops, s.flops(),
                                  to_string(problem_of(s))));
        check_at_most("exponentials, one for each element of C", double(work.exponentials), double(s.M) * s.N, s);
        check_at_most("divisions, one for each element of C", double(work.divisions), double(s.M) * s.N, s);
        check_at_most("bank conflicts", double(work.all_shared().conflicts), 0, s);
        check_at_most("bytes of device memory beyond inputs and output", double(counts.peak_scratch_bytes), 0, s);
    }
}

TEST_CASE("counted: as many blocks as run at once, and a ring that is full of bytes on their way") {
    const FewMultiprocessors few(2);
    const Shape s{512, 384, 640};
    const Late late;
    StageCounts counts = counts_of(s);
    std::erase_if(counts.work.launches, [](const auto& launch) {  // of a dynamic schedule
        return launch.kernel.find("no_task_is_taken") != std::string::npos;
    });
    REQUIRE_MESSAGE(counts.work.launches.size() == 1, "kernels that are launched: ", counts.work.launches.size(),
                    ", expected 1");
    const auto& launch = counts.work.launches.front();
    check_at_most("blocks, on 2 multiprocessors", launch.grid.x * launch.grid.y * launch.grid.z, 2, s);
    CHECK_MESSAGE(
        (launch.most_bytes_in_flight >= 131072),
        fmt::format(
            "bytes on their way to a block at a time: found {}, expected at least 131072: a ring of so few slots runs "
            "dry ({})",
            launch.most_bytes_in_flight, to_string(problem_of(s))));
}

TEST_CASE("has no races") {
    const FewMultiprocessors few(2);
    for (std::uint64_t i = 0; i < 2; ++i) {
        emulator::reseed(test_seed() + i);
        const Data in = fresh({264, 264, 136 + 64 * 6});  // blocks go through their rings several times
        const std::string report = emulator::find_race([&] { run(stage_under_test(), in); });
        CHECK_MESSAGE(report == "", report);
    }
}
#endif

}  // namespace
}  // namespace flashladder::gated_product
