// What the lanes of a warp have accessed so far, put together to the accesses of the warp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <source_location>
#include <vector>

#include "activity.h"
#include "report.h"
#include "vector_types.h"
#include "warp_access.h"

namespace emulator {

struct Block;
struct Warp;
struct Kernel;

/// What each lane of a warp has accessed since the lanes last stood at the same place, in its order. From that follow
/// the accesses of the warp: as long as all lanes pass the same instructions, the k-th accesses of all are one. Where
/// their ways part, those by one instruction are matched by how often each lane has come to it since.
class WarpTrace {
public:
    /// Lane `lane` executes instruction `site`, a number below 2^16.
    void add(unsigned lane, std::uint32_t site, std::uintptr_t address) {
        lanes_[lane].push_back(std::uint64_t(site) << address_bits | address);
    }
    std::size_t length(unsigned lane) const { return lanes_[lane].size(); }

    /// Takes out what all of `live` have passed alike, in order. Calls use(site, WarpAccess, true).
    template <class Use>
    void take_common(Lanes live, Use use);
    /// Takes out everything: no lane will add to what is here. Once lanes have parted, in no order: use(..., false).
    template <class Use>
    void take_all(Use use);

private:
    static constexpr int address_bits = 48;
    static std::uint32_t site_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> address_bits); }
    static std::uintptr_t address_of(std::uint64_t entry) { return entry & ((std::uint64_t(1) << address_bits) - 1); }

    /// Passes on the accesses up to `end` as long as all lanes that have a k-th one agree on its site; the first that
    /// was not passed on.
    template <class Use>
    std::size_t use_common(std::size_t end, Use use) const;

    std::array<std::vector<std::uint64_t>, warp_size> lanes_;  // site and address of each access
};

template <class Use>
std::size_t WarpTrace::use_common(std::size_t end, Use use) const {
    for (std::size_t k = 0; k < end; ++k) {
        WarpAccess access;
        std::uint32_t site = 0;
        for (unsigned lane = 0; lane < warp_size; ++lane) {
            if (lanes_[lane].size() <= k) continue;
            const std::uint64_t entry = lanes_[lane][k];
            if (access.lanes && site != site_of(entry)) return k;
            site = site_of(entry);
            access.lanes |= Lanes(1) << lane;
            access.address[lane] = address_of(entry);
        }
        use(site, access, true);
    }
    return end;
}

template <class Use>
void WarpTrace::take_common(Lanes live, Use use) {
    std::size_t end = ~std::size_t(0);
    for (unsigned lane = 0; lane < warp_size; ++lane)
        if (live >> lane & 1) end = std::min(end, lanes_[lane].size());
    const auto used = static_cast<std::ptrdiff_t>(use_common(end, use));
    for (auto& lane : lanes_) lane.erase(lane.begin(), lane.begin() + std::min(used, std::ssize(lane)));
}

template <class Use>
void WarpTrace::take_all(Use use) {
    std::size_t end = 0;
    for (const auto& lane : lanes_) end = std::max(end, lane.size());
    const std::size_t used = use_common(end, use);
    std::map<std::uint32_t, std::vector<WarpAccess>> by_site;
    for (unsigned lane = 0; used < end && lane < warp_size; ++lane) {
        std::map<std::uint32_t, std::size_t> passed;
        for (std::size_t k = used; k < lanes_[lane].size(); ++k) {
            const std::uint32_t site = site_of(lanes_[lane][k]);
            auto& accesses = by_site[site];
            const std::size_t n = passed[site]++;
            if (accesses.size() <= n) accesses.resize(n + 1);
            accesses[n].lanes |= Lanes(1) << lane;
            accesses[n].address[lane] = address_of(lanes_[lane][k]);
        }
    }
    for (const auto& [site, accesses] : by_site)
        for (const WarpAccess& access : accesses) use(site, access, false);
    for (auto& lane : lanes_) lane.clear();
}

/// True while work is counted. The functions below may be called only then.
extern bool counting;

void begin_launch_trace();
void end_launch_trace(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes);

/// One lane's access. Lets others run every now and then, lest a lane run far ahead of its warp.
void trace_access(std::uintptr_t address, std::size_t bytes, Access kind, bool shared, const Place& where,
                  bool is_volatile = false);
/// A piece of a copy between device memory, where it begins at `global`, and shared memory.
void trace_copy(Access kind, const void* global, std::size_t bytes, const Place& where);
/// The rows of an 8x8 matrix in shared memory.
void trace_matrix(Access kind, const std::array<std::uintptr_t, matrix_rows>& rows, const Place& where);
/// A matrix instruction.
void trace_product(std::uint64_t flops, const Place& where);
/// Bytes that are now on their way to the block's shared memory, or have arrived.
void trace_departure(Block& block, std::size_t bytes);
void trace_arrival(Block& block, std::size_t bytes);
/// A warp multiplies, whatever its lanes have asked for.
void trace_product_of_warp(const Thread* lanes);
void trace_exponential(const void* pc);
void trace_barrier(const std::source_location& where);
void trace_named_barrier(const Place& where);
/// All lanes of the warp that have not returned stand at the same place. `orders_memory`: no access may be moved past
/// it.
void trace_convergence(Warp& warp, bool orders_memory);

/// True while record_activity() runs; then work is counted too. The functions below may be called only then.
extern bool recording;

/// Something that has been noted, if the chosen block did it.
using Note = std::size_t;
constexpr Note not_noted = ~Note(0);

/// The current thread does something; or, as this lane, its whole warp.
Note note(Doing what, const Place& where);
Note note_of_lane(unsigned lane, Doing what, const Place& where);
/// A load, a store or a copy, and where it begins in device memory, the box of a TMA load too; null outside of the tensor.
Note note_access(Doing what, const void* tensor, const Place& where);
/// What was noted is a wait for this mbarrier or named barrier, or an arrival at an mbarrier.
Note note_barrier(Note note, const void* barrier);
/// A wgmma of the whole warp, and how many of its warp have begun and not been waited for.
Note note_wgmma(std::uint64_t pending, const Place& where);
/// It begins with what takes a while. It counts once that has ended.
Note note_begin(Doing what, const Place& where);
void note_end(Note note);
/// What it did not wait for is done.
void note_happened(Note note);
void end_launch_recording(const Kernel& kernel, dim3 grid, dim3 block);

/// From here to the end of the scope, the current thread waits.
class NotedWait {
public:
    NotedWait(Doing what, const Place& where) : note_(recording ? note_begin(what, where) : not_noted) {}
    ~NotedWait() {
        if (recording) note_end(note_);
    }
    NotedWait(const NotedWait&) = delete;

private:
    Note note_;
};

}  // namespace emulator
