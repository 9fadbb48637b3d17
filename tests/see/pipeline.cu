#include "pipeline.h"

#include <algorithm>
#include <stdexcept>

#include "../emulator/device_array.h"
#include "emulator/activity.h"
#include "launch.h"
#include "lcsf/ring.h"
#include "lcsf/turns.h"
#include "ptx/fence.h"
#include "ptx/tma.h"

namespace flashladder {
namespace {

constexpr int warpgroup = 128, most_consumers = 3, most_events = 512;
enum Kind { of_S, of_PV, of_softmax, kinds };

struct Request {
    int consumer, step, kind, left, first, end;
    int asked, place;  // among those that ask in the same clock: those with a turn as they come, then the others by number
};
struct Load {
    int is_V, slot, at, came;
};

template <int stages>
struct Shared {
    lcsf::Ring<stages> K_ring, V_ring;
    ptx::Barrier tick, ended, done[most_consumers][kinds];
    alignas(16) int ticked[4];
    int now, finished, way_free;
    int softmax_left[most_consumers];
    int requests, loads;  // so many
};

/// Where the threads write what they have done.
struct Log {
    Event* events;      // (1 + most_consumers, most_events): consumers, then who loads
    int* lengths;       // (1 + most_consumers)
    Request* requests;  // (most_events)
    Load* loads;        // (most_events)
};

/// Consumer or loader: what both write down.
template <int stages>
struct Actor {
    Shared<stages>& smem;
    const Plan& plan;
    Log log;
    int number, thread;

    __device__ void note(Did what, int step, int from, int to) {
        if (thread == 0) log.events[number * most_events + log.lengths[number]++] = {what, step, from, to};
    }
    /// One thread: asks for a tile, whose slot is free.
    __device__ void ask(bool is_V, int slot, int step, int loader) {
        smem.way_free = max(smem.way_free, smem.now) + plan.pace;
        const int at = smem.way_free + plan.latency;
        log.events[loader * most_events + log.lengths[loader]++] = {is_V ? Did::ask_V : Did::ask_K, step, smem.now, at};
        log.loads[smem.loads] = {is_V, slot, at, 0};
        ++smem.loads;
    }
};

template <int consumers, int stages, bool on>
struct Consumer : Actor<stages> {
    using Actor<stages>::smem, Actor<stages>::plan, Actor<stages>::log, Actor<stages>::number, Actor<stages>::thread;
    lcsf::Turns<consumers, on> turns = {number};
    lcsf::RingPosition<stages> key = {}, value = {};
    unsigned parity[kinds] = {};
    int K_step = 0, V_step = 0, K_asked = 0, V_asked = 0;
    bool has_turn = false;

    template <class Wait>
    __device__ void waited(Did what, int step, Wait wait) {
        const int from = smem.now;
        wait();
        this->note(what, step, from, smem.now);
    }
    __device__ void begin(Kind kind, int step, int clocks) {
        if (thread != 0) return;
        if (kind == of_softmax) smem.softmax_left[number] = clocks;
        else {
            const int n = atomicAdd(&smem.requests, 1);
            log.requests[n] = {number, step, kind, clocks, -1, -1, smem.now, has_turn ? n : most_events + number};
        }
    }
    __device__ void wait_done(Kind kind) {
        ptx::barrier_wait(smem.done[number][kind], parity[kind]);
        parity[kind] ^= 1;
    }
    __device__ void wait_done(Kind kind, int step) {
        waited(kind == of_S ? Did::S : kind == of_PV ? Did::PV : Did::softmax, step, [&] { wait_done(kind); });
    }
    __device__ void begin_scores() {
        waited(Did::wait_K, K_step, [&] { smem.K_ring.wait_full(key); });
        if (on) waited(Did::turn, K_step, [&] { turns.wait(); });
        has_turn = on;
        begin(of_S, K_step, plan.S);
    }
    __device__ void pass() {
        turns.pass();
        has_turn = false;
    }
    __device__ void end_scores() {
        __syncwarp();
        if (thread % 32 == 0) smem.K_ring.release(key);
        key.advance();
        ++K_step;
    }
    __device__ void weigh(int step) {
        begin(of_softmax, step, plan.softmax);
        wait_done(of_softmax, step);
    }
    __device__ void begin_output() {
        waited(Did::wait_V, V_step, [&] { smem.V_ring.wait_full(value); });
        begin(of_PV, V_step, plan.PV);
    }
    __device__ void end_output() {
        __syncwarp();
        if (thread % 32 == 0) smem.V_ring.release(value);
        value.advance();
        ++V_step;
    }

    /// Rung 10.
    __device__ void one_after_the_other() {
        for (int j = 0; j < plan.steps; ++j) {
            begin_scores();
            pass();
            wait_done(of_S, K_step);
            end_scores();
            weigh(K_step - 1);
            begin_output();
            wait_done(of_PV, V_step);
            end_output();
        }
    }
    /// Rung 12.
    __device__ void together() {
        for (int j = 0; j < plan.steps; ++j) {
            begin_scores();
            if (j > 0) begin_output();
            pass();
            waited(Did::S, K_step, [&] {
                wait_done(of_S);
                if (j > 0 && !plan.within) wait_done(of_PV);  // nothing is pending then
            });
            end_scores();
            weigh(K_step - 1);
            if (j > 0) {
                waited(Did::PV, V_step, [&] { if (plan.within) wait_done(of_PV); });
                end_output();
            }
        }
        begin_output();
        wait_done(of_PV, V_step);
        end_output();
    }
    /// Rung 07: nobody gives back, the same warps ask.
    __device__ void ask_next(bool is_V, int end) {
        int& asked = is_V ? V_asked : K_asked;
        if (asked < end && thread == 0) this->ask(is_V, asked % stages, asked, most_consumers);
        asked += asked < end;
    }
    __device__ void own_loads(int end) {
        for (int t = 0; t < stages; ++t) {
            ask_next(false, end);
            if (t < stages - 1) ask_next(true, end);
        }
        for (int j = 0; j < plan.steps; ++j) {
            waited(Did::wait_K, K_step, [&] { smem.K_ring.wait_full(key); });
            ask_next(true, end);
            begin(of_S, K_step, plan.S);
            wait_done(of_S, K_step);
            waited(Did::wait_V, V_step, [&] { smem.V_ring.wait_full(value); });
            ask_next(false, end);
            weigh(K_step);
            begin(of_PV, V_step, plan.PV);
            wait_done(of_PV, V_step);
            key.advance(), value.advance();
            ++K_step, ++V_step;
        }
    }
    __device__ void run() {
        turns.open();
        for (int task = 0; task < plan.tasks; ++task) {
            if (plan.steps_as == Steps::one_after_the_other) one_after_the_other();
            if (plan.steps_as == Steps::together) together();
            if (plan.steps_as == Steps::own_loads) own_loads((task + 1) * plan.steps);
            if (!plan.persistent) {
                if (thread == 0) ptx::barrier_arrive(smem.ended);
                ptx::barrier_wait(smem.ended, task % 2);
            }
        }
        turns.close();
        if (thread == 0) atomicAdd(&smem.finished, 1);
    }
};

template <int stages>
__device__ void produce(Actor<stages> producer) {
    auto& [smem, plan, log, number, thread] = producer;
    lcsf::RingPosition<stages> at;
    for (int task = 0; task < plan.tasks; ++task) {
        for (int j = 0; j < plan.steps; ++j) {
            const int step = task * plan.steps + j;
            for (const bool is_V : {false, true}) {
                const int from = smem.now;
                (is_V ? smem.V_ring : smem.K_ring).wait_empty(at);
                producer.note(is_V ? Did::slot_V : Did::slot_K, step, from, smem.now);
                producer.ask(is_V, at.slot, step, number);
            }
            at.advance();
        }
        if (!plan.persistent) {
            ptx::barrier_arrive(smem.ended);
            ptx::barrier_wait(smem.ended, task % 2);
        }
    }
    atomicAdd(&smem.finished, 1);
}

/// The hardware, one thread. A clock is over when a copy arrives, which it does when nobody else can go on. In a clock the
/// tensor cores and the special function units work for one consumer each.
template <int stages>
__device__ void tick(Shared<stages>& smem, Log log, bool in_line, int actors, const int* zeros) {
    unsigned parity = 0;
    int last_product = most_consumers - 1, last_softmax = most_consumers - 1;
    for (;;) {
        ptx::barrier_arrive_expect_tx(smem.tick, 16);
        ptx::bulk_load(smem.ticked, zeros, 16, smem.tick);
        ptx::barrier_wait(smem.tick, parity);
        parity ^= 1;
        if (smem.finished == actors) return;

        // Those that took turns stand in line. Without turns, each consumer that has a product has every other clock.
        int serve = -1;
        for (int r = 0; r < smem.requests; ++r) {
            const Request &request = log.requests[r], &best = log.requests[max(serve, 0)];
            if (request.left == 0) continue;
            const auto behind = [&](const Request& q) { return (q.consumer + 2 * most_consumers - last_product - 1) % most_consumers; };
            const bool comes_first = in_line ? request.asked < best.asked || (request.asked == best.asked && request.place < best.place)
                                             : behind(request) < behind(best);
            if (serve < 0 || comes_first) serve = r;
        }
        int exponentials_of = -1;
        for (int ahead = 1; ahead <= most_consumers && exponentials_of < 0; ++ahead)
            if (const int c = (last_softmax + ahead) % most_consumers; smem.softmax_left[c] > 0) exponentials_of = c;

        ++smem.now;
        if (serve >= 0) {
            Request& request = log.requests[serve];
            last_product = request.consumer;
            if (request.first < 0) request.first = smem.now - 1;
            if (--request.left == 0) {
                request.end = smem.now;
                ptx::barrier_arrive(smem.done[request.consumer][request.kind]);
            }
        }
        if (exponentials_of >= 0) {
            last_softmax = exponentials_of;
            if (--smem.softmax_left[exponentials_of] == 0) ptx::barrier_arrive(smem.done[exponentials_of][of_softmax]);
        }
        for (int n = 0; n < smem.loads; ++n) {
            Load& load = log.loads[n];
            if (load.came || load.at > smem.now) continue;
            load.came = 1;
            ptx::barrier_arrive((load.is_V ? smem.V_ring : smem.K_ring).full[load.slot]);
        }
    }
}

template <int consumers, int stages, bool on>
__global__ void pipeline_kernel(Plan plan, Log log, const int* zeros) {
    auto& smem = *dynamic_shared<Shared<stages>>();
    const bool has_producer = plan.steps_as != Steps::own_loads;
    if (threadIdx.x == 0) {
        smem.K_ring.init(1, 4 * consumers);
        smem.V_ring.init(1, 4 * consumers);
        ptx::barrier_init(smem.tick, 1);
        ptx::barrier_init(smem.ended, consumers + has_producer);
        for (auto& of_consumer : smem.done)
            for (auto& barrier : of_consumer) ptx::barrier_init(barrier, 1);
        for (int& left : smem.softmax_left) left = 0;
        smem.now = smem.finished = smem.way_free = smem.requests = smem.loads = 0;
        ptx::fence_barrier_init();
    }
    __syncthreads();
    const int role = int(threadIdx.x) / warpgroup - 1, thread = int(threadIdx.x) % warpgroup;
    if (role >= 0) Consumer<consumers, stages, on>{{smem, plan, log, role, thread}}.run();
    else if (thread == 0 && has_producer) produce<stages>({smem, plan, log, most_consumers, 0});
    else if (thread == 32) tick(smem, log, on, consumers + has_producer, zeros);
}

template <int consumers, int stages, bool on>
Timeline run(const Plan& plan) {
    const DeviceArray<Event> events(std::vector<Event>((1 + most_consumers) * most_events));
    const DeviceArray<int> lengths(std::vector<int>(1 + most_consumers)), zeros(std::vector<int>(4));
    const DeviceArray<Request> requests(std::vector(std::size_t(most_events), Request{}));
    const DeviceArray<Load> loads(std::vector(std::size_t(most_events), Load{}));
    const Log log{events.data(), lengths.data(), requests.data(), loads.data()};
    struct Late {
        bool before = std::exchange(emulator::all_is_late, true);
        ~Late() { emulator::all_is_late = before; }
    } late;
    launch_kernel(pipeline_kernel<consumers, stages, on>, {1, warpgroup*(1 + consumers), sizeof(Shared<stages>)}, plan, log,
                  static_cast<const int*>(zeros.data()));
    check_cuda(cudaDeviceSynchronize(), "running a pipeline");
    Timeline timeline;
    const auto all = events.download();
    const auto of = [&, n = lengths.download()](int actor) {
        const auto begin = all.begin() + actor * most_events;
        return std::vector<Event>(begin, begin + n[std::size_t(actor)]);
    };
    for (int c = 0; c < consumers; ++c) timeline.consumers.push_back(of(c));
    timeline.loader = of(most_consumers);
    for (const Request& r : requests.download())
        if (r.end > 0) timeline.products.push_back({r.consumer, r.step, r.kind == of_PV, r.first, r.end});
    std::ranges::sort(timeline.products, {}, &Product::end);
    return timeline;
}

template <int consumers, bool on>
Timeline with_stages(const Plan& plan) {
    switch (plan.stages) {
        case 1: return run<consumers, 1, on>(plan);
        case 2: return run<consumers, 2, on>(plan);
        case 3: return run<consumers, 3, on>(plan);
        case 4: return run<consumers, 4, on>(plan);
        case 5: return run<consumers, 5, on>(plan);
        case 6: return run<consumers, 6, on>(plan);
    }
    throw std::invalid_argument("1 to 6 stages");
}

}  // namespace

Timeline run_pipeline(const Plan& plan) {
    if (plan.consumers == 1) return with_stages<1, false>(plan);
    if (plan.consumers == 2) return plan.turns ? with_stages<2, true>(plan) : with_stages<2, false>(plan);
    return plan.turns ? with_stages<3, true>(plan) : with_stages<3, false>(plan);
}

}  // namespace flashladder
