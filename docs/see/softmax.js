// Online softmax and the tiles of S: which tiles an order visits, what a row of queries knows after each, and what has moved.
// tests/see/softmax.cpp asks the kernels and the reference the same as `answer` here.
(() => {
    const orders = {
        "01": "01: keys outside, O written back each time",
        "02": "02: the same, in shared memory",
        "03": "03: queries outside, O stays on the chip",
    };
    const swapped = (asked) => asked.order === "03";
    const blocks = (n, block) => Math.ceil(n / block);
    const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

    /// Keys that a query sees: all, or, causal, up to its own, and the last query sees the last key.
    const seen = ({N_q, N_k, causal}, query) => causal ? clamp(query + 1 + N_k - N_q, 0, N_k) : N_k;
    /// Rows of a block: the last one may have fewer.
    const rowsOf = ({N_q, B_r}, i) => Math.min(B_r, N_q - i * B_r);
    const keysOf = ({N_k, B_c}, j) => Math.min(B_c, N_k - j * B_c);
    /// Tiles of block i that are visited: from key 0 on, up to the last one that its last query sees.
    const tilesOf = (asked, i) => blocks(seen(asked, i * asked.B_r + rowsOf(asked, i) - 1), asked.B_c);
    /// Whether some key of the tile is hidden from some query: the first one sees least.
    const isMasked = (asked, i, j) => asked.order !== "01" && seen(asked, i * asked.B_r) < (j + 1) * asked.B_c;

    /// All that is done, in order: tiles, before them what line 2 of Algorithm 1 writes, behind a block what leaves the chip.
    function stepsOf(asked) {
        const T_r = blocks(asked.N_q, asked.B_r), T_c = blocks(asked.N_k, asked.B_c), steps = [];
        const tile = (i, j) => steps.push({what: "tile", i, j, masked: isMasked(asked, i, j)});
        if (swapped(asked))
            for (let i = 0; i < T_r; ++i) {
                for (let j = 0; j < tilesOf(asked, i); ++j) tile(i, j);
                steps.push({what: "end", i, outer: i});
            }
        else {
            if (asked.order === "01") steps.push({what: "begin"});
            for (let j = 0; j < T_c; ++j)
                for (let i = 0; i < T_r; ++i) tile(i, j);
        }
        for (const step of steps) step.outer = swapped(asked) ? step.i : step.j ?? 0;
        return steps;
    }

    const tensors = ["Q", "K", "V", "O", "l and m", "LSE"];
    const nothing = () => Object.fromEntries(tensors.map((name) => [name, {read: 0, written: 0}]));

    /// What a step reads and writes of device memory, in bytes.
    function bytesOf(asked, step) {
        const moved = nothing(), {order, d, bytes, LSE, N_q} = asked, {what, i, j} = step;
        const rows = what === "begin" ? N_q : rowsOf(asked, i);
        const row = d * bytes, read = (name, n) => moved[name].read += n, write = (name, n) => moved[name].written += n;
        if (what === "begin" || (what === "tile" && !swapped(asked))) write("O", rows * row), write("l and m", rows * 8);
        if (what === "tile") {
            if (swapped(asked) ? j === 0 : true) read("Q", rows * row);
            if (swapped(asked) || i === 0) read("K", keysOf(asked, j) * row), read("V", keysOf(asked, j) * row);
            // Rung 02 knows that nothing is there before the first block of keys.
            if (order === "01" || (order === "02" && j > 0)) read("O", rows * row), read("l and m", rows * 8);
        }
        if (what === "end") {
            if (tilesOf(asked, i) === 0) read("Q", rows * row);
            write("O", rows * row);
            if (LSE) write("LSE", rows * 4);
        }
        return moved;
    }
    function sumOfBytes(asked, steps) {
        const sum = nothing();
        for (const step of steps)
            for (const [name, {read, written}] of Object.entries(bytesOf(asked, step)))
                sum[name].read += read, sum[name].written += written;
        return {...sum, all: tensors.reduce((all, name) => all + sum[name].read + sum[name].written, 0)};
    }

    /// A row before any key: m is null where it is -infinity.
    const unknown = (values) => ({m: null, l: 0, O: values[0].map(() => 0)});

    /// Takes up the keys of tile j: m, l, and O, which orders 01 and 02 keep divided by l.
    function takeUp(asked, before, j) {
        const {order, B_c, row, scores, values} = asked, keys = [];
        for (let key = j * B_c; key < Math.min((j + 1) * B_c, seen(asked, row)); ++key) keys.push(key);
        const m_ij = keys.length ? Math.max(...keys.map((key) => scores[key])) : null;
        const m = m_ij === null ? before.m : before.m === null ? m_ij : Math.max(before.m, m_ij);
        const factorTo = (from) => from === null || m === null ? 0 : Math.exp(from - m);
        const rescale = factorTo(before.m);
        // P is relative to m_ij in rung 01, which then moves it to m; relative to m in the others.
        const reference = order === "01" ? m_ij : m, now = order === "01" ? factorTo(m_ij) : 1;
        const P = keys.map((key) => Math.exp(scores[key] - reference)), l_ij = P.reduce((a, b) => a + b, 0);
        const PV = values[0].map((_, x) => keys.reduce((sum, key, c) => sum + P[c] * values[key][x], 0));
        const l = rescale * before.l + now * l_ij;
        const O = PV.map((pv, x) => swapped(asked) ? rescale * before.O[x] + pv
            : (before.l * rescale * before.O[x] + now * pv) / l);
        return {j, m, l, O, m_ij, l_ij, P, PV, rescale, now, keys};
    }
    /// The states of a row behind each tile of its block, and what leaves the chip in the end.
    function statesOf(asked) {
        const i = Math.floor(asked.row / asked.B_r), states = [];
        const T = swapped(asked) ? tilesOf(asked, i) : blocks(asked.N_k, asked.B_c);
        for (let j = 0; j < T; ++j) states.push(takeUp(asked, states.at(-1) ?? unknown(asked.values), j));
        const last = states.at(-1) ?? unknown(asked.values);
        const end = swapped(asked) ? {O: last.O.map((o) => last.l === 0 ? 0 : o / last.l),
                                      LSE: last.l === 0 ? null : last.m + Math.log(last.l)} : null;
        return {states, end};
    }

    function answer(query) {
        if (query.kind === "tiles") {
            const tiles = stepsOf(query).filter(({what}) => what === "tile"), masked = tiles.filter((tile) => tile.masked).length;
            return {steps: tiles.map(({i, j, masked}) => [i, j, masked]), whole: tiles.length - masked, masked,
                    skipped: blocks(query.N_q, query.B_r) * blocks(query.N_k, query.B_c) - tiles.length};
        }
        if (query.kind === "bytes")
            return sumOfBytes(query, stepsOf(query).filter(({outer}) => outer < (query.outer ?? Infinity)));
        const {states, end} = statesOf(query);
        return {steps: states.map(({j, m, l, O}) => ({j, m, l, O})), end};
    }
    window.see.softmax = {answer};

    // ---- what is shown

    const presets = {
        "example": ["the example of lesson 01", {order: "01", N_q: 1, N_k: 4, B_r: 1, B_c: 2, d: 32, scores: "1 3 2 5", values: "10 20 30 40"}],
        "small-01": ["small, keys outside", {order: "01", N_q: 12, N_k: 16, B_r: 4, B_c: 4, d: 64, row: 5}],
        "small-03": ["small, queries outside", {order: "03", N_q: 12, N_k: 16, B_r: 4, B_c: 4, d: 64, row: 5}],
        "causal": ["small, causal, more keys than queries", {order: "03", causal: 1, N_q: 12, N_k: 16, B_r: 4, B_c: 4, d: 64, row: 5}],
        "unseeing": ["small, causal, more queries than keys", {order: "03", causal: 1, N_q: 18, N_k: 10, B_r: 4, B_c: 4, d: 64, row: 9}],
        "01": ["rung 01, N = 256", {order: "01", N_q: 256, N_k: 256, B_r: 32, B_c: 32, d: 64, row: 40}],
        "02": ["rung 02, N = 512, d = 64", {order: "02", N_q: 512, N_k: 512, B_r: 64, B_c: 256, d: 64, row: 70}],
        "03": ["rung 03, N = 512, d = 64", {order: "03", N_q: 512, N_k: 512, B_r: 64, B_c: 64, d: 64, row: 70}],
        "03-causal": ["rung 03, causal, N = 512, d = 128", {order: "03", causal: 1, N_q: 512, N_k: 512, B_r: 64, B_c: 32, d: 128, row: 70}],
    };
    const numbers = {N_q: [1, 4096], N_k: [1, 4096], B_r: [1, 512], B_c: [1, 512], d: [1, 512], row: [0, 4095], step: [-1, 1100]};
    const mostTiles = 32;  // a side

    /// Scores and values that are the same each time: a row's, and how they vary is drawn from the row's and the key's number.
    function noise(a, b) {
        let h = Math.imul(a + 1, 0x9E3779B1) ^ Math.imul(b + 1, 0x85EBCA77);
        h = Math.imul(h ^ h >>> 15, 0x2C1B3C6D), h = Math.imul(h ^ h >>> 12, 0x297A2D39);
        return ((h ^ h >>> 15) >>> 0) / 2 ** 32;
    }
    const drawnScore = (row, key) => Math.round(100 * (8 * (noise(row, 3 * key) + noise(row, 3 * key + 1) - 1) + 2)) / 100;
    const drawnValue = (key, x) => Math.round(100 * noise(10007 + x, key));
    const parse = (text) => text.trim().split(/[\s,;]+/).filter(Boolean).map(Number);

    /// What is asked, with everything that was left out; `wrong` says in words what cannot be.
    function resolve(state) {
        const asked = {order: "01", causal: 0, row: 0, step: -1, scores: "", values: "", ...presets[state.preset]?.[1], ...state};
        for (const [name, [low, high]] of Object.entries(numbers))
            if (!Number.isInteger(asked[name]) || asked[name] < low || asked[name] > high)
                return {...asked, wrong: `${name} is a whole number from ${low} to ${high}.`};
        asked.causal = Boolean(asked.causal) && swapped(asked);
        asked.row = Math.min(asked.row, asked.N_q - 1);
        asked.bytes = 4, asked.LSE = swapped(asked);
        for (const [n, block, what] of [["N_q", "B_r", "queries"], ["N_k", "B_c", "keys"]])
            if (blocks(asked[n], asked[block]) > mostTiles)
                return {...asked, wrong: `${blocks(asked[n], asked[block])} blocks of ${what}: at most ${mostTiles} are drawn. Choose a larger ${block}.`};
        const scores = parse(asked.scores), values = parse(asked.values);
        if ([...scores, ...values].some((x) => !Number.isFinite(x))) return {...asked, wrong: "Scores and values are numbers with blanks between them."};
        return {...asked, given: {scores, values}};
    }
    /// The row that is looked at, as `answer` wants it.
    function rowOf(asked) {
        const {scores, values} = asked.given, keys = Array.from({length: asked.N_k}, (_, key) => key);
        return {...asked, scores: keys.map((key) => scores[key] ?? drawnScore(asked.row, key)),
                values: keys.map((key) => values.length ? [values[key] ?? 0] : [drawnValue(key, 0), drawnValue(key, 1)])};
    }

    const infinity = "\u2212\u221e", minus = (text) => text.replaceAll("-", "\u2212");
    function shown(x) {
        if (x === null) return infinity;
        if (x === 0 || (Math.abs(x) >= 1e-4 && Math.abs(x) < 1e5)) return minus(String(Number(x.toPrecision(5))));
        return minus(x.toExponential(2));
    }
    const large = (n) => n.toLocaleString("en-US");
    const span = (first, n, what) => n === 1 ? `${what.slice(0, -1).replace(/ie$/, "y")} ${first}` : `${what} ${first} to ${first + n - 1}`;

    function wordsOf(asked, steps, k) {
        const step = steps[k], at = `Step ${k + 1} of ${steps.length}`;
        if (step.what === "begin") return `${at}: line 2 writes O = 0, l = 0, m = ${infinity} of all rows to device memory.`;
        const rows = span(step.i * asked.B_r, rowsOf(asked, step.i), "queries");
        if (step.what === "end") {
            const none = tilesOf(asked, step.i) === 0 ? " It has visited no tile, as its queries see no key." : "";
            return `${at}: block ${step.i} ends, ${rows}.${none} O is divided by l, and written with LSE = m + log l.`;
        }
        const {i, j, masked} = step, keys = span(j * asked.B_c, keysOf(asked, j), "keys");
        const kind = !masked ? asked.causal ? ", before the diagonal: every key is seen, no mask" : ""
            : asked.causal && seen(asked, i * asked.B_r) < Math.min((j + 1) * asked.B_c, asked.N_k)
            ? ", crossed by the diagonal: masked" : `, with room for ${asked.B_c} keys: masked at its end`;
        const loads = swapped(asked) ? `${j === 0 ? `Q_${i}, ` : ""}K_${j} and V_${j} are loaded; O, m and l stay on the chip.`
            : `${i === 0 ? `K_${j} and V_${j} are loaded, then ` : ""}Q_${i}${asked.order === "02" && j === 0 ? "" : " and the rows' O, m, l"}` +
              `${i === 0 ? "" : asked.order === "02" && j === 0 ? " is loaded" : " are loaded"}; O, m, l are written back.`;
        return `${at}: tile i = ${i}, j = ${j}: ${rows}, ${keys}${kind}. ${loads}`;
    }

    // ---- drawn

    const root = document.getElementById("see-softmax");
    if (!root) return;

    const {element, drawing, labelled, region, cells} = window.see.made;
    const options = (of) => Object.entries(of).map(([value, name]) => element("option", {value, textContent: name}));
    const select = (of) => element("select", {}, ...options(of));
    const number = (name) => element("input", {type: "number", min: numbers[name][0], max: numbers[name][1], step: 1});
    const text = () => element("input", {type: "text", size: 18, spellcheck: false, autocomplete: "off"});
    const button = (name, label) => element("button", {type: "button", textContent: name, ariaLabel: label});

    const preset = select({"": "own choice", ...Object.fromEntries(Object.entries(presets).map(([key, [name]]) => [key, name]))});
    const controls = {order: select(orders), N_q: number("N_q"), N_k: number("N_k"), B_r: number("B_r"), B_c: number("B_c"), d: number("d"),
                      causal: select({0: "no", 1: "yes"}), row: number("row"), scores: text(), values: text()};
    const moves = {
        first: button("first", "to the first step"), back: button("\u25c0 back", "a step back"), on: button("step \u25b6", "a step on"),
        last: button("last", "to the last step"), next: button("to the row's next tile", "to the next tile of the chosen row"),
    };
    const slider = element("input", {type: "range", min: 0, step: 1});
    const verdict = element("p", {className: "see-verdict"}), said = element("p");
    const words = element("div", {className: "see-steady"}, verdict, said);
    words.setAttribute("aria-live", "polite");
    const grid = region("The tiles of S. Arrow keys go a step on or back, Home and End to the ends.");
    const rowTitle = element("p", {className: "see-row-title"}), state = element("tbody"), factors = element("p", {className: "see-detail"});
    const tileTable = element("table", {className: "see-values"}), moved = element("tbody");
    const heads = element("tr"), tileRegion = region("Scores of the chosen row in this tile", tileTable);
    tileRegion.classList.add("see-tile-scores");
    const walk = element("div", {className: "see-controls see-walk"}, moves.first, moves.back, moves.on, moves.last, moves.next, labelled("step", slider));
    const body = element("div", {},
        grid,
        element("p", {className: "see-key", textContent: "Numbers: the order. Shaded: done. Thick frame: now. A line across: crossed by the diagonal or by the end of the keys, masked. A dot: never loaded. The dashed line, with a bar at its left: the chosen query."}),
        rowTitle,
        region("m, l and O of the chosen row", element("table", {className: "see-values"}, element("thead", {}, heads), state)),
        factors, tileRegion,
        region("Bytes moved", element("table", {className: "see-values"},
            element("caption", {textContent: "Device memory, bytes of one head: what the threads ask for, up to this step and in all"}),
            element("thead", {}, element("tr", {}, ...cells("th", ["tensor", "read", "written", "read in all", "written in all"], "col"))), moved)));
    root.replaceChildren(
        element("div", {className: "see-controls"}, labelled("Begin with", preset)),
        element("div", {className: "see-groups"},
            element("fieldset", {className: "see-controls"}, element("legend", {textContent: "The problem"}),
                labelled("order, as rung", controls.order), labelled("queries N_q", controls.N_q), labelled("keys N_k", controls.N_k),
                labelled("rows of a tile B_r", controls.B_r), labelled("columns B_c", controls.B_c), labelled("d", controls.d),
                labelled("causal", controls.causal)),
            element("fieldset", {className: "see-controls"}, element("legend", {textContent: "A row of S"}),
                labelled("query", controls.row), labelled("its scores, else drawn", controls.scores), labelled("values, else drawn", controls.values))),
        walk, words, body);

    let chosen = {}, asked = {}, steps = [];

    function drawGrid(k) {
        const T_r = blocks(asked.N_q, asked.B_r), T_c = blocks(asked.N_k, asked.B_c), size = Math.max(T_r, T_c) > 16 ? 20 : 34, left = 30, top = 18;
        const order = new Map();
        steps.forEach((step, n) => step.what === "tile" && order.set(step.i * T_c + step.j, {n, masked: step.masked}));
        const shapes = [], rank = new Map([...order.entries()].sort((a, b) => a[1].n - b[1].n).map(([tile], n) => [tile, n + 1]));
        const put = (tag, attributes, content) => shapes.push(drawing(tag, attributes, ...(content === undefined ? [] : [String(content)])));
        for (let j = 0; j < T_c; ++j) put("text", {x: left + (j + 0.5) * size, y: 12, class: "see-axis"}, j);
        let current = null;
        for (let i = 0; i < T_r; ++i) {
            put("text", {x: 14, y: top + (i + 0.5) * size + 4, class: "see-axis"}, i);
            for (let j = 0; j < T_c; ++j) {
                const x = left + j * size, y = top + i * size, at = order.get(i * T_c + j), middle = {x: x + size / 2, y: y + size / 2 + 4};
                const kind = !at ? "see-never" : at.n < k ? "see-done" : at.n === k ? "see-now" : "see-later";
                put("rect", {x: x + 1, y: y + 1, width: size - 2, height: size - 2, class: `see-tile ${kind}`});
                if (!at) put("text", {...middle, class: "see-tile-text"}, "\u00b7");
                else if (at.masked) put("line", {x1: x + 3, y1: y + 3, x2: x + size - 3, y2: y + size - 3, class: "see-mask"});
                if (at && size > 20) put("text", {...middle, class: "see-tile-text"}, rank.get(i * T_c + j));
                if (at?.n === k) current = {x, y};
            }
        }
        const y = top + asked.row / asked.B_r * size, middleOfRow = y + size / asked.B_r / 2;
        put("rect", {x: left - 8, y, width: 6, height: Math.max(3, size / asked.B_r), class: "see-row-mark"});
        put("line", {x1: left - 8, x2: left + T_c * size, y1: middleOfRow, y2: middleOfRow, class: "see-row-line"});
        const width = left + T_c * size + 4, height = top + T_r * size + 4;
        const tiles = order.size, done = [...order.values()].filter(({n}) => n < k).length;
        const svg = drawing("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "see-grid",
            "aria-label": `${T_r} blocks of queries by ${T_c} blocks of keys: ${done} of ${tiles} tiles done, ${T_r * T_c - tiles} never loaded`}, ...shapes);
        grid.replaceChildren(svg);
        if (current && grid.scrollWidth > grid.clientWidth)
            grid.scrollLeft = current.x - grid.clientWidth / 2;
    }

    function drawRow(k) {
        const row = rowOf(asked), {states, end} = statesOf(row), i = Math.floor(row.row / row.B_r), step = steps[k];
        const own = steps.slice(0, k + 1).filter((s) => s.what === "tile" && s.i === i).length;
        const touches = step.i === i && step.what === "tile", ends = step.i === i && step.what === "end";
        const now = states[own - 1] ?? unknown(row.values), before = touches ? states[own - 2] ?? unknown(row.values) : now;
        const where = swapped(row) ? "on the chip" : "in device memory", dims = row.values[0].length;
        const names = dims === 1 ? ["O"] : ["O[0]", "O[1]"];
        const leaves = swapped(row) ? end : null, line = (name, m, l, O) => element("tr", {}, element("th", {scope: "row", textContent: name}),
            ...cells("td", [m, l, ...O]));
        heads.replaceChildren(...cells("th", ["what", "m", "l", ...names], "col"));
        const lines = [line(touches || ends ? `before, ${where}` : `now, ${where}`, shown(before.m), shown(before.l), before.O.map(shown))];
        if (touches) {
            lines.push(line(row.order === "01" ? "this tile alone, m_ij" : "this tile, relative to the new m", shown(now.m_ij), shown(now.l_ij), now.PV.map(shown)));
            lines.push(line(swapped(row) ? "after, on the chip" : "after, written to device memory", shown(now.m), shown(now.l), now.O.map(shown)));
        }
        if (ends) lines.push(line("written to device memory", `LSE ${shown(leaves.LSE)}`, "", leaves.O.map(shown)));
        while (lines.length < 3) lines.push(element("tr", {}, element("td", {colSpan: 3 + dims, textContent: "\u00a0"})));
        state.replaceChildren(...lines);
        rowTitle.textContent = `Query ${row.row}, of block ${i}: it sees ${large(seen(row, row.row))} of ${large(row.N_k)} keys. ` +
            (touches || ends ? "" : step.what === "begin" ? "Nothing is known yet." : `This step is not of its block. ${own} of ${states.length} tiles have been.`);
        const m = `exp(m_old \u2212 m_new) = exp(${shown(before.m)} \u2212 ${shown(now.m)})`;
        factors.textContent = !touches ? ends ? "O / l: the one division of a row." : ""
            : !now.keys.length ? "The query sees no key of this tile: m, l and O stay as they are."
            : before.m === null ? `The first keys: the factor ${m} = 0 takes away what was there.`
            : `What was there is multiplied by ${m} = ${shown(now.rescale)}` + (now.rescale === 1 ? ": the maximum stays." : ".") +
              (row.order === "01" ? ` What is new by exp(m_ij \u2212 m_new) = ${shown(now.now)}. O is divided by l again.` : row.order === "02" ? " O is divided by l again." : " O is not divided.");
        const keys = touches ? Array.from({length: keysOf(row, step.j)}, (_, c) => step.j * row.B_c + c) : [];
        const hidden = (key) => key >= seen(row, row.row);
        tileTable.hidden = !touches;
        tileTable.replaceChildren(
            element("caption", {textContent: `Scores in this tile, and P = exp(S \u2212 ${row.order === "01" ? "m_ij" : "m_new"})`}),
            element("tbody", {}, ...[["key", keys.map(String)], ["S", keys.map((key) => hidden(key) ? "hidden" : shown(row.scores[key]))],
                ["P", keys.map((key, c) => hidden(key) ? "0" : shown(now.P[c]))]].map(([name, of]) =>
                element("tr", {}, element("th", {scope: "row", textContent: name}), ...cells("td", of)))));
    }

    function drawBytes(k) {
        const soFar = sumOfBytes(asked, steps.slice(0, k + 1)), inAll = sumOfBytes(asked, steps);
        const lines = tensors.filter((name) => inAll[name].read + inAll[name].written > 0).map((name) => element("tr", {},
            element("th", {scope: "row", textContent: name}),
            ...cells("td", [soFar[name].read, soFar[name].written, inAll[name].read, inAll[name].written].map(large))));
        const both = (of, way) => large(tensors.reduce((sum, name) => sum + of[name][way], 0));
        lines.push(element("tr", {className: "see-total"}, element("th", {scope: "row", textContent: "all"}),
            ...cells("td", [both(soFar, "read"), both(soFar, "written"), both(inAll, "read"), both(inAll, "written")])));
        moved.replaceChildren(...lines);
    }

    function draw() {
        asked = resolve(chosen);
        for (const [name, control] of Object.entries(controls))
            if (document.activeElement !== control || control.tagName === "SELECT")
                control.value = name === "causal" ? Number(Boolean(asked.causal)) : asked[name] ?? "";
        controls.causal.disabled = !swapped(asked);
        preset.value = chosen.preset ?? "";
        words.classList.toggle("see-refused", Boolean(asked.wrong));
        body.hidden = walk.hidden = Boolean(asked.wrong);
        if (asked.wrong) {
            verdict.textContent = asked.wrong, said.textContent = "";
            return;
        }
        steps = stepsOf(asked);
        // Without a step: the first one that is of the chosen query.
        const k = asked.step < 0 ? Math.max(nextOfRow(-1), 0) : Math.min(asked.step, steps.length - 1), {whole, masked, skipped} = answer({...asked, kind: "tiles"});
        asked.step = k, slider.max = steps.length - 1, slider.value = k;
        slider.setAttribute("aria-valuetext", `step ${k + 1} of ${steps.length}`);
        const inAll = sumOfBytes(asked, steps).all, masks = masked ? `, ${masked} of them masked` : "", never = skipped ? `, ${skipped} never loaded` : "";
        verdict.textContent = wordsOf(asked, steps, k);
        said.textContent = `${whole + masked} tiles${masks}${never}. ${large(sumOfBytes(asked, steps.slice(0, k + 1)).all)} of ${large(inAll)} bytes have moved.`;
        moves.first.disabled = moves.back.disabled = k === 0, moves.on.disabled = moves.last.disabled = k === steps.length - 1;
        moves.next.disabled = nextOfRow(k) < 0;
        drawGrid(k), drawRow(k), drawBytes(k);
    }
    const nextOfRow = (k) => steps.findIndex(({i}, n) => n > k && i === Math.floor(asked.row / asked.B_r));

    const kept = ["preset", "order", "causal", "scores", "values", ...Object.keys(numbers)];
    function write() {
        history.replaceState(null, "", `#${new URLSearchParams(Object.entries(chosen).filter(([name, value]) =>
            value !== "" && presets[chosen.preset]?.[1][name] !== value))}`);
    }
    function read() {
        const given = window.see.made.asked();
        chosen = {};
        for (const [name, value] of Object.entries(given))
            if (kept.includes(name)) chosen[name] = name in numbers || name === "causal" ? Number(value) : value;
        if (chosen.order && !orders[chosen.order]) delete chosen.order;
        if (!presets[chosen.preset] && !(chosen.order && chosen.N_q && chosen.N_k)) chosen = {preset: "small-01"};
        chosen = {B_r: 32, B_c: 32, d: 64, ...presets[chosen.preset]?.[1], ...chosen};
        draw();
    }
    function go(step) {
        if (asked.wrong) return;
        chosen.step = clamp(step, 0, steps.length - 1);
        const focused = document.activeElement;
        write(), draw();
        // A button that has come to the end is disabled; who uses the keyboard goes on in the grid.
        if (focused?.disabled) grid.focus();
    }

    preset.addEventListener("change", () => {
        if (!preset.value) return;
        chosen = {preset: preset.value, ...presets[preset.value][1]};
        write(), draw();
    });
    for (const [name, control] of Object.entries(controls))
        control.addEventListener(control.tagName === "SELECT" ? "change" : "input", () => {
            chosen[name] = name in numbers || name === "causal" ? Number(control.value) : control.value;
            if (name !== "row") delete chosen.preset;
            if (["order", "N_q", "N_k", "B_r", "B_c", "causal"].includes(name)) delete chosen.step;
            write(), draw();
        });
    slider.addEventListener("input", () => go(Number(slider.value)));
    moves.first.addEventListener("click", () => go(0));
    moves.back.addEventListener("click", () => go(asked.step - 1));
    moves.on.addEventListener("click", () => go(asked.step + 1));
    moves.last.addEventListener("click", () => go(steps.length - 1));
    moves.next.addEventListener("click", () => go(nextOfRow(asked.step)));
    grid.addEventListener("keydown", (event) => {
        const to = {ArrowRight: asked.step + 1, ArrowDown: asked.step + 1, ArrowLeft: asked.step - 1, ArrowUp: asked.step - 1, Home: 0, End: steps.length - 1}[event.key];
        if (to === undefined) return;
        event.preventDefault();
        go(to);
    });
    addEventListener("hashchange", read);
    read();
})();
