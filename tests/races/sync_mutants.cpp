// One synchronisation mutant a process, for compute-sanitizer; or what the emulator says of all of them.
//   sync-mutants                   their names, and the architecture that each takes
//   sync-mutants NAME              runs it once: right, wrong, gave up waiting, or the error
//   sync-mutants --reports FILE    on the emulator: what the race detector says of each, as JSON
//   sync-mutants --check FILE      whether that is what the file says
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "../emulator/device_array.h"
#include "mutants.h"

#ifndef FLASHLADDER_GPU
#include <nlohmann/json.hpp>
#include <regex>

#include "files.h"
#include "reports.h"
#include "results.h"
#endif

namespace flashladder {
namespace {

int list() {
    for (const SyncKernel& kernel : sync_kernels()) fmt::print("{} {}\n", kernel.name(), kernel.hopper ? 90 : 80);
    return 0;
}

int run(const std::string& name) {
    const auto kernels = sync_kernels();
    const auto kernel = std::ranges::find(kernels, name, &SyncKernel::name);
    if (kernel == kernels.end()) {
        fmt::print(stderr, "there is no mutant '{}'\n", name);
        return 2;
    }
    try {
        const DeviceArray<int> lines(std::vector<int>(noted_lines, 0));
        const bool right = kernel->run(lines.data());
#ifdef FLASHLADDER_GPU
        const bool gave_up = lines.download()[0] != 0;
#else
        const bool gave_up = false;  // the emulator reports a deadlock
#endif
        fmt::print("{}\n", gave_up ? "gave up waiting" : right ? "right" : "wrong");
    } catch (const CudaError& error) {
        fmt::print("{}\n", cudaGetErrorName(error.code));
    }
    return 0;
}

#ifndef FLASHLADDER_GPU
nlohmann::json reports() {
    auto rows = nlohmann::json::array();
    for (const SyncKernel& kernel : sync_kernels()) {
        nlohmann::json row = {
            {"name", kernel.name()}, {"equivalent", kernel.equivalent}, {"kinds", nlohmann::json::object()}};
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
            const Outcome outcome = look_for_races(kernel, seed);
            if (outcome.report.empty()) continue;
            if (!row.contains("report")) row["report"] = outcome.report;
            row["kinds"][outcome.kind()] = row["kinds"].value(outcome.kind(), 0) + 1;
        }
        rows.push_back(row);
    }
    return rows;
}

int write(const std::string& file) {
    nlohmann::json results = new_results();
    results["seeds"] = seeds;
    results["rows"] = reports();
    write_file(file, results.dump(1) + "\n");
    return 0;
}

/// Addresses of the host's memory are others each time.
std::string without_addresses(const nlohmann::json& rows) {
    return std::regex_replace(rows.dump(1), std::regex("0x[0-9a-f]{7,}"), "0x...");
}

int check(const std::string& file) {
    const bool fresh =
        without_addresses(nlohmann::json::parse(read_file(file)).at("rows")) == without_addresses(reports());
    fmt::print("{} {}\n", file,
               fresh ? "is what the race detector says now" : "is stale: build/cpu/bin/sync-mutants --reports " + file);
    return fresh ? 0 : 1;
}
#endif

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    const std::string first = argc > 1 ? argv[1] : "";
    if (argc == 1) return list();
#ifndef FLASHLADDER_GPU
    if (argc == 3 && first == "--reports") return write(argv[2]);
    if (argc == 3 && first == "--check") return check(argv[2]);
#endif
    return run(first);
}
