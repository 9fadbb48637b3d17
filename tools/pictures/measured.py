"""Pictures of what was measured on a GPU and counted by the emulator. Each returns a figure.

A colour is a kind of kernel, a marker is one of them; both are the same in all pictures.
"""
import math
import sys

import matplotlib.pyplot as plt

from results import RUNGS, lengths, result, row_of, rows_of, source

# Name, colour of the theme, first and last rung.
KINDS = [("float, any GPU", "C0", 0, 3), ("mma, sm_80", "C1", 4, 7), ("TMA, wgmma, sm_90a", "C2", 8, 99)]
PEERS = {"peer:torch-cudnn": "cuDNN", "peer:torch-flash": "FA2", "peer:flash_attn_interface": "FA3",
         "peer:flash_attn.cute": "FA4"}
MARKERS = "os^Dv>P<Xp*hdH8"
MASKS = {False: "not causal", True: "causal"}
SMALL, TINY = 8, 7


def look(name):
    """A colour of the theme."""
    return plt.rcParams[name]


def number(stage):
    return int(stage[:2])


def style(stage):
    """Colour, marker, dashes of a rung or a peer."""
    if stage in PEERS:
        at = list(PEERS).index(stage)
        return {"color": f"C{3 + at}", "marker": "XPpd"[at], "linestyle": (0, (4, 2))}
    color = next(color for _, color, first, last in KINDS if first <= number(stage) <= last)
    return {"color": color, "marker": MARKERS[number(stage) % len(MARKERS)], "linestyle": "-"}


def short(stage):
    return PEERS.get(stage) or stage[:2]


def sources(axes, *files, what=""):
    """The small print below axes: where the numbers are from."""
    axes.annotate(what + "; ".join(dict.fromkeys(map(source, files))), (0, 0), (0, -36), xycoords="axes fraction",
                  textcoords="offset points", fontsize=TINY, va="top")


def at_the_ends(axes, lines, gap=9.5):
    """Names lines at their right ends, [(x, y, name, colour)]. Names that would overlap are moved apart."""
    points_per_pixel = 72 / axes.figure.dpi
    lines = sorted(lines, key=lambda line: line[1])
    own = [axes.transData.transform((x, y))[1] * points_per_pixel for x, y, _, _ in lines]
    at = list(own)
    for _ in range(500):
        for i in range(len(at) - 1):
            lacking = gap - (at[i + 1] - at[i])
            if lacking > 1e-3:
                at[i], at[i + 1] = at[i] - lacking / 2, at[i + 1] + lacking / 2
    for (x, y, name, color), here, there in zip(lines, own, at):
        axes.annotate(name, (x, y), (7, round(there - here, 2)), textcoords="offset points", va="center", color=color,
                      fontsize=SMALL)


def axis_of_lengths(axes, ns):
    axes.set_xscale("log", base=2)
    axes.set_xticks(ns, [str(n) for n in ns])
    axes.minorticks_off()


def three_digits(x):
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}" if x < 100 else f"{x:.0f}"


def readable_bytes(x, _=None):
    power = max(0, min(3, int(math.log10(max(1, x)) / 3)))
    return f"{x / 1000 ** power:g} {('B', 'KB', 'MB', 'GB')[power]}"


def by_rung(stages, panels, ticks):
    """Figure and axes, one for each name in panels: a row a stage, the lowest at the bottom; a logarithmic scale."""
    figure, all_axes = plt.subplots(1, len(panels), sharex=True, sharey=True, figsize=(8.2, 0.9 + 0.215 * len(stages)),
                                    gridspec_kw={"wspace": 0.08})
    for axes, panel in zip(all_axes, panels):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ticks)
        axes.set_xlabel(panel)
        axes.set_yticks(range(len(stages)), [PEERS.get(stage) or stage.replace("-", " ", 1) for stage in stages])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.7, len(stages) - 0.3)
        axes.grid(axis="both", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.minorticks_off()
        axes.spines[["left"]].set_visible(False)
    for stage, label in zip(stages, all_axes[0].get_yticklabels()):
        label.set_color(style(stage)["color"])
    return figure, all_axes


def tflops_by_rung():
    """TFLOP/s of every rung at N = 4096."""
    file = result("ladder.json")
    figure, all_axes = by_rung(RUNGS, [f"TFLOP/s, d = {d}" for d in (64, 128)], lambda x, _: f"{x:g}")
    for axes, d in zip(all_axes, (64, 128)):
        speeds = [row_of(file, stage, set="grid", n_q=4096, head_dim=d)["tflops"] for stage in RUNGS]
        axes.plot(speeds, range(len(RUNGS)), color=look("grid.color"), linewidth=1.2)
        for y, (stage, speed) in enumerate(zip(RUNGS, speeds)):
            axes.plot([speed], [y], **style(stage))
            axes.annotate(three_digits(speed), (speed, y), (7, 0), textcoords="offset points", va="center",
                          fontsize=SMALL, bbox={"facecolor": look("axes.facecolor"), "edgecolor": "none", "pad": 0.5})
    low, high = all_axes[0].get_xlim()
    all_axes[0].set_xlim(low, 2 * high)  # room for the last numbers
    for name, color, first, last in KINDS:
        of_kind = [y for y, stage in enumerate(RUNGS) if first <= number(stage) <= last]
        all_axes[0].text(0.03, max(of_kind), name, color=color, fontsize=SMALL, va="center",
                         transform=all_axes[0].get_yaxis_transform())
    sources(all_axes[0], file)
    return figure


def tflops_by_n():
    """TFLOP/s by N of some rungs and of the kernels of others."""
    file = result("compare.json")
    shown = [stage for stage in RUNGS if number(stage) in (4, 7, 9, 12) or stage == RUNGS[-1]] + list(PEERS)
    figure, all_axes = plt.subplots(2, 2, sharex=True, sharey=True, figsize=(8.2, 5.8),
                                    gridspec_kw={"wspace": 0.2, "hspace": 0.1})
    ends = {}
    for row, d in zip(all_axes, (64, 128)):
        for axes, causal in zip(row, MASKS):
            ns = lengths(file, head_dim=d, causal=causal)
            lines = {stage: [row_of(file, stage, head_dim=d, causal=causal, n_q=n)["tflops"] for n in ns]
                     for stage in shown}
            for stage, speeds in lines.items():
                axes.plot(ns, speeds, **style(stage))
            axis_of_lengths(axes, ns)
            axes.grid(axis="y", linewidth=0.5)
            axes.text(0.02, 1, f"d = {d}, {MASKS[causal]}", transform=axes.transAxes, va="top")
            if d == 128:
                axes.set_xlabel("N")
            if not causal:
                axes.set_ylabel("TFLOP/s")
            ends[axes] = [(ns[-1], speeds[-1], short(stage), style(stage)["color"]) for stage, speeds in lines.items()]
    all_axes[0][0].set_ylim(bottom=0)
    for axes, names in ends.items():  # now that the scales are what they stay
        at_the_ends(axes, names)
    sources(all_axes[1][0], file, what=f"PyTorch {file['torch']}, cuDNN {file['cudnn']}; ")
    return figure


def error_by_rung():
    """The relative error at N = 4096 of every rung and of the kernels of others."""
    ladder, compare = result("ladder.json"), result("compare.json")
    stages = RUNGS + list(PEERS)
    figure, all_axes = by_rung(stages, [f"relative error, d = {d}" for d in (64, 128)],
                               lambda x, _: f"{x:.0e}".replace("e-0", "e-"))
    for axes, d in zip(all_axes, (64, 128)):
        for bits, name in ((24, "float, 2⁻²⁴"), (8, "bf16, 2⁻⁸")):  # significant ones
            axes.axvline(2 ** -bits, color=look("axes.edgecolor"), linewidth=0.8, linestyle=":")
            axes.annotate(name, (2 ** -bits, len(stages) - 0.3), (0, 2), textcoords="offset points",
                          ha="center", fontsize=SMALL)
        for y, stage in enumerate(stages):
            row = (row_of(compare, stage, n_q=4096, head_dim=d, causal=False) if stage in PEERS
                   else row_of(ladder, stage, set="grid", n_q=4096, head_dim=d))
            axes.plot([row["error"]], [y], **style(stage))
            axes.plot([row["worst_row"]], [y], **style(stage), fillstyle="none")
        axes.set_xlim(2e-8, 2e-2)
    sources(all_axes[0], ladder, compare, what="Filled: of the whole output. Hollow: of its worst row.\n")
    return figure


ONE_HEAD, H100 = {"heads": 1, "causal": False}, {"shared_bytes": 227 * 1024}  # in counts.json


def bytes_by_rung():
    """Bytes of device memory: what every rung requests, its closed form, and what a perfect cache lets through."""
    file = result("counts.json")
    figure, all_axes = by_rung(RUNGS, [f"bytes of device memory, d = {d}" for d in (64, 128)], readable_bytes)
    for axes, d in zip(all_axes, (64, 128)):
        rows = [row_of(file, stage, n_q=1024, head_dim=d, **ONE_HEAD, **H100) for stage in RUNGS]
        for y, (stage, row) in enumerate(zip(RUNGS, rows)):
            distinct, requested = row["counts"]["distinct_bytes"], row["counts"]["requested_bytes"]
            points = {**style(stage), "linestyle": "none"}
            axes.plot([distinct, requested], [y, y], color=points["color"], linewidth=1)
            axes.plot([requested], [y], **points, label="requested" if y == 0 else None)
            axes.plot([distinct], [y], **points, markerfacecolor=look("axes.facecolor"),
                      label="distinct" if y == 0 else None)
            axes.plot([row["closed_form"]["requested_bytes"]], [y], "|", color=look("text.color"), markersize=11,
                      label="closed form" if y == 0 else None)
            once = 4 * 1024 * d * (4 if row["dtype"] == "f32" else 2)  # Q, K, V and O
            axes.plot([once, once], [y - 0.5, y + 0.5], ":", color=look("text.color"), linewidth=1,
                      label="Q, K, V and O once" if y == 0 else None)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="upper center", ncols=4, fontsize=SMALL,
                  bbox_to_anchor=(0.5, 0.96))
    sources(all_axes[0], file, what="One head, N = 1024. ")
    return figure


def standard_bytes(N, d):
    """What FlashAttention's Algorithm 0 moves, in bytes: Q, K, V and O once, S and P out and in."""
    return 4 * (4 * N * d + 4 * N * N)


def flash_bytes(N, d, M):
    """What its Algorithm 1 moves with M bytes on chip, in bytes: K and V once; Q, O in and O out for each B_c keys."""
    B_c = M / 4 / (4 * d)
    return 4 * (2 * N * d + 3 * N * d * max(1, N / B_c))


def bytes_by_n_and_m():
    """Requested bytes of device memory by N, and of rung 02 by shared memory, beside the paper's algorithms."""
    file, d = result("counts.json"), 64
    figure, (by_n, by_m) = plt.subplots(1, 2, sharey=True, figsize=(8.2, 3.9), width_ratios=[6, 5],
                                       gridspec_kw={"wspace": 0.35})
    ns, M = lengths(file, head_dim=d, **ONE_HEAD, **H100), H100["shared_bytes"]
    ends = []
    for stage in RUNGS[:4]:
        counted = [row_of(file, stage, n_q=n, head_dim=d, **ONE_HEAD, **H100)["counts"]["requested_bytes"] for n in ns]
        by_n.plot(ns, counted, **style(stage))
        ends.append((ns[-1], counted[-1], short(stage), style(stage)["color"]))
    theory = {"color": look("text.color"), "linewidth": 1, "linestyle": ":"}
    for name, moved in (("Algorithm 0", [standard_bytes(n, d) for n in ns]),
                        ("Algorithm 1", [flash_bytes(n, d, M) for n in ns]),
                        ("Q, K, V, O once", [4 * 4 * n * d for n in ns])):
        by_n.plot(ns, moved, **theory)
        ends.append((ns[-1], moved[-1], name, theory["color"]))
    tiled, n = RUNGS[2], ns[-1]
    rows = sorted((row["shared_bytes"], row["counts"]["requested_bytes"])
                  for row in rows_of(file, stage=tiled, n_q=n, head_dim=d, **ONE_HEAD) if row["shared_bytes"] != M)
    if not rows:
        sys.exit(f"{file.name}: no rows of {tiled} with shared_bytes other than {M} at n_q {n}, head_dim {d}")
    sizes = [size for size, _ in rows]
    by_m.plot(sizes, [counted for _, counted in rows], **{**style(tiled), "linestyle": "none"})
    by_m.plot(sizes, [flash_bytes(n, d, size) for size in sizes], **theory)
    for axes in (by_n, by_m):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(readable_bytes)
        axes.grid(axis="y", linewidth=0.5)
    axis_of_lengths(by_n, ns)
    by_n.set_xlabel(f"N, d = {d}")
    by_n.set_ylabel("requested bytes")
    by_m.set_xscale("log")
    by_m.minorticks_off()
    by_m.set_xticks(sizes, [f"{size / 1024:.0f}" for size in sizes], fontsize=SMALL)
    by_m.set_xlabel(f"M: KB of shared memory of a block, N = {n}")
    at_the_ends(by_n, ends)
    at_the_ends(by_m, [(*rows[-1], "02", style(tiled)["color"]),
                       (sizes[-1], flash_bytes(n, d, sizes[-1]), "Algorithm 1", theory["color"])])
    sources(by_n, file, what="One head, not causal. ")
    return figure


def memory():
    """Device memory beyond inputs and output by N. Rungs that need the same are one line."""
    file = result("counts.json")
    ns = lengths(file, head_dim=64, **ONE_HEAD, **H100)
    same = {}
    for stage in RUNGS:
        rows = [row_of(file, stage, n_q=n, head_dim=64, **ONE_HEAD, **H100) for n in ns]
        same.setdefault(tuple(row["counts"]["peak_scratch_bytes"] for row in rows), []).append(stage)
    figure, axes = plt.subplots(figsize=(6, 3.4))
    ends = []
    for peaks, stages in same.items():
        axes.plot(ns, peaks, **style(stages[0]), clip_on=False)
        neighbours = len(stages) > 2 and number(stages[-1]) - number(stages[0]) == len(stages) - 1
        name = f"{short(stages[0])} to {short(stages[-1])}" if neighbours else ", ".join(map(short, stages))
        ends.append((ns[-1], peaks[-1], name, style(stages[0])["color"]))
    axis_of_lengths(axes, ns)
    axes.set_yscale("symlog", linthresh=10)
    axes.yaxis.set_major_formatter(readable_bytes)
    axes.set_ylim(-3, max(map(max, same)))
    axes.grid(axis="y", linewidth=0.5)
    axes.set_xlabel("N (one head, d = 64)")
    axes.set_ylabel("bytes beyond inputs and output")
    at_the_ends(axes, ends)
    sources(axes, file)
    return figure


def frontier(points):
    """Of (x, y) those that no other one surpasses with as little x: the more x, the more y."""
    found = []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or y > found[-1][1]:
            found.append((x, y))
    return found


def occupancy():
    """TFLOP/s by the warps of a multiprocessor: rung 09, which does one thing after the other, and specialised ones."""
    file = result("occupancy.json")
    figure, all_axes = plt.subplots(1, 2, sharey=True, figsize=(8.2, 3.9), gridspec_kw={"wspace": 0.08})
    for axes, d in zip(all_axes, (64, 128)):
        rows = rows_of(file, head_dim=d)
        for name, dashes, below, is_one in (("one thing after the other: 09", ":", -14, lambda n: n == 9),
                                         ("specialised: 10 to 14", "-", 6, lambda n: n > 9)):
            mine = [row for row in rows if is_one(number(row["stage"]))]
            if not mine:
                sys.exit(f"{file.name}: no rows at head_dim {d} of what is {name}")
            best = frontier([(row["warps"], row["tflops"]) for row in mine])
            for row in mine:
                on_it = (row["warps"], row["tflops"]) in best
                points = {**style(row["stage"]), "linestyle": "none"}
                axes.plot([row["warps"]], [row["tflops"]], **points, markersize=6 if on_it else 4,
                          fillstyle="full" if on_it else "none", alpha=1 if on_it else 0.45)
                if on_it:
                    axes.annotate(short(row["stage"]), (row["warps"], row["tflops"]), (0, below), ha="center",
                                  textcoords="offset points", fontsize=SMALL)
            best.append((max(row["warps"] for row in rows), best[-1][1]))
            axes.plot(*zip(*best), color=look("text.color"), linestyle=dashes, linewidth=1, drawstyle="steps-post",
                      label=name, zorder=0)
        axes.set_xticks(sorted({row["warps"] for row in rows}))
        axes.grid(axis="y", linewidth=0.5)
        axes.set_xlabel(f"warps on a multiprocessor, d = {d}")
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel("TFLOP/s")
    all_axes[0].legend(loc="lower right", fontsize=SMALL)
    sources(all_axes[0], file, what="N = 4096, not causal. Full: none is faster with as few warps. Hollow: the others, "
            "variants too.\n")
    return figure
