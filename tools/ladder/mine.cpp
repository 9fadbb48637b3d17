#include "mine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "page.h"
#include "test.h"

namespace flashladder {

const Stage& learners_stage(const Chapter& chapter) {
    if (mine().empty())
        throw std::runtime_error(fmt::format("{} registers no stage: its last lines should", chapter.file()));
    return mine().front();
}

int tell_failure(const Chapter& chapter, const std::string& report, const std::string& page) {
    fmt::print("{} fails:\n\n", chapter.file());
    print_report(report, chapter.file());
    const std::string next = fmt::format("./ladder test {} says which exercise it comes from", chapter.number());
    fmt::print("\n{}\n", next);
    if (!page.empty())
        write_page(page, "report", {{"title", chapter.file() + " fails"},
                                    {"about", next + "."},
                                    {"report", told_report(report, chapter.file())}});
    return 1;
}

}  // namespace flashladder
