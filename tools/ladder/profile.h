// `ladder profile`: what one rung asks of the machine on one problem, and what that costs by a model.
#pragma once

#include <cstdint>
#include <string>

#include "chapters.h"
#include "harness/operation.h"

namespace flashladder {

struct ProfileOptions {
    GivenSizes sizes;
    bool extras = false;           // ask for all outputs that need not be
    std::size_t shared_bytes = 0;  // that a block may have; 0: as the virtual GPU is
    int lines = 12;                // of the source that are shown
    std::string card = "H100";     // that the model is of
    int copies = 0;                // of the problem that run at once, for the model; 0: as many as fill the card
    std::string json;
    std::string roofline;  // an SVG file
    std::string page;      // of HTML: counts by source line
    bool mine = false;     // the learner's kernel beside the solution
    std::uint64_t seed = 1;
};

/// Counts one rung on one problem: by kernel, by tensor and by source line, worst first; then what this costs by the
/// model, and what the profiler says, where there are a GPU and Nsight Compute. Of the learner's kernel the same beside
/// the solution's, but the profiler's. Returns the exit status.
int profile_rung(const Chapter& chapter, const ProfileOptions& options);

}  // namespace flashladder
