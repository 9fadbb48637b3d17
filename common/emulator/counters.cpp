#include "counters.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "count_divisions.h"
#include "cuda_runtime.h"
#include "machine.h"
#include "report.h"
#include "symbols.h"
#include "trace.h"

// The linker makes them around the counters of all kernels; without any there are none.
extern "C" emulator::DivisionSite __start_flashladder_divisions[] __attribute__((weak));
extern "C" emulator::DivisionSite __stop_flashladder_divisions[] __attribute__((weak));

namespace emulator {

bool counting = false;
bool optimised_by_clang = false;

namespace {

/// An instruction that accesses memory, as far as it does it in one way, and what its accesses add up to.
struct Site {
    Place place;
    std::size_t bytes;  // of a lane
    Access kind;
    bool shared, is_volatile;
    std::size_t misplaced;  // bytes: what this is too high for an array to begin at a multiple of 16
    GlobalWork global;
    SharedWork shared_work;
};

/// A GPU's compiler lays arrays in static shared memory so that accesses to them can be merged; here they have the
/// alignment of their elements. What an instruction accesses first stands for all that it does.
std::size_t misplaced(std::uintptr_t address) {
    const SharedWindow& window = current->block->static_shared;
    if (!window.covers(address)) return 0;
    const Symbol* variable = find_symbol_before(Symbols::instance().thread_locals, address - window.begin);
    return variable ? (window.begin + variable->begin) % 16 : 0;
}

/// Sites by their key, in a table with open addressing: asked once for each access of each lane.
class Sites {
public:
    std::uint32_t number(const Place& place, std::uintptr_t address, std::size_t bytes, Access kind, bool shared,
                         bool is_volatile) {
        const std::uint64_t id =
            place.pc ? reinterpret_cast<std::uintptr_t>(place.pc)
                     : reinterpret_cast<std::uintptr_t>(place.line.file_name()) << 12 ^ place.line.line();
        const std::uint64_t key = id << 10 | std::uint64_t(is_volatile) << 9 | std::uint64_t(bytes) << 4 |
                                  std::uint64_t(kind) << 1 | std::uint64_t(shared);
        for (std::size_t i = hash(key);; i = (i + 1) & (table_.size() - 1)) {
            if (table_[i].key == key) return table_[i].site;
            if (table_[i].key == 0)
                return add(key, {place, bytes, kind, shared, is_volatile, misplaced(address), {}, {}});
        }
    }
    Site& operator[](std::uint32_t number) { return sites_[number]; }
    const std::vector<Site>& all() const { return sites_; }
    void clear() {
        table_.assign(256, {});
        sites_.clear();
    }

private:
    struct Entry {
        std::uint64_t key = 0;
        std::uint32_t site = 0;
    };
    std::size_t hash(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> 40) & (table_.size() - 1); }
    void insert(std::uint64_t key, std::uint32_t site) {
        std::size_t i = hash(key);
        while (table_[i].key != 0) i = (i + 1) & (table_.size() - 1);
        table_[i] = {key, site};
    }
    std::uint32_t add(std::uint64_t key, const Site& site) {
        sites_.push_back(site);
        const auto number = static_cast<std::uint32_t>(sites_.size() - 1);
        if (2 * sites_.size() > table_.size()) {
            const std::vector<Entry> old = std::exchange(table_, std::vector<Entry>(2 * table_.size()));
            for (const Entry& entry : old)
                if (entry.key != 0) insert(entry.key, entry.site);
        }
        insert(key, number);
        return number;
    }

    std::vector<Entry> table_ = std::vector<Entry>(256);
    std::vector<Site> sites_;
};

/// The launch that is being counted.
struct LaunchTrace {
    Sites sites;
    struct Exponentials {
        std::uint64_t all = 0, overlapped = 0;
    };
    std::unordered_map<const void*, Exponentials> exponentials;
    std::map<std::pair<const char*, unsigned>, Work> lines;  // what whole warps and blocks do, by file and line
    std::map<std::uintptr_t, std::array<GlobalWork, access_kinds>> allocations;  // by their first byte
    std::uint64_t most_bytes_in_flight = 0, most_copies_under_products = 0;
    struct Savings {
        std::array<std::int64_t, merged_widths.size()> wavefronts{};  // of each level for itself
        std::size_t levels = 0;
    };
    std::unordered_map<std::uint64_t, Savings> savings;  // by the first and the last of the sites that become one
};
LaunchTrace trace;
CountedWork counted;

void add_to_allocation(std::uintptr_t address, Access kind, const GlobalWork& work) {
    const Allocation& allocation = *DeviceMemory::instance().find(address);
    if (allocation.is_variable()) return;
    trace.allocations[allocation.begin][static_cast<std::size_t>(kind)] += work;
}

GlobalWork work_of(const WarpAccess& access, std::size_t bytes) {
    const auto requested = static_cast<std::uint64_t>(std::popcount(access.lanes)) * bytes;
    return {1, requested, distinct_bytes(access, bytes), sectors(access, bytes)};
}

/// To each allocation what lanes do to it: those that are matched need not have the same.
void add_to_allocations(const WarpAccess& access, Access kind, std::size_t bytes) {
    for (WarpAccess left = access, of_one = access; left.lanes; left.lanes &= ~of_one.lanes) {
        const Allocation& allocation = *DeviceMemory::instance().find(left.first());
        of_one.lanes = 0;
        for (unsigned lane = 0; lane < warp_size; ++lane)
            if (left.lanes >> lane & 1 && allocation.contains(left.address[lane], 1)) of_one.lanes |= Lanes(1) << lane;
        add_to_allocation(left.first(), kind, work_of(of_one, bytes));
    }
}

Work& line_of(const Place& where) { return trace.lines[{where.line.file_name(), where.line.line()}]; }

void note_saving(const Merging::Saving& saving, std::uint32_t last_site) {
    LaunchTrace::Savings& savings = trace.savings[std::uint64_t(saving.first_site) << 32 | last_site];
    savings.wavefronts[saving.level] += saving.wavefronts;
    savings.levels = std::max(savings.levels, saving.level + 1);
}

void add_to_site(Warp& warp, std::uint32_t number, const WarpAccess& access, bool in_order) {
    Site& site = trace.sites[number];
    if (site.shared) {
        const auto requested = static_cast<std::uint64_t>(std::popcount(access.lanes)) * site.bytes;
        const Pattern pattern = pattern_of(access);
        const Wavefronts w = known_wavefronts(access, pattern, site.bytes, site.kind);
        site.shared_work += {1, requested, w.needed + w.extra, w.extra};
        if (in_order && site.kind <= Access::write && !site.is_volatile)
            warp.merging.add(access, pattern, site.bytes, site.kind, site.misplaced, w.needed + w.extra, number,
                             [number](const Merging::Saving& saving) { note_saving(saving, number); });
        else
            warp.merging.forbid();
    } else {
        site.global += work_of(access, site.bytes);
        add_to_allocations(access, site.kind, site.bytes);
    }
}

auto adding_for(Warp& warp) {
    return [&warp](std::uint32_t site, const WarpAccess& access, bool in_order) {
        add_to_site(warp, site, access, in_order);
    };
}

Work work_of(const Site& site) {
    Work work;
    work.global[static_cast<std::size_t>(site.kind)] = site.global;
    work.shared[static_cast<std::size_t>(site.kind)] = site.shared_work;
    return work;
}

/// Once the lines of all sites have been asked for: then their names are known.
std::vector<MergeableWork> mergeable_work() {
    using Lines = std::pair<std::string, std::string>;
    std::map<std::tuple<Lines, Access, std::size_t>, MergeableWork> by_lines;
    for (const auto& [sites, savings] : trace.savings) {
        const Site& first = trace.sites[static_cast<std::uint32_t>(sites >> 32)];
        const Site& last = trace.sites[static_cast<std::uint32_t>(sites)];
        const Lines lines = {to_string(first.place), to_string(last.place)};
        MergeableWork& work = by_lines[{lines, first.kind, first.bytes}];
        work.first_line = lines.first;
        work.last_line = lines.second;
        work.kind = first.kind;
        work.bytes = first.bytes;
        work.widest = std::max(work.widest, merged_widths[savings.levels - 1]);
        std::int64_t saved = 0;
        for (std::size_t level = 0; level < merged_widths.size(); ++level)
            work.saved[level] += saved += savings.wavefronts[level];
    }
    std::vector<MergeableWork> all;
    for (auto& [lines, work] : by_lines) all.push_back(std::move(work));
    return all;
}

}  // namespace

void trace_access(std::uintptr_t address, std::size_t bytes, Access kind, bool shared, const Place& where,
                  bool is_volatile) {
    Thread& thread = *current;
    if (thread.in_atomic) {
        if (kind == Access::write) {  // its second half
            thread.in_atomic = false;
            return;
        }
        kind = Access::atomic;
    }
    // Who asks one word again and again waits for another thread. How long that takes is no property of the kernel, and
    // differs from order to order: it counts as asked once.
    const std::uintptr_t polls = thread.acquires ? address : 0;
    if (std::exchange(thread.polled, polls) == address && polls) return;
    if (recording && !shared && kind != Access::cp_async)
        note_access(kind == Access::read ? Doing::load : Doing::store, reinterpret_cast<const void*>(address), where);
    const std::uint32_t number = trace.sites.number(where, address, bytes, kind, shared, is_volatile);
    Warp& warp = thread.block->warps[thread.warp()];
    warp.trace.add(thread.lane(), number, address);
    // Between barriers a lane may run far ahead of its warp. Now and then the others may come nearer.
    constexpr std::size_t far = 256;
    if (warp.trace.length(thread.lane()) % far != 0 || kind == Access::atomic) return;
    warp.trace.take_common(warp.live, adding_for(warp));
    step_aside();
}

void trace_exponential(const void* pc) {
    LaunchTrace::Exponentials& exponentials = trace.exponentials[pc];
    if (recording) note(Doing::exponential, Place(pc));
    ++exponentials.all;
    exponentials.overlapped += has_products_under_way(*current);
}
void trace_barrier(const std::source_location& where) { ++line_of(where).barriers; }
void trace_named_barrier(const Place& where) { ++line_of(where).named_barriers; }

void trace_copy(Access kind, const void* global, std::size_t bytes, const Place& where) {
    // What lies outside all memory ends the launch when the copy happens, which may be later.
    if (bytes == 0 || !DeviceMemory::instance().valid(global, bytes)) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(global), last = begin + bytes - 1;
    const GlobalWork work{1, bytes, bytes, last / sector_bytes - begin / sector_bytes + 1};
    line_of(where).global_of(kind) += work;
    add_to_allocation(begin, kind, work);
    DeviceMemory::instance().mark(begin, bytes,
                                  kind == Access::tma_load ? DeviceMemory::read_mark : DeviceMemory::written_mark);
}

void trace_matrix(Access kind, const std::array<std::uintptr_t, matrix_rows>& rows, const Place& where) {
    const Wavefronts w = shared_wavefronts(rows);
    line_of(where).shared_of(kind) += {1, matrix_rows * matrix_row_bytes, w.needed + w.extra, w.extra};
}

void trace_product(std::uint64_t flops, const Place& where) {
    Work& work = line_of(where);
    ++work.matrix_instructions;
    work.matrix_flops += flops;
}

void trace_departure(Block& block, std::size_t bytes) {
    block.bytes_in_flight += bytes;
    trace.most_bytes_in_flight = std::max(trace.most_bytes_in_flight, block.bytes_in_flight);
}

void trace_arrival(Block& block, std::size_t bytes) { block.bytes_in_flight -= bytes; }

void trace_product_of_warp(const Thread* lanes) {
    std::uint64_t copies = 0;
    for (int lane = 0; lane < warp_size; ++lane)
        copies += lanes[lane].copies.asked - lanes[lane].copies.waited_for_copies;
    trace.most_copies_under_products = std::max(trace.most_copies_under_products, copies);
}

void trace_convergence(Warp& warp, bool orders_memory) {
    warp.trace.take_all(adding_for(warp));
    if (orders_memory) warp.merging.forbid();
}

void begin_launch_trace() {
    trace.sites.clear();
    trace.exponentials.clear();
    trace.lines.clear();
    trace.allocations.clear();
    trace.most_bytes_in_flight = trace.most_copies_under_products = 0;
    trace.savings.clear();
    DeviceMemory::instance().forget_marks();
    for (auto* site = __start_flashladder_divisions; site != __stop_flashladder_divisions; ++site) site->count = 0;
}

void end_launch_trace(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes) {
    LaunchWork launch;
    launch.kernel = name_of(kernel);
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    const auto& memory = DeviceMemory::instance();
    launch.distinct_read_bytes = memory.marked_bytes(DeviceMemory::read_mark);
    launch.distinct_written_bytes = memory.marked_bytes(DeviceMemory::written_mark);

    launch.most_bytes_in_flight = trace.most_bytes_in_flight;
    launch.most_copies_under_products = trace.most_copies_under_products;

    std::map<std::string, Work> lines;
    for (const auto& [line, work] : trace.lines) lines[to_string(line.first, line.second)] += work;
    std::vector<std::pair<const void*, Work>> work_at;
    for (const Site& site : trace.sites.all()) {
        if (site.place.pc)
            work_at.emplace_back(site.place.pc, work_of(site));
        else
            lines[to_string(site.place)] += work_of(site);
    }
    for (const auto& [pc, n] : trace.exponentials)
        work_at.emplace_back(pc, Work{.exponentials = n.all, .overlapped_exponentials = n.overlapped});
    for (auto* site = __start_flashladder_divisions; site != __stop_flashladder_divisions; ++site)
        if (site->count > 0) work_at.emplace_back(site->pc, Work{.divisions = site->count});
    std::vector<const void*> pcs;
    for (const auto& [pc, work] : work_at) pcs.push_back(pc);
    const std::vector<std::string> names = lines_of(pcs);
    for (std::size_t i = 0; i < work_at.size(); ++i) lines[names[i]] += work_at[i].second;
    for (const auto& [line, work] : lines) {
        launch.total += work;
        launch.lines.push_back({line, work});
    }
    for (const auto& [begin, work] : trace.allocations)
        launch.allocations.push_back({reinterpret_cast<const void*>(begin), work});
    launch.mergeable = mergeable_work();
    counted.launches.push_back(std::move(launch));
}

GlobalWork& GlobalWork::operator+=(const GlobalWork& other) {
    accesses += other.accesses;
    requested_bytes += other.requested_bytes;
    used_bytes += other.used_bytes;
    sectors += other.sectors;
    return *this;
}

SharedWork& SharedWork::operator+=(const SharedWork& other) {
    accesses += other.accesses;
    requested_bytes += other.requested_bytes;
    wavefronts += other.wavefronts;
    conflicts += other.conflicts;
    return *this;
}

GlobalWork Work::all_global() const {
    GlobalWork sum;
    for (const GlobalWork& part : global) sum += part;
    return sum;
}

SharedWork Work::all_shared() const {
    SharedWork sum;
    for (const SharedWork& part : shared) sum += part;
    return sum;
}

Work& Work::operator+=(const Work& other) {
    for (std::size_t i = 0; i < global.size(); ++i) {
        global[i] += other.global[i];
        shared[i] += other.shared[i];
    }
    exponentials += other.exponentials;
    overlapped_exponentials += other.overlapped_exponentials;
    divisions += other.divisions;
    barriers += other.barriers;
    named_barriers += other.named_barriers;
    matrix_instructions += other.matrix_instructions;
    matrix_flops += other.matrix_flops;
    return *this;
}

Work CountedWork::total() const {
    Work sum;
    for (const LaunchWork& launch : launches) sum += launch.total;
    return sum;
}

CountedWork count_work(const std::function<void()>& run) {
    struct Scope {
        CountedWork outer = std::exchange(counted, {});
        bool was_counting = std::exchange(counting, true);
        ~Scope() {
            counting = was_counting;
            if (was_counting) std::ranges::move(counted.launches, std::back_inserter(outer.launches));
            counted = std::move(outer);
        }
    } scope;
    DeviceMemory& memory = DeviceMemory::instance();
    memory.restart_peak();
    run();
    counted.peak_memory_bytes = memory.peak_bytes();
    return counted;
}

nlohmann::json to_json(const GlobalWork& work) {
    return {{"accesses", work.accesses},
            {"requested_bytes", work.requested_bytes},
            {"used_bytes", work.used_bytes},
            {"sectors", work.sectors}};
}

nlohmann::json to_json(const Work& work) {
    nlohmann::json json;
    constexpr const char* names[access_kinds] = {"read",     "write",     "atomic",     "cp_async",
                                                 "tma_load", "tma_store", "tma_reduce", "wgmma_operand"};
    for (std::size_t i = 0; i < work.global.size(); ++i) {
        const GlobalWork& g = work.global[i];
        if (g.accesses > 0)
            json["global"][names[i]] = to_json(g);
        const SharedWork& s = work.shared[i];
        if (s.accesses > 0)
            json["shared"][names[i]] = {{"accesses", s.accesses},
                                        {"requested_bytes", s.requested_bytes},
                                        {"wavefronts", s.wavefronts},
                                        {"conflicts", s.conflicts}};
    }
    if (work.exponentials > 0) json["exponentials"] = work.exponentials;
    if (work.divisions > 0) json["divisions"] = work.divisions;
    if (work.barriers > 0) json["barriers"] = work.barriers;
    if (work.matrix_instructions > 0) json["matrix_instructions"] = work.matrix_instructions;
    if (work.matrix_flops > 0) json["matrix_flops"] = work.matrix_flops;
    return json;
}

nlohmann::json to_json(const CountedWork& work, bool with_lines) {
    nlohmann::json json = {{"peak_memory_bytes", work.peak_memory_bytes}, {"launches", nlohmann::json::array()}};
    for (const LaunchWork& launch : work.launches) {
        nlohmann::json lines = nlohmann::json::array();
        for (const LineWork& line : launch.lines) lines.push_back({{"line", line.line}, {"work", to_json(line.work)}});
        const auto extent = [](dim3 v) { return nlohmann::json{v.x, v.y, v.z}; };
        json["launches"].push_back({{"kernel", launch.kernel},
                                    {"grid", extent(launch.grid)},
                                    {"block", extent(launch.block)},
                                    {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
                                    {"distinct_read_bytes", launch.distinct_read_bytes},
                                    {"distinct_written_bytes", launch.distinct_written_bytes},
                                    {"most_bytes_in_flight", launch.most_bytes_in_flight},
                                    {"work", to_json(launch.total)}});
        if (!with_lines) continue;
        json["launches"].back()["lines"] = std::move(lines);
        nlohmann::json mergeable = nlohmann::json::array();
        for (const MergeableWork& work : launch.mergeable)
            mergeable.push_back({{"first_line", work.first_line},
                                 {"last_line", work.last_line},
                                 {"access", work.kind == Access::read ? "read" : "write"},
                                 {"bytes", work.bytes},
                                 {"widest", work.widest},
                                 {"saved", work.saved}});
        json["launches"].back()["mergeable"] = std::move(mergeable);
    }
    return json;
}

namespace {

/// Counts from the start of a program to its end where LADDER_COUNTS says so.
struct WholeProgram {
    const char* file = std::getenv("LADDER_COUNTS");

    WholeProgram() { counting = file != nullptr; }
    ~WholeProgram() {
        if (!file) return;
        counted.peak_memory_bytes = DeviceMemory::instance().peak_bytes();
        std::ofstream out(file);
        out << to_json(counted).dump(1) << "\n";
        if (!out.flush()) std::fprintf(stderr, "LADDER_COUNTS: cannot write %s\n", file);
    }
} whole_program;

}  // namespace

}  // namespace emulator

// The linker is asked for --wrap: who calls expf comes here.
#define COUNT_CALLS(f, T)                                                                                      \
    T __real_##f(T);                                                                                           \
    T __wrap_##f(T x) {                                                                                        \
        if (emulator::counting && emulator::current) emulator::trace_exponential(__builtin_return_address(0)); \
        return __real_##f(x);                                                                                  \
    }
extern "C" {
COUNT_CALLS(expf, float)
COUNT_CALLS(exp2f, float)
COUNT_CALLS(exp, double)
COUNT_CALLS(exp2, double)
}
