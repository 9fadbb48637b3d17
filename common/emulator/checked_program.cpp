// Linked with a user's program by `ladder check`: its seed, and what is said when a launch fails.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "emulator.h"
#include "machine.h"
#include "runtime_api.h"

namespace emulator {
namespace {

/// The same mistake at the same line, by whichever thread: said once.
std::string mistake(const std::string& report) {
    const std::size_t source = report.find("\n  source ");
    return report.substr(0, report.find(':')) +
           (source == report.npos ? "" : report.substr(source, report.find('\n', source + 1) - source));
}

void tell(const std::string& report) {
    static std::set<std::string> told;
    if (!told.insert(mistake(report)).second) return;
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", report.c_str());
    if (const char* path = std::getenv("LADDER_REPORTS"))
        if (FILE* file = std::fopen(path, "a")) {
            std::fprintf(file, "%s\n", report.c_str());
            std::fclose(file);
        }
}

const bool prepared = [] {
    settings().failed = tell;
    if (const char* seed = std::getenv("LADDER_SEED")) reseed(std::strtoull(seed, nullptr, 10));
    return true;
}();

}  // namespace
}  // namespace emulator

/// What assert() calls: in a kernel the launch fails, elsewhere the program ends as it always does.
extern "C" void __assert_fail(const char* expression, const char* file, unsigned line, const char* function) noexcept {
    if (emulator::current)
        emulator::fail(cudaErrorAssert, emulator::Place(__builtin_return_address(0)),
                       [=] { return fmt::format("assert: {}", expression); });
    std::fflush(stdout);
    std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, expression);
    std::abort();
}
