// Tables of numbers are sorted by a column: a button in its header, smallest first, then largest first. And what is wider
// than the page is scrolled by the keyboard too.
"use strict";
(() => {
    const number = /^[-+]?[\d.,]+(e[-+]?\d+)?/i;
    const units = { KB: 1e3, MB: 1e6, GB: 1e9 };
    const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
    const value = (cell) => parseFloat(cell.replaceAll(",", "")) * (units[cell.split(" ")[1]] ?? 1);

    function sort(header, column) {
        const table = header.closest("table"), body = table.tBodies[0], rows = [...body.rows];
        const filled = rows.map((row) => text(row, column)).filter((cell) => cell);
        const by = filled.every((cell) => number.test(cell)) ? (a, b) => value(a) - value(b) : (a, b) => a.localeCompare(b);
        const down = header.getAttribute("aria-sort") === "ascending";
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
        rows.sort((row, other) => {
            const a = text(row, column), b = text(other, column);
            if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);  // empty cells stay last
            return down ? by(b, a) : by(a, b);
        });
        body.append(...rows);
    }

    for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
        if (table.tBodies[0]?.rows.length < 3 || !table.querySelector("td[style*=right]")) continue;
        for (const header of table.querySelectorAll("thead th")) {
            const button = document.createElement("button");
            button.append(...header.childNodes);
            button.addEventListener("click", () => sort(header, header.cellIndex));
            header.append(button);
        }
    }

    function focusWide() {
        for (const region of document.querySelectorAll(".md-typeset__scrollwrap"))
            if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
            else region.removeAttribute("tabindex");
    }
    addEventListener("load", focusWide);
    addEventListener("resize", focusWide);
})();
