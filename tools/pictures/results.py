"""Result files, read so that whatever a picture misses in one is named, with the file."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs/results"
# Those of attention on the papers' grid: 27 is for few queries.
RUNGS = sorted(name for kernel in (ROOT / "solutions").glob("*/attention.cu") if (name := kernel.parent.name) < "15")


def result(name):
    """What docs/results/`name` holds. Ends with a sentence if it is not there, no JSON, or lacks what is looked up."""
    class Entry(dict):
        def __missing__(self, key):
            sys.exit(f"{name}: no \"{key}\" in {json.dumps(self)[:160]}")

    Entry.name = name
    try:
        return json.loads((RESULTS / name).read_text(), object_hook=Entry)
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"{name}: {error}")


def rows_of(file, **wanted):
    """The rows with these values, of their own or of their shapes: rows_of(file, stage="14-lcsf", head_dim=64)."""
    found = [row for row in file["rows"] if all({**row["shape"], **row}.get(key) == wanted[key] for key in wanted)]
    return found or sys.exit(f"{file.name}: no row with {', '.join(f'{key} {value}' for key, value in wanted.items())}")


def row_of(file, stage, **wanted):
    """The one row of a stage with these values."""
    rows = rows_of(file, stage=stage, **wanted)
    return rows[0] if len(rows) == 1 else sys.exit(f"{file.name}: {len(rows)} rows of {stage} with {wanted}, not one")


def lengths(file, **wanted):
    """The N of the rows with these values, ascending."""
    return sorted({row["shape"]["n_q"] for row in rows_of(file, **wanted)})


def source(file):
    """Where the numbers are from, in the words that stand below a picture."""
    return f"{file['gpu']}, commit {file['commit']}, {file['date']}"
