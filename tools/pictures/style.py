"""How pictures look, on a light and on a dark page. Any matplotlib will do; plots.py, whose bytes are committed, is
stricter."""
import io
import json
import pathlib
import re
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("pictures need matplotlib: pip install matplotlib")
matplotlib.use("svg")
import matplotlib.pyplot as plt


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


def drawn(path, draw, writer):
    """The figure that draw() makes of a JSON file. SystemExit, with a sentence, if it is none that `writer` writes."""
    try:
        file = json.loads(pathlib.Path(path).read_text())
        if isinstance(file, dict):
            return draw(file)
        why = ""
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}")
    except ValueError:
        why = ": it is no JSON"
    except LookupError as error:
        why = f": it has no {error}" if isinstance(error, KeyError) else ""
    sys.exit(f"{path} is no file that `{writer}` writes{why}")
