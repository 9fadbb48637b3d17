#include "machine.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "access.h"
#include "crash.h"
#include "cuda_runtime.h"
#include "emulator.h"
#include "report.h"
#include "symbols.h"

// What kernels know as threadIdx and its kin: device_functions.h.
uint3 thread_index asm("emulator_thread_index"), block_index asm("emulator_block_index"),
    block_extent asm("emulator_block_extent"), grid_extent asm("emulator_grid_extent");

namespace emulator {

Thread* current = nullptr;
bool reporting = false;
bool awaiting_store = false;

namespace {

namespace context = boost::context::detail;

const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // 4 KB, on arm64 up to 64
const std::size_t stack_bytes = page + (92 * 1024 + page - 1) / page * page;  // with its guard page
constexpr std::size_t cache_line = 64, stack_spread = 32 * 1024;
constexpr std::size_t shared_window_bytes = 256 * 1024;
constexpr std::size_t shared_offset = 1024;  // a shared address of 0 would hide mistakes

/// splitmix64: small, and good enough to shuffle with.
class Random {
public:
    explicit constexpr Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t operator()() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    std::size_t below(std::size_t n) { return (*this)() % n; }

private:
    std::uint64_t state_;
};

constinit Random random_order{1};  // another file may seed it before main()
std::string report;

/// Ends an asynchronous operation that fails. Unlike a fiber, the scheduler's stack must be unwound.
struct OperationFailed {};
bool operation_in_progress = false;

/// The launch in progress; there is never more than one.
struct Launch {
    const Kernel* kernel;
    dim3 grid, block, cluster;
    std::size_t dynamic_shared_bytes;
    std::uint64_t next_cluster = 0;
    int code = 0;  // the failure, if any
    std::uint64_t idle_yields = 0;
    std::vector<std::uint8_t> static_flags;  // SharedWindow::written of static shared memory, before anything is

    Launch(const Kernel& kernel, dim3 grid, dim3 block, dim3 cluster, std::size_t dynamic_shared_bytes)
        : kernel(&kernel), grid(grid), block(block), cluster(cluster), dynamic_shared_bytes(dynamic_shared_bytes) {}

    dim3 clusters() const { return {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z}; }
    unsigned blocks_per_cluster() const { return cluster.x * cluster.y * cluster.z; }
    unsigned threads() const { return block.x * block.y * block.z; }
};
Launch* running = nullptr;
std::vector<const Cluster*> resident;

std::uint64_t count(dim3 extent) { return std::uint64_t(extent.x) * extent.y * extent.z; }

uint3 unflatten(std::uint64_t i, dim3 extent) {
    return {unsigned(i % extent.x), unsigned(i / extent.x % extent.y), unsigned(i / extent.x / extent.y)};
}

/// Memory that is kept from launch to launch: mapping it anew each time would cost more than a small kernel.
struct Workspace {
    char* stacks = nullptr;  // each with a guard page at its lower end
    std::size_t stack_count = 0;
    char* shared = nullptr;
    std::vector<char> static_shared;  // what the block's static __shared__ variables hold while another block runs
    std::vector<std::uint8_t> dynamic_written, static_written;
    std::vector<std::uint32_t> dynamic_writers, static_writers;
    Shadow dynamic_shadow, static_shadow;

    Workspace() : shared(map(shared_window_bytes)) {}
    ~Workspace() {
        munmap(shared, shared_window_bytes);
        if (stacks) munmap(stacks, stack_count * stack_bytes);
    }
    Workspace(const Workspace&) = delete;

    void reserve_stacks(std::size_t n) {
        if (n <= stack_count) return;
        if (stacks) munmap(stacks, stack_count * stack_bytes);
        stacks = map(n * stack_bytes);
        stack_count = n;
        for (std::size_t i = 0; i < n; ++i) mprotect(stacks + i * stack_bytes, page, PROT_NONE);
    }

private:
    static char* map(std::size_t bytes) {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        return static_cast<char*>(memory);
    }
};

/// A flag for each byte of static shared memory: 0 in variables, SharedWindow::gap between them. g++ has a guard for an
/// array of a class that has constructors, though none is called.
std::vector<std::uint8_t> flags_of_variables(std::size_t bytes) {
    const std::vector<Symbol>& variables = Symbols::instance().thread_locals;
    std::vector<std::uint8_t> flags(bytes, variables.empty() ? 0 : SharedWindow::gap);
    for (const Symbol& variable : variables)
        std::fill_n(flags.begin() + static_cast<std::ptrdiff_t>(variable.begin), variable.bytes,
                    std::strncmp(variable.name, "_ZGV", 4) == 0 ? SharedWindow::guard : 0);
    return flags;
}

/// The thread-local variables of this program: `__shared__` means `static thread_local`, and a kernel has no others.
SharedWindow thread_local_memory() {
    SharedWindow window;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            const auto here = reinterpret_cast<std::uintptr_t>(&thread_local_memory);
            bool contains_us = false;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                contains_us |= header.p_type == PT_LOAD && here - info->dlpi_addr - header.p_vaddr < header.p_memsz;
            }
            if (!contains_us) return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type != PT_TLS || !info->dlpi_tls_data) continue;
                auto& window = *static_cast<SharedWindow*>(data);
                window.begin = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
                window.bytes = info->dlpi_phdr[i].p_memsz;
            }
            return 1;
        },
        &window);
    return window;
}

}  // namespace

/// Runs one block after another, the threads of each in an order drawn from the seed.
class Multiprocessor {
public:
    Multiprocessor(Launch& launch, Workspace& workspace, SharedWindow static_shared)
        : launch_(launch), workspace_(workspace) {
        block_.static_shared = static_shared;
    }

    /// Makes a block resident, whose threads have slots from `first_slot` on.
    void begin(uint3 index, Cluster& cluster, unsigned first_slot);
    Block& block() { return block_; }
    /// Runs the resident block for a while: to its end, to a failure, or until it is another one's turn.
    void run_slice();
    bool finished() const { return block_.live == 0; }

    /// Called in a fiber: goes back to the scheduler of this multiprocessor.
    void suspend() {
        if (watching) check_suspects();
        scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
    }
    void exit_fiber() { context::jump_fcontext(scheduler_, nullptr); }

private:
    static void fiber_main(context::transfer_t from);

    Launch& launch_;
    Workspace& workspace_;
    context::fcontext_t scheduler_ = nullptr;
    Block block_;
};

namespace {

constexpr int poison = 0xFF;

/// Nothing in the window was written yet: `unwritten` has its flags.
void forget(SharedWindow& window, const std::vector<std::uint8_t>& unwritten, std::vector<std::uint8_t>& written,
            std::vector<std::uint32_t>& writers) {
    written = unwritten;
    writers.assign(window.bytes / SharedWindow::granule + 1, 0);
    window.written = written.data();
    window.writers = writers.data();
}

bool same_place(const std::source_location& a, const std::source_location& b) {
    return a.line() == b.line() && a.column() == b.column() &&
           (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string count_threads(std::size_t n) { return fmt::format("{} thread{}", n, n == 1 ? "" : "s"); }
std::string count_waiting(std::size_t n) { return count_threads(n) + (n == 1 ? " waits" : " wait"); }

std::string who_waits_in(const Block& block, bool with_details) {
    std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t, unsigned, unsigned, const void*>,
             std::vector<const Thread*>>
        groups;
    for (const Thread& t : block.threads) {
        if (t.exited) continue;
        const Waiting& waits = t.waits_for;
        groups[{waits.what ? waits.what : "", waits.id, waits.phase, t.where.line.line(), t.where.line.column(),
                t.where.pc}]
            .push_back(&t);
    }
    std::string text;
    for (const auto& [key, threads] : groups) {
        const Thread& first = *threads.front();
        const bool has_run = first.where.pc || first.where.line.line() != 0;
        const std::string where = has_run ? to_string(first.where) : "its beginning";
        const Waiting& waits = first.waits_for;
        text += waits.what ? fmt::format("\n  {} for {} at {}", count_waiting(threads.size()), waits.what, where)
                           : fmt::format("\n  {} can run, last seen at {}", count_threads(threads.size()), where);
        text += fmt::format(", first ({}, {}, {})", first.index.x, first.index.y, first.index.z);
        if (with_details && waits.what && waits.details) text += "\n    " + waits.details(first);
    }
    const auto exited = std::count_if(block.threads.begin(), block.threads.end(), [](auto& t) { return t.exited; });
    return text + fmt::format("\n  {} of {} threads have returned", exited, block.threads.size());
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

/// True if another block of the cluster can do something, for which this one may be waiting.
bool others_can_go_on(const Block& block) {
    const auto& blocks = block.cluster->blocks;
    return std::any_of(blocks.begin(), blocks.end(), [&](const Block* other) {
        return other != &block && other->live > 0 && (!other->ready.empty() || !other->async.empty());
    });
}

void synchronize_lanes(Block& block, unsigned warp_index, Lanes lanes) {
    std::array<Thread*, warp_size> threads;
    std::size_t n = 0;
    for (; lanes; lanes &= lanes - 1) threads[n++] = &block.threads[warp_index * warp_size + std::countr_zero(lanes)];
    synchronize(threads.data(), n, false);
}

/// Shuffles, votes and elect.sync hand values over, and promise nothing of memory; nor do ldmatrix, stmatrix and mma.
/// Which lane a wgmma acts for is not said: what any of them knows is taken to be known to it.
bool orders_memory(std::string_view name) { return name == "__syncwarp" || name.starts_with("wgmma"); }

/// Shuffles and votes, which nvcc moves loads past. What common/ptx has is volatile.
bool only_hands_over(std::string_view name) { return name.starts_with("__") && name.ends_with("_sync"); }

/// Hands every lane what all have brought, once the last one that must take part is there.
void complete_if_all_arrived(Block& block, unsigned warp_index, std::size_t i) {
    Warp& warp = block.warps[warp_index];
    const Rendezvous& rendezvous = warp.pending[i];
    if (rendezvous.arrived != (rendezvous.mask & warp.live)) return;
    if (counting && rendezvous.arrived == warp.live) trace_convergence(warp, !only_hands_over(rendezvous.name));
    const Rendezvous done = rendezvous;
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(i));
    running->idle_yields = 0;
    if (watching && orders_memory(done.name)) synchronize_lanes(block, warp_index, done.arrived);
    for (Lanes lanes = done.arrived; lanes; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        warp.received[lane] = {done.arrived, done.values, current->lane()};
        Thread& thread = block.threads[warp_index * warp_size + lane];
        if (&thread != current) wake(thread);
    }
}

/// The block's barrier is complete when all have come that have not returned: since Volta it counts threads, at
/// whatever line they come to it.
void complete_barrier_if_all_arrived(Block& block) {
    BlockBarrier& barrier = block.barrier;
    if (barrier.arrived.empty() || barrier.arrived.size() < block.live) return;
    const auto exited = std::find_if(block.threads.begin(), block.threads.end(), [](auto& t) { return t.exited; });
    if (settings().strict_barriers && exited != block.threads.end())
        fail(cudaErrorLaunchFailure, barrier.where, [&] {
            return fmt::format("a barrier not reached by all: {} in {} at {}, but thread ({}, {}, {}) has returned",
                               count_waiting(barrier.arrived.size()), barrier.name, to_string(barrier.where),
                               exited->index.x, exited->index.y, exited->index.z);
        });
    barrier.last_sum = barrier.sum;
    running->idle_yields = 0;
    if (counting) {
        trace_barrier(barrier.where);
        for (Warp& warp : block.warps) trace_convergence(warp, true);
    }
    if (watching) synchronize(barrier.arrived.data(), barrier.arrived.size(), true);
    for (Thread* thread : barrier.arrived) wake(*thread);
    barrier.arrived.clear();
}

/// `thread` is null where no single one is to blame.
void record_failure(int code, std::string_view what, const Block& block, const Thread* thread, const Place& where) {
    running->code = code;
    const auto line = [](const char* name, uint3 index, dim3 extent) {
        return fmt::format("  {:<10} ({}, {}, {}) of ({}, {}, {})\n", name, index.x, index.y, index.z, extent.x,
                           extent.y, extent.z);
    };
    report = fmt::format("{}\n  kernel     {}\n", what, name_of(*running->kernel));
    report += line("block", block.index, running->grid);
    if (thread) {
        report += line("thread", thread->index, running->block);
        if (const std::string source = to_string(where); !source.empty())
            report += fmt::format("  source     {}\n", source);
        for (const std::string& line : calls_to(where, running->kernel->entry))
            report += fmt::format("  called at  {}\n", line);
    }
    report += fmt::format("  reproduce  LADDER_SEED={}", settings().seed);
}

/// A read of shared memory that nobody had written.
struct UnwrittenRead {
    std::uintptr_t address;
    std::size_t bytes;
    Thread* reader;
    Place where;
    std::string words;
};
std::vector<UnwrittenRead> unwritten_reads;

void record_unwritten_read() {
    const UnwrittenRead& read = unwritten_reads.front();
    record_failure(cudaErrorLaunchFailure, read.words + ", which no thread of the block has written",
                   *read.reader->block, read.reader, read.where);
}

/// Leaves the fiber for good. Its stack is not unwound: nothing on it owns anything.
[[noreturn]] void abandon() {
    for (;;) current->block->home->suspend();
}

}  // namespace

void hold_reader(std::uintptr_t address, std::size_t n, const Place& where, std::string words) {
    unwritten_reads.push_back({address, n, current, where, std::move(words)});
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
    const Thread* writer = std::exchange(current, read->reader);
    fail(cudaErrorLaunchFailure, read->where, [&] {
        const uint3 index = writer->index;
        const std::string who = instruction ? fmt::format("{}, issued at", instruction)
                                            : fmt::format("thread ({}, {}, {}) at", index.x, index.y, index.z);
        // Only who has asked for a copy by cp.async can wait for it.
        const bool anothers_copy = instruction && !std::strcmp(instruction, "cp_async") && writer != read->reader;
        const char* missing = anothers_copy           ? "a wait for it, or a barrier behind that wait,"
                              : operation_in_progress ? "a wait for it"
                                                      : "a barrier";
        return fmt::format(
            "{}, written only later: {} is missing, or the index is another's\n  written    later, by {} {}\n  missing    {} "
            "between the two, if that is what was to be read",
            read->words, missing, who, to_string(where), missing);
    });
}

std::size_t draw(std::size_t n) { return random_order.below(n); }

void wait(const Waiting& what, const Place& where) {
    current->waits_for = what;
    current->where = where;
    current->block->home->suspend();
}

void wake(Thread& thread) {
    thread.waits_for = {};
    thread.block->ready.push_back(&thread);
}

void happen(const AsyncOperation& operation) {
    if (running->code) return;
    current = operation.issuer;
    operation_in_progress = true;
    try {
        operation.happen();
        running->idle_yields = 0;
    } catch (const OperationFailed&) {
        reporting = running->code != 0;
    }
    operation_in_progress = false;
    current = nullptr;
}

void Multiprocessor::begin(uint3 index, Cluster& cluster, unsigned first_slot) {
    const unsigned n = launch_.threads();
    workspace_.reserve_stacks(n);
    block_.home = this;
    block_.cluster = &cluster;
    block_.index = index;
    block_.live = n;
    block_.barrier = {};
    block_.dynamic_shared.begin = reinterpret_cast<std::uintptr_t>(workspace_.shared) + shared_offset;
    block_.dynamic_shared.bytes = launch_.dynamic_shared_bytes;
    std::memset(reinterpret_cast<void*>(block_.dynamic_shared.begin), poison, block_.dynamic_shared.bytes);
    workspace_.static_shared.assign(block_.static_shared.bytes, static_cast<char>(poison));
    forget(block_.dynamic_shared, std::vector<std::uint8_t>(block_.dynamic_shared.bytes), workspace_.dynamic_written,
           workspace_.dynamic_writers);
    forget(block_.static_shared, launch_.static_flags, workspace_.static_written, workspace_.static_writers);
    if (watching) {
        block_.dynamic_shared.cells = workspace_.dynamic_shadow.cells(shared_window_bytes);
        block_.static_shared.cells = workspace_.static_shadow.cells(block_.static_shared.bytes);
        block_.volatiles = {};
    }
    block_.async.begin();
    block_.named_barriers = {};
    block_.barriers.clear();
    block_.warpgroups.clear();
    block_.warpgroups.resize(n / warpgroup_threads);
    block_.launch_registers = launch_registers(n * launch_.kernel->blocks);
    block_.free_registers = 0;
    block_.register_waiters.clear();

    block_.threads.assign(n, {});
    block_.warps.resize((n + warp_size - 1) / warp_size);
    for (Warp& warp : block_.warps) {
        warp.live = 0;
        warp.pending.clear();
    }
    block_.ready.clear();
    const Clock start = watching ? Clock(cluster.team) : Clock();
    for (unsigned rank = 0; rank < n; ++rank) {
        Thread& thread = block_.threads[rank];
        thread.index = unflatten(rank, launch_.block);
        thread.rank = rank;
        thread.block = &block_;
        thread.write_mark = first_write_mark(rank);
        if (watching) thread.order.actor = {cluster.team, first_slot + rank, 1, start};
        char* stack = workspace_.stacks + rank * stack_bytes + page;
        // Stacks that all end at the same offset would compete for the same few cache lines.
        char* top = workspace_.stacks + (rank + 1) * stack_bytes - rank * 9 * cache_line % stack_spread;
        thread.stack_begin = reinterpret_cast<std::uintptr_t>(stack);
        thread.stack_end = reinterpret_cast<std::uintptr_t>(top);
        thread.context = context::make_fcontext(top, static_cast<std::size_t>(top - stack), fiber_main);
        block_.warps[thread.warp()].live |= Lanes(1) << thread.lane();
        block_.ready.push_back(&thread);
    }
}

void Multiprocessor::run_slice() {
    char* static_shared = reinterpret_cast<char*>(block_.static_shared.begin);
    std::copy(workspace_.static_shared.begin(), workspace_.static_shared.end(), static_shared);
    auto& ready = block_.ready;
    // How long a block runs before another one may is drawn too: from one step to many rounds of its threads.
    block_index = block_.index;
    std::size_t steps = 1 + random_order.below(block_.threads.size() << random_order.below(6));
    for (; steps > 0 && block_.live > 0; --steps) {
        block_.async.advance();
        while (ready.empty() && !launch_.code && block_.async.happen_next()) {
        }
        if (launch_.code) break;
        if (ready.empty()) {
            if (others_can_go_on(block_)) break;
            if (awaiting_store)
                record_unwritten_read();
            else
                record_failure(cudaErrorLaunchTimeout, "deadlock: no thread can go on" + who_waits_where(block_),
                               block_, nullptr, {});
            break;
        }
        const std::size_t pick = random_order.below(ready.size());
        current = ready[pick];
        ready[pick] = ready.back();
        ready.pop_back();
        Thread* thread = current;
        thread_index = thread->index;
        thread->context = context::jump_fcontext(thread->context, this).fctx;
        current = nullptr;
        if (launch_.code) break;
    }
    if (block_.live == 0 && !launch_.code) block_.async.finish();
    if (block_.live == 0 && !launch_.code && awaiting_store) record_unwritten_read();
    std::copy_n(static_shared, workspace_.static_shared.size(), workspace_.static_shared.begin());
}

void Multiprocessor::fiber_main(context::transfer_t from) {
    auto* self = static_cast<Multiprocessor*>(from.data);
    self->scheduler_ = from.fctx;
    static std::string thrown;  // not on the stack, which is not unwound
    thrown.clear();
    try {
        running->kernel->run(running->kernel->parameters);
    } catch (const std::exception& exception) {
        thrown = fmt::format("exception: {}; a GPU has none", exception.what());
    } catch (...) {
        thrown = "exception: not of a standard type; a GPU has none";
    }
    if (!thrown.empty()) fail(cudaErrorLaunchFailure, thrown_at(), [] { return thrown; });
    if (watching) check_suspects();

    Thread& thread = *current;
    if (watching) check_unconfirmed(thread);
    Block& block = *thread.block;
    check_finished(thread);
    thread.exited = true;
    --block.live;
    if (watching && block.live == 0) check_warp_synchronous(block);
    if (thread.cluster_phase > block.cluster->phase) --block.cluster->arrived;  // nor is it expected there any more
    running->idle_yields = 0;
    Warp& warp = block.warps[thread.warp()];
    warp.live &= ~(Lanes(1) << thread.lane());
    if (counting && warp.live == 0) trace_convergence(warp, true);
    for (std::size_t i = warp.pending.size(); i-- > 0;) complete_if_all_arrived(block, thread.warp(), i);
    complete_barrier_if_all_arrived(block);
    block.cluster->check_barrier();
    self->exit_fiber();
}

void stop_launch(int code, std::string_view what, const Place& where) {
    record_failure(code, what, *current->block, current, where);
    if (operation_in_progress) throw OperationFailed();
    abandon();
}

bool is_private_or_constant(std::uintptr_t address) {
    if (address - current->stack_begin < current->stack_end - current->stack_begin) return true;
    if (address - reinterpret_cast<std::uintptr_t>(running->kernel->parameters) < running->kernel->parameter_bytes)
        return true;
    return dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            const auto address = *static_cast<std::uintptr_t*>(data);
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                if (header.p_type == PT_LOAD && address - info->dlpi_addr - header.p_vaddr < header.p_memsz) return 1;
            }
            return 0;
        },
        &address);
}

bool is_passed_by_host(const Allocation& variable) {
    const char* parameters = static_cast<const char*>(running->kernel->parameters);
    for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= running->kernel->parameter_bytes; i += sizeof(std::uintptr_t)) {
        std::uintptr_t pointer;
        std::memcpy(&pointer, parameters + i, sizeof pointer);
        if (variable.contains(pointer, 1)) return true;
    }
    return false;
}

int synchronize_block(const char* name, int predicate, const std::source_location& where) {
    const NotedWait noted(Doing::barrier, where);
    Block& block = *current->block;
    BlockBarrier& barrier = block.barrier;
    if (barrier.arrived.empty()) {
        barrier.where = where;
        barrier.name = name;
        barrier.sum = 0;
    } else if (std::strcmp(barrier.name, name) != 0 ||  // PTX ISA: barrier.red and barrier.sync do not mix
               (settings().strict_barriers && !same_place(barrier.where, where))) {
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("a barrier not reached by all: {} in {} at {}, but this one in {} at {}",
                               count_waiting(barrier.arrived.size()), barrier.name, to_string(barrier.where), name,
                               to_string(where));
        });
    }
    barrier.arrived.push_back(current);
    barrier.sum += predicate;
    current->waits_for = {name};
    current->where = where;
    complete_barrier_if_all_arrived(block);  // this thread is woken too: the last need not be the first to go on
    block.home->suspend();
    return barrier.last_sum;
}

const Exchange& exchange(const char* name, Lanes mask, std::uint64_t value, const std::source_location& where) {
    Thread& thread = *current;
    Warp& warp = thread.block->warps[thread.warp()];
    const Lanes self = Lanes(1) << thread.lane();
    if (!(mask & self))
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong mask: lane {} calls {} with mask {:#010x}, which does not name it", thread.lane(),
                               name, mask);
        });
    auto& pending = warp.pending;
    // Lanes may be on their way to one instruction while others of its mask are still in another; but not wait for one
    // another.
    auto met = std::find_if(pending.begin(), pending.end(),
                            [&](const Rendezvous& r) { return r.mask == mask || (r.mask & self && r.arrived & mask); });
    if (met == pending.end()) {
        pending.push_back({name, mask});
        met = pending.end() - 1;
    } else if (met->mask != mask || (met->name != name && std::strcmp(met->name, name) != 0)) {
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format(
                "lanes of one warp meet in different instructions: {} with mask {:#010x}, {} with mask {:#010x}",
                met->name, met->mask, name, mask);
        });
    }
    met->arrived |= self;
    met->values[thread.lane()] = value;
    if (met->arrived != (mask & warp.live))
        wait({name}, where);
    else
        complete_if_all_arrived(*thread.block, thread.warp(), static_cast<std::size_t>(met - pending.begin()));
    return warp.received[thread.lane()];
}

Lanes active_lanes() { return current->block->warps[current->warp()].live; }

void yield(const Place& where) {
    current->where = where;
    if (++running->idle_yields > settings().patience) {
        if (awaiting_store) {
            record_unwritten_read();
            abandon();
        }
        fail(cudaErrorLaunchTimeout, where,
             [] { return "livelock: threads only wait for one another" + who_waits_where(*current->block); });
    }
    step_aside();
}

void step_aside() {
    wake(*current);
    current->block->home->suspend();
}

void made_progress() { running->idle_yields = 0; }

void atomic_access(const void* address, std::size_t bytes, Order order, const std::source_location& where) {
    if (random_order.below(4) == 0) yield(where);
    current->in_atomic = true;
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    if (a % bytes != 0)
        fail(cudaErrorMisalignedAddress, where,
             [&] { return fmt::format("misaligned: {}-byte atomic at {:#x}", bytes, a); });
    if (watching) watch_strong(address, bytes, true, order, where);
}

void atomic_compares(const void* expected) { current->order.compared = expected; }
void atomic_is_over() {
    current->in_atomic = false;
    current->order.compared = nullptr;
}
void thread_fence() {
    if (watching) watch_fence();
}

Settings& settings() {
    static Settings settings = [] {
        Settings from_environment;
        const auto is_set = [](const char* name) {
            const char* value = std::getenv(name);
            return value && std::string_view(value) == "1";
        };
        from_environment.races = is_set("LADDER_RACES");
        from_environment.strict_barriers = is_set("LADDER_STRICT_BARRIERS");
        return from_environment;
    }();
    return settings;
}

void reseed(std::uint64_t seed) {
    settings().seed = seed;
    random_order = Random(seed);
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

uint3 block_at(std::uint64_t cluster, unsigned rank) {
    const uint3 place = unflatten(cluster, running->clusters());
    const dim3 extent = running->cluster;
    const uint3 inside = unflatten(rank, extent);
    return {place.x * extent.x + inside.x, place.y * extent.y + inside.y, place.z * extent.z + inside.z};
}

Thread* find_thread(std::uint32_t team, std::uint32_t slot) {
    for (const Cluster* cluster : resident) {
        if (cluster->team != team) continue;
        Block& block = *cluster->blocks[slot / running->threads()];
        return &block.threads[slot % running->threads()];
    }
    return nullptr;
}

/// A cluster that is resident: as many blocks, each on a multiprocessor of its own.
class ResidentCluster {
public:
    ResidentCluster(Launch& launch, const SharedWindow& static_shared, std::unique_ptr<Workspace>* workspaces)
        : launch_(launch) {
        for (unsigned rank = 0; rank < launch.blocks_per_cluster(); ++rank) {
            members_.push_back(std::make_unique<Multiprocessor>(launch, *workspaces[rank], static_shared));
            cluster_.blocks.push_back(&members_.back()->block());
        }
        resident.push_back(&cluster_);
    }
    ~ResidentCluster() { std::erase(resident, &cluster_); }
    ResidentCluster(const ResidentCluster&) = delete;

    void begin(std::uint64_t i) {
        cluster_.arrived = 0;
        cluster_.phase = 0;
        cluster_.waiting.clear();
        cluster_.team = watching ? first_team() + static_cast<std::uint32_t>(i) : 0;
        cluster_.slots = launch_.threads() * static_cast<unsigned>(members_.size());
        for (unsigned rank = 0; rank < members_.size(); ++rank)
            members_[rank]->begin(block_at(i, rank), cluster_, rank * launch_.threads());
        active_.clear();
        for (const auto& member : members_) active_.push_back(member.get());
    }
    void run_slice() {
        const auto turn = active_.begin() + static_cast<std::ptrdiff_t>(active_.size() == 1 ? 0 : draw(active_.size()));
        (*turn)->run_slice();
        if ((*turn)->finished()) active_.erase(turn);
    }
    bool finished() const { return active_.empty(); }

private:
    Launch& launch_;
    Cluster cluster_;
    std::vector<std::unique_ptr<Multiprocessor>> members_;  // by rank
    std::vector<Multiprocessor*> active_;                   // those that still have work
};

int run_grid(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, dim3 cluster) {
    static std::vector<std::unique_ptr<Workspace>> workspaces;
    Launch launch(kernel, grid, block, cluster, dynamic_shared_bytes);
    running = &launch;
    reporting = awaiting_store = false;
    unwritten_reads.clear();
    block_extent = {block.x, block.y, block.z};
    grid_extent = {grid.x, grid.y, grid.z};
    const SharedWindow static_shared = thread_local_memory();
    launch.static_flags = flags_of_variables(static_shared.bytes);
    char* host_variables = reinterpret_cast<char*>(static_shared.begin);  // the host side's until the launch is over
    const std::vector<char> saved(host_variables, host_variables + static_shared.bytes);

    if (counting) begin_launch_trace();
    const std::uint64_t clusters = count(launch.clusters());
    watching = settings().races;
    if (watching) begin_watching(clusters);
    const auto fit = std::max(1u, static_cast<unsigned>(settings().multiprocessors) / launch.blocks_per_cluster());
    const auto resident = static_cast<unsigned>(std::min<std::uint64_t>(fit, clusters));
    while (workspaces.size() < resident * launch.blocks_per_cluster())
        workspaces.push_back(std::make_unique<Workspace>());
    std::vector<std::unique_ptr<ResidentCluster>> active;  // those that still have work
    for (unsigned i = 0; i < resident; ++i) {
        active.push_back(
            std::make_unique<ResidentCluster>(launch, static_shared, &workspaces[i * launch.blocks_per_cluster()]));
        active.back()->begin(launch.next_cluster++);
    }
    std::optional<CrashGuard> guard(std::in_place);
    while (!active.empty() && !launch.code) {
        const auto turn = active.begin() + static_cast<std::ptrdiff_t>(random_order.below(active.size()));
        do (*turn)->run_slice();
        while (awaiting_store && !launch.code);
        if (!(*turn)->finished()) continue;
        if (launch.next_cluster < clusters)
            (*turn)->begin(launch.next_cluster++);
        else
            active.erase(turn);
    }
    guard.reset();
    std::copy(saved.begin(), saved.end(), host_variables);
    running = nullptr;
    if (counting && !launch.code) end_launch_trace(kernel, grid, block, dynamic_shared_bytes);
    if (recording) end_launch_recording(kernel, grid, block);
    return launch.code;
}

}  // namespace emulator
