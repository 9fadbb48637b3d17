#!/usr/bin/env python3
"""Draws where a rung is under the roofline, as SVG, from what `./ladder profile NN --json profile.json` has counted.

    tools/pictures/roofline.py profile.json roofline.svg

The roofs are the card's of the cost model. A rung is on two of them: by its distinct bytes under that of device memory,
by its sectors under that of L2; as high as the model lets it, and, where the profiler has timed it, as high as it was.
"""
import pathlib
import sys

from style import THEMES, drawn, plt, svg


def points(row):
    """[(name, FLOP per byte, GB/s of the roof)] of a row of the file."""
    sectors = sum(kind["sectors"] for kind in row["counts"]["total"]["global"].values())
    costs = row["costs"]
    return [("HBM", costs["flops"] / row["counts"]["distinct_bytes"], costs["memory_gb_s"]),
            ("L2", costs["flops"] / (32 * sectors), costs["l2_gb_s"])]


def draw(row):
    costs, memories = row["costs"], points(row)
    peak = costs["peak_tflops"]
    microseconds = sum(launch["busy"].get("microseconds", 0) for launch in row.get("profiled", []))
    heights = {"o": costs["tflops"]} | ({"^": costs["flops"] / microseconds / 1e6} if microseconds else {})
    meanings = {"o": "what the model lets it reach", "^": "this problem alone, profiled"}
    left = min(x for _, x, _ in memories) / 4
    right = max(max(x for _, x, _ in memories) * 4, 4e3 * peak / min(gb_s for *_, gb_s in memories))
    bottom = min(min(heights.values()) / 3, left * min(gb_s for *_, gb_s in memories) / 1e3)
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for (name, x, gb_s), color in zip(memories, ["C1", "C2"]):
        axes.plot([left, 1e3 * peak / gb_s, right], [left * gb_s / 1e3, peak, peak], color=color, linewidth=1.5)
        axes.axvline(x, color=color, linewidth=0.8, linestyle=":", label=f"{name}, {gb_s:.0f} GB/s: FLOP for its bytes")
        for marker, height in heights.items():
            axes.plot([x], [height], marker, color=color, markersize=7)
    for marker in heights:
        axes.plot([], [], marker, color=plt.rcParams["text.color"], label=meanings[marker])
    axes.text(right, peak * 1.15, f"tensor cores, {peak:.0f} TFLOP/s", ha="right", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, peak * 3)
    axes.set_xlabel("FLOP for each byte")
    axes.set_ylabel(f"TFLOP/s on an {costs['card']}")
    axes.set_title(f"{row['stage']}: bound by {costs['bound']}", fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), fontsize=8, ncol=2)
    return figure


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with plt.rc_context(THEMES[""]):
        pathlib.Path(sys.argv[2]).write_text(
            svg(drawn(sys.argv[1], lambda file: draw(file["rows"][0]), "./ladder profile NN --json FILE")))
    print(f"\nThe roofline is in {sys.argv[2]}.")


if __name__ == "__main__":
    main()
