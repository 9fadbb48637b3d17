// Which banks of shared memory a warp meets. The rules are those of common/emulator/warp_access.cpp, the layouts those
// of common/tile; tests/see/banks.cpp asks both, and tests/site_test.py compares.
"use strict";
(() => {
    const lanes = 32, banks = 32, word = 4, chunk = 16;  // the last two in bytes

    // ---- what is asked

    /// A formula of whole numbers as C++ reads it, of `lane`, and of `chunk` and `chunks`: elements in 16 bytes, and 16
    /// bytes in a row. Returns what computes it. Throws an Error that says what cannot be read.
    function parse(text) {
        const tokens = text.match(/\d+|[a-z]+|<<|>>|\S/g) ?? [];
        const levels = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]];
        const operators = {
            "|": (a, b) => a | b,
            "^": (a, b) => a ^ b,
            "&": (a, b) => a & b,
            "<<": (a, b) => a << b,
            ">>": (a, b) => a >> b,
            "+": (a, b) => a + b,
            "-": (a, b) => a - b,
            "*": (a, b) => a * b,
            "/": (a, b) => Math.trunc(a / b),
            "%": (a, b) => a % b,
        };
        let at = 0;
        const unexpected = () => new Error(
            at < tokens.length ? `“${text}”: “${tokens[at]}” is not expected there` : `“${text}” ends too early`);
        function operand() {
            const token = tokens[at++];
            if (/^\d+$/.test(token)) return () => Number(token);
            if (["lane", "chunk", "chunks"].includes(token)) return (names) => names[token];
            if (token === "(") {
                const inner = level(0);
                if (tokens[at++] === ")") return inner;
            }
            --at;
            throw unexpected();
        }
        function level(l) {
            if (l === levels.length) return operand();
            let left = level(l + 1);
            while (levels[l].includes(tokens[at])) {
                const operator = operators[tokens[at++]], a = left, b = level(l + 1);
                left = (names) => operator(a(names), b(names));
            }
            return left;
        }
        const formula = level(0);
        if (at < tokens.length) throw unexpected();
        return formula;
    }

    /// Accesses: what each lane asks for. `bytes` of a lane; of `access` "matrices" so many, whose rows are 16 bytes.
    const patterns = {
        "column": ["a column: each lane one element of its row", "load", (e) => e, "lane", "0"],
        "row": ["a row: neighbours", "load", (e) => e, "0", "lane"],
        "chunks": ["16 bytes of each row", "load", () => 16, "lane", "0"],
        "chunks-of-16": ["16 bytes of each of 16 rows, by two lanes", "load", () => 16, "lane % 16", "0"],
        "copy": ["a copy: whole rows, 16 bytes a lane", "store", () => 16, "lane / chunks", "lane % chunks * chunk"],
        "matrix": ["one 8x8 matrix of ldmatrix, stmatrix or wgmma", "matrices", () => 1, "lane", "0"],
        "ldmatrix-A": ["ldmatrix: four matrices, A of mma", "matrices", () => 4, "lane % 16", "lane / 16 * chunk"],
        "ldmatrix": [
            "ldmatrix: four matrices, B of S = Q K^T", "matrices", () => 4, "lane / 16 * 8 + lane % 8",
            "lane / 8 % 2 * chunk"
        ],
        "ldmatrix-trans": ["ldmatrix, transposed: B of O = P V", "matrices", () => 4, "lane % 16", "lane / 16 * chunk"],
        "accumulator":
            ["a store of an accumulator: two neighbours a lane", "store", (e) => 2 * e, "lane / 4", "lane % 4 * 2"],
    };

    /// Accesses of the rungs.
    const K = {width: 128, pattern: "ldmatrix"}, floats = {width: 256, element: 4};
    const presets = {
        "00-B": [
            "00: a tile is stored by columns, a float behind each row", {
                width: 64,
                padding: 4,
                element: 4,
                rows: 16,
                pattern: "own",
                access: "store",
                bytes: 4,
                row: "lane % 16",
                column: "lane / 16"
            }
        ],
        "01-S": [
            "01: S is stored, a row for each lane",
            {width: 128, element: 4, rows: 32, pattern: "own", access: "store", bytes: 4, row: "lane", column: "0"}
        ],
        "02-unpadded": ["02, without padding: K_j, 16 bytes of each row", {...floats, pattern: "chunks-of-16"}],
        "02-K": ["02, 03: K_j, padded by 16 bytes", {...floats, padding: 16, pattern: "chunks-of-16"}],
        "02-P": [
            "02: P is stored", {
                width: 1024,
                element: 4,
                pattern: "own",
                access: "store",
                bytes: 4,
                row: "lane / 16 * 4",
                column: "lane % 16"
            }
        ],
        "05-K": ["04, 05: K_j by ldmatrix", K],
        "05-V": ["04, 05: V_j by ldmatrix, transposed", {...K, pattern: "ldmatrix-trans"}],
        "05-O": ["04, 05: O is stored", {...K, pattern: "accumulator"}],
        "06-padded": ["06, padded: K_j by ldmatrix", {...K, padding: 16}],
        "06-K": ["06: K_j by ldmatrix, swizzled", {...K, swizzle: 128}],
        "06-V": ["06: V_j by ldmatrix, transposed, swizzled", {...K, swizzle: 128, pattern: "ldmatrix-trans"}],
        "06-O": ["06: O is stored, swizzled", {...K, swizzle: 128, pattern: "accumulator"}],
        "06-copy": ["06: K_j is copied in", {...K, swizzle: 128, pattern: "copy"}],
        "06-narrow": ["06, panels of 32 bytes: K_j is copied in", {...K, swizzle: 32, pattern: "copy"}],
        "08-V": ["08, d = 128: V_j as TMA has left it", {width: 256, swizzle: 128, pattern: "ldmatrix-trans"}],
        "09-K": ["09: a matrix of K_j, read by wgmma", {width: 128, swizzle: 128, pattern: "matrix"}],
        "09-O": ["09: O is stored for TMA", {width: 128, swizzle: 128, pattern: "accumulator"}],
    };

    const numbers = ["width", "padding", "swizzle", "rows", "element", "bytes", "matrices"];

    /// The whole of a question: what is not said is that of the preset, then of the pattern.
    function resolve({preset, ...query}) {
        const asked = {
            width: 128,
            padding: 0,
            swizzle: 0,
            rows: 64,
            element: 2,
            pattern: "ldmatrix",
            ...presets[preset]?.[1],
            ...query
        };
        const [, usual, size, row, column] = patterns[asked.pattern] ?? patterns.column;
        const whole = {access: usual, row, column, ...asked},
              alike = (whole.access === "matrices") === (usual === "matrices");
        return whole.access === "matrices" ? {matrices: alike ? size(whole.element) : 4, ...whole} :
                                             {bytes: alike ? size(whole.element) : whole.element, ...whole};
    }

    /// The same question in as few words as it takes.
    function brief({width, padding, swizzle, rows, element, pattern, ...access}) {
        const tile = {width, padding, swizzle, rows, element}, usual = resolve({...tile, pattern});
        const same = patterns[pattern] && Object.entries(access).every(([name, value]) => usual[name] === value);
        return {...tile, ...(same ? {pattern} : {pattern: "own", ...access})};
    }

    // ---- what is answered

    /// Bytes from the start of the tile to byte `x` of a row: Swizzled<swizzle> of common/tile/swizzled.h, or one row
    /// after the other.
    function place({width, padding, swizzle, rows}, row, x) {
        if (!swizzle) return row * (width + padding) + x;
        const places = swizzle / chunk, panel = Math.floor(x / swizzle), c = Math.floor(x / chunk) % places;
        const moved = c ^ Math.floor(row / (8 / places)) % places;
        return panel * rows * swizzle + row * swizzle + moved * chunk + x % chunk;
    }

    /// Lanes that are served together.
    function groupsOf(access, bytes, address) {
        if (access === "matrices") return Array.from({length: address.length / 8}, (_, i) => [8 * i, 8 * i + 8]);
        let together = bytes <= word ? lanes : lanes * word / bytes;
        const agree = (distance) => address.every((a, lane) => a === address[lane ^ distance]);
        if (bytes > word && access === "load" && (agree(1) || agree(2))) together *= 2;
        return Array.from({length: lanes / together}, (_, i) => [i * together, (i + 1) * together]);
    }

    /// {needed, extra, turns: of each group that is served together, address: of each lane, and groups: of each its
    /// lanes, from and to, and for each bank its words in their order, with the lanes that want them}; or
    /// {refused, lane}.
    function look(query) {
        const asked = resolve(query);
        const {width, padding, swizzle, rows, element, access} = asked;
        const bytes = access === "matrices" ? chunk : asked.bytes;
        if (swizzle && (width % swizzle || padding)) return {refused: "width"};
        const row = parse(asked.row), column = parse(asked.column),
              who = access === "matrices" ? 8 * asked.matrices : lanes;
        const at = [], address = [];
        for (let lane = 0; lane < who; ++lane) {
            const names = {lane, chunk: chunk / element, chunks: width / chunk};
            const r = row(names), c = column(names);
            at.push({row: r, column: c});
            if (!(r >= 0 && r < rows)) return {refused: "row", lane, at};
            if (!(c >= 0 && c * element + bytes <= width)) return {refused: "column", lane, at};
            address.push(place(asked, r, c * element));
            if (address[lane] % bytes) return {refused: "alignment", lane, at};
        }
        const groups = groupsOf(access, bytes, address).map(([from, to]) => {
            const words = Array.from({length: banks}, () => []);
            for (let lane = from; lane < to; ++lane)
                for (let w = Math.floor(address[lane] / word); w <= Math.floor((address[lane] + bytes - 1) / word);
                     ++w) {
                    const known = words[w % banks].find((other) => other.word === w);
                    if (known)
                        known.lanes.push(lane);
                    else
                        words[w % banks].push({word: w, lanes: [lane]});
                }
            return {from, to, words, turns: Math.max(...words.map((all) => all.length))};
        });
        const turns = groups.map((group) => group.turns);
        return {
            needed: groups.length,
            extra: turns.reduce((sum, n) => sum + n - 1, 0),
            turns,
            address,
            groups,
            at,
            bytes,
            asked
        };
    }

    function answer(query) {
        const {needed, extra, turns, address, refused, lane} = look(query);
        return refused ? {refused, ...(lane !== undefined && {lane})} : {needed, extra, turns, address};
    }
    window.see.banks = {answer};

    // ---- in words

    const span = (from, to) => to - from === 1 ? `${from}` : `${from} to ${to - 1}`;
    const list = (names) => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
    const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

    function refusal({refused, lane, at}, asked) {
        if (refused === "width")
            return asked.padding ? "A swizzled tile has no padding: its rows are close behind one another." :
                                   `A row of ${asked.width} bytes is no whole number of panels of ${asked.swizzle}.`;
        const {row, column} = at[lane];
        if (Number.isNaN(row + column)) return `A formula divides by 0 for lane ${lane}.`;
        if (refused === "row") return `Lane ${lane} asks for row ${row}: the tile has rows 0 to ${asked.rows - 1}.`;
        if (refused === "column")
            return `Lane ${lane} asks for column ${column}: its bytes are not all in a row of ${
                asked.width / asked.element} columns.`;
        const bytes = asked.access === "matrices" ? chunk : asked.bytes;
        return `Lane ${lane} asks for ${bytes} bytes at row ${row}, column ${
            column}, which do not begin at a multiple of ${bytes}: a GPU stops there, "misaligned address".`;
    }

    function words({needed, extra, turns, groups, asked, bytes, address}) {
        const all = needed + extra, matrices = asked.access === "matrices";
        const what = matrices ?
            `${count(asked.matrices, "matrix").replace("matrixs", "matrices")} of 8 rows, 16 bytes each` :
            `32 lanes ${asked.access} ${count(bytes, "byte")} each`;
        const served = matrices ? "A matrix is served at once" :
            needed === 1        ? "They are served at once" :
                                  `They are served ${address.length / needed} lanes at a time`;
        const said = `${what}. ${served}: ${count(needed, "turn")}, if no two words meet in a bank.`;
        if (!extra) return [`No bank conflict: ${count(all, "turn")}, as few as can be.`, said];
        const worst = groups[turns.indexOf(Math.max(...turns))],
              bank = worst.words.findIndex((w) => w.length === worst.turns);
        const there = worst.words.filter((w) => w.length === worst.turns).length;
        const who = worst.words[bank].every((w) => w.lanes.length === 1) ? "lanes" : "words";
        const meets = `${worst.turns} ${who} meet in bank ${bank}${
            there > 1 ? `, and as many in ${count(there - 1, "other bank")}` : ""}`;
        return [
            `${meets}: the access takes ${count(all, "turn")} in place of ${needed}. ${extra} of them are conflicts, ` +
                `${Math.round(100 * extra / all)}%.`,
            said
        ];
    }

    function wordsOf(lane, seen) {
        const {address, at, bytes, groups} = seen;
        if (lane >= address.length) return `Lane ${lane} brings no row.`;
        const first = address[lane] / word % banks, b = Math.floor(first),
              last = Math.floor((address[lane] + bytes - 1) / word) % banks;
        const group = groups.find(({from, to}) => lane >= from && lane < to), all = group.words[b];
        const turn = all.findIndex((w) => w.lanes.includes(lane)),
              shared = all[turn].lanes.filter((other) => other !== lane);
        const met = all.filter((_, i) => i !== turn).map((w) => w.lanes[0]);
        return `Lane ${lane}: row ${at[lane].row}, column ${at[lane].column}, byte ${address[lane]} of the tile, ` +
            `bank${last === b ? ` ${b}` : `s ${b} to ${last}`}. ` +
            (shared.length ?
                 `The same word as lane${shared.length > 1 ? "s" : ""} ${list(shared)}: one answer for all. ` :
                 "") +
            (met.length ? `In bank ${b} it meets other words, of lane${met.length > 1 ? "s" : ""} ${list(met)}: turn ${
                              turn + 1} of ${group.turns}.` :
                          `No other word in bank ${b}.`);
    }

    // ---- drawn

    const root = document.getElementById("see-banks");
    if (!root) return;

    const {element, labelled} = window.see.made;

    const options = (of) => Object.entries(of).map(([value, name]) => element("option", {value, textContent: name}));
    const select = (name, of) => element("select", {name}, ...options(of));
    const number = (name, min, max, step) => element("input", {type: "number", name, min, max, step});
    const formula = (name) => element("input", {type: "text", name, size: 24, spellcheck: false, autocomplete: "off"});
    const first = ([name]) => name;
    const named = (of) => Object.fromEntries(Object.entries(of).map(([key, value]) => [key, first(value)]));

    const preset = select("preset", {"": "own choice", ...named(presets)});
    const controls = {
        width: number("width", 16, 1024, 16),
        padding: number("padding", 0, 64, 4),
        rows: number("rows", 8, 128, 8),
        swizzle: select("swizzle", {0: "none", 32: "32 bytes", 64: "64 bytes", 128: "128 bytes"}),
        element: select("element", {1: "1", 2: "2: bf16, f16", 4: "4: float", 8: "8"}),
        pattern: select("pattern", {...named(patterns), own: "own formulas"}),
        access: select("access", {load: "load", store: "store", matrices: "8x8 matrices"}),
        bytes: select("bytes", {1: "1", 2: "2", 4: "4", 8: "8", 16: "16"}),
        matrices: select("matrices", {1: "1", 2: "2", 4: "4"}),
        row: formula("row"),
        column: formula("column"),
    };
    const bytesLabel = labelled("bytes of a lane", controls.bytes),
          matricesLabel = labelled("matrices", controls.matrices);
    const verdict = element("p", {className: "see-verdict"}), said = element("p", {});
    const grid = element("div", {className: "see-scroll", tabIndex: 0, role: "region"});
    const chosen = number("lane", 0, 31, 1), detail = element("p", {className: "see-detail"});
    const table = element("tbody");
    detail.setAttribute("aria-live", "polite");
    grid.setAttribute("aria-label", "The banks, and the lanes that meet there. Arrow keys choose a lane.");
    const answered = element("div", {}, verdict, said);
    answered.setAttribute("aria-live", "polite");
    root.replaceChildren(
        element("div", {className: "see-controls"}, labelled("As in rung", preset)),
        element(
            "div", {className: "see-groups"},
            element(
                "fieldset", {className: "see-controls"}, element("legend", {textContent: "The tile"}),
                labelled("bytes of a row", controls.width), labelled("unused bytes behind it", controls.padding),
                labelled("swizzle", controls.swizzle), labelled("rows", controls.rows),
                labelled("bytes of an element", controls.element)),
            element(
                "fieldset", {className: "see-controls"}, element("legend", {textContent: "The access"}),
                labelled("pattern", controls.pattern), labelled("kind", controls.access), bytesLabel, matricesLabel,
                labelled("row of a lane", controls.row), labelled("column of a lane", controls.column))),
        answered, element("p", {className: "see-controls"}, labelled("Lane", chosen)), detail, element("p", {
            className: "see-legend",
            textContent:
                "Columns are banks, rows 128 bytes of memory. A number is the lane that wants these 4 bytes; with +, " +
                "others want them too. Underlined: a word that waits for another one of its bank."
        }),
        grid,
        element(
            "details", {}, element("summary", {textContent: "Every lane in numbers"}),
            element(
                "div", {className: "see-scroll", tabIndex: 0, role: "region", ariaLabel: "Every lane in numbers"},
                element(
                    "table", {className: "see-lanes"},
                    element(
                        "thead", {},
                        element(
                            "tr", {},
                            ...["lane", "row", "column", "byte of the tile", "bank", "turn"].map(
                                (name) => element("th", {scope: "col", textContent: name})))),
                    table))));

    let state = {}, lane = 0, seen = null;

    function drawGrid() {
        const head = element(
            "tr", {}, element("th", {scope: "col", textContent: "byte"}),
            ...Array.from({length: banks}, (_, b) => element("th", {scope: "col", textContent: b})));
        const bodies = seen.groups.map(({from, to, words, turns}) => {
            const lines = [...new Set(words.flat().map(({word}) => Math.floor(word / banks)))].sort((a, b) => a - b);
            const rows = lines.map(
                (line) => element(
                    "tr", {}, element("th", {scope: "row", textContent: line * banks * word}), ...words.map((all) => {
                        const turn = all.findIndex(({word}) => Math.floor(word / banks) === line);
                        if (turn < 0) return element("td");
                        const who = all[turn].lanes,
                              cell = element("td", {textContent: who[0] + (who.length > 1 ? "+" : "")});
                        cell.className = turn === 0 ? "see-first" : "see-waits";
                        cell.title = `lane${who.length > 1 ? "s" : ""} ${list(who)}, turn ${turn + 1} of ${
                            all.length} in this bank`;
                        cell.dataset.lanes = who.join(" ");
                        return cell;
                    })));
            const sum = element(
                "tr", {className: "see-sum"}, element("th", {scope: "row", textContent: "turns"}),
                ...words.map((all) => element("td", {
                                 textContent: all.length || "",
                                 className: all.length === turns && turns > 1 ? "see-most" : ""
                             })));
            const name = element("tr", {}, element("th", {
                                     className: "see-group",
                                     scope: "rowgroup",
                                     colSpan: banks + 1,
                                     textContent: `lanes ${span(from, to)}: ${count(turns, "turn")}`
                                 }));
            return element("tbody", {}, name, ...rows, sum);
        });
        grid.replaceChildren(element("table", {className: "see-banks"}, element("thead", {}, head), ...bodies));
        table.replaceChildren(...seen.address.map((address, l) => {
            const b = Math.floor(address / word) % banks, group = seen.groups.find(({from, to}) => l >= from && l < to);
            const turn = group.words[b].findIndex((w) => w.lanes.includes(l)) + 1;
            return element(
                "tr", {},
                ...[l, seen.at[l].row, seen.at[l].column, address, b, turn].map(
                    (n) => element("td", {textContent: n})));
        }));
    }

    function choose(next, scroll) {
        lane = Math.min(Math.max(next, 0), 31);
        chosen.value = lane;
        detail.textContent = seen ? wordsOf(lane, seen) : "";
        for (const cell of grid.querySelectorAll("td[data-lanes]")) {
            const own = cell.dataset.lanes.split(" ").includes(String(lane)),
                  was = cell.classList.contains("see-chosen");
            if (own !== was) cell.classList.toggle("see-chosen", own);
        }
        const cell = grid.querySelector(".see-chosen");
        if (scroll && cell) cell.scrollIntoView({block: "nearest", inline: "nearest"});
    }

    function draw() {
        const asked = resolve(state);
        for (const [name, control] of Object.entries(controls))
            if (asked[name] !== undefined && document.activeElement !== control) control.value = asked[name];
        if (!patterns[asked.pattern]) controls.pattern.value = "own";
        preset.value = state.preset ?? "";
        bytesLabel.hidden = asked.access === "matrices";
        matricesLabel.hidden = !bytesLabel.hidden;
        let lines;
        try {
            seen = look(state);
            lines = seen.refused ? [refusal(seen, asked), ""] : words(seen);
        } catch (error) {
            seen = {refused: "formula"}, lines = [`${error.message}.`, ""];
        }
        answered.classList.toggle("see-refused", Boolean(seen.refused));
        [verdict.textContent, said.textContent] = lines;
        if (seen.refused)
            seen = null, grid.replaceChildren(), table.replaceChildren();
        else
            drawGrid();
        grid.hidden = !seen;
        choose(lane, false);
    }

    /// The address of this page says what is shown, in as few words as it takes.
    function write() {
        const entries =
            Object.entries(state).map(([name, value]) => [name, name === "swizzle" && value === 0 ? "none" : value]);
        history.replaceState(null, "", `#${new URLSearchParams(entries)}`);
    }
    function read() {
        const asked = window.see.made.asked();
        const known = ["preset", "pattern", "access", "row", "column", ...numbers];
        state = {};
        for (const [name, value] of Object.entries(asked))
            if (known.includes(name))
                state[name] = numbers.includes(name) ? Number(value === "none" ? 0 : value) : value;
        if (!Object.keys(state).length || (state.preset && !presets[state.preset])) state = {preset: "02-unpadded"};
        draw();
    }

    preset.addEventListener("change", () => {
        state = preset.value ? {preset: preset.value} : brief(resolve(state));
        write(), draw();
    });
    for (const [name, control] of Object.entries(controls))
        control.addEventListener(control.tagName === "SELECT" ? "change" : "input", () => {
            const value = numbers.includes(name) ? Number(control.value) : control.value, whole = resolve(state);
            const {width, padding, swizzle, rows, element} = whole;
            if (name === "pattern" && value !== "own")
                state = {width, padding, swizzle, rows, element, pattern: value};
            else if (["row", "column", "pattern"].includes(name))
                state = {...whole, pattern: "own", [name]: value};
            else
                state = {...state, ...brief(whole), [name]: value};
            if (name === "access") {
                const {bytes, matrices, ...rest} = whole;
                state = {...rest, pattern: "own", access: value};
            }
            if (name === "swizzle" && value) state.padding = 0;
            delete state.preset;
            state = brief(resolve(state));
            write(), draw();
        });
    chosen.addEventListener("input", () => chosen.value && choose(Number(chosen.value), true));
    grid.addEventListener("mouseover", ({target}) => {
        if (target.dataset.lanes) choose(Number(target.dataset.lanes.split(" ")[0]), false);
    });
    grid.addEventListener("keydown", (event) => {
        const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
        if (!step) return;
        event.preventDefault();
        choose(lane + step, true);
    });
    addEventListener("hashchange", read);
    read();
})();
