#!/usr/bin/env python3
"""Which configuration of rung 14 is the fastest for which shape: common/harness/choices.h.

    tools/tune.py --json docs/results/tune.json            times them all on a GPU
    tools/tune.py --from docs/results/tune*.json --write   writes choices.h as those times have it, without a GPU

Without --write it prints choices.h. Of several cards' times it takes the geometric mean. A configuration is a row of common/harness/configurations.h; those that are there
for the tables of the lesson are not timed. To time needs an NVIDIA GPU, PyTorch and the library of all stages, as
tools/compare_torch.py does: every configuration is checked first, and then all take turns.
"""
import argparse
import dataclasses
import datetime
import json
import math
import pathlib
import re
import statistics
import sys

from compare_torch import LIBRARY, card_state, clocks_of, open_library, shape, stage_run, start_card_query
from ncu import ROOT, commit, output_of

STAGE = "14-lcsf"
CONFIGURATIONS = ROOT / "common/harness/configurations.h"
CHOICES = ROOT / "common/harness/choices.h"
SHAPES = [shape(d, n, causal) for d in (64, 128, 256) for causal in (False, True)
          for n in (512, 1024, 2048, 4096, 8192, 16384)]
WORTH_IT = 1.01  # a configuration other than that of the length below must be faster by more than this
ALLOWED_DIFFERENCE = 1e-2  # from PyTorch's output: each may be wrong by half of it
ROUNDS, MOST_LAUNCHES = 15, 64


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Of common/harness/configurations.h."""
    number: int
    d: int
    name: str
    shown: bool


def configurations(source=None):
    """The rows of configurations.h, by name: as its to_string() names them."""
    source = CONFIGURATIONS.read_text() if source is None else source
    found = {}
    for number, row in enumerate(re.findall(r"^    Configuration\{(.*)\},$", source, re.MULTILINE)):
        fields = dict(re.findall(r"\.(\w+) = (?:lcsf::Schedule::)?(\w+)", row))
        schedule = fields.get("schedule", "dynamic").replace("one_each", "one block each")
        slots = "slot" if fields["stages"] == "1" else "slots"
        turns = "" if fields.get("turns") == "false" else ", turns"
        section = f", sections of {fields['section']}% of L2" if "section" in fields else ""
        name = f"{fields['consumers']} x {fields['B_c']} keys, {fields['stages']} {slots}, {schedule}{turns}{section}"
        found[name] = Configuration(number, int(fields["d"]), name, fields.get("shown") == "true")
    return found


# ---- the choice


def choose(times):
    """From {n: {configuration: ms}} to [[n, configuration], ...], n ascending: up to so many keys, that one. A length
    that was not timed has the choice of the nearest one that was."""
    chosen, before = [], None
    for n, ms in sorted(times.items()):
        best = min(ms, key=ms.get)
        if chosen and ms.get(chosen[-1][1], float("inf")) <= WORTH_IT * ms[best]:
            best = chosen[-1][1]
        if chosen and chosen[-1][1] == best:
            chosen[-1][0] = n
        else:
            if chosen:
                chosen[-1][0] = math.isqrt(before * n)
            chosen.append([n, best])
        before = n
    return chosen


def mean_times(results):
    """{(d, causal): {n: {configuration: ms}}}, the geometric mean over the cards. SystemExit if one card's are missing."""
    times = {}
    for row in (row for result in results for row in result["rows"]):
        of = row["shape"]
        by_n = times.setdefault((of["head_dim"], of["causal"]), {})
        by_n.setdefault(of["n_k"], {}).setdefault(row["configuration"], []).append(row["ms"])
    for (d, causal), by_n in times.items():
        for n, by_name in by_n.items():
            for name, ms in by_name.items():
                if len(ms) != len(results):
                    sys.exit(f"tune.py: of {name}, d {d}, {'causal, ' if causal else ''}N {n} there are {len(ms)} times "
                             f"from {len(results)} cards: time them again")
                by_name[name] = statistics.geometric_mean(ms)
    return times


def choices(results):
    """The rows of choices.h: [(d, causal, n_k, configuration)], where the last n_k of each d and mask is None."""
    rows = []
    for (d, causal), by_n in sorted(mean_times(results).items()):
        chosen = choose(by_n)
        chosen[-1][0] = None
        rows += [(d, causal, n, configuration) for n, configuration in chosen]
    return rows


def choices_header(results, known):
    """The text of choices.h, from a result file of each card. `known`: configurations(). SystemExit if the times are of other configurations."""
    lines = []
    for d, causal, n, name in choices(results):
        if name not in known or known[name].d != d:
            sys.exit(f"tune.py: common/harness/configurations.h has no '{name}' for d = {d}: time them again")
        lines.append(f"    {{.d = {d}, .causal = {'true' if causal else 'false'}, .n_k = {n or 'INT_MAX'}, "
                     f".configuration = {known[name].number}}},  // {name}\n")
    cards = "".join(f"// {result['gpu']}, commit {result['commit']}.\n"
                    for result in sorted(results, key=lambda result: result["gpu"]))
    return ("// Written by tools/tune.py from docs/results/tune*.json: do not edit. The rows of "
            f"harness/configurations.h.\n{cards}"
            "#pragma once\n\nnamespace flashladder {\n\n"
            f"inline constexpr Choice choices[] = {{\n{''.join(lines)}}};\n\n}}  // namespace flashladder\n")


# ---- the times


def check_against_sdpa(names_and_runs, inputs, of):
    """SystemExit if one of {name: run(q, k, v, O)} differs from PyTorch's attention more than it may."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    expected = scaled_dot_product_attention(*inputs, is_causal=of.causal).double()
    for name, run in names_and_runs.items():
        O = run(*inputs, O=torch.full_like(inputs[0], float("nan"))).double()
        difference = ((O - expected).norm() / expected.norm()).item()
        if not difference <= ALLOWED_DIFFERENCE:
            sys.exit(f"{name}, {of}: differs from PyTorch's by {difference:.2e}, allowed {ALLOWED_DIFFERENCE:.0e}")


def candidates_of(library, known):
    """{d: [configuration]}. SystemExit if the library was built of another configurations.h."""
    stage = next((stage for stage in library.stages() if stage["stage"] == STAGE), {"variants": []})
    of_library = {variant["variant"]: variant["head_dims"] for variant in stage["variants"]}
    if of_library != {name: [c.d] for name, c in known.items()}:
        sys.exit(f"tune.py: the library's configurations are not those of {CONFIGURATIONS.relative_to(ROOT)}: build it")
    by_d = {}
    for name, c in known.items():
        if not c.shown:
            by_d.setdefault(c.d, []).append(name)
    return by_d


def measured(library, known):
    """The result file: all candidates on all shapes."""
    import torch
    from block_orders import median_times, random_inputs
    candidates, rows, cards = candidates_of(library, known), [], []
    for of in SHAPES:
        inputs = [random_inputs(of) for _ in range(3)]
        O = torch.empty_like(inputs[0][0])
        stages = {name: stage_run(library, f"{STAGE}/{name}", of, "bf16") for name in candidates[of.head_dim]}
        check_against_sdpa(stages, inputs[0], of)
        runs = {name: lambda i, run=run: run(*inputs[i % 3], O=O) for name, run in stages.items()}
        query = start_card_query()
        times = median_times(runs, ROUNDS, MOST_LAUNCHES, in_graphs=True)
        cards.append(card_state(query.communicate()[0]) if query else {})
        for name, ms in times.items():
            rows.append({"configuration": name, "dtype": "bf16", "shape": dataclasses.asdict(of), "ms": ms,
                         "tflops": of.flops() / ms / 1e9})
            print(f"{str(of):40} {name:40} {ms:8.3f} ms {rows[-1]['tflops']:6.0f} TFLOP/s", flush=True)
    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda, "commit": commit(),
            "clocks": clocks_of(cards), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path, help="the result file to write")
    parser.add_argument("--from", dest="source", type=pathlib.Path, nargs="+",
                        help="times nothing: takes these result files, one of each card")
    parser.add_argument("--write", nargs="?", type=pathlib.Path, const=CHOICES, metavar="FILE",
                        help="common/harness/choices.h, or another file")
    arguments = parser.parse_args()
    known = configurations()
    if arguments.source:
        results = [json.loads(source.read_text()) for source in arguments.source]
    else:
        results = [measured(open_library(arguments.library), known)]
        if arguments.json:
            arguments.json.write_text(json.dumps(results[0], indent=1) + "\n")
    header = choices_header(results, known)
    if arguments.write:
        arguments.write.write_text(header)
    else:
        print(header, end="")


if __name__ == "__main__":
    main()
