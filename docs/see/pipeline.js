// A pipeline of loads, products and softmax: who waits for what, and what bounds it. tests/see/pipeline.cpp runs the same on the
// emulator, with the project's rings and turns, and asks it the same as `answer` here.
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

    // ---- what is shown

    const as = [["07", "07: the warps load for themselves"], ["10", "10: producer and consumers, a block for each task"],
                ["11", "11: the same, blocks stay for all tasks"], ["12", "12: S and P V of the block before together"]];
    const latency = 600;  // lesson 07's example
    /// A rung as it is, in whole clocks.
    function rung(name, d, more = {}) {
        const [consumers, , , stages] = rungs[name === "11" ? "10" : name][d], clocks = ratesOf(name === "11" ? "10" : name, d);
        const whole = Object.fromEntries(Object.entries(clocks).map(([key, n]) => [key, Math.round(n)]));
        return {as: name, consumers, stages, turns: 0, within: 0, tasks: name === "10" || name === "11" ? 2 : 1, steps: 8, latency, ...whole, ...more};
    }
    const presets = {
        "07-1-stage": ["rung 07, d = 64, one stage", rung("07", 64, {stages: 1})], "07-2-stages": ["rung 07, d = 64", rung("07", 64)],
        "10-1-stage": ["rung 10, d = 128, one stage", rung("10", 128, {stages: 1})], "10-2-stages": ["rung 10, d = 128", rung("10", 128)],
        "11-stays": ["rung 11, d = 128", rung("11", 128)],
        "12-none": ["rung 12, d = 128, no overlap", rung("12", 128)], "12-turns": ["rung 12, d = 128, turns", rung("12", 128, {turns: 1})],
        "12-within": ["rung 12, d = 128, within a warpgroup", rung("12", 128, {within: 1})],
        "12-both": ["rung 12, d = 128, both", rung("12", 128, {turns: 1, within: 1})],
        "12-both-64": ["rung 12, d = 64, both", rung("12", 64, {turns: 1, within: 1})],
        "one-consumer": ["one consumer, d = 128", rung("12", 128, {consumers: 1, within: 1, stages: 4})],
    };
    const numbers = {consumers: [1, 3], stages: [1, 6], tasks: [1, 4], steps: [1, 16], latency: [1, 5000], pace: [0, 5000],
                     S: [1, 5000], softmax: [1, 5000], PV: [1, 5000], zoom: [1, 8]};

    /// What is asked, in what goes together; `wrong` says in words what cannot be.
    function resolve(state) {
        const asked = {...presets["12-both"][1], zoom: 1, ...presets[state.preset]?.[1], ...state};
        for (const [name, [low, high]] of Object.entries(numbers))
            if (!Number.isInteger(asked[name]) || asked[name] < low || asked[name] > high)
                return {...asked, wrong: `${name} is a whole number from ${low} to ${high}.`};
        if (asked.as === "07") asked.consumers = 1;
        const isOverlapped = asked.as === "12";
        asked.turns = isOverlapped && asked.consumers > 1 ? Number(Boolean(asked.turns)) : 0;
        asked.within = isOverlapped ? Number(Boolean(asked.within)) : 0;
        return asked;
    }
    const planOf = (asked) => ({...asked, as: asked.as === "11" ? "10" : asked.as, turns: Boolean(asked.turns),
        within: Boolean(asked.within), persistent: asked.as === "11" || asked.as === "12"});

    const large = (n) => n.toLocaleString("en-US", {maximumFractionDigits: 0}), percent = (x) => `${Math.round(100 * x)}%`;

    /// For what consumer 0 waits in a step, on average of those behind the middle.
    function waitsOf(run) {
        const ends = run.consumers[0].filter(([what]) => what === "softmax").map((event) => event[3]), middle = Math.floor(ends.length / 2);
        const [from, to, n] = [ends[middle - 1], ends.at(-1), ends.length - middle], sums = {tiles: 0, turn: 0, products: 0};
        const kind = {"wait K": "tiles", "wait V": "tiles", turn: "turn", S: "products", PV: "products"};
        for (const [what, , begin, end] of run.consumers[0])
            if (kind[what]) sums[kind[what]] += Math.max(0, Math.min(end, to) - Math.max(begin, from)) / n;
        return sums;
    }
    /// One thing changed: what makes a step shorter.
    function betterThan(asked, steady) {
        const tries = [["a stage more", {stages: asked.stages + 1}, asked.stages < 6]];
        if (asked.as === "12") tries.push(["turns", {turns: 1}, !asked.turns && asked.consumers > 1], ["the softmax under P V", {within: 1}, !asked.within]);
        return tries.filter(([, , possible]) => possible).map(([name, change]) => [name, steadyOf(simulate(planOf({...asked, ...change})))])
            .filter(([, clocks]) => clocks < 0.99 * steady);
    }
    function verdictOf(asked, run) {
        const bound = boundOf(asked), steady = steadyOf(run);
        if (steady === null) return ["One step has no steady state: choose more steps.", ""];
        const share = bound.clocks / steady, clocks = `${large(steady)} clocks a step.`, waits = waitsOf(run), unit = names[bound.unit];
        const name = unit[0].toUpperCase() + unit.slice(1), busy = `${percent(Math.min(share, 1))} of the time`;
        const all = `In a step ${asked.as === "07" ? "a warp" : "consumer 0"} waits ${large(waits.tiles)} clocks for tiles, ${large(waits.turn)} for its turn, ` +
            `${large(waits.products)} for its products, and is at its softmax for ${large(steady - waits.tiles - waits.turn - waits.products)}.`;
        if (share > 0.97) return [`${clocks} ${name} bound it: busy ${busy}.`, all];
        const better = betterThan(asked, steady).map(([what, n]) => `with ${what} ${large(n)}`);
        const advice = better.length ? ` It would be ${better.join(", ")}.` : "";
        const said = `Busiest are ${unit}: ${large(bound.clocks)} clocks of each step. ${all}${advice}`;
        return [share > 0.85 ? `${clocks} ${name} nearly bound it: busy ${busy}. The rest is waits.`
            : `${clocks} Waits bound it: ${unit} are busiest, and that only ${busy}.`, said];
    }

    // ---- drawn

    const root = document.getElementById("see-pipeline");
    if (!root) return;

    const {element, drawing, labelled, region, cells} = window.see.made;
    const options = (of) => of.map(([value, name]) => element("option", {value, textContent: name}));
    const select = (of) => element("select", {}, ...options(of));
    const number = (name) => element("input", {type: "number", min: numbers[name][0], max: numbers[name][1], step: 1});

    const preset = select([["", "own choice"], ...Object.entries(presets).map(([key, [name]]) => [key, name])]);
    const yesNo = [[0, "no"], [1, "yes"]];
    const controls = {as: select(as), consumers: number("consumers"), stages: number("stages"), turns: select(yesNo), within: select(yesNo),
                      tasks: number("tasks"), steps: number("steps"), latency: number("latency"), pace: number("pace"), S: number("S"),
                      softmax: number("softmax"), PV: number("PV"), zoom: select([[1, "no"], [2, "2 times"], [4, "4 times"], [8, "8 times"]])};
    const fieldset = (name, ...inside) => element("fieldset", {className: "see-controls"}, element("legend", {textContent: name}), ...inside);
    const verdict = element("p", {className: "see-verdict"}), said = element("p"), answered = element("div", {}, verdict, said);
    const chart = region("The timeline. Left and right arrow keys choose what came before or after in a row, up and down another row.");
    const detail = element("p", {className: "see-detail"}), table = element("tbody");
    answered.setAttribute("aria-live", "polite"), detail.setAttribute("aria-live", "polite");
    const body = element("div", {},
        element("p", {className: "see-controls"}, labelled("stretch it", controls.zoom)), chart,
        element("p", {className: "see-key", textContent: "Slots: a dashed bar is a tile on its way, a full one is there and not given back. Tensor cores: whose product. Consumers: full bars compute, S and P V by the tensor cores, x the softmax; hatched ones wait: K, V for a tile, t for a turn."}),
        detail,
        element("details", {}, element("summary", {textContent: "Who waits for how long"}),
            region("Clocks that each waits", element("table", {className: "see-values"},
                element("caption", {textContent: "Clocks from the first load to the last product"}),
                element("thead", {}, element("tr", {}, ...cells("th", ["who", "K", "V", "turn", "S, P V", "softmax", "free slot"], "col"))), table))));
    root.replaceChildren(
        element("div", {className: "see-controls"}, labelled("Begin with", preset)),
        element("div", {className: "see-groups"},
            fieldset("Who does what", labelled("steps as in rung", controls.as), labelled("consumers", controls.consumers), labelled("stages", controls.stages),
                labelled("turns", controls.turns), labelled("softmax under P V", controls.within), labelled("tasks", controls.tasks), labelled("steps of a task", controls.steps)),
            fieldset("Clocks", labelled("load: until it comes", controls.latency), labelled("load: keeps the way busy", controls.pace),
                labelled("S of a consumer", controls.S), labelled("softmax", controls.softmax), labelled("P V", controls.PV))),
        answered, body);

    let chosen = {}, asked = {}, rows = [], at = {row: 0, bar: 0};

    /// Rows of bars: {name, bars: [{from, to, kind, label, words}]}.
    function rowsOf(plan, run) {
        const all = [], tile = (what, step) => `${what}${step}`;
        for (const what of ["K", "V"])
            for (let slot = 0; slot < plan.stages; ++slot) {
                const bars = [];
                for (const [name, step, askedAt, came] of run.loader) {
                    if (name !== what || step % plan.stages !== slot) continue;
                    bars.push({from: askedAt, to: came, kind: "coming", label: tile(what, step), words: `${tile(what, step)} is on its way to slot ${slot} of ${what}`});
                    bars.push({from: came, to: run.freed[what][step], kind: "there", label: tile(what, step), words: `${tile(what, step)} is in slot ${slot} of ${what}, until all have read it`});
                }
                all.push({name: `${what} slot ${slot}`, bars});
            }
        all.push({name: "tensor cores", bars: run.products.map(([consumer, kind, step, from, to]) => ({from, to, consumer,
            kind: plan.turns || plan.consumers === 1 ? "product" : "shared", label: `${kind === "S" ? "S" : "O"}${plan.consumers > 1 ? `.${consumer}` : ""}`,
            words: `the tensor cores have ${kind === "S" ? "S" : "P V"} of consumer ${consumer}, block of keys ${step}` +
                (plan.turns || plan.consumers === 1 ? "" : ", among others")}))});
        run.consumers.forEach((events, c) => {
            const who = plan.as === "07" ? "the warps" : `consumer ${c}`, kinds = {"wait K": "wait", "wait V": "wait", turn: "wait", S: "compute", PV: "compute", softmax: "softmax"};
            const labels = {"wait K": "K", "wait V": "V", turn: "t", softmax: "x", S: "S", PV: "P V"};
            const phrase = {"wait K": (s) => `${who} waits for K${s}`, "wait V": (s) => `${who} waits for V${s}`, turn: () => `${who} waits for its turn`,
                            S: (s) => `${who} waits for its product S of block ${s}${plan.as === "12" && !plan.within && s % plan.steps ? `, and P V of block ${s - 1}` : ""}`,
                            PV: (s) => `${who} waits for its product P V of block ${s}`, softmax: (s) => `${who} is at the softmax of block ${s}`};
            all.push({name: who, bars: events.filter(([, , from, to]) => to > from).map(([what, step, from, to]) =>
                ({from, to, kind: kinds[what], label: labels[what], words: phrase[what](step)}))});
        });
        const slots = run.loader.filter(([what, , from, to]) => what.startsWith("slot") && to > from);
        if (plan.as !== "07") all.push({name: "producer", bars: slots.map(([what, step, from, to]) => ({from, to, kind: "wait", label: what.slice(5),
            words: `the producer waits for a free slot, for ${tile(what.slice(5), step)}`}))});
        return all;
    }

    function drawChart(run) {
        const left = 92, rowHeight = 20, wide = Math.max(chart.clientWidth || 600, 560) * asked.zoom, scale = (wide - left - 8) / run.clocks;
        const shapes = [], put = (tag, attributes, content) => {
            const made = drawing(tag, attributes, ...(content === undefined ? [] : [String(content)]));
            shapes.push(made);
            return made;
        };
        const height = rows.length * rowHeight + 24;
        const tick = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000].find((n) => n * scale >= 70) ?? 100000;
        for (let clock = 0; clock <= run.clocks; clock += tick) {
            put("line", {x1: left + clock * scale, x2: left + clock * scale, y1: 0, y2: height - 18, class: "see-tick"});
            if (left + clock * scale < wide - 20) put("text", {x: left + clock * scale, y: height - 6, class: "see-axis"}, large(clock));
        }
        rows.forEach(({name, bars}, r) => {
            put("text", {x: left - 6, y: r * rowHeight + 14, class: "see-row-name"}, name);
            bars.forEach((bar, b) => {
                const x = left + bar.from * scale, width = Math.max((bar.to - bar.from) * scale, 0.5), middle = r * rowHeight + rowHeight / 2;
                // Those that share the tensor cores overlap in time: each has a part of the row.
                const part = bar.kind === "shared" ? (rowHeight - 4) / asked.consumers : rowHeight - 4;
                const y = r * rowHeight + 2 + (bar.kind === "shared" ? bar.consumer * part : 0);
                bar.shape = put("rect", {x, y, width, height: part, class: `see-bar see-${bar.kind} see-of-${bar.consumer ?? 0}`, "data-row": r, "data-bar": b});
                bar.shape.append(drawing("title", {}, `${bar.words}: ${large(bar.from)} to ${large(bar.to)}`));
                if (width > 7 * bar.label.length + 4 && bar.kind !== "shared") put("text", {x: x + width / 2, y: middle + 4, class: "see-bar-text"}, bar.label);
            });
        });
        const pattern = drawing("pattern", {id: "see-hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"},
            drawing("rect", {width: 6, height: 6, class: "see-hatched-ground"}), drawing("line", {x1: 0, y1: 0, x2: 0, y2: 6, class: "see-hatched-line"}));
        chart.replaceChildren(drawing("svg", {viewBox: `0 0 ${wide} ${height}`, width: wide, height, role: "img", class: "see-chart",
            "aria-label": `A timeline of ${large(run.clocks)} clocks: ${rows.map(({name}) => name).join(", ")}`}, drawing("defs", {}, pattern), ...shapes));
    }

    function choose(row, bar, scroll) {
        const bars = rows[row]?.bars ?? [];
        if (!bars.length) return;
        rows[at.row]?.bars[at.bar]?.shape?.classList.remove("see-chosen");
        at = {row, bar: Math.min(Math.max(bar, 0), bars.length - 1)};
        const {words, from, to, shape} = bars[at.bar];
        shape.classList.add("see-chosen");
        const text = `${words[0].toUpperCase()}${words.slice(1)}: clocks ${large(from)} to ${large(to)}, ${large(to - from)} in all.`;
        if (detail.textContent !== text) detail.textContent = text;
        if (!scroll) return;
        const x = Number(shape.getAttribute("x")), width = Number(shape.getAttribute("width"));
        if (x < chart.scrollLeft || x + width > chart.scrollLeft + chart.clientWidth) chart.scrollLeft = x + width / 2 - chart.clientWidth / 2;
    }
    /// The bar of a row that is there at this clock, or the next one.
    const nearest = (row, clock) => Math.max(0, rows[row].bars.findIndex(({to}) => to > clock));

    function drawTable(run) {
        const sum = (events, ...what) => large(events.filter(([name]) => what.includes(name)).reduce((all, [, , from, to]) => all + to - from, 0));
        table.replaceChildren(...run.consumers.map((events, c) => element("tr", {}, element("th", {scope: "row", textContent: asked.as === "07" ? "the warps" : `consumer ${c}`}),
            ...cells("td", [sum(events, "wait K"), sum(events, "wait V"), sum(events, "turn"), sum(events, "S", "PV"), sum(events, "softmax"), ""]))));
        if (asked.as !== "07") table.append(element("tr", {}, element("th", {scope: "row", textContent: "producer"}),
            ...cells("td", ["", "", "", "", "", sum(run.loader, "slot K", "slot V")])));
    }

    function draw() {
        asked = resolve(chosen);
        for (const [name, control] of Object.entries(controls))
            if (document.activeElement !== control || control.tagName === "SELECT") control.value = asked[name];
        controls.consumers.disabled = asked.as === "07";
        controls.turns.disabled = asked.as !== "12" || asked.consumers < 2, controls.within.disabled = asked.as !== "12";
        preset.value = chosen.preset ?? "";
        answered.classList.toggle("see-refused", Boolean(asked.wrong));
        body.hidden = Boolean(asked.wrong);
        if (asked.wrong) {
            verdict.textContent = asked.wrong, said.textContent = "";
            return;
        }
        const plan = planOf(asked), run = simulate(plan);
        [verdict.textContent, said.textContent] = verdictOf(asked, run);
        rows = rowsOf(plan, run);
        drawChart(run), drawTable(run);
        at = {row: 0, bar: 0};
        const first = rows.findIndex(({name}) => name === "consumer 0" || name === "the warps");
        choose(first, 0, false);
    }

    const kept = ["preset", "as", "turns", "within", ...Object.keys(numbers)];
    function write() {
        history.replaceState(null, "", `#${new URLSearchParams(Object.entries(chosen).filter(([name, value]) =>
            (presets[chosen.preset]?.[1] ?? {zoom: 1})[name] !== value && !(name === "zoom" && value === 1)))}`);
    }
    function read() {
        const given = window.see.made.asked();
        chosen = {};
        for (const [name, value] of Object.entries(given)) if (kept.includes(name)) chosen[name] = ["preset", "as"].includes(name) ? value : Number(value);
        if (!presets[chosen.preset]) delete chosen.preset;
        if (!as.some(([name]) => name === chosen.as)) delete chosen.as;
        if (!Object.keys(chosen).length) chosen = {preset: "12-both"};
        if (chosen.preset) chosen = {...presets[chosen.preset][1], ...chosen};
        draw();
    }

    preset.addEventListener("change", () => {
        if (!preset.value) return;
        chosen = {preset: preset.value, ...presets[preset.value][1], zoom: asked.zoom};
        write(), draw();
    });
    for (const [name, control] of Object.entries(controls))
        control.addEventListener(control.tagName === "SELECT" ? "change" : "input", () => {
            chosen = {...asked, ...chosen, [name]: name === "as" ? control.value : Number(control.value)};
            delete chosen.wrong;
            if (name !== "zoom") delete chosen.preset;
            write(), draw();
        });
    chart.addEventListener("mouseover", ({target}) => {
        if (target.dataset?.row) choose(Number(target.dataset.row), Number(target.dataset.bar), false);
    });
    chart.addEventListener("click", ({target}) => {
        if (target.dataset?.row) choose(Number(target.dataset.row), Number(target.dataset.bar), false);
    });
    chart.addEventListener("keydown", (event) => {
        const along = {ArrowRight: 1, ArrowLeft: -1}[event.key], across = {ArrowDown: 1, ArrowUp: -1}[event.key];
        if (event.key === "Home") choose(at.row, 0, true);
        else if (event.key === "End") choose(at.row, Infinity, true);
        else if (along) choose(at.row, at.bar + along, true);
        else if (across) {
            let row = at.row + across;
            while (rows[row] && !rows[row].bars.length) row += across;
            if (rows[row]) choose(row, nearest(row, rows[at.row].bars[at.bar].from), true);
        } else return;
        event.preventDefault();
    });
    addEventListener("hashchange", read);
    addEventListener("resize", () => asked.wrong || draw());
    read();
})();
