// The emulator sees every access: whatever the type, however it is read, passed and written, at every level of
// optimisation, the bytes that are counted are those of the value, and a value that is out of bounds is reported.
#include "accesses.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "../test_seed.h"
#include "device_array.h"
#include "emulator/counters.h"

namespace accesses {
namespace {

constexpr int values = 3;  // in a buffer

/// The report of a launch that fails, or "" if it does not.
std::string failure_of(const Program& program, void* in, void* out, int i, int j) {
    try {
        program.run(in, out, i, j);
    } catch (const flashladder::CudaError&) {
        return emulator::last_report();
    }
    return "";
}

/// True if the report names a line of the program.
bool names_line(const Program& program, const std::string& report) {
    const std::string before = ACCESSES_FILE ":";
    const std::size_t at = report.find(before, report.find("  source "));
    if (at == std::string::npos) return false;
    const int line = std::atoi(report.c_str() + at + before.size());
    return program.first_line <= line && line <= program.last_line;
}

}  // namespace

TEST_CASE("every access is seen in " ACCESSES_FILE) {
    std::mt19937 random(static_cast<unsigned>(flashladder::test_seed()));
    std::size_t unseen_reads = 0, unseen_writes = 0;
    std::string first;  // that is not as it should be
    const auto note = [&](const Program& program, const std::string& what) {
        if (first.empty()) first = fmt::format("program_{}: {}", program.number, what);
    };
    const std::vector<Program> all = programs();
    for (const Program& program : all) {
        const std::size_t bytes = program.bytes;
        std::vector<unsigned char> content(values * bytes);
        for (unsigned char& c : content) c = static_cast<unsigned char>(random() & 127);
        const flashladder::DeviceArray<unsigned char> in(content), out(content.size());

        const emulator::CountedWork work = emulator::count_work([&] { program.run(in.data(), out.data(), 1, 2); });
        const auto found = out.download();
        CHECK(std::memcmp(found.data() + 2 * bytes, content.data() + bytes, bytes) == 0);
        REQUIRE(work.launches.size() == 1);
        const emulator::LaunchWork& launch = work.launches.front();
        const std::size_t read = launch.total.global_of(emulator::Access::read).requested_bytes;
        const std::size_t written = launch.total.global_of(emulator::Access::write).requested_bytes;
        if (read != bytes || launch.distinct_read_bytes != bytes) {
            ++unseen_reads;
            note(program, fmt::format("{} bytes read, {} counted", bytes, read));
        }
        if (written != bytes || launch.distinct_written_bytes != bytes) {
            ++unseen_writes;
            note(program, fmt::format("{} bytes written, {} counted", bytes, written));
        }

        const auto expect_report = [&](int i, int j, const char* access, std::size_t& unseen) {
            const std::string report = failure_of(program, in.data(), out.data(), i, j);
            const bool seen = report.starts_with("out of bounds: ") &&
                              report.find(fmt::format("-byte {} at ", access)) != std::string::npos;
            if (seen && names_line(program, report)) return;
            ++unseen;
            note(program, fmt::format("a {} out of bounds: {}", access, seen ? "wrong line: " + report : report));
        };
        expect_report(values, 0, "read", unseen_reads);
        expect_report(0, -1, "write", unseen_writes);
    }
    INFO("programs: ", all.size(), ", generated from seed " ACCESSES_SEED "; first: ", first);
    CHECK(unseen_reads == 0);
    CHECK(unseen_writes == 0);
}

}  // namespace accesses
