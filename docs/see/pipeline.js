// A pipeline of loads, products and softmax: who waits for what, and what bounds it. tests/see/pipeline.cpp runs the same on the
// emulator, with the project's rings and turns, and asks it the same as `answer` here.
window.see = window.see || {};
(() => {
    /// What actors do, as generators: each yields a condition, and goes on once it holds.
    function actorsOf(plan, now) {
        const {consumers, stages, tasks, steps, latency, pace, persistent} = plan, own = plan.as === "07", all = tasks * steps;
        const loads = [], requests = [], softmax = Array(consumers).fill(0), softmaxDone = Array(consumers).fill(0);
        const events = Array.from({length: consumers}, () => []), loader = [], program = Array.from({length: consumers}, () => []), asks = [];
        const came = {K: 0, V: 0}, back = {K: Array(all).fill(0), V: Array(all).fill(0)};
        const freed = {K: [], V: []};  // when the last one gave a tile back
        let wayFree = 0, ended = 0, turn = 0;

        function ask(what, step) {
            wayFree = Math.max(wayFree, now()) + pace;
            loads.push({what, step, at: wayFree + latency});
            loader.push([what, step, now(), wayFree + latency]);
            (own ? program[0] : asks).push(`ask ${what}${step}`);
        }
        function* waited(log, what, step, condition) {
            const from = now();
            yield condition;
            log.push([what, step, from, now()]);
        }
        function* endOfTask(task) {
            if (persistent) return;
            const actors = consumers + (own ? 0 : 1);
            ++ended;
            yield () => ended >= (task + 1) * actors;
        }

        function* consumer(c) {
            const log = events[c], did = (what) => program[c].push(what);
            let K = 0, V = 0;
            const request = (kind, step, hasTurn = plan.turns) => {
                const asked = {consumer: c, kind, step, left: plan[kind], first: null, end: null, at: now(), hasTurn};
                did(`${kind}${step}`);
                // In line; of those that ask in the same clock first those with a turn, as they come, then the others by number.
                const behind = requests.findIndex((r) => r.at === asked.at && !r.hasTurn && (hasTurn || r.consumer > c));
                requests.splice(behind < 0 ? requests.length : behind, 0, asked);
                return asked;
            };
            const done = function* (request, other = request) {
                if (!own) did("done");
                yield* waited(log, request.kind, request.step, () => request.end !== null && other.end !== null);
            };
            const weigh = function* (step) {
                const mine = softmaxDone[c] + 1;
                softmax[c] = plan.softmax, did("softmax");
                yield* waited(log, "softmax", step, () => softmaxDone[c] >= mine);
            };
            const arrives = function* (what, step) {
                did(`wait ${what}${step}`);
                yield* waited(log, `wait ${what}`, step, () => came[what] > step);
            };
            const giveBack = (what, step) => (++back[what][step], (freed[what][step] = now()), did(`give back ${what}${step}`));
            const pass = () => plan.turns && (turn = (c + 1) % consumers, did("pass"));
            const scores = function* () {
                yield* arrives("K", K);
                if (plan.turns) did("turn"), yield* waited(log, "turn", K, () => turn === c);
                return request("S", K);
            };
            const output = function* (hasTurn = plan.turns) {
                yield* arrives("V", V);
                return request("PV", V, hasTurn);
            };

            let K_asked = 0, V_asked = 0;
            if (plan.turns && c === consumers - 1) did("pass");  // the last one makes the first one begin
            for (let task = 0; task < tasks; ++task) {
                const end = (task + 1) * steps;
                if (own) for (let t = 0; t < stages; ++t) {
                    if (K_asked < end) ask("K", K_asked++);
                    if (t < stages - 1 && V_asked < end) ask("V", V_asked++);
                }
                for (let j = 0; j < steps; ++j) {
                    if (own) {
                        yield* arrives("K", K);
                        if (j > 0) freed.V[V - 1] = now();
                        if (V_asked < end) ask("V", V_asked++);
                        yield* done(request("S", K));
                        yield* arrives("V", V);
                        freed.K[K] = now();
                        if (K_asked < end) ask("K", K_asked++);
                        yield* weigh(K);
                        yield* done(request("PV", V));
                        ++K, ++V;
                    } else if (plan.as === "12") {
                        const S = yield* scores(), PV = j > 0 ? yield* output() : null;
                        pass();
                        yield* done(S, plan.within || !PV ? S : PV);
                        giveBack("K", K++);
                        yield* weigh(K - 1);
                        if (PV) yield* done(PV), giveBack("V", V++);
                    } else {
                        const S = yield* scores();
                        yield* done(S);
                        giveBack("K", K++);
                        yield* weigh(K - 1);
                        yield* done(yield* output());
                        giveBack("V", V++);
                    }
                }
                if (plan.as === "12") {
                    yield* done(yield* output(false));
                    giveBack("V", V++);
                }
                if (own) freed.V[V - 1] = now();
                yield* endOfTask(task);
            }
            // The first one takes back what the last one has passed.
            if (plan.turns && c === 0) did("turn"), yield () => turn === 0;
        }
        function* producer() {
            for (let task = 0; task < tasks; ++task) {
                for (let step = task * steps; step < (task + 1) * steps; ++step)
                    for (const what of ["K", "V"]) {
                        asks.push(`slot ${what}${step}`);
                        // In the first round of the ring nobody waits; then until all have given back what was there.
                        yield* waited(loader, `slot ${what}`, step, () => step < stages || back[what][step - stages] === consumers);
                        ask(what, step);
                    }
                yield* endOfTask(task);
            }
        }
        const actors = Array.from({length: consumers}, (_, c) => consumer(c));
        if (!own) actors.push(producer());
        return {actors, loads, requests, softmax, softmaxDone, came, events, loader, program, asks, freed};
    }

    /// The hardware, clock by clock. The tensor cores and the special function units work for one consumer in a clock: those
    /// that took turns stand in line, without turns each has every other clock.
    function simulate(plan) {
        let now = 0, lastProduct = -1, lastSoftmax = -1;
        const run = actorsOf(plan, () => now), {loads, requests, softmax, softmaxDone, came} = run, n = plan.consumers;
        const waiting = run.actors.map((actor) => ({actor, condition: () => true}));
        const products = [], busy = {tensor: 0, softmax: 0};
        const next = (last, has) => Array.from({length: n}, (_, k) => (last + 1 + k + n) % n).find(has);
        while (waiting.length) {
            for (let progress = true; progress;) {
                progress = false;
                for (const one of [...waiting])
                    if (one.condition()) {
                        const {value, done} = one.actor.next();
                        progress = true, one.condition = value;
                        if (done) waiting.splice(waiting.indexOf(one), 1);
                    }
            }
            if (!waiting.length) break;
            const of = (c) => requests.find(({consumer}) => consumer === c);
            const served = plan.turns ? requests[0] : of(next(lastProduct, of)), weighing = next(lastSoftmax, (c) => softmax[c] > 0);
            if (!served && weighing === undefined && !loads.length) throw new Error("nobody can go on");
            ++now;
            if (served) {
                lastProduct = served.consumer, ++busy.tensor;
                served.first ??= now - 1;
                if (--served.left === 0) {
                    served.end = now, requests.splice(requests.indexOf(served), 1);
                    products.push([served.consumer, served.kind, served.step, served.first, now]);
                }
            }
            if (weighing !== undefined) {
                lastSoftmax = weighing, ++busy.softmax;
                if (--softmax[weighing] === 0) ++softmaxDone[weighing];
            }
            while (loads.length && loads[0].at <= now) ++came[loads.shift().what];
        }
        return {consumers: run.events, loader: run.loader, products, program: run.program, asks: run.asks, freed: run.freed, clocks: now, busy};
    }

    // ---- what bounds it

    const names = {loads: "loads", tensor: "the tensor cores", exponentials: "exponentials"};
    /// Of a step of all consumers, the unit that is busy for longest.
    function boundOf({consumers, S, softmax, PV, pace}) {
        const clocks = {loads: 2 * pace, tensor: consumers * (S + PV), exponentials: consumers * softmax};
        return Object.entries(clocks).reduce((most, [unit, n]) => n > most.clocks ? {unit, clocks: n} : most, {unit: "loads", clocks: -1});
    }
    /// Clocks a step, from the middle of all steps to the last one: the end of consumer 0's softmax.
    function steadyOf({consumers}) {
        const ends = consumers[0].filter(([what]) => what === "softmax").map((event) => event[3]), middle = Math.floor(ends.length / 2);
        return ends.length < 2 ? null : (ends.at(-1) - ends[middle - 1]) / (ends.length - middle);
    }

    /// Rungs as they are: consumers, rows of each, keys of a tile, stages. Rates of a multiprocessor of an H100: operations of
    /// wgmma a clock, of mma, exponentials, bytes from L2.
    const rungs = {
        "07": {64: [1, 128, 64, 2], 128: [1, 128, 64, 2]}, "10": {64: [2, 64, 64, 2], 128: [3, 64, 128, 2]},
        "12": {64: [3, 64, 128, 4], 128: [2, 64, 128, 2]},
    };
    const rates = {wgmma: 4096, mma: 4096 * 2 / 3, exponentials: 16, bytes: 5120 / 132};
    function ratesOf(rung, d) {
        const [, rows, keys] = rungs[rung][d], by = rung === "07" ? rates.mma : rates.wgmma;
        const sums = rung === "07" ? 8 : 0;  // columns of a product that adds up P: tile/online_softmax.h
        return {S: 2 * rows * keys * d / by, PV: 2 * rows * keys * (d + sums) / by,
                softmax: rows * (keys + 4) / rates.exponentials,  // and of each row a factor in each of four lanes
                pace: keys * d * 2 / rates.bytes};
    }

    function answer(query) {
        if (query.kind === "bound") return boundOf(query);
        if (query.kind === "rates") {
            const {S, PV, softmax, pace} = ratesOf(query.rung, query.d);
            return {products: S + PV, softmax, pace};
        }
        const run = simulate({latency: 1, pace: 0, S: 1, softmax: 1, PV: 1, persistent: true, ...query});
        if (query.kind === "program") {
            const named = (word) => query.waits !== false || !word.startsWith("wait");
            return {consumers: run.program.map((words) => words.filter(named)), loader: run.asks};
        }
        const {consumers, loader, products} = run;
        return {consumers, loader, products, steady: steadyOf(run)};
    }
    window.see.pipeline = {answer, simulate};
})();
