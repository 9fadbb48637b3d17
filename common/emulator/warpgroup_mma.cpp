#include "warpgroup_mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "barrier.h"
#include "calls.h"
#include "collective.h"
#include "cuda_runtime.h"
#include "multiprocessor.h"

namespace emulator {
namespace {

// In registers that the tensor core has: a NaN, and a signalling one, for a product with it is another number. A quiet
// one would come out of a multiplication as it went in.
constexpr std::uint32_t in_use = 0x7F8A5A5A;

struct Operands {
    float* d;
    std::uint64_t a, b;
    const std::uint32_t* fragment;
    bool accumulate;
};

Warpgroup& own_warpgroup() { return current->block->warpgroups[current->warp() / warpgroup_warps]; }
WarpProgress& own_progress(Warpgroup& group) { return group.warps[current->warp() % warpgroup_warps]; }

/// Where in the sums register i of a thread is.
std::size_t place(int thread, int i, int n) {
    const int warp = thread / warp_size, lane = thread % warp_size;
    const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    return static_cast<std::size_t>(row * n + column);
}

[[noreturn]] void refuse(const Place& where, const char* words) {
    fail(cudaErrorLaunchFailure, where, [&] { return std::string(words); });
}

/// The accumulator that has these registers of this thread, if its products are under way.
Accumulator* find_accumulator(const Warpgroup& group, int thread, const float* registers) {
    for (const auto& accumulator : group.accumulators)
        if (accumulator->registers[static_cast<std::size_t>(thread)] == registers) return accumulator.get();
    return nullptr;
}

void take_registers(Accumulator& accumulator, int first_thread, const WarpOperands<Operands>& lanes) {
    for (int lane = 0; lane < warp_size; ++lane) {
        const int thread = first_thread + lane;
        float* registers = lanes[lane]->d;
        accumulator.registers[static_cast<std::size_t>(thread)] = registers;
        for (int i = 0; i < accumulator.n / 2; ++i) {
            accumulator.sums[place(thread, i, accumulator.n)] = registers[i];
            std::memcpy(&registers[i], &in_use, sizeof in_use);
        }
    }
}

void return_registers(const Accumulator& accumulator, const Place& where) {
    for (int thread = 0; thread < warpgroup_threads; ++thread) {
        float* registers = accumulator.registers[static_cast<std::size_t>(thread)];
        for (int i = 0; i < accumulator.n / 2; ++i) {
            if (std::bit_cast<std::uint32_t>(registers[i]) != in_use)
                refuse(where, "register in use: an accumulator of wgmma was written before wgmma_wait()");
            registers[i] = accumulator.sums[place(thread, i, accumulator.n)];
        }
    }
}

/// Does the products up to this one, in the order of their issue.
void run_until(Warpgroup& group, std::uint64_t number) {
    while (group.done < number) {
        const Product& product = group.under_way.front();
        for (std::size_t thread = 0; product.shape.a_in_registers && thread < warpgroup_threads; ++thread)
            if (std::memcmp(product.fragment_registers[thread], product.fragments[thread].data(), sizeof(Fragment)) !=
                0)
                refuse(product.where, "register in use: A of a wgmma was written before wgmma_wait()");
        multiply(product);
        for (std::size_t warp = 0; recording && warp < warpgroup_warps; ++warp) note_happened(product.noted[warp]);
        Accumulator& accumulator = *product.accumulator;
        if (--accumulator.products == 0) {
            return_registers(accumulator, product.where);
            std::erase_if(group.accumulators, [&](const auto& other) { return other.get() == &accumulator; });
        }
        group.under_way.pop_front();
        ++group.done;
    }
    for (Thread* thread : std::exchange(group.waiting, {})) wake(*thread);
}

void lend(Thread& thread, const LentRegisters& registers) {
    const auto known = std::find_if(thread.lent.begin(), thread.lent.end(),
                                    [&](const LentRegisters& other) { return other.begin == registers.begin; });
    if (known != thread.lent.end())
        *known = registers;
    else
        thread.lent.push_back(registers);
}

void issue(const ProductShape& shape, const WarpOperands<Operands>& lanes, const Place& where) {
    const Operands& own = *lanes[0];
    for (const Operands* lane : lanes)
        if (lane->a != own.a || lane->b != own.b || lane->accumulate != own.accumulate)
            refuse(where, "lanes disagree: those of a warp bring different descriptors or scales to a wgmma");
    Warpgroup& group = own_warpgroup();
    WarpProgress& progress = own_progress(group);
    if (!progress.fenced)
        refuse(where, "missing fence: a wgmma with no wgmma_fence() since the start or the last wgmma_wait()");
    const int first_thread = static_cast<int>(current->warp() % warpgroup_warps) * warp_size;
    const std::uint64_t number = progress.issued++;
    const std::size_t position = number - group.done;
    if (position == group.under_way.size()) {
        Product product{shape, own.a, own.b, where, find_accumulator(group, first_thread, own.d), 0, {}, {}, {}};
        if (!product.accumulator) {
            product.accumulator = group.accumulators.emplace_back(std::make_unique<Accumulator>()).get();
            product.accumulator->n = shape.n;
            product.accumulator->sums.resize(static_cast<std::size_t>(warpgroup_rows * shape.n));
        }
        ++product.accumulator->products;
        group.under_way.push_back(std::move(product));
    }
    Product& product = group.under_way[position];
    if (recording)
        product.noted[current->warp() % warpgroup_warps] = note_wgmma(number - progress.waited, where);
    if (watching) {
        if (group.slot == 0) group.slot = new_slot();
        const Actor& self = current->order.actor;  // its clock is that of all lanes: they have just met
        const Actor reader{self.team, group.slot, static_cast<std::uint32_t>(number + 1), self.clock};
        if (product.warps == 0)
            product.reader = reader;
        else
            product.reader.clock.meet(reader.clock);
    }
    if (product.shape != shape || product.a != own.a || product.b != own.b)
        refuse(where, "warps disagree: those of a warpgroup bring different shapes, scales or descriptors to a wgmma");
    Accumulator& accumulator = *product.accumulator;
    float* taken = accumulator.registers[static_cast<std::size_t>(first_thread)];
    if (!taken)
        take_registers(accumulator, first_thread, lanes);
    else if (taken != own.d)
        refuse(where, "warps disagree: those of a warpgroup bring different accumulators to a wgmma");
    if (accumulator.n != shape.n)
        refuse(where,
               "wrong shape: two wgmmas of different widths on one accumulator, with no wgmma_wait() in between");
    for (std::size_t lane = 0; shape.a_in_registers && lane < warp_size; ++lane) {
        const std::size_t thread = static_cast<std::size_t>(first_thread) + lane;
        product.fragment_registers[thread] = lanes[lane]->fragment;
        std::memcpy(product.fragments[thread].data(), lanes[lane]->fragment, sizeof(Fragment));
    }
    for (std::size_t lane = 0; watching && lane < warp_size; ++lane) {
        Thread& thread = current->block->threads[current->warp() * warp_size + lane];
        const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
        lend(thread,
             {address(lanes[lane]->d), static_cast<std::size_t>(shape.n / 2) * sizeof(float), false, number, where});
        if (shape.a_in_registers) lend(thread, {address(lanes[lane]->fragment), sizeof(Fragment), true, number, where});
    }
    if (++product.warps == warpgroup_warps)
        // That it ends before the block does is seen to by check_products_done().
        current->block->async.add({"wgmma", current, where, false, [&group, number] { run_until(group, number + 1); }});
}

std::string what_is_not_done(const Thread& thread) {
    const Warpgroup& group = thread.block->warpgroups[thread.warp() / warpgroup_warps];
    return fmt::format("{} wgmmas are not done; the oldest was issued by {} of 4 warps",
                       thread.waiting().id - group.done, group.under_way.empty() ? 0 : group.under_way.front().warps);
}

/// Why a product that the last wait has left under way is still that, in words.
std::string left_by_wait(const WarpProgress& progress) {
    const int n = progress.pending_at_wait;
    return fmt::format("which is in the last {} before wgmma_wait<{}>(): {} may still be under way",
                       n == 1 ? "group" : fmt::format("{} groups", n), n, n == 1 ? "that one" : "these");
}

}  // namespace

void wgmma(float* d, const ProductShape& shape, std::uint64_t a, std::uint64_t b, const std::uint32_t* fragment,
           const Where& where) {
    if (current->block->warpgroups.size() <= current->warp() / warpgroup_warps)
        refuse(where, "missing warps: a wgmma takes all four warps of a warpgroup");
    Operands own{d, a, b, fragment, shape.accumulate};
    perform_together("wgmma", own, where,
                     [&](const WarpOperands<Operands>& lanes) { issue(shape, lanes, with_calls(where)); });
}

void wgmma_fence(const Where& where) {
    if (current->block->warpgroups.size() <= current->warp() / warpgroup_warps)
        refuse(where, "missing warps: a wgmma takes all four warps of a warpgroup");
    int none = 0;
    perform_together("wgmma_fence", none, where, [](auto&) { own_progress(own_warpgroup()).fenced = true; });
}

void wgmma_commit(const Where& where) {
    int none = 0;
    perform_together("wgmma_commit", none, where, [](auto&) {
        WarpProgress& progress = own_progress(own_warpgroup());
        progress.groups.push_back(progress.issued);
    });
}

void wgmma_wait(int pending, const Where& where) {
    const NotedWait noted(Doing::wait, where);
    int none = 0;
    Warpgroup& group = own_warpgroup();
    const auto left = static_cast<std::size_t>(pending);
    perform_together("wgmma_wait", none, where, [&](auto&) {
        WarpProgress& progress = own_progress(group);
        progress.fenced = false;
        progress.issued_at_wait = progress.issued;
        progress.pending_at_wait = pending;
        if (progress.groups.size() > left)
            progress.waited = std::max(progress.waited, progress.groups[progress.groups.size() - 1 - left]);
    });
    const WarpProgress& progress = own_progress(group);
    if (progress.groups.size() <= left) return;
    const std::uint64_t number = progress.groups[progress.groups.size() - 1 - left];
    while (group.done < number) {
        group.waiting.push_back(current);
        wait({"wgmma_wait", number, 0, what_is_not_done}, where);
    }
    if (!watching) return;
    acquire_slot(*current, group.slot, number);
    std::erase_if(current->lent, [number](const LentRegisters& registers) { return registers.product < number; });
}

void check_waited(const float* d, std::size_t bytes, const Where& where) {
    const auto begin = reinterpret_cast<std::uintptr_t>(d);
    for (const LentRegisters& registers : current->lent) {
        if (registers.is_A || begin + bytes <= registers.begin || begin >= registers.begin + registers.bytes) continue;
        const WarpProgress& progress = own_progress(own_warpgroup());
        if (progress.waited_in_vain(registers.product)) continue;  // what comes next tells that
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("register in use: wgmma_wait<{}>() names an accumulator of the wgmma that was issued at {}, {}{}",
                               progress.pending_at_wait, to_string(registers.where), left_by_wait(progress),
                               called_at(calls_known_of(registers.where, running->kernel->entry), "    "));
        });
    }
}

void check_lent(std::uintptr_t address, std::size_t n, bool writes, const Place& where) {
    for (const LentRegisters& registers : current->lent) {
        if (address + n <= registers.begin || address >= registers.begin + registers.bytes) continue;
        if (registers.is_A && !writes) continue;
        const WarpProgress& progress = own_progress(own_warpgroup());
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format(
                "register in use: {} of {} of the wgmma that was issued at {}, {}{}", writes ? "write" : "read",
                registers.is_A ? "A" : "an accumulator", to_string(registers.where),
                progress.waited_in_vain(registers.product)
                    ? "which is in no group, so wgmma_wait() has not waited for it: wgmma_commit() is missing"
                : registers.product < progress.issued_at_wait ? left_by_wait(progress)
                                                              : "with no wgmma_wait() since",
                called_at(calls_known_of(registers.where, running->kernel->entry), "    "));
        });
    }
}

void check_descriptor(const void* start, unsigned leading, unsigned stride, const Where& where) {
    const auto check = [&](std::uint64_t value, const char* what) {
        if (value % 16 != 0 || value >= 1 << 18)
            fail(cudaErrorMisalignedAddress, where, [&] {
                return fmt::format(
                    "misaligned: a matrix descriptor with {} {:#x}, which is no multiple of 16 below 2^18", what,
                    value);
            });
    };
    check(shared_address(start, where), "start");
    check(leading, "leading distance");
    check(stride, "stride");
}

bool has_products_under_way(const Thread& thread) {
    const std::size_t index = thread.warp() / warpgroup_warps;
    if (index >= thread.block->warpgroups.size()) return false;
    const WarpProgress& warp = thread.block->warpgroups[index].warps[thread.warp() % warpgroup_warps];
    return warp.issued > warp.waited;
}

void check_products_done(const Thread& thread) {
    if (!has_products_under_way(thread)) return;
    const WarpProgress& warp = own_progress(own_warpgroup());
    if (warp.waited_in_vain(warp.issued - 1))
        refuse(thread.where,
               "unfinished: a thread returns while a wgmma is under way, which is in no group, so wgmma_wait() has not "
               "waited for it: wgmma_commit() is missing");
    refuse(thread.where, "unfinished: a thread returns while a wgmma is under way: wgmma_wait() is missing");
}

}  // namespace emulator
