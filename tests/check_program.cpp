// `ladder check` as a user meets it: programs that are right, wrong, or no programs.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "command_result.h"
#include "files.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// A folder with a user's files, whose name has a space.
class Folder {
public:
    Folder() : path_((fs::temp_directory_path() / fmt::format("own kernels {}", getpid())).string()) {
        fs::create_directories(path_);
    }
    ~Folder() {
        fs::permissions(path_, fs::perms::owner_all);
        fs::remove_all(path_);
    }
    void write(const std::string& file, const std::string& text) const { write_file(path_ + "/" + file, text); }
    CommandResult check(const std::string& arguments, const std::string& from = ".") const {
        const std::string log = path_ + ".log";
        const int status = std::system(
            fmt::format("cd '{}/{}' && '{}' check {} > '{}' 2>&1", path_, from, LADDER, arguments, log).c_str());
        const CommandResult result{WEXITSTATUS(status), read_file(log)};
        fs::remove(log);
        return result;
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Each block turns its numbers round. argv[1] says what is wrong: 1 no barrier, 2 out of bounds, 3 status 3, 4 a
/// signal.
const std::string turn = R"(#include <cstdio>
#include <cstdlib>
__global__ void turn(float* x, int wrong) {
    extern __shared__ float tile[];
    const int i = threadIdx.x;
    tile[i] = 0;
    __syncthreads();
    tile[i] = x[i];
    if (wrong != 1) __syncthreads();
    x[i + (wrong == 2 ? 64 : 0)] = tile[blockDim.x - 1 - i];
}
int main(int argc, char** argv) {
    const int wrong = argc > 1 ? atoi(argv[1]) : 0;
    float *x, y[64] = {7};
    cudaMalloc(&x, sizeof y);
    cudaMemcpy(x, y, sizeof y, cudaMemcpyHostToDevice);
    dim3 blockDim(64);
    turn<<<1, blockDim, sizeof y>>>(x, wrong);
    cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
    std::printf("the last is %g\n", y[63]);
    if (wrong == 4) std::abort();
    return wrong == 3 ? 3 : 0;
}
)";

TEST_CASE("a program that is right") {
    const Folder folder;
    folder.write("turn.cu", turn);
    const CommandResult result = folder.check("turn.cu");
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK(result.says("the last is 7"));
    CHECK(result.last_line() == "turn.cu: no race, no bad access by seed 1");
    CHECK(result.says("turn.cu:8 "));  // the worst line: 256 bytes from device memory, 256 to shared memory
    CHECK(result.says("tile[i] = x[i];"));
    CHECK(folder.check("turn.cu --no-races").last_line() == "turn.cu: no bad access by seed 1");
    CHECK(!folder.check("turn.cu --no-counts").says("turn.cu:8 "));
    CHECK(folder.check("turn.cu --lines 1").says("more lines: --lines 5"));
    CHECK(folder.check("turn.cu --seed 5 --seeds 3").last_line() == "turn.cu: no race, no bad access by seeds 5 to 7");
}

TEST_CASE("neighbouring loads that nvcc may make one, or makes one") {
    const Folder folder;
    folder.write("sums.cu", R"(__global__ void sums(float* x) {
    __shared__ float tile[32 * 8];
    for (int i = 0; i < 8; ++i) tile[32 * i + threadIdx.x] = x[32 * i + threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += tile[8 * threadIdx.x + i];
    x[threadIdx.x] = sum;
}
int main() {
    float* x;
    cudaMalloc(&x, 1024);
    cudaMemset(x, 0, 1024);
    sums<<<1, 32>>>(x);
    cudaDeviceSynchronize();
}
)");
    const CommandResult result = folder.check("sums.cu");
    CHECK_MESSAGE(result.says("  sums.cu:6: 64 wavefronts of loads; 16"), result.output);
    CHECK(result.says("one LDS.128 of every 4"));
    CHECK(!result.says("sums.cu:3: 8 wavefronts of"));
}

TEST_CASE("from any folder, of a folder that cannot be written") {
    const Folder folder;
    folder.write("turn.cu", turn);
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(folder.check(fmt::format("'{}/turn.cu' -- 1", folder.path()), "..").says(folder.path() + "/turn.cu:10"));
    CHECK(folder.check("./turn.cu -- 1").says("turn.cu:10"));
    CHECK(folder.check(fmt::format("'../{}/turn.cu' -- 1", fs::path(folder.path()).filename().string()))
              .says("/turn.cu:10"));
    CHECK(!fs::exists(folder.path() + "/turn.cu.new"));
}

TEST_CASE("a race is told as it happens, though the program looks at no error") {
    const Folder folder;
    folder.write("turn.cu", turn);
    const CommandResult result = folder.check("turn.cu -- 1");
    CHECK(result.status == 1);
    CHECK(result.says("race: "));
    CHECK(result.says("  kernel     turn\n"));
    CHECK(result.output.find("race: ") < result.output.find("the last is"));
    CHECK(result.last_line().starts_with("turn.cu: by seed 1: race: "));
    const CommandResult no_races = folder.check("turn.cu --no-races -- 1");
    CHECK_MESSAGE(no_races.status == 0, no_races.output);
}

TEST_CASE("out of bounds, a status that is not 0, a signal") {
    const Folder folder;
    folder.write("turn.cu", turn);
    const CommandResult outside = folder.check("turn.cu --no-races --seeds 3 -- 2");
    CHECK(outside.status == 1);
    CHECK(outside.says("source     turn.cu:10\n"));
    CHECK(outside.says("allocated at turn.cu:15"));
    CHECK(outside.last_line().starts_with("turn.cu: by seed 1: out of bounds: 4-byte write"));
    CHECK(folder.check("turn.cu -- 3").last_line() == "turn.cu: by seed 1: the program has returned 3");
    const CommandResult aborted = folder.check("turn.cu -- 4");
    CHECK(aborted.status == 1);
    CHECK(aborted.last_line() == "turn.cu: by seed 1: the program was ended by signal 6");
}

TEST_CASE("more threads than __launch_bounds__ allows") {
    const Folder folder;
    folder.write("bounds.cu", R"(#include <cstdio>
template <int warps>
__global__ void __launch_bounds__(warps * 32) f() {}
int main() {
    f<2><<<1, 64>>>();
    f<2><<<1, 65>>>();
    std::printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}
)");
    const CommandResult result = folder.check("bounds.cu");
    CHECK(result.says("launch refused: 65 threads a block, where __launch_bounds__ allows 64"));
    CHECK(result.says("bounds.cu:3"));
    CHECK(result.says("cudaErrorInvalidValue"));
    CHECK(result.status == 1);
}

TEST_CASE("several seeds: up to the first that fails") {
    const Folder folder;
    // Which of two threads comes first depends on the seed alone; the second to come goes too far.
    folder.write("second.cu", R"(
__global__ void second(int* x, int* n) { if (threadIdx.x == 40 && atomicAdd(n, 1) == 0) x[9] = 1; else atomicAdd(n, 1); }
int main() {
    int *x, *n;
    cudaMalloc(&x, 4);
    cudaMalloc(&n, 4);
    cudaMemset(n, 0, 4);
    second<<<1, 41>>>(x, n);
}
)");
    const CommandResult result = folder.check("second.cu --seeds 2000 --no-races --no-counts");
    CHECK(result.status == 1);
    CHECK(result.last_line().starts_with("second.cu: by seed "));
    const std::string seed = result.last_line().substr(19, result.last_line().find(':', 19) - 19);
    CHECK(result.says("reproduce  LADDER_SEED=" + seed));
    CHECK(folder.check("second.cu --no-races --seed " + seed).status == 1);
    setenv("LADDER_SEED", seed.c_str(), 1);
    CHECK(folder.check("second.cu --no-races").status == 1);
    unsetenv("LADDER_SEED");
}

TEST_CASE("headers beside the file, and of folders that are named") {
    const Folder folder;
    folder.write("source/main.cu",
                 "#include \"kernels/twice.cuh\"\n#include <sizes.h>\nint main() { run_twice(n); return n - N; }\n");
    folder.write("source/kernels/twice.cuh",
                 "#pragma once\n#include \"inner.h\"\ninline void run_twice(int n) {\n    twice<<<1, n>>>(n);\n}\n");
    folder.write("source/kernels/inner.h",
                 "#pragma once\n__global__ void twice(int n) {\n    extern __shared__ int x[];\n    x[0] = n;\n}\n");
    folder.write("include/sizes.h", "constexpr int n = 8;\n");
    const CommandResult result = folder.check("source/main.cu -I include -D N=8");
    CHECK(result.status == 1);
    CHECK(result.says("out of bounds"));  // of 0 bytes
    CHECK(result.says("source     source/kernels/inner.h:4\n"));
    CHECK(folder.check("source/main.cu -I include").says("source/main.cu:3:"));
}

TEST_CASE("what does not compile: at the user's line, and why") {
    const Folder folder;
    folder.write("wrong.cu",
                 "__global__ void k(int* x) {\n    x[0] = nobody;\n    k<<<1, 1>>>(x);\n}\nint main() {}\n");
    const CommandResult wrong = folder.check("wrong.cu");
    CHECK(wrong.status == 1);
    CHECK(wrong.says("wrong.cu:2:12: error: "));
    CHECK(!wrong.says("is not on the emulator"));
    CHECK(wrong.last_line() == "ladder: wrong.cu does not compile");
    folder.write("missing.cu", "int main() { cudaFrobnicate(3); }\n");
    CHECK(folder.check("missing.cu")
              .says("ladder: cudaFrobnicate is not on the emulator\nladder: docs/emulator.md lists what is\n"));
    folder.write("member.cu", "#include <cuda/pipeline>\nint main() { cuda::make_pipeline().frobnicate(); }\n");
    CHECK(folder.check("member.cu").says("ladder: cuda::pipeline::frobnicate is not on the emulator\n"));
    folder.write("state.cu", "#include <curand_kernel.h>\n__global__ void k(curandState* x) {}\nint main() {}\n");
    CHECK(folder.check("state.cu").says("ladder: curandState is not on the emulator\n"));
    folder.write("header.cu", "#include <cufrobnicate.h>\nint main() {}\n");
    CHECK(folder.check("header.cu").says("ladder: cufrobnicate.h is not on the emulator\n"));
    folder.write("ptx.cu",
                 "__global__ void k() {\n    int x;\n    asm volatile(\"mov.u32 %0, %%laneid;\" : \"=r\"(x));\n}\n"
                 "int main() { k<<<1, 1>>>(); }\n");
    CHECK(folder.check("ptx.cu").says("inline PTX (asm) is not on the emulator"));
    CHECK(folder.check("ptx.cu").says("ptx.cu:3:"));
}

/// A program of the folder own_programs, with an argument that makes it wrong.
struct WrongProgram {
    std::string name;
    CommandResult result;

    WrongProgram(const std::string& name, const std::string& mistake)
        : name(name), result(Folder().check(fmt::format("'{}/{}' --no-counts -- {}", OWN_PROGRAMS, name, mistake))) {}
    /// Whether a report is of the kernel, and one names the line that is the kernel's first to hold this.
    bool blames(const std::string& kernel, const std::string& line) const {
        const std::string text = read_file(fmt::format("{}/{}", OWN_PROGRAMS, name));
        const auto end = text.begin() + static_cast<std::ptrdiff_t>(text.find(line, text.find(" " + kernel + "(")));
        const auto number = 1 + std::count(text.begin(), end, '\n');
        const auto says_place = [&](char behind) { return result.says(fmt::format("{}:{}{}", name, number, behind)); };
        return result.status == 1 && result.says(fmt::format("  kernel     {}\n", kernel)) &&
               (says_place('\n') || says_place(' ') || says_place(','));
    }
};

TEST_CASE("own programs with a mistake: the line is named") {
    const WrongProgram no_wait("pipeline.cu", "no_wait");
    for (const char* kernel : {"by_each_thread", "by_prior", "by_the_block", "by_roles", "by_barrier", "by_groups",
                               "by_primitives", "by_arrival"})
        CHECK_MESSAGE(no_wait.blames(kernel, "y[now * threads"), kernel << "\n" << no_wait.result.output);
    const WrongProgram no_barrier("pipeline.cu", "no_barrier");
    for (const char* kernel : {"by_each_thread", "by_primitives"})
        CHECK_MESSAGE(no_barrier.blames(kernel, "y[now * threads"), kernel << "\n" << no_barrier.result.output);
    const WrongProgram other_tile("pipeline.cu", "other_tile"), early_release("pipeline.cu", "early_release");
    CHECK_MESSAGE(other_tile.blames("by_the_block", "y[now * threads"), other_tile.result.output);
    CHECK_MESSAGE(early_release.blames("by_roles", "y[now * threads"), early_release.result.output);
    CHECK(early_release.result.says("race: write by cp_async"));
    const WrongProgram no_release("pipeline.cu", "no_release");
    CHECK_MESSAGE(no_release.blames("by_the_block", "pipe.producer_acquire()"), no_release.result.output);
    CHECK(no_release.result.says("deadlock: no thread can go on"));
    const WrongProgram half("half.cu", "broken");
    CHECK_MESSAGE(half.blames("dot", "all += sums[warp]"), half.result.output);
}

TEST_CASE("what is no program: one line") {
    const Folder folder;
    folder.write("kernel.cu", "__global__ void k() {}\n");
    folder.write("notes.txt", "");
    const std::pair<const char*, const char*> wrong[] = {
        {"nothing.cu", "ladder: there is no nothing.cu\n"},
        {"notes.txt", "ladder: notes.txt is no .cu file\n"},
        {".", "ladder: . is no .cu file\n"},
        {"kernel.cu", "ladder: kernel.cu has no main()\n"},
    };
    for (const auto& [file, words] : wrong) {
        const CommandResult result = folder.check(file);
        CHECK(result.status == 1);
        CHECK(result.output == words);
    }
    CHECK(folder.check("").status != 0);
    CHECK(folder.check("kernel.cu --seeds 0").status != 0);
}

}  // namespace
}  // namespace flashladder
