// The race detector: two accesses of one place, of which one writes and which nothing orders, are an error, in whatever
// order they happen to come. Actors are threads and what they ask for asynchronously. What each one knows to have
// happened is in its clock, which barriers and waits join. Beside each word of memory stand its last accesses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "clock.h"
#include "device_functions.h"
#include "report.h"

namespace emulator {

struct SharedWindow;
struct Thread;
struct VolatileRead;

/// True while races are looked for, in a launch. The functions below may be called only then.
extern bool watching;

/// Who accesses memory: a thread, or something asynchronous.
struct Actor {
    std::uint32_t team = 0, slot = 0, time = 0;
    Clock clock;
};

/// What a thread knows at a moment, itself included.
struct Knowledge {
    Clock others;
    std::uint32_t slot = 0, time = 0;

    Clock clock() const;
};

/// What those know who have come to a barrier. Most of them knew the same before.
class Gathering {
public:
    void add(const Knowledge& knowledge);
    const Clock& clock() const { return all_; }

private:
    Clock all_, last_;
};

/// An access, in 16 bytes.
struct Event {
    std::uint32_t team : 28 = 0;
    std::uint32_t mask : 4 = 0;  // bytes of the word
    std::uint32_t time : 28 = 0;
    std::uint32_t writes : 1 = 0;
    std::uint32_t reads : 1 = 0;   // of a write: its thread has read the word too, since its last release
    std::uint32_t shared : 1 = 0;  // of a write: others have written the same since
    std::uint32_t strong : 1 = 0;  // atomic, or volatile
    std::uint64_t slot : 16 = 0;
    std::uint64_t site : 48 = 0;
};

/// "write by thread (3, 0, 0) of block (0, 0, 0) at file:line", or "read by tma_store, issued at file:line". Of the
/// current cluster.
std::string describe(const Event& event);
/// And below it who has called it, as far as that is known of what is over.
std::string describe_earlier(const Event& event);

/// What memory a word belongs to, in words.
using DescribePlace = std::string (*)(const void* context, std::uintptr_t address);

/// Two accesses that nothing orders, of which it will turn out whether they race.
struct Suspect {
    std::uintptr_t address;  // of the word
    std::uint32_t before;    // what it held
    Event first, second;
    Place where;  // of the second one
    DescribePlace place;
    const void* context;
};

/// What the race detector keeps of a thread.
struct ThreadOrder {
    Actor actor;
    Clock released;  // what it knew at its last __threadfence(): what its atomics pass on
    Clock seen;      // what its atomics have found, known behind the next __threadfence()
    Clock drawn;     // the same of those that read and write at once, known behind the block's next barrier
    std::vector<Suspect> unconfirmed;  // loads of what others have changed by atomics: an atomicCAS must follow
    const void* compared = nullptr;    // with what, while it is under way
    std::vector<VolatileRead*> open_reads;
    std::uint32_t copies = 0, store_reads = 0, store_writes = 0;  // slots of what it has asked for; 0 if nothing
};

/// The last accesses of a word of memory. Where more are unordered than fit, chance decides which are remembered.
struct Cell {
    std::array<Event, 4> events;
};

/// The cells of a range of memory; pages that nothing has touched cost nothing.
class Shadow {
public:
    Shadow() = default;
    Shadow(const Shadow&) = delete;
    ~Shadow() { clear(); }
    /// For so many bytes of memory, the same number each time until cleared.
    Cell* cells(std::size_t bytes);
    void clear();

private:
    Cell* cells_ = nullptr;
    std::size_t bytes_ = 0;
};

/// How an access is ordered: a plain one not at all; atomics and volatile accesses do not race with one another.
struct AccessKind {
    bool writes, strong = false;
};

/// A launch of so many clusters begins.
void begin_watching(std::uint64_t clusters);
/// Of this launch.
std::uint32_t first_team();
/// A slot of the current team that nobody has yet.
std::uint32_t new_slot();

/// An access by the actor of the moment: the current thread, or what it has asked for that happens now. `instruction`
/// is its name where it is not a load or store.
void watch_shared(const SharedWindow& window, std::uintptr_t address, std::size_t n, AccessKind kind,
                  const Place& where, const char* instruction = nullptr);
void watch_device(std::uintptr_t address, std::size_t n, AccessKind kind, const Place& where,
                  const char* instruction = nullptr);

/// Stores that are not ordered are no race if they all store the same value, which is seen only when the last one has
/// done so: before its thread goes on to another instruction, or lets others run.
void check_suspects();
/// Nor is a load that an atomicCAS of its thread confirms: this is the thread's last moment to have done so.
void check_unconfirmed(Thread& thread);

/// Accesses until the end of the scope are by this actor.
class ActingAs {
public:
    explicit ActingAs(const Actor& actor);
    ~ActingAs();
    ActingAs(const ActingAs&) = delete;
};

/// Something that the thread asks for now, in a slot that is given out with its first such request.
Actor asynchronous(Thread& thread, std::uint32_t& slot, std::uint64_t time);

/// What the thread knows; what it does from now on is not part of that.
Knowledge release(Thread& thread);
void acquire(Thread& thread, const Clock& clock);
/// The thread has waited for what happens in a slot of its team up to a time.
void acquire_slot(Thread& thread, std::uint32_t slot, std::uint64_t time);
/// All know what each of them has done; and what any of them has fenced, the atomics of all pass on. At the barrier of
/// a block, all also know what their atomics have found: CUDA's sample threadFenceReduction has no other fence there.
void synchronize(Thread* const* threads, std::size_t n, bool whole_block);

/// What atomics and fences say of order. An access of the current thread to device or shared memory.
void watch_strong(const void* address, std::size_t n, bool writes, Order order, const Place& where);
void watch_fence();

}  // namespace emulator
