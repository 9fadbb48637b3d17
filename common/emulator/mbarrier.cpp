// mbarriers. The whole state is in the 64-bit word in shared memory; only who waits, and how many phases are over, is
// kept beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "barrier.h"
#include "calls.h"
#include "cuda_runtime.h"
#include "multiprocessor.h"
#include "ptx_functions.h"
#include "report.h"

namespace emulator {
namespace {

constexpr unsigned max_arrivals = (1 << 20) - 1;
constexpr int max_bytes = (1 << 20) - 1;

/// What the word holds. The PTX ISA names these fields and their ranges, not where they lie.
struct State {
    unsigned expected = 0, pending = 0;  // arrivals of each phase, and those that this one still lacks
    int bytes = 0;                       // that this phase still lacks; below 0 if they came before they were expected
    unsigned parity = 0;                 // of this phase

    static constexpr std::uint64_t valid = 2;

    static bool is_valid(std::uint64_t word) { return word >> 62 == valid; }
    explicit State(unsigned arrivals) : expected(arrivals), pending(arrivals) {}
    explicit State(std::uint64_t word)
        : expected(word & 0xFFFFF),
          pending(word >> 20 & 0xFFFFF),
          bytes(static_cast<int>(word >> 40 & 0x1FFFFF) - (1 << 20)),
          parity(word >> 61 & 1) {}
    std::uint64_t word() const {
        return expected | std::uint64_t(pending) << 20 | static_cast<std::uint64_t>(bytes + (1 << 20)) << 40 |
               std::uint64_t(parity) << 61 | valid << 62;
    }
};

constexpr std::size_t word_bytes = sizeof(std::uint64_t);

std::string place(const Block& block, const std::uint64_t* barrier) {
    const auto address = reinterpret_cast<std::uintptr_t>(barrier);
    const bool dynamic = block.dynamic_shared.covers(address);
    return fmt::format("the barrier at byte {} of {} shared memory",
                       address - (dynamic ? block.dynamic_shared : block.static_shared).begin,
                       dynamic ? "dynamic" : "static");
}

State read(std::uint64_t* barrier, const Operand& operand) {
    find_shared(barrier, word_bytes, word_bytes, operand);
    std::uint64_t word;
    std::memcpy(&word, barrier, word_bytes);
    if (!State::is_valid(word))
        fail(cudaErrorLaunchFailure, operand.where, [&] {
            return fmt::format(
                "no barrier: {} finds none at {:#x}: it was not initialised, or something has overwritten it",
                operand.instruction, reinterpret_cast<std::uintptr_t>(barrier));
        });
    return State(word);
}

/// "attention.cu:77: ptx::barrier_init(full, 1)": a line and its text, without the semicolon; the line alone if there is
/// no such file.
std::string with_text(const std::string& place) {
    const std::string text = text_of(place);
    return text.empty() ? place : place + ": " + text;
}

/// Which of a kernel's barriers it is: those that a loop makes, or a ring, have one line and the same calls.
std::string which_one(const Block& block, const std::uint64_t* barrier) {
    const auto line = [](const BarrierWatch& watch) {
        return std::tuple(watch.made.line.file_name(), watch.made.line.line(), watch.made.calls);
    };
    const Place& where = block.barriers.at(barrier).made;
    const auto made = line(block.barriers.at(barrier));
    std::size_t number = 0, all = 0;
    for (const auto& [other, watch] : block.barriers)
        if (line(watch) == made) ++all, number += other <= barrier;
    std::string text = all == 1 ? "" : fmt::format("number {} of the {} ", number, all);
    text += "made at " + with_text(to_string(where));
    for (const std::string& call : calls_known_of(where, running->kernel->entry))
        text += "\n      called at  " + with_text(call);
    return text;
}

/// The kernel's own line that has made it, not that of a ring: what a reader knows it by.
std::string name_of_barrier(const Thread& thread) {
    const Place& made = thread.block->barriers.at(reinterpret_cast<const std::uint64_t*>(thread.waiting().id)).made;
    std::string line = to_string(made);
    if (line.starts_with("common/"))
        for (const std::string& call : calls_known_of(made, running->kernel->entry))
            if (!call.starts_with("common/")) {
                line = call;
                break;
            }
    const std::string text = text_of(line);
    return text.empty() ? "" : fmt::format("a barrier of \"{}\"", text);
}

/// 0 where all have arrived, but bytes are missing, or are too many; or nobody ever has: others that wait do so for
/// those who wait here. 1 where some have arrived, and others forgot, or cannot. Who waits for all may wait for another one.
int doubt(const Thread& thread) {
    const auto* barrier = reinterpret_cast<const std::uint64_t*>(thread.waiting().id);
    std::uint64_t word;
    std::memcpy(&word, barrier, word_bytes);
    if (!State::is_valid(word)) return 2;
    const State state(word);
    if (state.pending == 0 || !thread.block->barriers.at(barrier).arrived_at) return 0;
    return state.pending < state.expected ? 1 : 2;
}

std::string what_is_missing(const Thread& thread) {
    const Waiting& waits = thread.waiting();
    const auto* barrier = reinterpret_cast<const std::uint64_t*>(waits.id);
    std::uint64_t word;
    std::memcpy(&word, barrier, word_bytes);
    const std::string where = place(*thread.block, barrier);
    if (!State::is_valid(word)) return where + " is no longer valid";
    const State state(word);
    const BarrierWatch& watch = thread.block->barriers.at(barrier);
    const std::string missing =
        state.bytes < 0
            ? fmt::format(" arrivals are missing, and {} bytes more have come than were announced", -state.bytes)
            : fmt::format(" arrivals and {} bytes are missing", state.bytes);
    const std::string remark =
        !watch.arrived_at             ? "; nobody has ever arrived at it"
        : watch.seen < watch.completed ? fmt::format("; phase {} (parity {}) is over, and nobody has waited for it",
                                                     watch.completed - 1, waits.phase ^ 1)
                                       : "";
    return fmt::format("{}, phase {} (parity {}): {} of {}{}{}\n    it is {}", where, watch.completed, waits.phase,
                       state.pending, state.expected, missing, remark, which_one(*thread.block, barrier));
}

/// Counts arrivals and bytes; ends the phase if nothing is missing.
void update(std::uint64_t* barrier, State state, unsigned arrivals, const Knowledge& knowledge, const Operand& operand) {
    if (arrivals > state.pending)
        fail(cudaErrorLaunchFailure, operand.where, [&] {
            return fmt::format("too many arrivals: {} at {}, whose phase expects {}, all of which have come\n  it is {}",
                               operand.instruction, place(*current->block, barrier), state.expected,
                               which_one(*current->block, barrier));
        });
    if (std::abs(state.bytes) > max_bytes)
        fail(cudaErrorLaunchFailure, operand.where, [&] {
            return fmt::format("too many bytes: {} leaves {} with {} bytes {}, at most {} can be counted",
                               operand.instruction, place(*current->block, barrier), std::abs(state.bytes),
                               state.bytes < 0 ? "more than were announced" : "that are missing", max_bytes);
        });
    state.pending -= arrivals;
    BarrierWatch& watch = current->block->barriers[barrier];
    watch.arrived_at |= arrivals > 0;
    if (watching && arrivals > 0) watch.arrivals.add(knowledge);
    if (state.pending == 0 && state.bytes == 0) {
        state.pending = state.expected;
        state.parity ^= 1;
        ++watch.completed;
        watch.completed_clock.join(watch.arrivals.clock());
        if (watch.slot > 0) watch.completed_clock.raise(watch.slot, static_cast<std::uint32_t>(watch.completed));
        for (Thread* thread : watch.waiting) wake(*thread);
        watch.waiting.clear();
    }
    const std::uint64_t word = state.word();
    std::memcpy(barrier, &word, word_bytes);
    made_progress();
}

/// The current thread uses a barrier: its initialisation must be behind it.
void watch_use(const std::uint64_t* barrier, const Operand& operand) {
    if (!watching) return;
    const auto address = reinterpret_cast<std::uintptr_t>(barrier);
    const Block& block = *current->block;
    watch_shared(block.dynamic_shared.covers(address) ? block.dynamic_shared : block.static_shared, address, word_bytes,
                 {false, true}, operand.where, operand.instruction);
}

}  // namespace

void perturb() {
    if (draw(4) == 0) step_aside();
}

/// While races are looked for: now and then a thread comes to its wait as late as the others let it. The phase that it
/// waits for may be over by then, but not the one behind it: that ends with the parity of the one before. It does where
/// another lane of the warp gives back what all of them wait for.
void look_late(std::uint64_t* barrier, unsigned parity, const Operand& operand) {
    constexpr unsigned often = 64, steps_of_a_thread = 64;
    Block& block = *current->block;
    if (block.looks_late || draw(often) != 0) return;
    const BarrierWatch& watch = block.barriers[barrier];
    const std::uint64_t over = watch.completed + (read(barrier, operand).parity == parity);  // when this wait may end
    block.looks_late = current;
    block.its_warp_arrived = false;
    block.steps_until_it_looks = steps_of_a_thread * static_cast<unsigned>(block.threads.size());
    current->where = operand.where;
    block.home->suspend();
    if (watch.completed > over && block.its_warp_arrived)
        fail(cudaErrorLaunchFailure, operand.where, [&] {
            return fmt::format(
                "overtaken: before this thread comes to its {}, the phase that it waits for may be over, "
                "and the one behind it too: it would wait for a later one, or for ever\n"
                "  missing    __syncwarp() behind the wait, before a lane of this warp arrives for all of "
                "them\n  at         {}, phase {}\n  it is {}",
                operand.instruction, place(block, barrier), over - 1, which_one(block, barrier));
        });
}

unsigned barrier_parity(std::uint64_t* barrier, const Where& where) { return read(barrier, {"barrier_arrive", where}).parity; }

void barrier_init(std::uint64_t* barrier, unsigned arrivals, const Where& where) {
    if (arrivals == 0 || arrivals > max_arrivals)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong count: barrier_init with {} arrivals, at least 1 and at most {}", arrivals,
                               max_arrivals);
        });
    note_shared_write(barrier, word_bytes, word_bytes, {"barrier_init", with_calls(where)});
    const std::uint64_t word = State(arrivals).word();
    std::memcpy(barrier, &word, word_bytes);
    BarrierWatch& watch = current->block->barriers[barrier] = {};
    watch.made = with_calls(where);
    if (watching) watch.completed_clock = Clock(current->order.actor.team);
    current->initialised.push_back(barrier);
}

void barrier_invalidate(std::uint64_t* barrier, const Where& where) {
    read(barrier, {"barrier_invalidate", where});
    std::memset(barrier, 0xFF, word_bytes);
}

void fence_barrier_init(const Where&) {
    for (std::uint64_t* barrier : current->initialised)
        note_async_write(barrier, word_bytes, {"fence_barrier_init", {}});
    current->initialised.clear();
}

void barrier_arrive(std::uint64_t* barrier, const Where& where) {
    const Operand operand{"barrier_arrive", where};
    read(barrier, operand);
    if (recording) note_barrier(note(Doing::arrive, where), barrier);
    watch_use(barrier, operand);
    const Thread* const late = current->block->looks_late;
    if (late && late->warp() == current->warp()) current->block->its_warp_arrived = true;
    arrive(barrier, operand, watching ? release(*current) : Knowledge());
    perturb();
}

void barrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes, const Where& where) {
    const Operand operand{"barrier_arrive_expect_tx", where};
    State state = read(barrier, operand);
    if (recording) note_barrier(note(Doing::arrive, where), barrier);
    state.bytes += static_cast<int>(std::min(bytes, 2u * max_bytes));
    watch_use(barrier, operand);
    update(barrier, state, 1, watching ? release(*current) : Knowledge(), operand);
    perturb();
}

bool barrier_try_wait(std::uint64_t* barrier, unsigned parity, const Where& where) {
    const Operand operand{"barrier_try_wait", where};
    if (parity > 1)
        fail(cudaErrorLaunchFailure, where, [&] { return fmt::format("wrong parity: {}, neither 0 nor 1", parity); });
    const Note noted = recording ? note_barrier(note_begin(Doing::wait, where), barrier) : not_noted;
    perturb();
    if (watching) look_late(barrier, parity, operand);
    const auto is_over = [&] {
        if (read(barrier, operand).parity == parity) return false;
        if (recording) note_end(noted);
        watch_use(barrier, operand);
        BarrierWatch& watch = current->block->barriers[barrier];
        watch.seen = watch.completed;
        if (watching) acquire(*current, watch.completed_clock);
        return true;
    };
    if (is_over()) return true;
    if (draw(8) == 0) {  // the instruction may give up waiting at any time
        yield(where);
        return is_over();
    }
    current->block->barriers[barrier].waiting.push_back(current);
    wait({operand.instruction, reinterpret_cast<std::uintptr_t>(barrier), parity, what_is_missing, doubt, name_of_barrier},
         where);
    return is_over();
}

void arrive(std::uint64_t* barrier, const Operand& operand, const Knowledge& knowledge) {
    update(barrier, read(barrier, operand), 1, knowledge, operand);
}

void expect_arrival(std::uint64_t* barrier, const Operand& operand) {
    State state = read(barrier, operand);
    watch_use(barrier, operand);
    ++state.pending;
    const std::uint64_t word = state.word();
    std::memcpy(barrier, &word, word_bytes);
}

Actor load_actor(std::uint64_t* barrier, const Clock& clock) {
    if (!watching) return {};
    BarrierWatch& watch = current->block->barriers[barrier];
    if (watch.slot == 0) watch.slot = new_slot();
    return {current->order.actor.team, watch.slot, static_cast<std::uint32_t>(watch.completed + 1), clock};
}

void complete_transaction(std::uint64_t* barrier, unsigned bytes, const Operand& operand) {
    State state = read(barrier, operand);
    state.bytes -= static_cast<int>(bytes);
    update(barrier, state, 0, {}, operand);
}

void check_async_barrier(std::uint64_t* barrier, const Block& block, const Operand& operand) {
    if (&block == current->block) read(barrier, operand);
    for (const Thread& thread : block.threads) {
        const auto& known = thread.initialised;
        if (known.empty() || std::find(known.begin(), known.end(), barrier) == known.end()) continue;
        fail(cudaErrorLaunchFailure, operand.where, [&] {
            return fmt::format(
                "missing fence: {} signals {}, which thread ({}, {}, {}) has initialised with no fence_barrier_init() "
                "since",
                operand.instruction, place(block, barrier), thread.index.x, thread.index.y, thread.index.z);
        });
    }
}

}  // namespace emulator
