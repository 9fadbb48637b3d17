// Who holds an element of mma, ldmatrix and wgmma, and where wgmma finds it in shared memory. tests/see/fragments.cpp
// asks the emulator's instructions and common/tile the same, and tests/site_test.py compares.
"use strict";
(() => {
    const chunk = 16;  // bytes

    // ---- registers

    const lane = (group, member) => group % 8 * 4 + (member % 8 >> 1);
    const of_A = (row, column) =>
        ({lane: lane(row, column), register: (row >> 3) + 2 * (column >> 3), half: column % 2});
    /// Of each kind: what it is, [rows, columns], the letter of its registers, and who holds (row, column).
    const kinds = {
        "mma-A": ["04: A of mma", () => [16, 16], "a", (r, c) => ({warp: 0, ...of_A(r, c)})],
        "mma-B": [
            "04: B of mma", () => [16, 8], "b", (r, c) => ({warp: 0, lane: lane(c, r), register: r >> 3, half: r % 2})
        ],
        "mma-C": [
            "04: C of mma", () => [16, 8], "c", (r, c) => ({warp: 0, lane: lane(r, c), register: (r >> 3) * 2 + c % 2})
        ],
        "ldmatrix": [
            "04: four matrices of ldmatrix", () => [32, 8], "r",
            (r, c) => ({warp: 0, lane: lane(r, c), register: r >> 3, half: c % 2})
        ],
        "ldmatrix-trans": [
            "04: four matrices of ldmatrix, transposed", () => [32, 8], "r",
            (r, c) => ({warp: 0, lane: lane(c, r), register: r >> 3, half: r % 2})
        ],
        "wgmma-D": [
            "09: D of wgmma", (n) => [64, n], "d",
            (r, c) => ({warp: r >> 4, lane: lane(r, c), register: (c >> 3) * 4 + (r >> 3) % 2 * 2 + c % 2})
        ],
        "wgmma-A":
            ["09: A of wgmma, in registers", () => [64, 16], "a", (r, c) => ({warp: r >> 4, ...of_A(r % 16, c)})],
    };

    // ---- operands in shared memory

    const modes = {0: 0, 128: 1, 64: 2, 32: 3};

    /// The tile as common/tile has it, in panels that are as wide as the swizzle (16 bytes without one), and the
    /// descriptor of the 16 columns (K-major) or rows (MN-major) from `from` on.
    function describe({operand, major, swizzle, n, depth, start, from}) {
        const mn = operand === "A" ? 64 : n, is_k = major === "k";
        const rows = is_k ? mn : depth, columns = is_k ? depth : mn;
        const width = swizzle || chunk, panel = rows * width, group = 8 * width;
        if (columns * 2 % width) return {refused: "width", columns, width};
        if (start % 1024 || start + rows * columns * 2 > 227 * 1024 || !(start >= 0))
            return {refused: "start", rows, columns};
        if (from % 16 || from < 0 || from + 16 > depth) return {refused: "from"};
        const begin = start + (is_k ? Math.floor(from * 2 / width) * panel + from * 2 % width : from * width);
        const leading = swizzle ? is_k ? chunk : panel : is_k ? panel : group;
        const stride = swizzle || is_k ? group : panel;
        const mode = modes[swizzle];
        const bits =
            BigInt(begin >> 4) | BigInt(leading >> 4) << 16n | BigInt(stride >> 4) << 32n | BigInt(mode) << 62n;
        return {
            rows,
            columns,
            mn,
            width,
            panel,
            begin,
            leading,
            stride,
            mode,
            is_k,
            descriptor: `0x${bits.toString(16).padStart(16, "0")}`
        };
    }

    /// The address of an element of the tile.
    function addressOf({rows, width}, start, row, column) {
        const places = width / chunk, c = column >> 3, byte = column % 8 * 2;
        const place = c % places ^ Math.floor(row / (8 / places)) % places;
        return start + Math.floor(c / places) * rows * width + row * width + place * chunk + byte;
    }

    /// The other way: [row, column], or null if the address is not in the tile.
    function elementAt(tile, start, address) {
        const offset = address - start;
        if (!(offset >= 0 && offset < tile.rows * tile.columns * 2)) return null;
        const row = Math.floor(offset % tile.panel / tile.width), places = tile.width / chunk;
        const place = Math.floor(offset % tile.width / chunk), c = place ^ Math.floor(row / (8 / places)) % places;
        return [row, (Math.floor(offset / tile.panel) * places + c) * 8 + (offset % chunk >> 1)];
    }

    /// Which element of the product this is, or null.
    function inProduct(tile, from, row, column) {
        const k = (tile.is_k ? column : row) - from;
        return k < 0 || k >= 16 ? null : {mn: tile.is_k ? row : column, k};
    }

    // ---- what is asked and answered

    const operand = {what: "operand", swizzle: 128};
    const Q = {...operand, operand: "A", major: "k", n: 64, depth: 64, start: 0x400, from: 0};
    const K = {...operand, operand: "B", major: "k", n: 64, depth: 128, start: 0x4400, from: 80, column: 80};
    const V = {...operand, operand: "B", major: "mn", n: 128, depth: 64, start: 0x8400, from: 16, row: 16};
    const presets = {
        "09-Q": ["09: Q_i in shared memory, A of S = Q K^T", Q],
        "09-K": ["09: K_j in shared memory, B of S = Q K^T", K],
        "09-V": ["09: V_j in shared memory, B of O = P V", V],
    };
    const usual = {...K, what: "mma-A", row: 0, column: 0};
    const resolve = ({preset, ...query}) => ({...usual, ...presets[preset]?.[1], ...query});

    /// Of an element {row, column}: who holds it or where it is. Of {warp, lane}: the elements in each register.
    /// Of {address}: the element. Or {refused}.
    function answer(query) {
        const asked = resolve(query);
        if (asked.what === "operand") {
            const tile = describe(asked);
            if (tile.refused) return {refused: tile.refused};
            if (query.address !== undefined) {
                const [row, column] = elementAt(tile, asked.start, asked.address) ?? [null, null];
                return {row, column};
            }
            const {descriptor, begin, leading, stride, mode} = tile;
            return {
                descriptor,
                begin,
                leading,
                stride,
                mode,
                address: addressOf(tile, asked.start, asked.row, asked.column),
                ...(inProduct(tile, asked.from, asked.row, asked.column) ?? {mn: null, k: null})
            };
        }
        const [, size, , holder] = kinds[asked.what];
        if (query.lane === undefined) return holder(asked.row, asked.column);
        const [rows, columns] = size(asked.n), elements = [];
        for (let row = 0; row < rows; ++row)
            for (let column = 0; column < columns; ++column) {
                const held = holder(row, column);
                if (held.warp !== (asked.warp ?? 0) || held.lane !== asked.lane) continue;
                elements[held.register] ??= [];
                elements[held.register][held.half ?? 0] = [row, column];
            }
        return {elements};
    }
    window.see.fragments = {answer};

    // ---- drawn

    const root = document.getElementById("see-fragments");
    if (!root) return;

    const {element, labelled} = window.see.made;
    const hex = (n) => `0x${n.toString(16).toUpperCase()}`;
    const select = (name, of) =>
        element("select", {name}, ...of.map(([value, text]) => element("option", {value, textContent: text ?? value})));
    const number = (name, max, step) => element("input", {type: "number", name, min: 0, max, step});
    /// Not while somebody has emptied it to type another one.
    const put = (control, value) => {
        if (document.activeElement !== control || control.value !== "") control.value = value;
    };
    const whole = (text) => /^(0x[\da-f]+|\d+)$/i.test(text.trim()) ? Number(text) : NaN;
    const cells = (tag, all) => all.map((text) => element(tag, {textContent: text, ...(tag === "th" && {scope: "col"})}));

    const what = select("what", [
        ...Object.entries(kinds).map(([kind, [name]]) => [kind, name]),
        ...Object.entries(presets).map(([key, [name]]) => [key, name]), ["operand", "09: an operand of your choice"]
    ]);
    const widths = [[64], [128], [176], [192], [256]];
    const controls = {
        n: select("n", widths),
        operand: select("operand", [["A"], ["B"]]),
        major: select("major", [["k", "K-major"], ["mn", "MN-major"]]),
        swizzle: select("swizzle", [[128, "128 bytes"], [64, "64 bytes"], [32, "32 bytes"], [0, "none"]]),
        depth: select("depth", [[16], [32], [64], [128], [256]]),
        start: element("input", {type: "text", name: "start", size: 8}),
        from: number("from", 240, 16),
    };
    const labels = {
        n: labelled("n, columns of D", controls.n),
        operand: labelled("operand", controls.operand),
        major: labelled("contiguous", controls.major),
        swizzle: labelled("swizzle", controls.swizzle),
        depth: labelled("k in the tile", controls.depth),
        start: labelled("address of the tile", controls.start),
        from: labelled("first k of this wgmma", controls.from),
    };
    const row = number("row", 255, 1), column = number("column", 255, 1), warp = number("warp", 3, 1),
          thread = number("lane", 31, 1);
    const address = element("input", {type: "text", name: "address", size: 8});
    const warpLabel = labelled("warp", warp), laneLabel = labelled("lane", thread),
          addressLabel = labelled("address", address);
    const verdict = element("p", {className: "see-verdict"}), detail = element("p", {className: "see-detail"});
    const grid = element("div", {className: "see-scroll", tabIndex: 0, role: "region"}), below = element("div");
    const said = element("div", {}, verdict, detail);
    said.setAttribute("aria-live", "polite");
    grid.setAttribute("aria-label", "Elements, and who holds them. Arrow keys choose an element.");
    const legend = element("p", {className: "see-legend"});
    root.replaceChildren(
        element("div", {className: "see-controls"}, labelled("What", what), ...Object.values(labels)),
        element(
            "div", {className: "see-controls"}, labelled("row", row), labelled("column", column), warpLabel, laneLabel,
            addressLabel),
        said, legend, grid, below);

    let state = {}, size = [16, 16], tile = null;

    function table(name, head, rows, className = "see-numbers") {
        const region = element(
            "div", {className: "see-scroll", tabIndex: 0, role: "region", ariaLabel: name},
            element(
                "table", {className}, element("thead", {}, element("tr", {}, ...cells("th", head))),
                element("tbody", {}, ...rows)));
        return [element("p", {className: "see-legend", textContent: name}), region];
    }

    /// 16 x 16 elements, in which the chosen one is; `fill(cell, row, column)`.
    function drawGrid(asked, fill) {
        const [rows, columns] = size, first_row = asked.row - asked.row % 16,
                     first_column = asked.column - asked.column % 16;
        const here = (first, all) => Array.from({length: Math.min(16, all - first)}, (_, i) => first + i);
        const head =
            element("tr", {}, element("th", {scope: "col", textContent: "row"}), ...cells("th", here(first_column, columns)));
        grid.replaceChildren(element(
            "table", {className: "see-elements"}, element("thead", {}, head),
            element(
                "tbody", {},
                ...here(first_row, rows)
                    .map(
                        (r) => element(
                            "tr", {className: r % 8 === 0 ? "see-eighth" : ""},
                            element("th", {scope: "row", textContent: r}), ...here(first_column, columns).map((c) => {
                                const cell = element("td", {className: c % 8 === 0 ? "see-eighth" : ""});
                                cell.dataset.at = `${r} ${c}`;
                                fill(cell, r, c);
                                if (r === asked.row && c === asked.column) cell.classList.add("see-chosen");
                                return cell;
                            }))))));
    }

    function drawRegisters(asked) {
        const [, sizeOf, letter, holder] = kinds[asked.what], held = holder(asked.row, asked.column);
        const of_warpgroup = asked.what.startsWith("wgmma"), name = (register) => `${letter}[${register}]`;
        const half = held.half === undefined ? "" :
            held.half                        ? ", its upper half, bits 16 to 31" :
                                               ", its lower half, bits 0 to 15";
        verdict.textContent = `Row ${asked.row}, column ${asked.column}: ${
                                  of_warpgroup ? `warp ${held.warp}, ` : ""}lane ${held.lane}, ` +
            `register ${name(held.register)}${half}.`;
        const g = held.lane >> 2, t = held.lane % 4,
              fragment = `fragment[0][${held.register >> 2}][${held.register % 4}]`;
        detail.textContent = `Lane ${held.lane} = 4 g + t with g = ${g}, t = ${t}. ` +
            (of_warpgroup ? `It is thread ${held.warp * 32 + held.lane} of the warpgroup. ` : "") +
            (asked.what.startsWith("ldmatrix") ?
                 `The address of this row, 16 bytes of matrix ${asked.row >> 3}, is brought by lane ${asked.row}. ` :
                 "") +
            (asked.what === "wgmma-D" ? `In tile::Accumulator it is ${fragment}. ` : "");
        legend.textContent =
            "A cell: the lane, and below it the register. Underlined: what the same lane holds. " +
            "Lines enclose 8 x 8 elements.";
        drawGrid(asked, (cell, r, c) => {
            const other = holder(r, c);
            cell.append(other.lane, element("br"), element("small", {textContent: letter + other.register}));
            if (other.lane === held.lane && other.warp === held.warp) cell.classList.add("see-first");
        });
        const {elements} = answer({what: asked.what, n: asked.n, warp: held.warp, lane: held.lane});
        const text = (all) => (all ?? []).map(([r, c]) => `(${r}, ${c})`);
        const of_lane = `What lane ${held.lane}${of_warpgroup ? ` of warp ${held.warp}` : ""} holds: (row, column)`;
        const chosen = (is, tds) => element("tr", {className: is ? "see-row" : ""}, ...tds);
        if (held.half !== undefined)
            below.replaceChildren(...table(
                of_lane, ["register", "lower half", "upper half"],
                elements.map(
                    (all, register) =>
                        chosen(register === held.register, cells("td", [name(register), ...text(all)])))));
        else
            below.replaceChildren(...table(
                of_lane, ["registers", "first", "second", "third", "fourth"],
                Array.from(
                    {length: elements.length / 4},
                    (_, j) => chosen(
                        j === held.register >> 2, cells("td", [
                            `${name(4 * j)} to ${name(4 * j + 3)}`, ...elements.slice(4 * j, 4 * j + 4).flatMap(text)
                        ])))));
        put(warp, held.warp), put(thread, held.lane);
        size = sizeOf(asked.n);
    }

    function drawOperand(asked) {
        const {rows, columns, width, begin, leading, stride, mode, is_k, descriptor} = tile,
                                                                         {swizzle, from, start} = asked;
        const here = addressOf(tile, start, asked.row, asked.column),
              found = inProduct(tile, from, asked.row, asked.column);
        const mn = asked.operand === "A" ? "m" : "n", letter = asked.operand;
        verdict.textContent = `Row ${asked.row}, column ${asked.column} of the tile: address ${hex(here)}, byte ${
                                  here - start} of the tile` +
            (found ? `; for this wgmma ${letter} at ${mn} = ${found.mn}, k = ${found.k}.` :
                     "; this wgmma does not read it.");
        detail.textContent =
            `The tile has ${rows} rows and ${columns} columns of 2 bytes, in panels of ${width / 2} columns; ` +
            `${is_k ? "k runs along a row" : `${mn} runs along a row, k from row to row`}. This wgmma reads ` +
            `${is_k ? "columns" : "rows"} ${from} to ${from + 15}, the descriptor is ${descriptor}.`;
        legend.textContent =
            "A cell: the byte of the tile where its element begins. Underlined: what this wgmma reads. " +
            "Bold: the same 16 bytes.";
        drawGrid(asked, (cell, r, c) => {
            const at = addressOf(tile, start, r, c);
            cell.append(at - start);
            if (inProduct(tile, from, r, c)) cell.classList.add("see-first");
            if (at >> 4 === here >> 4) cell.classList.add("see-same");
        });
        const next = {
            k: "from 8 k to the next 8",
            mn: `from 8 ${mn} to the next 8`,
            panel: `from a panel to the next: ${width / 2} ${mn} further`
        };
        const leads = swizzle ? is_k ? "not looked at" : next.panel : next.k,
              strides = swizzle ? is_k ? next.mn : next.k : next.mn;
        const digits = descriptor.slice(2).match(/.{4}/g).join(" ");
        const field = (name, bits, bytes, value, meaning) =>
            element("tr", {}, ...cells("td", [name, bits, bytes, value, meaning]));
        const four = (n) => hex(n >> 4).slice(2).padStart(4, "0");
        const first_line = here - here % 1024;
        const lines = Array.from(
            {length: 8},
            (_, l) => element(
                "tr", {}, element("th", {scope: "row", textContent: hex(first_line + 128 * l)}),
                ...Array.from({length: 8}, (_, c) => {
                    const at = first_line + 128 * l + chunk * c, of = elementAt(tile, start, at), cell = element("td");
                    if (!of) return cell;
                    cell.append(`${of[0]}: ${of[1]}–${of[1] + 7}`);
                    cell.dataset.at = of.join(" ");
                    if (inProduct(tile, from, ...of)) cell.classList.add("see-first");
                    if (at >> 4 === here >> 4) cell.classList.add("see-chosen");
                    return cell;
                })));
        below.replaceChildren(
            ...table(
                `Where it lies: the 1024 bytes from ${
                    hex(first_line)} on, 16 a cell; in it the row, and the columns. Underlined: what this wgmma reads`,
                ["address", ...Array.from({length: 8}, (_, c) => `+${chunk * c}`)], lines, "see-chunks"),
            ...table(`The descriptor: ${digits}`, ["field", "bits", "bytes", ">> 4", ""], [
                field("start address", "0 to 13", hex(begin), four(begin), `of the 16 ${is_k ? "columns" : "rows"}`),
                field("leading byte offset", "16 to 29", leading, four(leading), leads),
                field("stride byte offset", "32 to 45", stride, four(stride), strides),
                field("base offset", "49 to 51", 0, "", "the tile begins at a multiple of 1024"),
                field("swizzle", "62 to 63", "", mode, swizzle ? `${swizzle} bytes` : "none")
            ]));
        address.value = hex(here);
    }

    function refusal({refused, columns, width}, asked) {
        if (refused === "width")
            return `A row of the tile has ${columns * 2} bytes, no whole number of panels of ${width}.`;
        if (refused === "start")
            return "The tile begins at a multiple of 1024, and lies in the 227 KB that a block has.";
        return `A wgmma takes 16 k: the first is a multiple of 16, and the last is in the tile, below ${asked.depth}.`;
    }

    function draw() {
        const asked = resolve(state), of_operand = asked.what === "operand";
        what.value = state.preset ?? asked.what;
        tile = of_operand ? describe(asked) : null;
        for (const [name, label] of Object.entries(labels))
            label.hidden = !of_operand && !(name === "n" && asked.what === "wgmma-D") ||
                name === "n" && of_operand && asked.operand === "A";
        warpLabel.hidden = !asked.what.startsWith("wgmma");
        laneLabel.hidden = of_operand, addressLabel.hidden = !of_operand;
        for (const [name, control] of Object.entries(controls))
            if (document.activeElement !== control) control.value = name === "start" ? hex(asked.start) : asked[name];
        said.classList.toggle("see-refused", Boolean(tile?.refused));
        grid.hidden = Boolean(tile?.refused);
        if (tile?.refused) {
            verdict.textContent = refusal(tile, asked), detail.textContent = legend.textContent = "",
            below.replaceChildren();
            return;
        }
        size = of_operand ? [tile.rows, tile.columns] : kinds[asked.what][1](asked.n);
        asked.row = Math.min(Math.max(asked.row || 0, 0), size[0] - 1),
        asked.column = Math.min(Math.max(asked.column || 0, 0), size[1] - 1);
        state.row = asked.row, state.column = asked.column;
        row.max = size[0] - 1, column.max = size[1] - 1, put(row, asked.row), put(column, asked.column);
        const focused = document.activeElement;
        if (of_operand)
            drawOperand(asked);
        else
            drawRegisters(asked);
        if (focused === grid) grid.querySelector(".see-chosen")?.scrollIntoView({block: "nearest", inline: "nearest"});
    }

    /// The address of this page says what is shown.
    function show(next) {
        state = next;
        draw();
        history.replaceState(null, "", `#${new URLSearchParams(state)}`);
    }
    const numbers = ["n", "swizzle", "depth", "start", "from", "row", "column"];
    function read() {
        const asked = window.see.made.asked();
        state = {};
        for (const [name, value] of Object.entries(asked))
            if (numbers.includes(name))
                state[name] = whole(value === "none" ? "0" : value);
            else if (["what", "operand", "major", "preset"].includes(name))
                state[name] = value;
        if (state.preset ? !presets[state.preset] : state.what && state.what !== "operand" && !kinds[state.what])
            state = {};
        draw();
    }

    /// The choice as it is, of which a preset is no part any more.
    function spelled() {
        const {what, n, row, column, ...memory} = resolve(state);
        return {what, n, ...(what === "operand" && memory), row, column};
    }

    what.addEventListener("change", () => {
        if (presets[what.value]) return show({preset: what.value});
        show(
            what.value === "operand" ?
                {...spelled(), ...(resolve(state).what === "operand" ? {} : presets["09-K"][1])} :
                {what: what.value, n: resolve(state).n});
    });
    for (const [name, control] of Object.entries(controls))
        control.addEventListener(control.tagName === "SELECT" ? "change" : "input", () => {
            const next = {...spelled(), [name]: numbers.includes(name) ? whole(control.value) : control.value};
            show(next);
        });
    row.addEventListener("input", () => show({...state, row: whole(row.value)}));
    column.addEventListener("input", () => show({...state, column: whole(column.value)}));
    for (const control of [warp, thread])
        control.addEventListener("input", () => {
            const asked = resolve(state);
            const {elements} =
                answer({what: asked.what, n: asked.n, warp: whole(warp.value), lane: whole(thread.value)});
            if (elements.length) show({...state, row: elements[0][0][0], column: elements[0][0][1]});
        });
    address.addEventListener("change", () => {
        const {row, column} = answer({...resolve(state), address: whole(address.value)});
        if (row === null || row === undefined)
            draw();
        else
            show({...state, row, column});
    });
    for (const region of [grid, below])
        region.addEventListener(region === grid ? "mouseover" : "click", ({target}) => {
            const at = target.closest("[data-at]")?.dataset.at.split(" ").map(Number);
            if (at && (at[0] !== state.row || at[1] !== state.column)) show({...state, row: at[0], column: at[1]});
        });
    grid.addEventListener("keydown", (event) => {
        const [down, right] =
            {ArrowRight: [0, 1], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowUp: [-1, 0]}[event.key] ?? [0, 0];
        if (!down && !right) return;
        event.preventDefault();
        show({...state, row: state.row + down, column: state.column + right});
    });
    addEventListener("hashchange", read);
    read();
})();
