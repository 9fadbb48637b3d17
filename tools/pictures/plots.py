#!/usr/bin/env python3
"""Draws the pictures of docs/pictures from the result files, the same bytes each time. Needs matplotlib 3.10.

    tools/pictures/plots.py            draws them: NAME.svg for a light page, NAME-dark.svg for a dark one
    tools/pictures/plots.py --check    changes nothing; fails if one is stale

Without matplotlib 3.10 it ends with 77, which ctest takes for skipped.
"""
import argparse
import pathlib
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
import matplotlib.pyplot as plt

import measured
import recorded
from style import THEMES, svg

PICTURES = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/pictures"
DRAWN = {"tflops-by-rung": measured.tflops_by_rung, "tflops-by-n": measured.tflops_by_n,
         "error-by-rung": measured.error_by_rung, "bytes-by-rung": measured.bytes_by_rung,
         "bytes-by-n-and-m": measured.bytes_by_n_and_m, "memory": measured.memory, "occupancy": measured.occupancy, "fragments": recorded.fragments,
         "swizzle": recorded.swizzle, "pipeline": recorded.pipeline, "specialization": recorded.specialization,
         "specialization-gpu": recorded.specialization_gpu}


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
        sys.exit(f"stale: {', '.join(wrong)}: tools/pictures/plots.py" if wrong else 0)
    for name in wrong:
        (PICTURES / name).write_text(drawn[name]) if name in drawn else (PICTURES / name).unlink()
    print(f"{len(drawn)} pictures, {len(wrong)} of them changed")


if __name__ == "__main__":
    main()
