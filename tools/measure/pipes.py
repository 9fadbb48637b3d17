#!/usr/bin/env python3
"""What rungs 09 to 14 and cuDNN keep busy, and what their warps wait for, by Nsight Compute: the table in lesson 14.

    tools/measure/pipes.py --json docs/results/pipes.json

Needs an NVIDIA GPU, PyTorch, Nsight Compute and the library of all stages, as tools/measure/compare_torch.py does. Of
two launches of each the second is profiled: it finds L2 as another launch leaves it.
"""
import argparse
import dataclasses
import json
import pathlib
import sys

from block_orders import random_inputs
from kernels import CUDNN, LIBRARY, open_library, peer_run, stage_run
from ncu import PIPES, busy, commit, output_of, profiler_version, second_launches
from problems import shape
from template_tables import today

KERNELS = {"09-warpgroup-mma": "warpgroup_flash", "10-warp-specialization": "specialized_flash",
           "11-persistent-grid": "persistent_flash", "12-overlap": "overlapped_flash", "13-lean-softmax": "lean_flash",
           **{f"13-lean-softmax/{variant}": "lean_flash" for variant in
              ("two consumers", "two consumers, lazy", "three consumers", "three consumers, lazy", "and blocks skipped",
               "all but lazy")},
           "14-lcsf": "lcsf_kernel", CUDNN: "cudnn.*flash"}
SHAPES = [shape(64, 4096, False), shape(128, 4096, False), shape(128, 4096, True)]


def run_of(library, name, of):
    return peer_run("cudnn", of) if name == CUDNN else stage_run(library, name, of, "bf16")


def launch(library):
    import torch
    for of in SHAPES:
        inputs = random_inputs(of)
        for name in KERNELS:
            run = run_of(library, name, of)
            run(*inputs)
            run(*inputs)
    torch.cuda.synchronize()


def profiled(library):
    """The second launches, one row each."""
    expected = [(of, name) for of in SHAPES for name in KERNELS]
    launches = second_launches([sys.executable, __file__, "--library", library, "--launch"], PIPES.values(),
                               [KERNELS[name] for _, name in expected])
    return [{"stage": name, "shape": dataclasses.asdict(of), "busy": busy(launch)}
            for (of, name), launch in zip(expected, launches)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--launch", action="store_true", help="only launch: what the profiler looks at")
    arguments = parser.parse_args()
    library = open_library(arguments.library)
    if arguments.launch:
        return launch(library)
    import torch
    rows = profiled(arguments.library)
    card = torch.cuda.get_device_properties(0)
    result = {"gpu": card.name, "multiprocessors": card.multi_processor_count,
              "driver": output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
              "cuda": torch.version.cuda, "profiler": profiler_version(),
              "commit": commit(), "date": today(), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(f"d {row['shape']['head_dim']:3} causal {row['shape']['causal']:1} {row['stage']:40} " +
              " ".join(f"{what} {value:.4g}" for what, value in row["busy"].items()))


if __name__ == "__main__":
    main()
