#!/usr/bin/env python3
"""Draws who does what when, as SVG, from what `./ladder timeline NN --trace trace.json` has recorded.

    tools/pictures/draw_timeline.py trace.json timeline.svg

A row is a warp; where several have one role, the first of them. What goes on without the warp, a copy or a product, is
hatched in a row of its own.
"""
import pathlib
import sys

from style import THEMES, drawn, plt, svg  # first, for it says what is missing
from recorded import COLORS

KINDS = {"load": COLORS[0], "copy": COLORS[0], "store": COLORS[4], "wait": "#b8bec6", "barrier": "#7d8590",
         "product": COLORS[2], "exponential": COLORS[1], "arrive": COLORS[3]}
MOST_WARPS = 4  # where warps have no roles


def rows(events):
    """[(name, its events)], from above; and which warps are not among them, in words."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    kernels = {e["pid"]: e["args"]["name"].split(":")[0] for e in events if e["name"] == "process_name"}
    noted = sorted((e for e in events if e["ph"] != "M"), key=lambda e: (e["pid"], e["tid"]))
    warps = {}
    for event in noted:
        warps.setdefault((event["pid"], event["args"]["role"]), set()).add(event["args"]["warp"])
    shown = {who: sorted(of_role)[:MOST_WARPS if who[1] == "warps" else 1] for who, of_role in warps.items()}
    left_out = {f"{MOST_WARPS} of {len(of_role)} warps are drawn." if who[1] == "warps" else
                "Of each role one warp is drawn."
                for who, of_role in warps.items() if len(shown[who]) < len(of_role)}
    found = {}
    for event in noted:
        process, role = event["pid"], event["args"]["role"]
        if event["args"]["warp"] in shown[process, role]:
            name = names[process, event["tid"]]
            found.setdefault((process, f"{kernels[process]}, {name}" if len(kernels) > 1 else name), []).append(event)
    return [(name, row) for (_, name), row in found.items()], sorted(left_out)


def draw_row(axes, y, name, row):
    threads = sorted({e["tid"] for e in row})
    height = 0.8 / len(threads)
    alone = ": " in name
    for kind, color in KINDS.items():
        style = {"facecolor": "none", "edgecolor": color, "hatch": "////"} if alone else {"facecolor": color}
        for i, thread in enumerate(threads):
            bars = [(e["ts"], e["dur"]) for e in row if e["name"] == kind and e["tid"] == thread and e["ph"] == "X"]
            if bars:
                axes.broken_barh(bars, (y - 0.4 + i * height, height), linewidth=0.6 if alone else 0.2, **style)
        ticks = [e["ts"] for e in row if e["name"] == kind and e["ph"] == "i"]
        axes.plot(ticks, [y] * len(ticks), "|", color=color, markersize=9, markeredgewidth=1)


def draw(trace):
    about, (found, left_out) = trace["otherData"], rows(trace["traceEvents"])
    height = 1.2 + 0.42 * len(found)
    figure, axes = plt.subplots(figsize=(12, height))
    for y, (name, row) in enumerate(found):
        draw_row(axes, y, name, row)
    axes.set_yticks(range(len(found)), [name for name, _ in found], fontsize=8)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.tick_params(length=0)
    axes.set_xlabel("microseconds" if about["backend"] == "gpu" else about["unit"], fontsize=8)
    there = {e["name"] for _, row in found for e in row}
    for kind in KINDS:
        if kind in there:
            axes.plot([], [], "s", color=KINDS[kind], label=kind)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.45 / height), fontsize=8, ncol=len(there))
    shape = about["shape"]
    sizes = f"B {shape['batch']}, H {shape['heads']}, N {shape['n_q']}, d {shape['head_dim']}"
    axes.set_title(f"{about['rung']}, block {about['block']}: {sizes}{', causal' if shape['causal'] else ''}. "
                   f"{about['gpu']}, commit {about['commit']}, {about['date']}." +
                   ("\n" + " ".join(left_out) if left_out else ""), fontsize=8, loc="left")
    return figure


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with plt.rc_context(THEMES[""]):
        pathlib.Path(sys.argv[2]).write_text(svg(drawn(sys.argv[1], draw, "./ladder timeline NN --trace FILE")))
    print(f"\nThe picture is in {sys.argv[2]}.")


if __name__ == "__main__":
    main()
