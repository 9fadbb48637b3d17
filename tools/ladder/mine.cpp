#include "mine.h"

#include <fmt/format.h>

#include <stdexcept>

#include "test.h"

namespace flashladder {

const Stage& learners_stage(const Chapter& chapter) {
    if (mine().empty())
        throw std::runtime_error(fmt::format("{} registers no stage: its last lines should", chapter.file()));
    return mine().front();
}

int tell_failure(const Chapter& chapter, const std::string& report) {
    fmt::print("{} fails:\n\n", chapter.file());
    print_report(report, chapter.file());
    fmt::print("\n./ladder test {} says which exercise it comes from\n", chapter.number());
    return 1;
}

}  // namespace flashladder
