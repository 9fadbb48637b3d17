// Small kernels that synchronise, each as it should be and with one synchronisation left out or done wrongly: a mutant.
// What the race detector must say of each stands beside it. A GPU runs the same kernels under compute-sanitizer.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

/// How a report begins, words that it contains, and which of the lines that the kernel has noted it names.
struct Verdict {
    std::string kind;
    std::vector<std::string> words;
    std::vector<int> lines;
    bool rare = false;  // by less than one seed in a hundred
};

struct SyncKernel {
    std::string kernel, mutant;  // the latter "" if it is correct
    /// Launches it; true if the result is that of the correct kernel. `lines` is device memory: on the emulator the
    /// kernel notes lines there, on a GPU [0] says that it has given up waiting. Throws CudaError.
    bool (*run)(int* lines);
    /// One of these is reported, and nothing else; which one, the order decides.
    std::vector<Verdict> verdicts;
    std::string equivalent = {};  // why nothing is wrong though something is left out
    bool hopper = false;          // takes sm_90

    std::string name() const { return kernel + (mutant.empty() ? "" : ".") + mutant; }
    bool silent() const { return verdicts.empty(); }
};

constexpr int noted_lines = 8;

std::vector<SyncKernel> thread_kernels();  // threads.cu
std::vector<SyncKernel> async_kernels();   // async.cu
/// All of them.
std::vector<SyncKernel> sync_kernels();

}  // namespace flashladder
