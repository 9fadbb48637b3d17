// Load, compute, store, finish: a kernel says what it moves and what it computes, the template has the rest, which rungs
// 08 to 13 have built by hand: roles and their registers, rings and their barriers, tasks, turns, and outputs that leave
// while the next task is computed.
//
// A Kernel is a struct of types, numbers and static functions:
//
//   consumers, stages, schedule   warpgroups that compute a task; slots of the rings; how blocks come by tasks
//   teams                         so many consumers, each time with a producer, rings and tasks of their own, in a block; if
//                                 it says nothing of them, 1
//   turns                         whether consumers take turns to begin products
//   FirstTile, SecondTile         what a step needs, and waits for one after the other: K_j and V_j. A kernel whose steps wait
//                                 once has no SecondTile
//   OwnTile, own_slots            of a consumer: what is loaded for a whole task, if own_is_loaded, and what leaves at its
//                                 end: Q_i and O_i
//   Problem                       the parameter of the kernel, tensor maps and all
//   Task, tasks(p), task(p, n)    how many tasks there are, and which one is number n
//   most_tasks(p)                 on the host, by a Kernel whose tasks(p) only the device knows: how many there may be. The
//                                 kernel launched before it plans them and sets `taken` to 0; they may overlap
//   follows_a_kernel              true, if it needs what another kernel launched right before it writes; they may overlap
//   steps(task)                   how many times it needs them, at least 1
//   load_first, load_second(tile, full, p, task, t), load_own(tile, full, p, task, consumer)
//                                 by one thread: ask for a tile, whose bytes `full` counts
//   works(task, consumer)         whether it has work for a consumer; if not, that one skips the steps
//   State                         what a consumer has in registers
//   begin(state, c, p, task)      by a consumer: the first steps
//   compute(state, c, p, task)    by a consumer: the other steps
//   finish(state, c, p, task)     by a consumer: what remains to be done when the next task is known, and the output, which
//                                 goes to c.own(), each warp its own part
//   store(c, p, task)             by lane 0 of each warp: begins to copy its part of c.own() away
//
// And what a kernel may have besides (rung 25):
//
//   Shared, init(shared)          memory of a team, c.smem.shared: what consumers and writers tell each other. One thread makes
//                                 its barriers ready. load_first gets it too, and the slot, behind t
//   first_loads, own_loads        of so many loads a FirstTile, a consumer's OwnTile, consists; if it says nothing, 1
//   writers, Writer               so many warps have a Writer{number} each, and call its write(shared, p, task, tasks) for each
//                                 task: they have few registers, and may wait for memory while consumers go on
//   between(c, p, tasks_before)   by a consumer, while the OwnTile of the task that begins is on its way; needs one own slot
//   end(c, p, tasks_before)       by a consumer, behind its last task
#pragma once

#include <concepts>
#include <type_traits>

#include "launch.h"
#include "lcsf/ring.h"
#include "lcsf/tasks.h"
#include "lcsf/turns.h"
#include "ptx/elect.h"
#include "ptx/fence.h"
#include "ptx/setmaxnreg.h"
#include "ptx/tma.h"
#include "tile/swizzled.h"

namespace flashladder::lcsf {

constexpr int warpgroup = 128;               // threads
constexpr std::size_t most_shared_bytes = 232448;  // 227 KB, of a block of sm_90

/// Registers of a thread that loads, and of one that computes, for so many consumers: all that a multiprocessor has.
template <int consumers, bool with_writers>
struct Registers {
    static_assert(consumers >= 1 && consumers <= 4, "LCSF: a block has 1 to 4 consumers");
    static constexpr int producer = consumers == 3 ? 32 : consumers == 4 || with_writers ? 24 : 40;
    static constexpr int consumer = consumers == 1 ? 256 : consumers == 2 ? (with_writers ? 240 : 232) : consumers == 3 ? 160 : 112;
};

/// Whether a kernel before says how many tasks there are.
template <class Kernel>
constexpr bool is_planned = requires(const typename Kernel::Problem& p) { Kernel::most_tasks(p); };
/// Another kernel comes right before it, and its blocks may begin before what that one wrote is seen by all: for this they
/// wait. Behind a memset they could not begin.
template <class Kernel>
constexpr bool is_dependent = [] {
    if constexpr (requires { Kernel::follows_a_kernel; })
        return Kernel::follows_a_kernel;
    else
        return is_planned<Kernel> || Kernel::schedule == Schedule::dynamic;
}();

template <class Kernel>
constexpr int teams_of = [] {
    if constexpr (requires { Kernel::teams; })
        return Kernel::teams;
    else
        return 1;
}();
template <class Kernel>
constexpr int consumers_of_block = teams_of<Kernel> * Kernel::consumers;

template <class Kernel>
constexpr int writers_of = [] {
    if constexpr (requires { Kernel::writers; })
        return Kernel::writers;
    else
        return 0;
}();
template <class Kernel>
constexpr int first_loads_of = [] {
    if constexpr (requires { Kernel::first_loads; })
        return Kernel::first_loads;
    else
        return 1;
}();
template <class Kernel>
constexpr int own_loads_of = [] {
    if constexpr (requires { Kernel::own_loads; })
        return Kernel::own_loads;
    else
        return 1;
}();

template <class Kernel>
using RegistersOf = Registers<consumers_of_block<Kernel>, (writers_of<Kernel> > 0)>;

/// Memory of a kernel's own, if it has any. Type: for messages, also where there is none.
template <class Kernel>
concept HasShared = requires { typename Kernel::Shared; };
template <class Kernel>
struct SharedOf {
    struct Type {};
};
template <HasShared Kernel>
struct SharedOf<Kernel> {
    using Type = typename Kernel::Shared;
};
template <class Kernel>
struct WriterTypeOf {
    struct Type {};
};
template <class Kernel>
    requires requires { typename Kernel::Writer; }
struct WriterTypeOf<Kernel> {
    using Type = typename Kernel::Writer;
};

template <class Kernel>
struct FirstTiles {
    using Element = typename Kernel::FirstTile::Element;
    alignas(1024) Element own[Kernel::own_slots][Kernel::consumers][Kernel::OwnTile::elements];
    Element first[Kernel::stages][Kernel::FirstTile::elements];
};
/// A second ring, if steps wait twice.
template <class Kernel>
concept HasSecondTile = requires { typename Kernel::SecondTile; };
template <class Kernel>
struct StepTiles : FirstTiles<Kernel> {};
template <HasSecondTile Kernel>
struct StepTiles<Kernel> : FirstTiles<Kernel> {
    typename Kernel::SecondTile::Element second[Kernel::stages][Kernel::SecondTile::elements];
    Ring<Kernel::stages> second_ring;
};

/// Memory of the kernel's own begins where a swizzled tile may. Its end is not rounded up: barriers come right behind it.
template <class Kernel>
struct OwnMemory : StepTiles<Kernel> {};
template <HasShared Kernel>
struct OwnMemory<Kernel> : StepTiles<Kernel> {
    alignas(1024) typename Kernel::Shared shared;
};

/// Of a team.
template <class Kernel>
struct Memory : OwnMemory<Kernel> {
    Ring<Kernel::own_slots> own_rings[Kernel::consumers];
    Ring<Kernel::stages> first_ring;
    TaskSlots tasks;
};

/// What compilers say of it has the numbers, which its sentence cannot have.
template <std::size_t bytes_needed, std::size_t bytes_of_a_block>
struct SharedMemory {
    static_assert(bytes_needed <= bytes_of_a_block,
                  "LCSF: the tiles do not fit into shared memory: fewer stages, smaller tiles or fewer own_slots");
};

/// A consumer's way through a ring of tiles. All threads of a consumer.
template <class Tile, int stages>
struct Reader {
    typename Tile::Element (*tiles)[Tile::elements];
    Ring<stages>& ring;
    RingPosition<stages> at = {};

    /// The next tile, once it has come.
    __device__ __forceinline__ Tile take() {
        ring.wait_full(at);
        return {tiles[at.slot]};
    }
    /// It will not be read any more. Goes on to the next one.
    __device__ __forceinline__ void give_back() { give_back(keep()); }
    /// Goes on without giving it back yet. Returns its place.
    __device__ __forceinline__ RingPosition<stages> keep() {
        const RingPosition<stages> place = at;
        at.advance();
        return place;
    }
    __device__ __forceinline__ void give_back(const RingPosition<stages>& place) {
        if (threadIdx.x % 32 == 0) ring.release(place);
    }
};

/// A consumer's way through the second ring, if there is one. Tile: for what is said of both, also where there is none.
template <class Kernel>
struct SecondReader {
    using Tile = typename Kernel::FirstTile;
    struct Type {};
    __device__ __forceinline__ static Type of(Memory<Kernel>&) { return {}; }
};
template <HasSecondTile Kernel>
struct SecondReader<Kernel> {
    using Tile = typename Kernel::SecondTile;
    using Type = Reader<Tile, Kernel::stages>;
    __device__ __forceinline__ static Type of(Memory<Kernel>& smem) { return {smem.second, smem.second_ring}; }
};

/// What a consumer, 128 threads, has to work with.
template <class Kernel>
struct Consumer {
    Memory<Kernel>& smem;
    const int number, warp, lane;
    Turns<Kernel::consumers, Kernel::turns> turns = {number};
    Reader<typename Kernel::FirstTile, Kernel::stages> first = {smem.first, smem.first_ring};
    typename SecondReader<Kernel>::Type second = SecondReader<Kernel>::of(smem);
    RingPosition<Kernel::own_slots> own_at = {};
    int leaving = -1;  // the slot of own from which an output leaves; -1: none

    /// This consumer's tile of the task: what was loaded, or what is to leave.
    __device__ __forceinline__ typename Kernel::OwnTile own() const { return {smem.own[own_at.slot][number]}; }
    /// A step without work for this consumer, while others need it to take its turn and to give back tiles. Products keep
    /// the lanes of a warp together; here nothing does, and one that has not seen a tile come might miss it for ever.
    __device__ __forceinline__ void skip() {
        first.take();
        turns.wait();
        turns.pass();
        __syncwarp();
        first.give_back();
        if constexpr (HasSecondTile<Kernel>) {
            second.take();
            __syncwarp();
            second.give_back();
        }
    }
    /// Once the output of the task before has left, its place may be loaded again, or written.
    __device__ __forceinline__ void give_back_own() {
        if (leaving >= 0 && lane == 0) {
            ptx::bulk_wait_read<0>();
            if (Kernel::own_is_loaded) ptx::barrier_arrive(smem.own_rings[number].empty[leaving]);
        }
        __syncwarp();
        leaving = -1;
    }
};

/// A tile of a ring: TMA fills it, and the next one begins where the pattern of a swizzle does.
template <class Tile>
constexpr bool is_swizzled_tile = requires {
    requires std::same_as<Tile, tile::SharedTile<typename Tile::Element, Tile::rows, Tile::columns,
                                                 tile::SwizzledFor<Tile::columns>>>;
    requires Tile::elements * sizeof(typename Tile::Element) % 1024 == 0;
};

template <class Kernel>
constexpr bool has_between = requires { &Kernel::between; };
template <class Kernel>
constexpr bool has_end = requires { &Kernel::end; };

/// What a Kernel must have, each in a sentence for who has forgotten it. Others that nvcc says after it follow from it.
template <class Kernel>
struct Checked {
    static_assert(requires { { Kernel::consumers } -> std::convertible_to<int>; },
                  "LCSF: a Kernel must have `static constexpr int consumers`");
    static_assert(requires { { Kernel::stages } -> std::convertible_to<int>; },
                  "LCSF: a Kernel must have `static constexpr int stages`");
    static_assert(requires { { Kernel::own_slots } -> std::convertible_to<int>; },
                  "LCSF: a Kernel must have `static constexpr int own_slots`");
    static_assert(requires { { Kernel::own_is_loaded } -> std::convertible_to<bool>; },
                  "LCSF: a Kernel must have `static constexpr bool own_is_loaded`");
    static_assert(requires { { Kernel::turns } -> std::convertible_to<bool>; },
                  "LCSF: a Kernel must have `static constexpr bool turns`");
    static_assert(requires { { Kernel::schedule } -> std::convertible_to<Schedule>; },
                  "LCSF: a Kernel must have `static constexpr lcsf::Schedule schedule`");
    static_assert(requires { typename Kernel::FirstTile; }, "LCSF: a Kernel must have a type FirstTile");
    static_assert(HasSecondTile<Kernel> || !requires { &Kernel::load_second; },
                  "LCSF: a Kernel with load_second() must have a type SecondTile");
    static_assert(requires { typename Kernel::OwnTile; }, "LCSF: a Kernel must have a type OwnTile");
    static_assert(requires { typename Kernel::Problem; }, "LCSF: a Kernel must have a type Problem");
    static_assert(requires { typename Kernel::Task; }, "LCSF: a Kernel must have a type Task");
    static_assert(requires { typename Kernel::State; }, "LCSF: a Kernel must have a type State");

    static_assert(consumers_of_block<Kernel> >= 1 && consumers_of_block<Kernel> <= 4, "LCSF: a block has 1 to 4 consumers");
    static_assert(Kernel::stages >= 1, "LCSF: a ring has at least 1 slot: stages");
    static_assert(Kernel::own_slots == 1 || Kernel::own_slots == 2, "LCSF: own_slots is 1 or 2");
    static_assert(is_swizzled_tile<typename Kernel::FirstTile>,
                  "LCSF: FirstTile must be a SharedTile with the layout SwizzledFor<columns>, and of 1024 n bytes");
    static_assert(is_swizzled_tile<typename SecondReader<Kernel>::Tile>,
                  "LCSF: SecondTile must be a SharedTile with the layout SwizzledFor<columns>, and of 1024 n bytes");
    static_assert(is_swizzled_tile<typename Kernel::OwnTile>,
                  "LCSF: OwnTile must be a SharedTile with the layout SwizzledFor<columns>, and of 1024 n bytes");
    static_assert(std::is_same_v<typename Kernel::FirstTile::Element, typename SecondReader<Kernel>::Tile::Element> &&
                      std::is_same_v<typename Kernel::FirstTile::Element, typename Kernel::OwnTile::Element>,
                  "LCSF: FirstTile, SecondTile and OwnTile must have elements of one type");

    using Problem = typename Kernel::Problem;
    using Task = typename Kernel::Task;
    using State = typename Kernel::State;
    using First = typename Kernel::FirstTile;
    using Own = typename Kernel::OwnTile;
    using C = Consumer<Kernel>;
    static_assert(requires(const Problem& p) { { Kernel::tasks(p) } -> std::same_as<int>; },
                  "LCSF: a Kernel must have `__host__ __device__ static int tasks(const Problem&)`");
    static_assert(requires(const Problem& p, int n) { { Kernel::task(p, n) } -> std::same_as<Task>; },
                  "LCSF: a Kernel must have `static Task task(const Problem&, int)`");
    static_assert(requires(const Task& task) { { Kernel::steps(task) } -> std::same_as<int>; },
                  "LCSF: a Kernel must have `static int steps(const Task&)`");
    static_assert(HasShared<Kernel> || requires(First tile, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
                      Kernel::load_first(tile, full, p, task, t);
                  }, "LCSF: a Kernel must have "
                     "`static void load_first(FirstTile, ptx::Barrier&, const Problem&, const Task&, int)`");
    static_assert(!HasShared<Kernel> || requires(First tile, ptx::Barrier& full, const Problem& p, const Task& task, int t,
                                                 typename SharedOf<Kernel>::Type& shared, int slot) {
                      Kernel::load_first(tile, full, p, task, t, shared, slot);
                  }, "LCSF: a Kernel with a type Shared must have `static void load_first(FirstTile, ptx::Barrier&, const Problem&, "
                     "const Task&, int, Shared&, int)`");
    static_assert(!HasShared<Kernel> || requires(typename SharedOf<Kernel>::Type& shared) { Kernel::init(shared); },
                  "LCSF: a Kernel with a type Shared must have `static void init(Shared&)`");
    static_assert(writers_of<Kernel> >= 0 && writers_of<Kernel> <= 3, "LCSF: a block has 0 to 3 writers");
    static_assert(writers_of<Kernel> == 0 || (teams_of<Kernel> == 1 && HasShared<Kernel>),
                  "LCSF: a Kernel with writers must have a type Shared, and one team");
    static_assert(writers_of<Kernel> == 0 || requires(typename WriterTypeOf<Kernel>::Type& writer,
                                                      typename SharedOf<Kernel>::Type& shared, const Problem& p,
                                                      const Task& task, const TaskConsumer& tasks) {
                      writer.write(shared, p, task, tasks);
                  }, "LCSF: a Kernel with writers must have a type Writer with "
                     "`void write(Shared&, const Problem&, const Task&, const lcsf::TaskConsumer&)`");
    static_assert(!has_between<Kernel> || (Kernel::own_is_loaded && Kernel::own_slots == 1),
                  "LCSF: a Kernel with between() must have an own tile that is loaded, in one slot: what it is called under");
    static_assert(!HasSecondTile<Kernel> || requires(typename SecondReader<Kernel>::Tile tile, ptx::Barrier& full, const Problem& p,
                                                     const Task& task, int t) {
                      Kernel::load_second(tile, full, p, task, t);
                  }, "LCSF: a Kernel must have "
                     "`static void load_second(SecondTile, ptx::Barrier&, const Problem&, const Task&, int)`");
    static_assert(!Kernel::own_is_loaded ||
                      requires(Own tile, ptx::Barrier& full, const Problem& p, const Task& task, int consumer) {
                          Kernel::load_own(tile, full, p, task, consumer);
                      }, "LCSF: a Kernel with own_is_loaded must have "
                         "`static void load_own(OwnTile, ptx::Barrier&, const Problem&, const Task&, int)`");
    static_assert(requires(const Task& task, int consumer) { { Kernel::works(task, consumer) } -> std::same_as<bool>; },
                  "LCSF: a Kernel must have `static bool works(const Task&, int)`");
    static_assert(requires(State& s, C& c, const Problem& p, const Task& task) { Kernel::begin(s, c, p, task); },
                  "LCSF: a Kernel must have `static void begin(State&, Consumer&, const Problem&, const Task&)`");
    static_assert(requires(State& s, C& c, const Problem& p, const Task& task) { Kernel::compute(s, c, p, task); },
                  "LCSF: a Kernel must have `static void compute(State&, Consumer&, const Problem&, const Task&)`");
    static_assert(requires(State& s, C& c, const Problem& p, const Task& task) { Kernel::finish(s, c, p, task); },
                  "LCSF: a Kernel must have `static void finish(State&, Consumer&, const Problem&, const Task&)`");
    static_assert(requires(const C& c, const Problem& p, const Task& task) { Kernel::store(c, p, task); },
                  "LCSF: a Kernel must have `static void store(const Consumer&, const Problem&, const Task&)`");

    static_assert(sizeof(SharedMemory<teams_of<Kernel> * sizeof(Memory<Kernel>), most_shared_bytes>) > 0);  // it says itself what is wrong
};

/// The producer of a team, one thread.
template <class Kernel>
__device__ __forceinline__ void produce(Memory<Kernel>& smem, const typename Kernel::Problem& p, unsigned* taken,
                                        int team) {
    RingPosition<Kernel::own_slots> own;
    RingPosition<Kernel::stages> at;
    TaskProducer tasks(team, teams_of<Kernel>);
    while (tasks.task < Kernel::tasks(p)) {
        const auto task = Kernel::task(p, tasks.task);
        for (int t = 0; t < Kernel::steps(task); ++t) {
            smem.first_ring.wait_empty(at);
            if constexpr (HasShared<Kernel>)
                Kernel::load_first({smem.first[at.slot]}, smem.first_ring.full[at.slot], p, task, t, smem.shared, at.slot);
            else
                Kernel::load_first({smem.first[at.slot]}, smem.first_ring.full[at.slot], p, task, t);
            if constexpr (Kernel::own_is_loaded)
                for (int c = 0; t == 0 && c < Kernel::consumers; ++c) {
                    if (Kernel::own_slots == 1) own.parity = tasks.before % 2;
                    smem.own_rings[c].wait_empty(own);
                    Kernel::load_own({smem.own[own.slot][c]}, smem.own_rings[c].full[own.slot], p, task, c);
                }
            if constexpr (HasSecondTile<Kernel>) {
                smem.second_ring.wait_empty(at);
                Kernel::load_second({smem.second[at.slot]}, smem.second_ring.full[at.slot], p, task, t);
            }
            at.advance();
        }
        own.advance();
        // Who is done first is to have the next task, not who began first. While the answer comes the rings have tiles.
        if constexpr (Kernel::schedule == Schedule::dynamic) tasks.ask(taken);
        tasks.template next<Kernel::schedule>(smem.tasks, Kernel::tasks(p));
    }
}

/// A consumer, 128 threads: which one of its team.
template <class Kernel>
__device__ __forceinline__ void consume(Memory<Kernel>& smem, const typename Kernel::Problem& p, int team, int number) {
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
    Consumer<Kernel> c{smem, number, warp, lane, {number, 1 + team * Kernel::consumers}};
    typename Kernel::State state;
    c.turns.open();
    TaskConsumer tasks(team, teams_of<Kernel>);
    while (tasks.task < Kernel::tasks(p)) {
        const auto task = Kernel::task(p, tasks.task);
        if constexpr (Kernel::own_is_loaded) {
            if (Kernel::own_slots == 1) c.give_back_own();  // else this task's could never come
            if (Kernel::own_slots == 1) c.own_at.parity = tasks.before % 2;  // one register less than going on to the next
            if constexpr (has_between<Kernel>) Kernel::between(c, p, tasks.before);
            smem.own_rings[number].wait_full(c.own_at);
        }
        if (Kernel::works(task, number)) {
            Kernel::begin(state, c, p, task);
            c.give_back_own();  // the output of the task before has left by now, under the first steps of this one
            Kernel::compute(state, c, p, task);
            tasks.template next<Kernel::schedule>(smem.tasks, Kernel::tasks(p));
            Kernel::finish(state, c, p, task);
            ptx::fence_proxy_async();
            __syncwarp();
            if (lane == 0) Kernel::store(c, p, task);
            c.leaving = c.own_at.slot;
        } else {
            c.give_back_own();
            for (int t = 0; t < Kernel::steps(task); ++t) c.skip();
            if (Kernel::own_is_loaded && lane == 0) smem.own_rings[number].release(c.own_at);
            tasks.template next<Kernel::schedule>(smem.tasks, Kernel::tasks(p));
        }
        c.own_at.advance();
    }
    c.turns.close();
    if constexpr (has_end<Kernel>) Kernel::end(c, p, tasks.before);
    if (lane == 0) ptx::bulk_wait_read<0>();
}

/// A writer, a warp.
template <class Kernel>
__device__ __forceinline__ void write(Memory<Kernel>& smem, const typename Kernel::Problem& p, int number) {
    typename Kernel::Writer writer{unsigned(number)};
    for (TaskConsumer tasks; tasks.task < Kernel::tasks(p);) {
        writer.write(smem.shared, p, Kernel::task(p, tasks.task), tasks);
        __syncwarp();  // or lanes without work would ask for the next task all the while
        tasks.template next<Kernel::schedule>(smem.tasks, Kernel::tasks(p));
    }
}

template <class Kernel>
__global__ void no_task_is_taken(unsigned* taken) {
    *taken = 0;
}

template <class Kernel>
__global__ void __launch_bounds__(warpgroup*(1 + consumers_of_block<Kernel>), 1)
    lcsf_kernel(const __grid_constant__ typename Kernel::Problem p, unsigned* taken) {
    Memory<Kernel>* const smem = dynamic_shared<Memory<Kernel>>();  // of each team
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    if (threadIdx.x == 0) {
        constexpr int warps = 4 * Kernel::consumers;  // one lane of each gives back
        for (int team = 0; team < teams_of<Kernel>; ++team) {
            for (auto& ring : smem[team].own_rings) ring.init(own_loads_of<Kernel>, 4);
            smem[team].first_ring.init(first_loads_of<Kernel>, warps);
            if constexpr (HasSecondTile<Kernel>) smem[team].second_ring.init(1, warps);
            smem[team].tasks.init(warps + writers_of<Kernel>);
            if constexpr (HasShared<Kernel>) Kernel::init(smem[team].shared);
        }
        ptx::fence_barrier_init();
    }
    if constexpr (is_dependent<Kernel>) cudaGridDependencySynchronize();  // what that kernel writes is there
    __syncthreads();

    if (role == 0) {
        ptx::registers_decrease<RegistersOf<Kernel>::producer>();
        const int warp = threadIdx.x / 32, team = teams_of<Kernel> == 1 ? 0 : warp;  // a warp for each
        if (warp < teams_of<Kernel> && ptx::elect_one()) produce<Kernel>(smem[team], p, taken, team);
        if constexpr (writers_of<Kernel> > 0)
            if (warp >= 1 && warp <= writers_of<Kernel>) write<Kernel>(*smem, p, warp - 1);
    } else {
        ptx::registers_increase<RegistersOf<Kernel>::consumer>();
        const int consumer = role - 1, team = teams_of<Kernel> == 1 ? 0 : consumer / Kernel::consumers;
        consume<Kernel>(smem[team], p, team, consumer - team * Kernel::consumers);
    }
}

/// For so many the host launches.
template <class Kernel>
int most_tasks(const typename Kernel::Problem& p) {
    if constexpr (is_planned<Kernel>) {
        return Kernel::most_tasks(p);
    } else {
        return Kernel::tasks(p);
    }
}

/// Launches a Kernel for all tasks of p. The dynamic schedule needs `taken`, a word of device memory. Throws CudaError.
template <class Kernel>
void launch(const typename Checked<Kernel>::Problem& p, unsigned* taken, cudaStream_t stream) {
    const int tasks = most_tasks<Kernel>(p), multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
    const int enough = (tasks + teams_of<Kernel> - 1) / teams_of<Kernel>;
    const int blocks = Kernel::schedule == Schedule::one_each || enough < multiprocessors ? enough : multiprocessors;
    if (Kernel::schedule == Schedule::dynamic) {
        if (!taken) check_cuda(cudaErrorInvalidValue, "LCSF: the dynamic schedule needs `taken`, a word of device memory");
        if (!is_planned<Kernel>)
            launch_kernel(no_task_is_taken<Kernel>, {.grid = dim3(1), .block = dim3(1), .stream = stream}, taken);
    }
    launch_kernel(lcsf_kernel<Kernel>,
                  {.grid = dim3(blocks), .block = dim3(warpgroup * (1 + consumers_of_block<Kernel>)),
                   .shared_bytes = teams_of<Kernel> * sizeof(Memory<Kernel>), .stream = stream,
                   .dependent = is_dependent<Kernel>},
                  p, taken);
}

}  // namespace flashladder::lcsf
