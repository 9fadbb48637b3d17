#include "launch_once.h"

#include <fmt/format.h>

#include <stdexcept>

#include "harness/run.h"
#include "launch.h"
#include "mine.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {

int launch_once(const Chapter& chapter, const LaunchOptions& options) {
    const Stage& stage = options.mine ? learners_stage(chapter) : find_stage(chapter.name);
    const Problem problem = stage.operation().problem(options.sizes, stage.dtypes().front());
    if (const std::string why = stage.why_unsupported(problem); !why.empty()) throw std::invalid_argument(why);
#ifndef FLASHLADDER_GPU
    emulator::reseed(options.seed);
#endif
    Judgement result;
    try {
        result = check(stage, stage.operation().inputs(problem, options.seed));
    } catch (const CudaError& error) {
        if (!options.mine) throw;
        return tell_failure(chapter, error.what());
    }
    fmt::print("{}{}, {}: error {:.1e}\n", chapter.name, options.mine ? " (yours)" : "", to_string(problem),
               result.error);
    if (!result.passed) fmt::print("{}\n", result.description);
    return result.passed ? 0 : 1;
}

}  // namespace flashladder
