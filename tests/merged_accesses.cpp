// What `profile` and `check` say of loads and stores that nvcc may make one.
#include "merged_accesses.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "files.h"
#include "programs.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

TEST_CASE("machine code: the widest access of each line, and of the lines that call it") {
    const auto widths = shared_widths(R"(
.text._Z1kPf:
	//## File "/a/b/../k.cu", line 3
        /*0080*/                   STS [R13.X4], R0 ;
        /*0090*/              @!P0 STS.64 [R13], R2 ;
	//## File "/a/k.cu", line 5 inlined at "/a/k.cu", line 9
	//## File "/a/k.cu", line 9
        /*00a0*/                   LDS.U.128 R4, [R12] ;
        /*00b0*/                   LDS R8, [R12+0x10] ;
	//## File "/a/k.cu", line 7
        /*00c0*/                   LDS.U8 R8, [R12+0x10] ;
        /*00d0*/                   LDS.S16 R8, [R12+0x10] ;
	//## File "/a/k.cu", line 8
        /*00e0*/                   LDSM.16.M88.4 R8, [R12] ;
        /*00f0*/                   LDGSTS.E.BYPASS.128 [R3], [R4.64] ;
        /*0100*/                   LDG.E.128 R8, [R12.64] ;
)");
    REQUIRE(widths.size() == 4);
    CHECK(widths.at("/a/k.cu:3").store == 8);
    CHECK(widths.at("/a/k.cu:3").load == 0);
    CHECK(widths.at("/a/k.cu:5").load == 16);
    CHECK(widths.at("/a/k.cu:9").load == 16);
    CHECK(widths.at("/a/k.cu:7").load == 2);
}

nlohmann::json work_of(const char* access, int wavefronts) {
    return {{"shared", {{access, {{"wavefronts", wavefronts}}}}}};
}

/// A launch with loads of lines 10, and 20 and 21, and stores of line 10; the latter saves nothing.
const nlohmann::json launches = {{{"lines",
                                   {{{"line", "k.cu:10"}, {"work", work_of("read", 1000)}},
                                    {{"line", "k.cu:20"}, {"work", work_of("read", 40)}},
                                    {{"line", "k.cu:21"}, {"work", work_of("read", 40)}},
                                    {{"line", "k.cu:30"}, {"work", work_of("read", 7)}}}},
                                  {"mergeable",
                                   {{{"first_line", "k.cu:10"},
                                     {"last_line", "k.cu:10"},
                                     {"access", "read"},
                                     {"bytes", 4},
                                     {"widest", 16},
                                     {"saved", {0, 500, 750}}},
                                    {{"first_line", "k.cu:10"},
                                     {"last_line", "k.cu:10"},
                                     {"access", "write"},
                                     {"bytes", 4},
                                     {"widest", 16},
                                     {"saved", {0, 0, 0}}},
                                    {{"first_line", "k.cu:21"},
                                     {"last_line", "k.cu:20"},
                                     {"access", "read"},
                                     {"bytes", 2},
                                     {"widest", 4},
                                     {"saved", {40, 40, 40}}}}}}};

/// By a compiler that uses so wide loads in line 10.
std::string described(std::optional<std::size_t> width, std::size_t most = 10) {
    return describe_mergeable(launches, "/home/me/x/..", most, [&]() -> std::optional<MachineCode> {
        if (!width) return std::nullopt;
        return MachineCode{"nvcc 1.2", {{"/home/me/k.cu:10", {*width, 4}}}};
    });
}

TEST_CASE("merged accesses: in words") {
    const auto says = [](const std::string& text, const char* line) { return text.find(line) != text.npos; };
    CHECK(says(described({}), "  k.cu:10: 1000 wavefronts of loads; 250 if nvcc makes one LDS.128 of every 4\n"));
    CHECK(says(described({}), "  k.cu:20 to 21: 80 wavefronts of loads; 40 if nvcc makes one LDS of every 2\n"));
    CHECK(!says(described({}), "stores"));
    CHECK(says(described(16), "  k.cu:10: 1000 wavefronts of loads; 250, as nvcc 1.2 makes one LDS.128 of every 4\n"));
    CHECK(says(described(8), "  k.cu:10: 1000 wavefronts of loads; 500, as nvcc 1.2 makes one LDS.64 of every 2\n"));
    CHECK(says(described(4), "  k.cu:10: 1000 wavefronts of loads; nvcc 1.2 leaves them apart\n"));
    CHECK(says(described(16),
               "  k.cu:20 to 21: 80 wavefronts of loads; 40 if nvcc 1.2, which has them at another line, makes "
               "one LDS of every 2\n"));
    CHECK(says(described({}, 1), "  and 1 more\n"));
    CHECK(!says(described({}, 1), "k.cu:20"));
}

TEST_CASE("merged accesses: nothing is said, and no compiler asked, where there are none") {
    nlohmann::json none = launches;
    none[0]["mergeable"].clear();
    CHECK(describe_mergeable(none, "/", 10, []() -> std::optional<MachineCode> { throw 1; }).empty());
}

TEST_CASE("by nvcc: what it makes of neighbouring loads") {
    const std::string file = (fs::temp_directory_path() / fmt::format("merged-{}.cu", getpid())).string();
    const auto compile = [&](const std::string& body, const std::string& options = "") {
        write_file(file, fmt::format(R"(extern __shared__ float tile[];
__global__ void k(float* x) {{
    float* mine = tile + threadIdx.x * DISTANCE;
    float sum = 0;
{}
    x[threadIdx.x] = sum;
}}
)",
                                     body));
        return machine_code({file}, "-DDISTANCE=" + (options.empty() ? "8" : options));
    };
    const auto code = compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) sum += mine[i];");
    if (!code) {
        fs::remove(file);
        MESSAGE("skipped: nvcc or nvdisasm is missing");
        return;
    }
    CHECK(code->compiler.starts_with("nvcc 1"));
    CHECK(code->lines.at(file + ":6").load == 16);
    const auto load = [&](const std::optional<MachineCode>& other) {
        REQUIRE(other);
        return other->lines.at(file + ":6").load;
    };
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) sum += mine[i];", "9")) == 4);
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) sum += mine[i];", "2")) == 8);
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) sum += mine[8 * i];")) == 4);
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) { __syncthreads(); sum += mine[i]; }")) == 4);
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) sum += ((volatile float*)mine)[i];")) == 4);
    CHECK(load(compile("#pragma unroll\n    for (int i = 0; i < 4; ++i) { sum += mine[i]; tile[int(sum)] = 0; }")) ==
          4);
    CHECK(!compile("this is no C++"));
    fs::remove(file);
}

}  // namespace
}  // namespace flashladder
