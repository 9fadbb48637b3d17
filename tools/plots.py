#!/usr/bin/env python3
"""Draws the pictures of docs/pictures from the result files, the same bytes each time. Needs matplotlib 3.10.

    tools/plots.py            draws them: NAME.svg for a light page, NAME-dark.svg for a dark one
    tools/plots.py --check    changes nothing; fails if one is stale

Without matplotlib 3.10 it ends with 77, which ctest takes for skipped.
"""
import argparse
import io
import pathlib
import re
import sys

VERSION = "3.10"  # another one draws other bytes
try:
    import matplotlib
    found = matplotlib.__version__
except ImportError:
    found = "none"
if not found.startswith(VERSION + "."):
    print(f"plots.py: pictures are neither drawn nor checked: they need matplotlib {VERSION}, here is {found}: "
          f"pip install 'matplotlib=={VERSION}.*'", file=sys.stderr)
    sys.exit(77)
matplotlib.use("svg")
import matplotlib.pyplot as plt

from pictures import measured, recorded

PICTURES = pathlib.Path(__file__).resolve().parent.parent / "docs/pictures"
DRAWN = {"tflops-by-rung": measured.tflops_by_rung, "tflops-by-n": measured.tflops_by_n,
         "error-by-rung": measured.error_by_rung, "bytes-by-rung": measured.bytes_by_rung,
         "bytes-by-n-and-m": measured.bytes_by_n_and_m, "memory": measured.memory, "fragments": recorded.fragments,
         "swizzle": recorded.swizzle, "pipeline": recorded.pipeline, "specialization": recorded.specialization,
         "specialization-gpu": recorded.specialization_gpu}


def theme(ink, ground, grid, kinds):
    """Colours of text and axes, of the page, of the grid, and of the kinds of measured.py: "C0" and so on."""
    return {"svg.hashsalt": "flashladder", "svg.fonttype": "none", "font.size": 9,
            "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"], "lines.markersize": 5,
            "lines.linewidth": 1.4, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
            "text.color": ink, "axes.edgecolor": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink,
            "figure.facecolor": ground, "axes.facecolor": ground, "grid.color": grid,
            "patch.edgecolor": ground, "patch.force_edgecolor": True,
            "axes.prop_cycle": matplotlib.cycler(color=kinds)}


THEMES = {"": theme("#24292f", "#ffffff", "#d0d7de", ["#9a6700", "#0969b5", "#c2410c", "#087a5b", "#a0408f"]),
          "-dark": theme("#d5dce3", "#0d1117", "#343b44", ["#e3b341", "#58a6ff", "#ff8a4c", "#3fc79a", "#e293d3"])}


def svg(figure):
    """The figure as SVG, without what differs from run to run, no longer than needed, to a hundredth of a point."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight",
                   metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    plt.close(figure)
    text = re.sub(r"\n +", "\n", out.getvalue())
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # of groups that nothing refers to
    return re.sub(r' (d|x|y|transform)="[^"]*"', lambda numbers: re.sub(r"(\.\d\d)\d+", r"\1", numbers[0]), text)


def pictures():
    """(file name, SVG) of each picture in each theme."""
    for name, draw in DRAWN.items():
        for suffix, look in THEMES.items():
            with plt.rc_context(look):
                yield f"{name}{suffix}.svg", svg(draw())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    drawn = dict(pictures())
    there = {path.name: path.read_text() for path in PICTURES.glob("*.svg")}
    wrong = sorted(name for name in {**drawn, **there} if drawn.get(name) != there.get(name))
    if check:
        sys.exit(f"stale: {', '.join(wrong)}: tools/plots.py" if wrong else 0)
    for name in wrong:
        (PICTURES / name).write_text(drawn[name]) if name in drawn else (PICTURES / name).unlink()
    print(f"{len(drawn)} pictures, {len(wrong)} of them changed")


if __name__ == "__main__":
    main()
