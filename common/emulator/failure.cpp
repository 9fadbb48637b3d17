// How a launch fails: what its report says, and who is shown to wait for what.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "calls.h"
#include "machine.h"
#include "multiprocessor.h"
#include "report.h"

namespace emulator {

bool reporting = false;
bool awaiting_store = false;
bool operation_in_progress = false;

namespace {

std::string report;

/// A read of shared memory that nobody had written.
struct UnwrittenRead {
    std::uintptr_t address;
    std::size_t bytes;
    Thread* reader;
    Place where;
    std::string words;
};
std::vector<UnwrittenRead> unwritten_reads;

std::string count_threads(std::size_t n) { return fmt::format("{} thread{}", n, n == 1 ? "" : "s"); }

std::string who_waits_in(const Block& block, bool with_details) {
    std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t, unsigned, unsigned, const void*, std::string>,
             std::vector<const Thread*>>
        groups;
    std::map<std::pair<std::string, std::uint32_t>, std::string> known;  // a place and its calls
    const auto calls_of = [&](const Thread& t) -> std::string {
        if (!t.waiting().what || !t.frame_of_wait) return "";
        Place where = t.where;
        if (!where.calls) where.calls = keep_calls_of(t);
        const auto [text, is_new] = known.try_emplace({to_string(where), where.calls});
        if (is_new) text->second = called_at(calls_known_of(where, running->kernel->entry), "    ");
        return text->second;
    };
    for (const Thread& t : block.threads) {
        if (t.exited) continue;
        const Waiting& waits = t.waiting();
        groups[{waits.what ? waits.what : "", waits.id, waits.phase, t.where.line.line(), t.where.line.column(),
                t.where.pc, calls_of(t)}]
            .push_back(&t);
    }
    constexpr int most = std::numeric_limits<int>::max();
    const auto doubt = [&](const auto& group) {
        const Thread& first = *group->second.front();
        return with_details && first.waiting().doubt ? first.waiting().doubt(first) : most;
    };
    std::vector<decltype(groups.cbegin())> order;  // what looks like the cause comes first: a learner reads that line
    for (auto group = groups.cbegin(); group != groups.cend(); ++group) order.push_back(group);
    std::ranges::stable_sort(order, {}, doubt);
    std::string text;
    if (!order.empty()) {
        const Thread& first = *order.front()->second.front();
        const std::string name = with_details && first.waiting().name ? first.waiting().name(first) : "";
        if (!name.empty())
            text += fmt::format("; {} for {}", count_waiting(order.front()->second.size()), name);
    }
    for (const auto& group : order) {
        const std::vector<const Thread*>& threads = group->second;
        const Thread& first = *threads.front();
        const bool has_run = first.where.pc || first.where.line.line() != 0;
        const std::string where = has_run ? to_string(first.where) : "its beginning";
        const Waiting& waits = first.waiting();
        text += waits.what ? fmt::format("\n  {} for {} at {}", count_waiting(threads.size()), waits.what, where)
                           : fmt::format("\n  {} can run, last seen at {}", count_threads(threads.size()), where);
        text += fmt::format(", first ({}, {}, {})", first.index.x, first.index.y, first.index.z);
        text += std::get<std::string>(group->first);
        if (with_details && waits.what && waits.details) text += "\n    " + waits.details(first);
    }
    const auto exited = std::count_if(block.threads.begin(), block.threads.end(), [](auto& t) { return t.exited; });
    return text + fmt::format("\n  {} of {} threads have returned", exited, block.threads.size());
}

}  // namespace

std::string count_waiting(std::size_t n) { return count_threads(n) + (n == 1 ? " waits" : " wait"); }

std::string blocks_without_room() {
    const dim3 grid = running->grid;
    const std::uint64_t all = std::uint64_t(grid.x) * grid.y * grid.z,
                        begun = running->next_cluster * running->blocks_per_cluster();
    return begun == all ? "" : fmt::format(", and {} of {} blocks have no room to begin", all - begun, all);
}

std::string who_waits_where(const Block& block) {
    std::string text = who_waits_in(block, true);
    for (const Block* other : block.cluster->blocks)
        if (other != &block)
            text += fmt::format("\n  in block ({}, {}, {}) of the cluster:", other->index.x, other->index.y,
                                other->index.z) +
                    who_waits_in(*other, false);  // its static shared memory is not in place
    return text;
}

void record_failure(int code, std::string_view what, const Block& block, const Thread* thread, const Place& where) {
    running->code = code;
    const auto line = [](const char* name, uint3 index, dim3 extent) {
        return fmt::format("\n  {:<10} ({}, {}, {}) of ({}, {}, {})", name, index.x, index.y, index.z, extent.x,
                           extent.y, extent.z);
    };
    report = fmt::format("{}\n  kernel     {}", what, name_of(*running->kernel));
    report += line("block", block.index, running->grid);
    if (thread) {
        report += line("thread", thread->index, running->block);
        if (const std::string source = to_string(where); !source.empty())
            report += fmt::format("\n  source     {}", source);
        report += called_at(calls_to(where, running->kernel->entry), "  ");
    }
    report += fmt::format("\n  reproduce  LADDER_SEED={}", settings().seed);
}

std::string called_at(const std::vector<std::string>& calls, const char* indentation) {
    std::string text;
    for (const std::string& line : calls) text += fmt::format("\n{}called at  {}", indentation, line);
    return text;
}

void record_unwritten_read() {
    const UnwrittenRead& read = unwritten_reads.front();
    record_failure(cudaErrorLaunchFailure, read.words + ", which no thread of the block has written",
                   *read.reader->block, read.reader, read.where);
}

void forget_unwritten_reads() { unwritten_reads.clear(); }

void abandon() {
    for (;;) current->block->home->suspend();
}

void stop_launch(int code, std::string_view what, const Place& where) {
    record_failure(code, what, *current->block, current, where);
    if (operation_in_progress) throw OperationFailed();
    abandon();
}

void hold_reader(std::uintptr_t address, std::size_t n, const Place& where, std::string words) {
    Place kept = where;
    if (!operation_in_progress && !kept.calls) kept.calls = keep_calls(call_stack());
    unwritten_reads.push_back({address, n, current, kept, std::move(words)});
    awaiting_store = true;
    if (operation_in_progress) throw OperationFailed();  // still reporting: what is unwound is the emulator's own
    reporting = false;
    for (;;) wait({"the report of what it has read"}, where);
}

void explain_unwritten_reads(std::uintptr_t address, std::size_t n, const Place& where, const char* instruction) {
    const auto read = std::find_if(unwritten_reads.begin(), unwritten_reads.end(), [&](const UnwrittenRead& read) {
        return address < read.address + read.bytes && read.address < address + n;
    });
    if (read == unwritten_reads.end()) return;
    const std::string calls = called_at(calls_to(where, running->kernel->entry), "    ");
    const Thread* writer = std::exchange(current, read->reader);
    fail(cudaErrorLaunchFailure, read->where, [&] {
        const uint3 index = writer->index;
        const std::string who = instruction ? fmt::format("{}, issued at", instruction)
                                            : fmt::format("thread ({}, {}, {}) at", index.x, index.y, index.z);
        // Only who has asked for a copy by cp.async can wait for it.
        const bool anothers_copy = instruction && !std::strcmp(instruction, "cp_async") && writer != read->reader;
        const bool in_no_group = instruction && !std::strcmp(instruction, "cp_async") &&
                                 writer->copies.waited_in_vain(writer->copies.arriving);
        const char* missing = in_no_group             ? "cp_async_commit(), for it is in no group that is waited for,"
                              : anothers_copy         ? "a wait for it, or a barrier behind that wait,"
                              : operation_in_progress ? "a wait for it"
                                                      : "a barrier";
        // A wait for the phase that is not under way ends at once.
        const bool by_parity = operation_in_progress && instruction && std::strcmp(instruction, "cp_async");
        return fmt::format("{}, written only later: {} is missing{}, or the index is another's\n"
                           "  written    later, by {} {}{}\n"
                           "  missing    {} between the two, if that is what was to be read",
                           read->words, missing, by_parity ? " or has the other parity" : "", who, to_string(where),
                           calls, missing);
    });
}

const std::string& last_report() { return report; }

std::string find_race(const std::function<void()>& launches) {
    const struct Restore {
        ~Restore() { settings().races = before; }
        bool before = std::exchange(settings().races, true);
    } restore;
    clear_report();
    try {
        launches();
    } catch (const std::exception&) {
        if (report.empty()) throw;  // nothing that a kernel has done
    }
    return report;
}

void set_report(std::string text) { report = std::move(text); }
void clear_report() { report.clear(); }

}  // namespace emulator
