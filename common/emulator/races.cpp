#include "races.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "machine.h"
#include "memory.h"
#include "multiprocessor.h"

namespace emulator {

bool watching = false;

namespace {

constexpr std::size_t word = sizeof(std::uint32_t);
constexpr std::uint64_t first_pc = std::uint64_t(1) << 20;  // no code lies below: there it is the number of a Site

/// Where an instruction with a name stands.
struct Site {
    Place where;
    const char* instruction;
};
std::vector<Site> sites;
using SiteKey = std::tuple<const char*, unsigned, unsigned, const char*, std::uint32_t>;
std::map<SiteKey, std::uint64_t> numbers;

std::uint32_t oldest_team = 0, next_team = 1;  // of this launch: what happened in earlier ones is known to all
std::uint64_t chance = 0;
const Actor* acting = nullptr;
/// What atomics have released at an address.
struct Released {
    Clock clock;
};
std::unordered_map<std::uintptr_t, Released> released;

const Actor& actor() { return acting ? *acting : current->order.actor; }

[[gnu::noinline]] std::uint64_t number_of_site(const Place& where, const char* instruction) {
    const SiteKey key{where.line.file_name(), where.line.line(), where.line.column(), instruction, where.calls};
    static SiteKey last;  // one instruction comes here for each of its pieces
    static std::uint64_t number_of_last;
    if (key != last) {
        const auto [found, is_new] = numbers.try_emplace(key, sites.size());
        if (is_new) sites.push_back({where, instruction});
        last = key;
        number_of_last = found->second;
    }
    return number_of_last;
}

/// Nearly all have a return address: what they do not need is out of their way.
std::uint64_t site_of(const Place& where, const char* instruction) {
    return where.pc ? reinterpret_cast<std::uintptr_t>(where.pc) : number_of_site(where, instruction);
}

const Site* find_site(const Event& event) { return event.site < first_pc ? &sites[event.site] : nullptr; }

Place place_of(const Event& event) {
    const Site* site = find_site(event);
    return site ? site->where : Place(reinterpret_cast<const void*>(std::uintptr_t(event.site)));
}

bool is_thread(std::uint32_t slot) { return slot < current->block->cluster->threads(); }

bool is_load_or_store(const Event& event) { return event.site >= first_pc && !event.strong && is_thread(event.slot); }

bool is(const Site* site, std::string_view part) {
    return site && site->instruction && std::string_view(site->instruction).find(part) != std::string_view::npos;
}

/// True of what is in no group, though whoever has asked for it has waited since.
bool waited_in_vain(const Event& event) {
    if (event.team != actor().team) return false;
    for (const Block* block : current->block->cluster->blocks) {
        for (const Warpgroup& group : block->warpgroups)
            for (const WarpProgress& warp : group.warps)
                if (group.slot == event.slot && warp.waited_in_vain(event.time - 1)) return true;
        for (const Thread& thread : block->threads) {
            const ThreadCopies& copies = thread.copies;
            const CopyGroups& stores = thread.bulk_stores;
            if (thread.order.copies == event.slot)
                return event.time == copies.batch && copies.waited_in_vain(copies.committed);
            if (thread.order.store_reads == event.slot || thread.order.store_writes == event.slot)
                return stores.waited_in_vain(event.time - 1);
        }
    }
    return false;
}

/// What orders others behind something asynchronous, those of another block if `between_blocks`.
std::string how_to_wait_for(const Event& event, bool between_blocks) {
    const Site* site = find_site(event);
    if (waited_in_vain(event)) {
        const char* family = is(site, "wgmma") ? "wgmma" : is(site, "cp_async") ? "cp_async" : "bulk";
        return fmt::format("{0}_commit() behind it: it is in no group, so {0}_wait() has not waited for it", family);
    }
    if (is(site, "wgmma")) return "wgmma_wait(), and a barrier where another warpgroup goes on";
    if (is(site, "store") || is(site, "reduce"))
        return !event.writes ? "bulk_wait_read() by the thread that has issued it, and a barrier for the others"
               : between_blocks ? "bulk_wait(), and a release by the thread that has waited, and an acquire by the other "
                                  "block before it goes on (store_release, load_acquire)"
                                : "bulk_wait(), and a release by the thread that has waited";
    if (is(site, "cp_async")) return "cp_async_wait() by the thread that has issued it, and a barrier for the others";
    return "barrier_wait() on the barrier of the load, for its phase, which must wait for all its bytes";
}

/// What would have ordered the two. Of something asynchronous only the kernel's author knows whether the other access
/// is to come behind it or before.
std::string what_is_missing(const Event& first, const Event& second) {
    if (!is_thread(first.slot) || !is_thread(second.slot))
        return how_to_wait_for(is_thread(first.slot) ? second : first, first.team != second.team) +
               "; or, if the other access comes first, a barrier between it and the issue";
    if (first.team != second.team)
        return "a release by the one block and an acquire by the other (store_release, load_acquire), or a launch for "
               "each";
    const bool of_barrier = is(find_site(first), "barrier_init") || is(find_site(second), "barrier_init");
    if (first.strong != second.strong && !of_barrier) return "a barrier, or an atomic on both sides";
    const auto threads = current->block->threads.size();
    if (first.slot / threads != second.slot / threads) return "cluster_sync(), or barrier_arrive_at() and a wait";
    const bool of_one_warp = first.slot / warp_size == second.slot / warp_size;
    const char* barrier = !of_one_warp           ? "__syncthreads(), a named barrier or an mbarrier"
                          : threads <= warp_size ? "__syncwarp() or __syncthreads()"
                                                 : "__syncthreads(), or __syncwarp() if only lanes of this warp use it";
    return fmt::format("{}, if both are to be at this place", barrier);
}

/// What a line says behind the heads of its loops and conditions: "++x" of "for (int i = 0; i < n; ++i) ++x".
std::string_view statement_of(std::string_view line) {
    for (bool again = true; std::exchange(again, false);)
        for (const std::string_view word : {"for (", "if (", "while (", "else "})
            if (line.starts_with(word)) {
                std::size_t end = word.size();
                for (int open = word.ends_with('('); open > 0 && end < line.size(); ++end)
                    open += (line[end] == '(') - (line[end] == ')');
                line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
                again = true;
            }
    return line;
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Whether `text` names what `place`, "sums[i]" or "*sum", begins with.
bool names_the_same(std::string_view text, std::string_view place) {
    const std::string_view name(std::ranges::find_if(place, is_of_name),
                                std::find_if_not(std::ranges::find_if(place, is_of_name), place.end(), is_of_name));
    for (std::size_t at = text.find(name); !name.empty() && at < text.size(); at = text.find(name, at + 1)) {
        const std::size_t behind = at + name.size();
        if ((at == 0 || !is_of_name(text[at - 1])) && (behind == text.size() || !is_of_name(text[behind]))) return true;
    }
    return false;
}

/// How a line adds to a number, or subtracts from it, which an atomic would do at once: "+=", "++", "x = x + y", ...
/// "" if it does not, nor if what is added is an element of the same array, which others may be writing.
std::string_view adds_by(std::string_view line) {
    const std::string_view text = statement_of(line);
    for (const std::string_view by : {"+=", "-="})
        if (const std::size_t at = text.find(by); at != text.npos)
            return names_the_same(text.substr(at + by.size()), text.substr(0, at)) ? "" : by;
    if (const std::size_t at = text.find(" = "); at != text.npos) {
        std::string_view sum = text.substr(at + 3);
        const std::string place(text.substr(0, at));
        bool is_sum = true;
        if (sum.starts_with(place + " + ") || sum.starts_with(place + " - "))
            sum.remove_prefix(place.size());
        else if (sum.ends_with(" + " + place))
            sum.remove_suffix(place.size());
        else
            is_sum = false;
        if (is_sum) return names_the_same(sum, place) ? "" : "x = x + y";
    }
    for (const std::string_view by : {"++", "--"})
        if (text.find(by) != text.npos) return by;
    return "";
}

/// How threads that read and write a word by one line add to it.
std::string_view adds_in_two_steps(const Event& first, const Event& second) {
    if (!is_load_or_store(first) || !is_load_or_store(second)) return "";
    if (first.writes && !first.reads && second.writes && !second.reads) return "";  // as by tile[i++] = x
    const std::string line = to_string(place_of(second));
    return to_string(place_of(first)) == line ? adds_by(text_of(line)) : "";
}

/// What may be meant instead.
std::string meant_instead(const Event& first, const Event& second, std::uintptr_t address) {
    if (const std::string_view by = adds_in_two_steps(first, second); !by.empty())
        return fmt::format("; or, if both add to this number, an atomicAdd(), which is one step: {} is two", by);
    // Copies into one slot of a ring are told apart by waits; of what leaves, each has a place of its own.
    const bool by_index = is_thread(first.slot) || DeviceMemory::instance().covers(address);
    const bool same_store = first.writes && second.writes && first.site == second.site && by_index;
    return same_store ? "; or both write the same element: is the index right?" : "";
}

[[gnu::cold, noreturn]] void report(Event first, Event second, std::uintptr_t address, const Place& where,
                                    DescribePlace place, const void* context) {
    fail(cudaErrorLaunchFailure, where, [&] {
        return fmt::format("race: {}\n  at         {:#x}: {}\n  not ordered behind {}\n  missing    {}",
                           describe(second), address, place(context, address), describe_earlier(first),
                           what_is_missing(first, second) + meant_instead(first, second, address));
    });
}

std::vector<Suspect> suspects;  // stores by one instruction of the current thread
constexpr std::size_t most_suspects = 1024;

std::uint32_t word_at(std::uintptr_t address) {
    std::uint32_t value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), word);
    return value;
}

[[noreturn]] void report(const Suspect& suspect) {
    report(suspect.first, suspect.second, suspect.address, suspect.where, suspect.place, suspect.context);
}

/// Two stores of threads: what they store decides. Not if the first one's thread also reads the word: that races with
/// the second one whatever it stores.
bool may_store_the_same(const Event& first, const Event& second) {
    return first.writes && second.writes && !first.reads && is_load_or_store(first) && is_load_or_store(second);
}

/// A load and an atomic: all is well if the load's thread goes on with atomicCAS and what it has loaded.
bool may_be_confirmed(const Event& load, const Event& atomic) {
    return !load.writes && is_load_or_store(load) && atomic.writes && atomic.strong && is_thread(atomic.slot);
}

/// True if what comes later decides whether `second`, which happens now, races with `first`; then that is remembered.
[[gnu::cold, gnu::noinline]] bool decides_later(Event& first, Event second, std::uintptr_t address, const Place& where,
                                                DescribePlace place, const void* context) {
    if (acting) return false;
    if (may_store_the_same(first, second)) {
        first.shared = 1;
        suspects.push_back({address, word_at(address), first, second, where, place, context});
        return true;
    }
    const bool loads_first = may_be_confirmed(first, second);
    if (!loads_first && !may_be_confirmed(second, first)) return false;
    const Event& load = loads_first ? first : second;
    Thread* const thread = find_thread(load.team, load.slot);
    if (!thread || thread->exited || thread->order.actor.time != load.time) return false;  // it has gone on
    auto& unconfirmed = thread->order.unconfirmed;
    if (std::any_of(unconfirmed.begin(), unconfirmed.end(), [&](auto& other) { return other.address == address; }))
        return true;
    unconfirmed.push_back(
        {address, word_at(address), loads_first ? second : first, load, place_of(load), place, context});
    return true;
}

/// The current thread comes back to words that it has loaded while others changed them by atomics.
[[gnu::cold, gnu::noinline]] void confirm(std::uintptr_t address, std::size_t n) {
    ThreadOrder& self = current->order;
    std::erase_if(self.unconfirmed, [&](const Suspect& load) {
        if (load.address + word <= address || load.address >= address + n) return false;
        const auto* compared = static_cast<const char*>(self.compared);
        if (!compared || load.address < address || load.address + word > address + n ||
            std::memcmp(compared + (load.address - address), &load.before, word) != 0)
            report(load);
        return true;
    });
}

/// Checks an access to one word against those before it, and remembers it. Returns the one that it races with, if any,
/// or null. Calls decides_later(event, now) first. `confirms`: it is an atomicCAS with what its thread has loaded.
/// Events of teams before `oldest` are over.
template <bool writes, bool strong, class Decide>
[[gnu::always_inline]] inline const Event* touch(Cell& cell, const Event now, bool in_order, const Clock& clock,
                                                 std::uint32_t oldest, bool confirms, Decide decides_later) {
    Event* place = nullptr;
    Event* own_write = nullptr;
    bool reads = false;
    for (Event& event : cell.events) {
        if (event.team < oldest) {
            if (!place) place = &event;
            continue;
        }
        const bool own = event.slot == now.slot && event.team == now.team;
        if (own) {
            const bool covers = (now.mask & ~event.mask) == 0;
            if (covers && event.time == now.time && event.strong == strong) {
                if ((event.writes == writes || event.reads) && !event.shared) return nullptr;
                if (event.writes > writes) own_write = &event;
            }
        }
        if (!(own && in_order)) {
            if (!(event.writes | writes)) continue;  // in whatever order
            if (!clock.knows(event.team, event.slot, event.time)) {
                if (!(event.mask & now.mask) || (event.strong & strong)) continue;
                if (!decides_later(event, now)) return &event;
                continue;
            }
        }
        const bool covered = (event.mask & ~now.mask) == 0;
        if (!covered || writes < event.writes || (strong > event.strong && !(own && confirms))) continue;
        if (own && event.time == now.time) reads |= !event.writes || event.reads;
        event.team = 0;  // whoever is not ordered behind it is not ordered behind this access either
        if (!place) place = &event;
    }
    if (own_write) {
        own_write->reads = 1;
        return nullptr;
    }
    if (!place) {  // the first one is the last write, as a rule
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        place = &cell.events[1 + (chance >> 33) % 3];
    }
    Event remembered = now;
    remembered.reads = reads;
    *place = remembered;
    return nullptr;
}

template <bool writes, bool strong>  // of an AccessKind: what they decide is decided once
void watch(Cell* cells, std::uintptr_t begin, std::uintptr_t address, std::size_t n, std::uint32_t oldest,
           const Place& where, const char* instruction, DescribePlace describe_place, const void* context) {
    // A copy of many bytes comes here for each piece before the first one is stored.
    if (!suspects.empty() && (suspects.back().where.pc != where.pc || suspects.size() >= most_suspects))
        check_suspects();
    if (!acting && !current->order.unconfirmed.empty()) [[unlikely]]
        confirm(address, n);
    const bool confirms = !acting && current->order.compared;
    const Actor& self = actor();
    Event access;
    access.team = self.team;
    access.slot = self.slot;
    access.time = self.time;
    access.writes = writes;
    access.strong = strong;
    access.site = site_of(where, instruction);
    const bool in_order = !acting;  // what a thread does itself
    const std::uintptr_t end = address + n;
    for (std::uintptr_t at = address / word * word; at < end; at += word) {
        const std::uintptr_t low = at < address ? address - at : 0, high = end - at < word ? end - at : word;
        Event now = access;  // in registers, of which no one has the address
        now.mask = ((1u << high) - 1) & ~((1u << low) - 1);
        const Event* other =
            touch<writes, strong>(cells[at / word - begin / word], now, in_order, self.clock, oldest, confirms,
                                  [&](Event& first, Event second) {
                                      return decides_later(first, second, at, where, describe_place, context);
                                  });
        if (other) [[unlikely]]
            report(*other, now, at, where, describe_place, context);
    }
}

template <class... Arguments>
void watch(AccessKind kind, const Arguments&... arguments) {
    if (kind.strong)
        kind.writes ? watch<true, true>(arguments...) : watch<false, true>(arguments...);
    else
        kind.writes ? watch<true, false>(arguments...) : watch<false, false>(arguments...);
}

std::string place_in_window(const void* context, std::uintptr_t address) {
    return describe_shared(*static_cast<const SharedWindow*>(context), address);
}

std::string place_on_device(const void*, std::uintptr_t address) { return DeviceMemory::instance().describe(address); }

}  // namespace

std::string describe(const Event& event) {
    const Site* site = find_site(event);
    const std::string line = to_string(place_of(event));
    const std::string what = fmt::format("{}{}", event.strong ? "atomic or volatile " : "",
                                         event.writes && event.reads ? "read and write"
                                         : event.writes              ? "write"
                                                                     : "read");
    if (!is_thread(event.slot)) return fmt::format("{} by {}, issued at {}", what, site->instruction, line);
    const auto threads = static_cast<std::uint32_t>(current->block->threads.size());
    const uint3 thread = current->block->threads[event.slot % threads].index;
    const uint3 block = block_at(event.team - oldest_team, event.slot / threads);
    return fmt::format("{} by thread ({}, {}, {}) of block ({}, {}, {}) at {}{}", what, thread.x, thread.y, thread.z,
                       block.x, block.y, block.z, line,
                       site && site->instruction ? fmt::format(" ({})", site->instruction) : "");
}

std::string describe_earlier(const Event& event) {
    return describe(event) + called_at(calls_known_of(place_of(event), running->kernel->entry), "    ");
}

Cell* Shadow::cells(std::size_t bytes) {
    if (cells_) return cells_;
    bytes_ = (bytes / word + 2) * sizeof(Cell);
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return cells_ = static_cast<Cell*>(memory);
}

void Shadow::clear() {
    if (cells_) munmap(cells_, bytes_);
    cells_ = nullptr;
}

void check_suspects() {
    for (const Suspect& suspect : std::exchange(suspects, {})) {
        const std::uint32_t now = word_at(suspect.address);
        for (unsigned byte = 0; byte < word; ++byte)
            if (suspect.first.mask & suspect.second.mask & 1u << byte && (suspect.before ^ now) >> 8 * byte & 0xFF)
                report(suspect);
    }
}

void check_unconfirmed(Thread& thread) {
    if (thread.order.unconfirmed.empty()) return;
    current = &thread;
    report(thread.order.unconfirmed.front());
}

void begin_watching(std::uint64_t clusters) {
    suspects.clear();
    forget_waiting_sites();
    oldest_team = next_team;
    next_team += static_cast<std::uint32_t>(clusters);
    chance = settings().seed;
    released.clear();
}

std::uint32_t first_team() { return oldest_team; }
std::uint32_t new_slot() { return current->block->cluster->slots++; }

void watch_shared(const SharedWindow& window, std::uintptr_t address, std::size_t n, AccessKind kind,
                  const Place& where, const char* instruction) {
    watch(kind, window.cells, window.begin, address, n, actor().team, where, instruction, place_in_window, &window);
}

void watch_device(std::uintptr_t address, std::size_t n, AccessKind kind, const Place& where, const char* instruction) {
    Allocation& allocation = *DeviceMemory::instance().find(address);
    watch(kind, allocation.shadow.cells(allocation.bytes), allocation.begin, address, n, oldest_team, where,
          instruction, place_on_device, nullptr);
}

ActingAs::ActingAs(const Actor& actor) { acting = &actor; }
ActingAs::~ActingAs() { acting = nullptr; }

Actor asynchronous(Thread& thread, std::uint32_t& slot, std::uint64_t time) {
    if (slot == 0) slot = new_slot();
    return {thread.order.actor.team, slot, static_cast<std::uint32_t>(time), release(thread).clock()};
}

Clock Knowledge::clock() const {
    Clock clock = others;
    clock.raise(slot, time);
    return clock;
}

void Gathering::add(const Knowledge& knowledge) {
    if (!knowledge.others.same(last_)) all_.join(last_ = knowledge.others);
    all_.raise(knowledge.slot, knowledge.time);
}

// The thread's own clock need not say what the thread has done itself. So it stays the one that others share.
Knowledge release(Thread& thread) {
    check_unconfirmed(thread);
    Actor& self = thread.order.actor;
    return {self.clock, self.slot, self.time++};
}

void acquire(Thread& thread, const Clock& clock) {
    // Of those who have waited at a barrier, most knew the same before.
    static Clock before, joined, after;
    Clock& known = thread.order.actor.clock;
    if (!known.same(before) || !clock.same(joined)) {
        before = after = known;
        joined = clock;
        after.join(clock);
    }
    known = after;
}

void acquire_slot(Thread& thread, std::uint32_t slot, std::uint64_t time) {
    if (slot > 0 && time > 0) thread.order.actor.clock.raise(slot, static_cast<std::uint32_t>(time));
}

void synchronize(Thread* const* threads, std::size_t n, bool whole_block) {
    Gathering all;
    Clock released, drawn;
    for (std::size_t i = 0; i < n; ++i) {
        ThreadOrder& order = threads[i]->order;
        all.add(release(*threads[i]));
        released.join(order.released);
        if (whole_block) drawn.join(std::exchange(order.drawn, {}));
    }
    Clock known = all.clock();
    known.join(drawn);
    for (std::size_t i = 0; i < n; ++i) {
        threads[i]->order.actor.clock = known;
        threads[i]->order.released = released;
    }
}

void watch_strong(const void* address, std::size_t n, bool writes, Order order, const Place& where) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    ThreadOrder& self = current->order;
    if (const Allocation* allocation = DeviceMemory::instance().find(at)) {
        if (!allocation->live || !allocation->contains(at, n)) return;  // the hooks will say so
        watch_device(at, n, {writes, true}, where);
    } else {
        const Block& block = *current->block;
        const SharedWindow& window = block.static_shared.covers(at) ? block.static_shared : block.dynamic_shared;
        if (!window.covers(at) || !window.covers(at + n - 1)) return;
        watch_shared(window, at, n, {writes, true}, where);
    }
    Clock& clock = released[at].clock;
    if (order == Order::acquire || order == Order::acquire_release)
        acquire(*current, clock);
    else
        self.seen.join(clock);
    if (current->in_atomic) self.drawn.join(clock);
    if (!writes) return;
    clock.join(order == Order::release || order == Order::acquire_release ? release(*current).clock() : self.released);
}

void watch_fence() {
    ThreadOrder& self = current->order;
    self.actor.clock.join(self.seen);
    self.released = release(*current).clock();
    watch_volatile_fence();
}

}  // namespace emulator
