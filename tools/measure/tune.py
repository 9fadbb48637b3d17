#!/usr/bin/env python3
"""What each configuration of rung 14 costs, by which a launch chooses one: common/operations/attention/costs.h.

    tools/measure/tune.py --json docs/results/tune.json            times them all on a GPU
    tools/measure/tune.py --from docs/results/tune*.json --write   writes costs.h as those times have it, without a GPU

Without --write it prints costs.h. Of several cards' times it takes the geometric mean. A configuration is a row of
common/operations/attention/configurations.h; those that are there for the tables of the lesson are not timed. To time needs an NVIDIA
GPU, PyTorch and the library of all stages, as tools/measure/compare_torch.py does: every configuration is checked
first, and then all take turns.
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

from card import card_state, clocks_of, start_card_query
from kernels import LIBRARY, open_library, stage_run
from ncu import ROOT, commit, output_of
from problems import Shape, shape

STAGE = "14-lcsf"
CONFIGURATIONS = ROOT / "common/operations/attention/configurations.h"
COSTS = ROOT / "common/operations/attention/costs.h"
# 16384 tokens; then few tasks and many, of lengths that no table of the lessons shows.
SHAPES = ([shape(d, n, causal) for d in (64, 128, 256) for causal in (False, True)
           for n in (512, 1024, 2048, 4096, 8192, 16384)] +
          [shape(d, n, causal, batch=1, heads=heads) for d in (64, 128, 256) for causal in (False, True)
           for heads in (1, 3, 6, 12, 24, 40) for n in (700, 1500, 3000, 6000, 12000)] +
          [shape(d, n, causal, batch=4, heads=heads) for d in (64, 128) for causal in (False, True)
           for heads in (12, 40) for n in (1500, 3000, 6000)])
WORTH_IT = 1.001  # without a configuration, what is chosen must be slower by more than this, or it is left out
PACE_ROUNDS = 30  # of fitting costs and paces in turn: by then the choices are the same from round to round
ALLOWED_DIFFERENCE = 1e-2  # from PyTorch's output: each may be wrong by half of it
ROUNDS, MOST_LAUNCHES = 11, 64


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Of common/operations/attention/configurations.h."""
    number: int
    d: int
    name: str
    shown: bool
    consumers: int
    B_c: int
    fixed: bool = False


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
        found[name] = Configuration(number, int(fields["d"]), name, fields.get("shown") == "true",
                                    int(fields["consumers"]), int(fields["B_c"]), schedule == "fixed")
    return found


# ---- the choice


PART_WITH_ONE_LESS = {2: 0.7, 3: 0.76, 4: 0.8}  # of configurations.h: what a task of a unit less takes of one of all


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of common/operations/attention/configurations.h: microseconds of a launch, of a task and of its steps."""
    launch: float
    task: float
    step: float


def rounds_of(large, small, part, multiprocessors):
    """rounds_of() of common/operations/attention/configurations.h."""
    busy = large % multiprocessors
    end, by_idle, by_busy, done = 0, part, 1 + part, 0
    while done < small:
        if by_idle <= by_busy:
            end, by_idle, done = by_idle, by_idle + part, done + multiprocessors - busy
        else:
            end, by_busy, done = by_busy, by_busy + part, done + busy
    return large // multiprocessors + max(end, 1 if busy else 0)


def tasks_and_rounds(c, of, multiprocessors):
    """Of query_tasks() of common/operations/attention/configurations.h: tasks of a head, rounds of all."""
    units, heads = -(-of.n_q // 64), of.heads * of.batch
    tasks = -(-units // c.consumers)
    low, fewest = tasks * c.consumers - units, tasks
    best = -(-tasks * heads // multiprocessors)
    if of.causal or best > 8 or c.consumers == 1 or c.fixed:
        return fewest, best
    while 2 * low <= tasks and low * heads <= 2 * multiprocessors:
        rounds = rounds_of((tasks - low) * heads, low * heads, PART_WITH_ONE_LESS[c.consumers], multiprocessors)
        if rounds < best:
            fewest, best = tasks, rounds
        tasks, low = tasks + 1, low + c.consumers
    return fewest, best


def rounds_and_steps(c, of, multiprocessors):
    """What expected_time() of common/operations/attention/configurations.h takes the larger time of: [(tasks one after the other,
    steps of each)]."""
    up = lambda x, y: -(-x // y)
    of_head, rounds = tasks_and_rounds(c, of, multiprocessors)
    tasks, longest = of_head * of.heads * of.batch, up(of.n_k, c.B_c)
    if not of.causal:
        return [(rounds, longest)]
    without_keys = max(0, of.n_q - of.n_k) / of.n_q
    shortest = up(min(of.n_k, max(0, of.n_k - of.n_q) + 64 * c.consumers), c.B_c)
    return [(1, longest),
            (tasks / multiprocessors, without_keys + (1 - without_keys) * (shortest + longest) / 2)]


def expected_time(c, cost, of, multiprocessors):
    return max(cost.launch + rounds * (cost.task + steps * cost.step)
               for rounds, steps in rounds_and_steps(c, of, multiprocessors))


def least_squares(rows):
    """x >= 0 with row[:-1] x = row[-1], as nearly as can be. What would be negative is 0, and what cannot be told from the
    unknowns before it."""
    size = len(rows[0]) - 1
    unknowns = list(range(size))
    while True:
        matrix = [[sum(row[i] * row[k] for row in rows) for k in [*unknowns, -1]] for i in unknowns]
        unwanted = None
        for i, unknown in enumerate(unknowns):
            pivot = matrix[i]
            if pivot[i] <= 1e-9 * sum(row[unknown] ** 2 for row in rows):
                unwanted = unknown
                break
            matrix[i] = [x / pivot[i] for x in pivot]
            for k, other in enumerate(matrix):
                if k != i:
                    matrix[k] = [x - other[i] * y for x, y in zip(other, matrix[i])]
        if unwanted is None:
            found = {unknown: row[-1] for unknown, row in zip(unknowns, matrix)}
            if min(found.values()) >= 0:
                return [found.get(i, 0) for i in range(size)]
            unwanted = min(found, key=found.get)
        unknowns.remove(unwanted)


def fitted(c, times, multiprocessors):
    """The Cost whose expected times are nearest to {shape: {configuration: microseconds}}, each in proportion. Where others
    are faster it matters less."""
    cost = Cost(1, 1, 1)
    for _ in range(20):  # which of the two times is the larger one depends on the cost
        rows = []
        for of, by_name in times.items():
            rounds, steps = max(rounds_and_steps(c, of, multiprocessors),
                                key=lambda both: both[0] * (cost.task + both[1] * cost.step))
            us = by_name[c.name]
            weight = (min(by_name.values()) / us) ** 3
            rows.append([weight * x for x in (1 / us, rounds / us, rounds * steps / us, 1)])
        cost = Cost(*least_squares(rows))
    return cost


def fitted_together(times, known, multiprocessors):
    """{configuration: Cost} of {shape: {configuration: microseconds}}, all of one d. A long launch lowers the card's clock, whichever
    configuration it is of. So each problem has a pace besides, by which all of its times are longer or shorter alike: what
    configurations differ by is the costs'. The paces of all have the geometric mean 1."""
    pace = dict.fromkeys(times, 1.0)
    names = sorted({name for us in times.values() for name in us}, key=lambda name: known[name].number)
    for _ in range(PACE_ROUNDS):
        at_one_pace = {of: {name: us / pace[of] for name, us in by_name.items()} for of, by_name in times.items()}
        costs = {name: fitted(known[name], at_one_pace, multiprocessors) for name in names}
        for of, by_name in times.items():
            weights = {name: (min(by_name.values()) / us) ** 6 for name, us in by_name.items()}  # as fitted() has, squared
            pace[of] = math.exp(sum(weights[name] * math.log(us / expected_time(known[name], costs[name], of, multiprocessors))
                                    for name, us in by_name.items()) / sum(weights.values()))
        mean = statistics.geometric_mean(pace.values())
        pace = {of: of_shape / mean for of, of_shape in pace.items()}
    return costs


def mean_times(results):
    """{shape: {configuration: microseconds}}, the geometric mean over the cards. SystemExit if one card's are missing."""
    times = {}
    for row in (row for result in results for row in result["rows"]):
        times.setdefault(Shape(**row["shape"]), {}).setdefault(row["configuration"], []).append(1000 * row["ms"])
    for of, by_name in times.items():
        for name, us in by_name.items():
            if len(us) != len(results):
                sys.exit(f"tune.py: of {name}, {of} there are {len(us)} times from {len(results)} cards: time them again")
            by_name[name] = statistics.geometric_mean(us)
    return times


def loss(costs, times, known, multiprocessors):
    """What is chosen by {configuration: Cost} takes so many times what the fastest takes, in geometric mean."""
    chosen = lambda of: min(costs, key=lambda name: expected_time(known[name], costs[name], of, multiprocessors))
    return statistics.geometric_mean(us[chosen(of)] / min(us.values()) for of, us in times.items())


def needed(costs, times, known, multiprocessors):
    """The costs without those configurations that the others can do without: first the one that is missed least."""
    while len(costs) > 1:
        without = {name: {other: cost for other, cost in costs.items() if other != name} for name in costs}
        losses = {name: loss(rest, times, known, multiprocessors) for name, rest in without.items()}
        name = min(losses, key=losses.get)
        if losses[name] > WORTH_IT * loss(costs, times, known, multiprocessors):
            break
        costs = without[name]
    return costs


def all_costs(results, known):
    """{(d, causal): {configuration: Cost}} from a result file of each card. SystemExit if the times are of other
    configurations, or the cards of different size."""
    times, sizes = mean_times(results), {result["multiprocessors"] for result in results}
    if not all(result.get("fills_last_round") for result in results):  # from before tasks of one unit less did
        known = {name: dataclasses.replace(c, fixed=True) for name, c in known.items()}
    if len(sizes) > 1:
        sys.exit(f"tune.py: the cards have {sorted(sizes)} multiprocessors: one set of costs does not fit them")
    (multiprocessors,), costs = sizes, {}
    for d, causal in sorted({(of.head_dim, of.causal) for of in times}):
        of_kind = {of: us for of, us in times.items() if (of.head_dim, of.causal) == (d, causal)}
        names = {name for us in of_kind.values() for name in us}
        for name in names:
            if name not in known or known[name].d != d:
                sys.exit(f"tune.py: common/operations/attention/configurations.h has no '{name}' for d = {d}: time them again")
        costs[d, causal] = needed(fitted_together(of_kind, known, multiprocessors), of_kind, known, multiprocessors)
    return costs


def costs_header(results, known):
    """The text of costs.h."""
    lines = [f"    {{.configuration = {known[name].number}, .causal = {'true' if causal else 'false'}, "
             f".launch = {cost.launch:.3f}, .task = {cost.task:.3f}, .step = {cost.step:.4f}}},  // d {d}: {name}\n"
             for (d, causal), costs in all_costs(results, known).items() for name, cost in costs.items()]
    cards = "".join(f"// {result['gpu']}, commit {result['commit']}.\n"
                    for result in sorted(results, key=lambda result: result["gpu"]))
    return ("// Written by tools/measure/tune.py from docs/results/tune*.json: do not edit. By the rows of "
            f"operations/attention/configurations.h.\n{cards}"
            "#pragma once\n\nnamespace flashladder::attention {\n\n"
            f"inline constexpr ConfigurationCost configuration_costs[] = {{\n{''.join(lines)}}};\n\n}}  // namespace flashladder::attention\n")


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
            "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count, "fills_last_round": True,
            "clocks": clocks_of(cards), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path, help="the result file to write")
    parser.add_argument("--from", dest="source", type=pathlib.Path, nargs="+",
                        help="times nothing: takes these result files, one of each card")
    parser.add_argument("--write", nargs="?", type=pathlib.Path, const=COSTS, metavar="FILE",
                        help="common/operations/attention/costs.h, or another file")
    arguments = parser.parse_args()
    known = configurations()
    if arguments.source:
        results = [json.loads(source.read_text()) for source in arguments.source]
    else:
        results = [measured(open_library(arguments.library), known)]
        if arguments.json:
            arguments.json.write_text(json.dumps(results[0], indent=1) + "\n")
    header = costs_header(results, known)
    if arguments.write:
        arguments.write.write_text(header)
    else:
        print(header, end="")


if __name__ == "__main__":
    main()
