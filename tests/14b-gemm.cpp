// The template's other kernel: its exercises, and against products in double, in all variants, and what it refuses.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emulator/device_array.h"
#include "harness/asked.h"
#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "operations/gemm/operation.h"
#include "operations/gemm/stage.h"
#include "ptx/elements.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "emulator/emulator.h"
#include "emulator/report.h"
#include "harness/counts.h"
#include "lcsf/few_multiprocessors.h"
#endif

namespace flashladder::gemm {
namespace {

using Size = Shape;
constexpr int guard = 4096;            // elements behind C, which nobody may touch
constexpr std::uint16_t nan = 0xFFFF;  // poison, in bf16

// ---- exercises

constexpr int m = 128, n = 256, k = 64;  // of C, a task; of A and B, a step

const Stage& form(const std::string& variant) {
    return find_stage("14b-gemm" + (variant.empty() ? "" : "/" + variant));
}
std::string text(const Shape& s) { return to_string(problem_of(s)); }
Data fresh(const Shape& s) { return operation().inputs(problem_of(s), test_seed()); }

/// What C may be instead, by the element: of row i and column j, from A, B and the sizes.
struct Way {
    const char* as_if;
    std::function<double(const std::vector<float>& A, const std::vector<float>& B, const Shape& s, int i, int j)> value;
};
/// Row i of A, or as `row_of` and `column_of` have it, times column j of B.
double sum(const std::vector<float>& A, const std::vector<float>& B, const Shape& s, int i, int j,
           const std::function<int(int)>& column_of_A, const std::function<int(int)>& row_of_B, int begin, int end) {
    double total = 0;
    for (int x = begin; x < end; ++x) {
        const int a = column_of_A(x), b = row_of_B(x);
        if (a < s.K && b < s.K) total += double(A[std::size_t(i * s.K + a)]) * double(B[std::size_t(b * s.N + j)]);
    }
    return total;
}
const auto same = [](int x) { return x; };
const auto of_first_step = [](int x) { return x % k; };
int last_step(const Shape& s) { return (s.K - 1) / k * k; }
using Values = const std::vector<float>&;
const Way wrong_ways[] = {
    {"nothing had been added up", [](Values, Values, const Shape&, int, int) { return 0.0; }},
    {"the first step alone had been added up",
     [](Values A, Values B, const Shape& s, int i, int j) {
         return sum(A, B, s, i, j, same, same, 0, std::min(k, s.K));
     }},
    {"the last step alone had been added up", [](Values A, Values B, const Shape& s, int i,
                                                 int j) { return sum(A, B, s, i, j, same, same, last_step(s), s.K); }},
    {"the last step were missing",
     [](Values A, Values B, const Shape& s, int i, int j) { return sum(A, B, s, i, j, same, same, 0, last_step(s)); }},
    {"all steps had the first columns of A",
     [](Values A, Values B, const Shape& s, int i, int j) { return sum(A, B, s, i, j, of_first_step, same, 0, s.K); }},
    {"all steps had the first rows of B",
     [](Values A, Values B, const Shape& s, int i, int j) { return sum(A, B, s, i, j, same, of_first_step, 0, s.K); }},
    {"all consumers had the first one's rows of A",
     [](Values A, Values B, const Shape& s, int i, int j) {
         return sum(A, B, s, i / m * m + i % 64, j, same, same, 0, s.K);
     }},
    {"all tasks had the first one's rows of A",
     [](Values A, Values B, const Shape& s, int i, int j) { return sum(A, B, s, i % m, j, same, same, 0, s.K); }},
    {"all tasks had the first one's columns of B",
     [](Values A, Values B, const Shape& s, int i, int j) { return sum(A, B, s, i, j % n, same, same, 0, s.K); }},
};

/// What is wrong with C, in words: the element that is, and what all of C looks like; "" if nothing is.
std::string fault(const Stage& stage, const Shape& s) {
    const Data in = fresh(s);
    Data out;
    try {
        out = run(stage, in);
    } catch (const CudaError& error) {
        return error.what();
    }
    const std::string where = fmt::format("{}, {}", stage.name(), text(s));
    const std::vector<float>& C = out.tensors.at("C");
    if (std::ranges::all_of(C, [](float x) { return std::isnan(x); }))
        return fmt::format("C is NaN in every place, as nobody has written it ({})", where);
    const Judgement j = operation().reference(in, 1, std::size_t(1) << 20)(out);
    if (j.passed) return "";
    const auto looks_like = [&](const Way& way) {  // by some elements of all of C, which do not look right as well
        const auto is_near = [](double x, double wanted) { return std::abs(x - wanted) <= 0.02 * std::abs(wanted) + 1e-3; };
        bool is_another = false;
        for (int e = 0; e < 60; ++e) {
            const int row = e * 37 % s.M, column = e * 53 % s.N;
            Values A = in.tensors.at("A"), B = in.tensors.at("B");
            const double as_if = way.value(A, B, s, row, column);
            if (!is_near(C[std::size_t(row * s.N + column)], as_if)) return false;
            is_another |= !is_near(as_if, sum(A, B, s, row, column, same, same, 0, s.K));
        }
        return is_another;
    };
    for (const Way& way : wrong_ways)
        if (looks_like(way)) return fmt::format("C looks as if {}: {} ({})", way.as_if, j.description, stage.name());
    return fmt::format("{} ({})", j.description, stage.name());
}
bool is_right(const Stage& stage, const Shape& s) {
    const std::string wrong = fault(stage, s);
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

#ifndef FLASHLADDER_GPU
bool check_is(const std::string& what, double found, double expected, const std::string& where) {
    CHECK_MESSAGE((found == expected), fmt::format("{}: found {}, expected {} ({})", what, found, expected, where));
    return found == expected;
}

/// A row of tasks and a column of tasks.
using Place = std::pair<int, int>;

/// The tasks of a problem with one step, in the order of their numbers: by what a single block asks for.
std::vector<Place> places_of_tasks(const Stage& stage, const Shape& s) {
    const FewMultiprocessors one(1);
    const DeviceProblem problem(stage, fresh(s));
    const DeviceData data = problem.data();
    const auto offset = [](const void* base, const void* at) {  // elements
        return (static_cast<const char*>(at) - static_cast<const char*>(base)) / 2;
    };
    const auto* A = data.tensors.at("A");
    const auto* B = data.tensors.at("B");
    std::vector<Place> places;
    bool has_row = false;
    const auto launches = emulator::record_activity(0, [&] {
        stage.launch(data);
        check_cuda(cudaDeviceSynchronize(), "gemm");
    });
    for (const auto& activity : launches.back().activities) {
        if (activity.what != emulator::Doing::copy || !activity.tensor) continue;
        const auto of_A = offset(A, activity.tensor), of_B = offset(B, activity.tensor);
        if (of_A >= 0 && of_A < std::ptrdiff_t(s.M) * s.K) {
            places.emplace_back(int(of_A / s.K / m), -1);
            has_row = true;
        } else if (has_row && of_B >= 0 && of_B < std::ptrdiff_t(s.K) * s.N) {  // its first panel comes first
            places.back().second = int(of_B % s.N / n);
            has_row = false;
        }
    }
    return places;
}

std::string listed(const std::vector<Place>& places) {
    std::string text;
    for (const auto& [row, column] : places) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row, column);
    return text;
}

/// Tasks of a column of a section come one after the other, sections from the top.
void check_order_of_tasks(const std::string& variant, int section, int rows, int columns) {
    const Shape s{rows * m - 40, columns * n - 72, k};
    const std::string where =
        fmt::format("{}, {} x {} tasks, sections of {} rows", text(s), rows, columns, std::min(section, rows));
    std::vector<Place> found;
    try {
        found = places_of_tasks(form(variant), s);
        forget_asked();  // tasks that have the same place race as well, and the order says more
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return;
    }
    const std::string in_order = fmt::format(" ({})\nrow and column of all tasks, as found: {}", where, listed(found));
    CHECK_MESSAGE((found.size() == std::size_t(rows) * std::size_t(columns)),
                  fmt::format("tasks that ask for rows of A and columns of B: found {}, expected {}: others lie outside{}",
                              found.size(), rows * columns, in_order));
    if (found.size() != std::size_t(rows) * std::size_t(columns)) return;
    std::size_t number = 0;
    for (int first = 0; first < rows; first += std::min(section, rows)) {
        const int height = std::min(std::min(section, rows), rows - first);
        for (int column = 0; column < columns; ++column, number += std::size_t(height)) {
            const std::vector<Place> together(found.begin() + std::ptrdiff_t(number),
                                              found.begin() + std::ptrdiff_t(number) + height);
            std::set<int> of_A, of_B;
            for (const auto& [i, j] : together) of_A.insert(i), of_B.insert(j);
            const bool is_column = of_B.size() == 1 && int(of_A.size()) == height && *of_A.begin() == first &&
                                   *of_A.rbegin() == first + height - 1;
            CHECK_MESSAGE(
                is_column,
                fmt::format("tasks {} to {} need {} tiles of A's rows and {} of B's columns, expected rows {} "
                            "to {} of one column{}",
                            number, number + std::size_t(height) - 1, of_A.size(), of_B.size(), first,
                            first + height - 1, in_order));
            if (!is_column) return;
        }
    }
    const std::set<Place> each(found.begin(), found.end());
    check_is("tasks of a place of their own", double(each.size()), double(rows * columns), where);
}

TEST_CASE("EXERCISE 14b.1: tasks of a column of a section come one after the other") {
    const auto drawn = [](int most, std::uint64_t salt) { return 1 + int((test_seed() + salt) * 7 % unsigned(most)); };
    check_order_of_tasks("sections of 4", 4, 7, 2);
    check_order_of_tasks("sections of 4", 4, 4 + drawn(8, 1), 2 + drawn(2, 2));
    check_order_of_tasks("sections of 4", 4, drawn(3, 3), 2);          // there are fewer
    check_order_of_tasks("one section", INT_MAX, 2 + drawn(4, 5), 2);  // 2 * INT_MAX is -2
    check_order_of_tasks("", 16, 17 + drawn(2, 4), 2);
}
#endif

#ifndef FLASHLADDER_GPU
/// Whether a line waits for TMA to have read shared memory.
bool is_for_output(const std::string& line) {
    const std::size_t colon = line.rfind(':');
    if (!line.starts_with("common/lcsf/lcsf.h")) return false;
    const std::string code = emulator::source_line(line.substr(0, colon), unsigned(std::stoul(line.substr(colon + 1))));
    return code.find("bulk_wait_read") != std::string::npos;
}

/// What a consumer does when, in two tasks of one block: products under way, tiles given back, the next task's number.
void check_order_of_work(const std::string& variant) {
    using emulator::Doing;
    const FewMultiprocessors one(1);
    const int tasks = 2, steps = 5;
    const Shape s{tasks * m, n, steps * k};
    const Stage& stage = form(variant);
    std::vector<emulator::LaunchActivity> launches;
    try {
        launches = emulator::record_activity(0, [&] { run(stage, fresh(s)); }, true);
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return;
    }
    for (int consumer = 0; consumer < 2; ++consumer) {
        std::vector<emulator::Activity> mine;  // of its first warp
        for (const auto& activity : launches.back().activities)
            if (activity.warp == 4u * unsigned(1 + consumer)) mine.push_back(activity);
        const auto products = std::ranges::count(mine, Doing::product, &emulator::Activity::what);
        const std::string where = fmt::format("{}, {}, consumer {}", stage.name(), text(s), consumer);
        if (products == 0 || products % (tasks * steps) != 0) {
            CHECK_MESSAGE(false,
                          fmt::format("wgmmas of a consumer: found {}, expected as many in each of {} steps ({})",
                                      products, tasks * steps, where));
            return;
        }
        const auto of_step = products / (tasks * steps);
        std::ptrdiff_t begun = 0, given_back = 0;
        int alone = 0, numbers = 0, outputs = 0;
        std::uint64_t last_done = 0;  // the product that was begun last; each is done as late as the waits allow
        for (const auto& activity : mine) {
            given_back += activity.what == Doing::arrive && activity.line.starts_with("common/lcsf/lcsf.h");
            if (activity.what == Doing::wait && activity.line.starts_with("common/lcsf/tasks.h") && activity.counts) {
                ++numbers;
                check_is(
                    fmt::format("tiles given back when the next number is read, at the end of task {}", numbers - 1),
                    double(given_back), 2 * (numbers * steps - 1), where);
                CHECK_MESSAGE((last_done > activity.end),
                              fmt::format("the last step of task {} has been waited for when the next number is read, "
                                          "expected to be under way until `finish` ({})",
                                          numbers - 1, where));
            }
            if (activity.what == Doing::wait && is_for_output(activity.line) && activity.counts && outputs++ == 0)
                check_is("steps begun in task 1 before the template waits for C of task 0 to have left",
                         double(begun / of_step - steps), 1, where);
            if (activity.what != Doing::product) continue;
            last_done = activity.happened;
            const auto step = begun / of_step % steps, done = begun / of_step / steps * steps;
            if (begun++ % of_step != 0) continue;
            alone += step > 0 && activity.pending == 0;
            if (step == 0) continue;
            const bool in_time = given_back >= 2 * (done + step - 1);
            CHECK_MESSAGE(in_time,
                          fmt::format("tiles given back before step {} begins: found {}, expected {}: A and B of "
                                      "step {} and before ({})",
                                      step, given_back - 2 * done, 2 * (step - 1), step - 2, where));
            if (!in_time) return;
        }
        if (!check_is("steps that begin when no product is under way, but for the first one of a task", alone, 0,
                      where))
            return;
        check_is("tiles given back, A and B of each step", double(given_back), 2 * tasks * steps, where);
    }
}

/// What is asked for and by whom, where a task and a step divide the sizes.
bool check_asked_for(const Shape& s) {
    StageCounts counts;
    try {
        counts = count_stage(form(""), fresh(s));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return false;
    }
    const emulator::Work work = counts.work.total();
    const std::string where = text(s);
    const auto moved = [&](const char* name, bool written) {
        const auto found = counts.tensors.find(name);
        if (found == counts.tensors.end()) return 0.0;
        return double((written ? found->second.written : found->second.read).requested_bytes);
    };
    const auto by_threads = work.global_of(emulator::Access::read).requested_bytes +
                            work.global_of(emulator::Access::write).requested_bytes;
    return check_is("bytes of A asked for, each column of tasks once all", moved("A", false),
                    2.0 * s.M * s.K * (s.N / n), where) &&
           check_is("bytes of B asked for, each row of tasks once all", moved("B", false), 2.0 * s.K * s.N * (s.M / m),
                    where) &&
           check_is("bytes of C written, once all", moved("C", true), 2.0 * s.M * s.N, where) &&
           check_is("bytes that threads read and write themselves", double(by_threads), 0, where) &&
           check_is("FLOP by tensor cores", double(work.matrix_flops), s.flops(), where) &&
           check_is("bank conflicts", double(work.all_shared().conflicts), 0, where) &&
           check_is("barriers of a block, the template's own", double(work.barriers),
                    double(counts.work.launches.back().grid.x), where) &&
           check_is("named barriers: nobody takes turns", double(work.named_barriers), 0, where);
}
#endif

TEST_CASE("EXERCISE 14b.2: C = A B, of all sizes, and what is asked for") {
    for (const Shape& s : {Shape{128, 256, 64}, {128, 256, 320}})
        if (!is_right(form(""), s)) return;
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(2);
#endif
    const auto drawn = [](std::uint64_t i, int most) {
        return 8 * (1 + int((test_seed() * 5 + i * i) % unsigned(most)));
    };
    for (const Shape& s : {Shape{264, 520, 136},
                           {520, 136, 328},
                           {8, 8, 8},
                           {776, 264, 16},
                           {drawn(1, 33), drawn(2, 65), drawn(3, 40)},
                           {drawn(4, 65), drawn(5, 33), drawn(6, 40)}})
        for (const char* variant : {"", "2 slots", "dynamic"})
            if (!is_right(form(variant), s)) return;
#ifndef FLASHLADDER_GPU
    for (const Shape& s : {Shape{256, 512, 192}, {384, 256, 320}})
        if (!check_asked_for(s)) return;
#endif
}

#ifndef FLASHLADDER_GPU
TEST_CASE("EXERCISE 14b.2: a product is under way when the next one begins, tiles go back, nobody races") {
    for (const char* variant : {"", "2 slots", "dynamic"}) check_order_of_work(variant);
    const FewMultiprocessors few(2);
    for (const char* variant : {"", "2 slots"}) {
        const Data in = fresh({264, 264, 200});  // six tasks of four steps
        const std::string report = emulator::find_race([&] { run(form(variant), in); });
        CHECK_MESSAGE(report == "", form(variant).name(), ": ", report);
    }
}
#endif

// ---- all else

/// The stage under test, and its variants.
std::vector<const Stage*> forms() {
    std::vector<const Stage*> all = {&find_stage("14b-gemm")};
    for (const flashladder::Stage& form : variants()) all.push_back(&find_stage(form.name()));
    return all;
}

Bits16 run_gemm(const Stage& stage, const Size& s, const Bits16& A, const Bits16& B) {
    const DeviceArray<std::uint16_t> A_device(A), B_device(B), C(Bits16(std::size_t(s.M) * s.N + guard, nan));
    const DeviceArray<unsigned> scratch(std::vector<unsigned>{98765});  // whatever was there
    stage.launch(Args{s, A_device.data(), B_device.data(), C.data(), scratch.data()});
    check_cuda(cudaDeviceSynchronize(), "gemm");
    return C.download();
}

/// Sums in double; and of absolute values, which errors are measured by.
struct Product {
    std::vector<double> sum, size;
};
Product product(const Size& s, const Bits16& A, const Bits16& B) {
    Product C{std::vector<double>(std::size_t(s.M) * s.N), std::vector<double>(std::size_t(s.M) * s.N)};
    std::vector<double> b;
    for (const auto bits : B) b.push_back(from_bits(Element::bf16, bits));
    for (int i = 0; i < s.M; ++i)
        for (int k = 0; k < s.K; ++k) {
            const double a = from_bits(Element::bf16, A[std::size_t(i) * s.K + k]);
            for (int j = 0; j < s.N; ++j) {
                const double x = a * b[std::size_t(k) * s.N + j];
                C.sum[std::size_t(i) * s.N + j] += x, C.size[std::size_t(i) * s.N + j] += std::fabs(x);
            }
        }
    return C;
}

void check_guard(const Bits16& found, std::size_t elements) {
    std::size_t touched = 0;
    for (std::size_t i = elements; i < found.size(); ++i) touched += found[i] != nan;
    CHECK(touched == 0);
}

/// Sizes that divide nothing, and such that blocks have several tasks. On a GPU that takes many.
std::vector<Size> sizes() {
    std::vector<Size> all = {{8, 8, 8}, {64, 256, 64}, {200, 264, 72}, {136, 520, 328}, {776, 264, 16}};
#ifdef FLASHLADDER_GPU
    all.push_back({2056, 4104, 200});
#endif
    return all;
}

TEST_CASE("gemm: whole numbers exactly, whatever the size, by every variant; nothing behind the end of C") {
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(2);
#endif
    Random random(test_seed());
    for (const Size& s : sizes()) {
        const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                     B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
        const std::vector<double> expected = product(s, A, B).sum;
        for (const Stage* form : forms()) {
            INFO(form->name(), ", ", to_string(s));
            const Bits16 found = run_gemm(*form, s, A, B);
            std::size_t wrong = 0;  // sums of whole numbers are exact in float, and then rounded once
            for (std::size_t i = 0; i < expected.size(); ++i)
                wrong += found[i] != to_bits(Element::bf16, float(expected[i]));
            CHECK(wrong == 0);
            check_guard(found, expected.size());
        }
    }
}

TEST_CASE("gemm: other numbers, within the rounding of float and of the result") {
    Random random(test_seed());
    const Size s{200, 264, 328};
    const Bits16 A = normal_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                 B = normal_elements(random, Element::bf16, std::size_t(s.K) * s.N);
    const Product expected = product(s, A, B);
    const Bits16 found = run_gemm(*forms().front(), s, A, B);
    for (std::size_t i = 0; i < expected.sum.size(); ++i) {
        const double is = from_bits(Element::bf16, found[i]), wanted = expected.sum[i];
        const double in_float = expected.size[i] * 0x1p-20;  // a tensor core drops digits where float arithmetic rounds
        const double allowed = one_rounding(DType::bf16, std::fabs(wanted) + in_float) + in_float;
        const bool is_near = std::fabs(is - wanted) <= allowed;
        const std::string place = fmt::format("C[{}][{}] of {}", i / std::size_t(s.N), i % std::size_t(s.N), to_string(s));
        CHECK_MESSAGE(is_near, element_text(place, DType::bf16, is, wanted, allowed));
        if (!is_near) return;
    }
}

TEST_CASE("gemm: refuses what it cannot do in one line that names it") {
    const Stage& stage = *forms().front();
    const DeviceArray<std::uint16_t> matrix(4096);
    const Args good{{64, 64, 64}, matrix.data(), matrix.data(), matrix.data()};
    for (const auto& [name, size] : {std::pair("M", &Shape::M), {"N", &Shape::N}, {"K", &Shape::K}})
        for (const int bad : {0, -8, 4, 65, 68}) {
            Args args = good;
            args.shape.*size = bad;
            CHECK(refusal(stage, args) == "14b-gemm: " + std::string(name) + " is " + std::to_string(bad) +
                                              ", but must be a positive multiple of 8");
        }
    Args args = good;
    args.B = nullptr;
    CHECK(refusal(stage, args) == "14b-gemm: B is a null pointer");
    args.B = matrix.data() + 1;
    CHECK(refusal(stage, args).find("14b-gemm: B is at ") == 0);
    CHECK(refusal(find_stage("14b-gemm/dynamic"), good) ==
          "14b-gemm/dynamic: scratch is a null pointer, but 4 bytes are needed");
    CHECK(stage.why_unsupported(problem_of({64, 64, 64}).in(DType::f16)) ==
          "14b-gemm: dtype f16 is not supported (only bf16)");
    CHECK_THROWS_WITH(find_stage("14b-gemm/fast"), "14b-gemm/fast is not in this program");
    CHECK(forms().size() == 7);
}

TEST_CASE("gemm: harness and tools see the same, and a number that is not right") {
    const Operation& op = operation();
    const Problem asked = op.problem({{"M", 200}, {"N", 264}, {"K", 72}}, DType::bf16);
    const Data inputs = op.inputs(asked, test_seed());
    Data outputs = run(*forms().front(), inputs);
    const Reference reference = op.reference(inputs, 1, 1 << 20);
    const Judgement right = reference(outputs);
    CHECK_MESSAGE(right.passed, right.description);
    CHECK(right.error > 0);
    std::vector<float>& C = outputs.tensors.at("C");
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    // Rounding once is at most half a unit of the last place off.
    const float two_units_off = from_bits(DType::bf16, std::uint16_t(to_bits(DType::bf16, C[7 * 264 + 5]) + 2));
    for (const float wrong : {nan, -nan, C[7 * 264 + 5] + 1, two_units_off}) {
        Data other = outputs;
        other.tensors.at("C")[7 * 264 + 5] = wrong;
        const Judgement j = reference(other);
        CHECK(!j.passed);
        CHECK_MESSAGE(j.description.find("C[7][5] is " + found_text(wrong)) != std::string::npos, j.description);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("gemm: each tile of A and B is asked for by TMA as often as tasks need it, C leaves once") {
    const Shape s{256, 512, 192};  // tasks are 128 x 256, steps 64
    const Stage& stage = *forms().front();
    const auto counts = count_stage(stage, operation().inputs(problem_of(s), test_seed()));
    const auto bytes = [&](const char* name) { return counts.tensors.at(name); };
    CHECK(bytes("A").read.requested_bytes == 2u * 2 * 256 * 192);  // for two columns of tasks
    CHECK(bytes("B").read.requested_bytes == 2u * 2 * 512 * 192);  // for two rows
    CHECK(bytes("C").written.requested_bytes == 2u * 256 * 512);
    CHECK(counts.work.total().all_shared().conflicts == 0);
    CHECK(counts.work.total().matrix_flops == std::uint64_t(s.flops()));
}
#endif

#ifndef FLASHLADDER_GPU
TEST_CASE("gemm: no races, by any of several seeds") {
    const FewMultiprocessors few(2);
    Random random(test_seed());
    const Size s{264, 264, 136};  // six tasks of three steps: blocks go through their rings three times and more
    for (const Stage* form : forms())
        for (int i = 0; i < 2; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                         B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
            const std::string report = emulator::find_race([&] { run_gemm(*form, s, A, B); });
            CHECK_MESSAGE(report == "", form->name(), ": ", report);
        }
}
#endif

}  // namespace
}  // namespace flashladder::gemm
