// A Kernel, right as it is. Each definition that -D changes makes one mistake: see CMakeLists.txt.
#include "lcsf/lcsf.h"

#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef OWN_SLOTS
#define OWN_SLOTS 1
#endif
#ifndef OWN_IS_LOADED
#define OWN_IS_LOADED true
#endif
#ifndef TURNS
#define TURNS true
#endif
#ifndef FIRST
#define FIRST SharedTile<__half, 64, 64, Swizzled<128>>
#endif
#ifndef SECOND
#define SECOND FIRST
#endif
#ifndef OWN
#define OWN FIRST
#endif

using namespace flashladder;
using namespace flashladder::tile;

struct Kernel {
    using Consumer = lcsf::Consumer<Kernel>;
#ifndef NO_consumers
    static constexpr int consumers = CONSUMERS;
#endif
#ifndef NO_stages
    static constexpr int stages = STAGES;
#endif
#ifndef NO_own_slots
    static constexpr int own_slots = OWN_SLOTS;
#endif
#ifndef NO_own_is_loaded
    static constexpr bool own_is_loaded = OWN_IS_LOADED;
#endif
#ifndef NO_turns
    static constexpr bool turns = TURNS;
#endif
#ifndef NO_schedule
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::dynamic;
#endif
#ifndef NO_FirstTile
    using FirstTile = FIRST;
#endif
#ifndef NO_SecondTile
    using SecondTile = SECOND;
#endif
#ifndef NO_OwnTile
    using OwnTile = OWN;
#endif
    struct TheProblem {};
    struct TheTask {};
    struct TheState {};
#ifndef NO_Problem
    using Problem = TheProblem;
#endif
#ifndef NO_Task
    using Task = TheTask;
#endif
#ifndef NO_State
    using State = TheState;
#endif
#ifndef NO_tasks
    static int tasks(const TheProblem&) { return 1; }
#endif
#ifndef NO_task
    static TheTask task(const TheProblem&, int) { return {}; }
#endif
#ifndef NO_steps
    static int steps(const TheTask&) { return 1; }
#endif
#ifdef SHARED
    struct Shared {};
#ifndef NO_init
    static void init(Shared&) {}
#endif
#ifndef NO_load_first
    static void load_first(FIRST, ptx::Barrier&, const TheProblem&, const TheTask&, int, Shared&, int) {}
#endif
#elif !defined(NO_load_first)
    static void load_first(FIRST, ptx::Barrier&, const TheProblem&, const TheTask&, int) {}
#endif
#ifdef WRITERS
    static constexpr int writers = WRITERS;
    struct Writer {
        unsigned number;
#ifndef NO_write
        template <class Shared>
        void write(Shared&, const TheProblem&, const TheTask&, const lcsf::TaskConsumer&) {}
#endif
    };
#endif
#ifdef BETWEEN
    static void between(Consumer&, const TheProblem&, unsigned) {}
    static void end(Consumer&, const TheProblem&, unsigned) {}
#endif
#ifndef NO_load_second
    static void load_second(SECOND, ptx::Barrier&, const TheProblem&, const TheTask&, int) {}
#endif
#ifndef NO_load_own
    static void load_own(OWN, ptx::Barrier&, const TheProblem&, const TheTask&, int) {}
#endif
#ifndef NO_works
    static bool works(const TheTask&, int) { return true; }
#endif
#ifndef NO_begin
    static void begin(TheState&, Consumer&, const TheProblem&, const TheTask&) {}
#endif
#ifndef NO_compute
    static void compute(TheState&, Consumer&, const TheProblem&, const TheTask&) {}
#endif
#ifndef NO_finish
    static void finish(TheState&, Consumer&, const TheProblem&, const TheTask&) {}
#endif
#ifndef NO_store
    static void store(const Consumer&, const TheProblem&, const TheTask&) {}
#endif
};

void snippet() { lcsf::launch<Kernel>({}, nullptr, nullptr); }
