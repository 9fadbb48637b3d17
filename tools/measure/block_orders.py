#!/usr/bin/env python3
"""The orders in which rung 11 takes its tasks: how long each takes, and how many bytes it reads from device memory.

    tools/measure/block_orders.py --json docs/results/orders.json    the table in lesson 11

Needs an NVIDIA GPU, PyTorch, Nsight Compute and the library of all stages, as tools/measure/compare_torch.py does.
Times are those of interleaved launches, without the profiler; bytes are the profiler's, of one launch after
another one.
"""
import argparse
import dataclasses
import datetime
import json
import math
import pathlib
import statistics
import sys

from card import card_state, clocks_of, start_card_query
from compare_torch import interleave, launches_in_a_row, milliseconds
from kernels import LIBRARY, open_library, stage_run, torch
from ncu import add_metrics, commit, output_of, second_launches
from problems import Shape, shape

STAGES = ["09-warpgroup-mma", "10-warp-specialization",
          *("11-persistent-grid/" + name for name in ("a block for each task", "fixed schedule", "head after head",
                                                      "sections in L2", "all heads at once"))]
SHAPES = [shape(d, n, causal) for d in (64, 128) for causal in (False, True) for n in (1024, 4096, 16384)]
METRICS = {"device_bytes": "dram__bytes_read.sum", "l2_sectors": "lts__t_sectors_op_read.sum"}
ROUNDS, LAUNCHES = 11, 3
WARM_MS = 400  # a cold card is faster: in the middle of the rounds its clock would fall to what its power allows
KERNELS = {"09": "warpgroup_flash", "10": "specialized_flash", "11": "persistent_flash"}


def random_inputs(of):
    make = lambda heads, n: torch.randn(of.batch, heads, n, of.head_dim, device="cuda", dtype=torch.bfloat16)
    return make(of.heads, of.n_q), make(of.kv_heads, of.n_k), make(of.kv_heads, of.n_k)


def runs_of(library, of, stages=STAGES):
    """{stage: run(q, k, v)}"""
    return {stage: stage_run(library, stage, of, "bf16") for stage in stages}


def captured(run, launches):
    """A CUDA graph of so many launches in a row: to start it takes less time than they do from Python."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            run(i)
    return graph.replay


def median_times(runs, rounds=ROUNDS, most_launches=LAUNCHES, in_graphs=False):
    """{name: median milliseconds} of {name: run(i)}, which take turns. i counts launches, for inputs that take turns.
    Launches are as many in a row as take a while, if most_launches allows it, and the same number for all."""
    fastest = min(milliseconds(lambda: [run(i) for i in range(3)]) / 3 for run in runs.values() for _ in range(2))
    launches = max(LAUNCHES, min(most_launches, launches_in_a_row(fastest)))
    work = {name: captured(run, launches) if in_graphs else lambda run=run: [run(i) for i in range(launches)]
            for name, run in runs.items()}
    for _ in range(math.ceil(WARM_MS / (fastest * launches * len(work)))):
        for run in work.values():
            run()

    def measure(name):
        runs[name](0)  # keeps the card busy while the host queues what is timed
        return milliseconds(work[name]) / launches
    return {name: statistics.median(ms) for name, ms in interleave(list(runs), measure, rounds).items()}


def measure_times(library, of, stages=STAGES):
    """{stage: median milliseconds}, launches of all stages taking turns on inputs that take turns."""
    inputs = [random_inputs(of) for _ in range(3)]
    O = torch.empty_like(inputs[0][0])
    return median_times({stage: lambda i, run=run: run(*inputs[i % 3], O=O)
                         for stage, run in runs_of(library, of, stages).items()})


def launch_for_profiler(library):
    """Two launches of each stage on each shape: the second finds L2 as another launch leaves it."""
    for of in SHAPES:
        inputs = random_inputs(of)
        for stage, run in runs_of(library, of).items():
            run(*inputs)
            run(*inputs)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--launch", action="store_true", help="only launch: what the profiler looks at")
    arguments = parser.parse_args()
    library = open_library(arguments.library)
    if arguments.launch:
        return launch_for_profiler(library)
    rows, cards = [], []
    for of in SHAPES:
        query = start_card_query()
        times = measure_times(library, of)
        cards.append(card_state(query.communicate()[0]) if query else {})
        rows += [{"stage": stage, "dtype": "bf16", "shape": dataclasses.asdict(of), "ms": ms,
                  "tflops": of.flops() / ms / 1e9} for stage, ms in times.items()]
    launches = second_launches([sys.executable, __file__, "--library", arguments.library, "--launch"], METRICS.values(),
                               [KERNELS[row["stage"][:2]] for row in rows])
    add_metrics(rows, launches, METRICS)
    driver = "--query-gpu=driver_version"
    result = {"gpu": torch.cuda.get_device_name(), "driver": output_of(["nvidia-smi", driver, "--format=csv,noheader"]),
              "cuda": torch.version.cuda, "commit": commit(), "clocks": clocks_of(cards),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        of = Shape(**row["shape"])
        print(f"{str(of):40} {row['stage']:45} {row['ms']:8.3f} ms {row['tflops']:6.0f} TFLOP/s "
              f"{row['device_bytes'] / 1e6:8.0f} MB")


if __name__ == "__main__":
    main()
