// What the suites of all operations share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "harness/run.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {

/// One of these in a rung's file: in its tests, a barrier is one line for all threads, and none of them has returned.
/// So where barriers are taught; later rungs may do what a GPU lets them.
struct StrictBarriers {
#ifndef FLASHLADDER_GPU
    StrictBarriers() { emulator::settings().strict_barriers = true; }
#endif
};

/// While it lives, the virtual GPU has so many multiprocessors and so large an L2. A real one has what it has.
struct VirtualGpu {
#ifndef FLASHLADDER_GPU
    explicit VirtualGpu(int multiprocessors, std::size_t l2_bytes = 50 << 20) {
        emulator::settings().multiprocessors = multiprocessors;
        emulator::settings().l2_bytes = l2_bytes;
    }
    ~VirtualGpu() { emulator::settings() = before; }
    const emulator::Settings before = emulator::settings();
#else
    explicit VirtualGpu(int, std::size_t = 0) {}
    ~VirtualGpu() {}
#endif
};

/// A length from `least` to `most`, by the seed: a multiple of `tile`, one less, one more, or any of them, as where there
/// is no such length. `turn` tells the lengths of a run apart: any number; where it is the same, four seeds in a row have
/// all four kinds.
int drawn_length(int tile, int least, int most, std::uint64_t turn);

/// Fails with "what: found 3, expected 4", or "expected 3 to 4", "expected at most 4".
void check_count(const std::string& what, std::uint64_t found, std::uint64_t expected);
void check_count(const std::string& what, std::uint64_t found, std::uint64_t least, std::uint64_t most);
void check_count(const std::string& what, std::uint64_t found, std::uint64_t expected, const std::string& where);

/// The line with which a launch is refused; "(no refusal)" if it is not.
template <class Launch>
std::string refusal(Launch launch) {
    try {
        launch();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "(no refusal)";
}
template <class Stage, class Args>
std::string refusal(const Stage& stage, const Args& args) {
    return refusal([&] { stage.launch(args); });
}
/// Fails if this is not one line of the stage's, or does not say `part`.
void check_refusal_line(const std::string& line, const std::string& stage, const std::string& part);

/// Launches it several times, with scratch memory full of this and that, and outputs full of NaN before: O has the same bits
/// each time, else it fails.
void check_same_bits(const Stage& stage, const Data& inputs);

/// check(change, part) fails if the stage does not refuse, by such a line, arguments that are good but for the change.
template <class Stage, class Args>
auto check_refusal_of(const Stage& stage, const Args& good) {
    return [&stage, good](auto change, const std::string& part) {
        Args args = good;
        change(args);
        check_refusal_line(refusal(stage, args), stage.name(), part);
    };
}

}  // namespace flashladder
