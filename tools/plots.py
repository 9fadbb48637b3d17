#!/usr/bin/env python3
"""Draws the pictures of docs/pictures from the result files, the same bytes each time. Needs matplotlib 3.10.

    tools/plots.py            draws them
    tools/plots.py --check    changes nothing; fails if one is stale
"""
import argparse
import io
import json
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plots.py needs matplotlib: pip install 'matplotlib==3.10.*'")
matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parent.parent
GREY = "#808080"  # text and axes: to be read on white and on black
COLORS = ["#d1495b", "#e08e2b", "#3d8bd4", "#2a9d68", "#8d6cc9"]

plt.rcParams.update({"svg.hashsalt": "flashladder", "svg.fonttype": "path", "font.size": 10, "text.color": GREY,
                     "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
                     "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})


def svg(figure):
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return out.getvalue()


def memory():
    """Device memory beyond inputs and output by N."""
    rows = json.loads((ROOT / "docs/results/counts.json").read_text())["rows"]
    peaks = {}
    for row in rows:
        shape = row["shape"]
        if shape["head_dim"] == 64 and shape["heads"] == 1 and not shape["causal"] and row["shared_bytes"] == 227 * 1024:
            peaks.setdefault(row["stage"], {})[shape["n_q"]] = row["counts"]["peak_scratch_bytes"]
    figure, axes = plt.subplots(figsize=(6, 3.4))
    styles = ["o-", "s-", "^--", "d-"]
    for (stage, by_n), color, style in zip(sorted(peaks.items()), COLORS, styles):
        axes.plot(sorted(by_n), [by_n[n] for n in sorted(by_n)], style, color=color, label=stage, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=100)
    axes.set_ylim(bottom=-20)
    axes.set_xticks(sorted(next(iter(peaks.values()))), [str(n) for n in sorted(next(iter(peaks.values())))])
    axes.minorticks_off()
    axes.set_xlabel("N (one head, d = 64)")
    axes.set_ylabel("bytes beyond inputs and output")
    axes.legend(labelcolor=GREY, loc="upper left", bbox_to_anchor=(1, 1))
    return svg(figure)


PICTURES = {"memory.svg": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, draw in PICTURES.items():
        path = ROOT / "docs/pictures" / name
        picture = draw()
        if not check:
            path.write_text(picture)
        elif not path.exists() or path.read_text() != picture:
            stale.append(str(path.relative_to(ROOT)))
    sys.exit(f"stale: {', '.join(stale)}: tools/plots.py" if stale else 0)


if __name__ == "__main__":
    main()
