#include "machine.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "access.h"
#include "crash.h"
#include "memory.h"
#include "multiprocessor.h"
#include "ptx_functions.h"

// What kernels know as threadIdx and blockIdx: device_functions.h.
uint3 thread_index asm("emulator_thread_index"), block_index asm("emulator_block_index");

namespace emulator {

Thread* current = nullptr;
constinit Random random_order{1};  // another file may seed it before main()

namespace {

namespace context = boost::context::detail;

const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // 4 KB, on arm64 up to 64
const std::size_t stack_bytes = page + (92 * 1024 + page - 1) / page * page;  // with its guard page
constexpr std::size_t cache_line = 64, stack_spread = 32 * 1024;
constexpr std::size_t shared_window_bytes = 256 * 1024;
constexpr std::size_t shared_offset = 1024;  // a shared address of 0 would hide mistakes

char* map(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(memory);
}

/// Nothing in the window was written yet: `unwritten` has its flags.
void forget(SharedWindow& window, const std::vector<std::uint8_t>& unwritten, std::vector<std::uint8_t>& written,
            std::vector<std::uint32_t>& writers) {
    written = unwritten;
    writers.assign(window.bytes / SharedWindow::granule + 1, 0);
    window.written = written.data();
    window.writers = writers.data();
}

/// True if another block of the cluster can do something, for which this one may be waiting.
bool others_can_go_on(const Block& block) {
    const auto& blocks = block.cluster->blocks;
    return std::any_of(blocks.begin(), blocks.end(), [&](const Block* other) {
        return other != &block && other->live > 0 && (!other->ready.empty() || other->looks_late || !other->async.empty());
    });
}

}  // namespace

Workspace::Workspace() : shared(map(shared_window_bytes)) {}
Workspace::~Workspace() {
    munmap(shared, shared_window_bytes);
    if (stacks) munmap(stacks, stack_count * stack_bytes);
}

void Workspace::reserve_stacks(std::size_t n) {
    if (n <= stack_count) return;
    if (stacks) munmap(stacks, stack_count * stack_bytes);
    stacks = map(n * stack_bytes);
    stack_count = n;
    for (std::size_t i = 0; i < n; ++i) mprotect(stacks + i * stack_bytes, page, PROT_NONE);
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
    block_.looks_late = nullptr;
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
        for (Exchange& exchange : warp.exchanges) exchange.readers = 0;
    }
    block_.ready.clear();
    const Clock start = watching ? Clock(cluster.team) : Clock();
    for (unsigned rank = 0; rank < n; ++rank) {
        Thread& thread = block_.threads[rank];
        thread.index = unflatten(rank, launch_.block);
        thread.rank = rank;
        thread.block = &block_;
        thread.write_mark = first_write_mark(rank);
        thread.may_be_early = launch_.kernel->dependent;
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
            if (block_.looks_late) {
                wake(*std::exchange(block_.looks_late, nullptr));
                continue;
            }
            if (others_can_go_on(block_)) break;
            if (block_.barrier.stranger)
                record_two_barriers(block_);
            else if (awaiting_store)
                record_unwritten_read();
            else
                record_failure(cudaErrorLaunchTimeout, "deadlock: no thread can go on" + who_waits_where(block_),
                               block_, nullptr, {});
            break;
        }
        if (block_.looks_late && --block_.steps_until_it_looks == 0) wake(*std::exchange(block_.looks_late, nullptr));
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
    current->first_frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
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

std::size_t draw(std::size_t n) { return random_order.below(n); }

[[gnu::noinline]] void sleep_until_woken() {  // with a frame of its own, behind which lies what has called wait()
    current->frame_of_wait = __builtin_frame_address(0);
    current->block->home->suspend();
    current->frame_of_wait = nullptr;
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

void yield(const Place& where) {
    current->where = where;
    if (++running->idle_yields > settings().patience) {
        if (awaiting_store) {
            record_unwritten_read();
            abandon();
        }
        fail(cudaErrorLaunchTimeout, where, [] {
            return "livelock: threads only wait for one another" + blocks_without_room() + who_waits_where(*current->block);
        });
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
    current->acquires = order == Order::acquire;
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    if (a % bytes != 0)
        fail(cudaErrorMisalignedAddress, where,
             [&] { return fmt::format("misaligned: {}-byte atomic at {:#x}", bytes, a); });
    if (watching) watch_strong(address, bytes, true, order, where);
}

void atomic_of_vector(const void* address, const std::source_location& where) {
    if (is_shared(address))
        fail(cudaErrorLaunchFailure, where,
             [] { return "wrong memory: an atomicAdd of float2 or float4 in shared memory; it takes device memory alone"; });
}

void atomic_compares(const void* expected) { current->order.compared = expected; }
void atomic_is_over() {
    current->in_atomic = current->acquires = false;
    current->order.compared = nullptr;
}
void grid_dependency_is_over() { current->may_be_early = false; }
void thread_fence() {
    if (watching) watch_fence();
}

}  // namespace emulator
