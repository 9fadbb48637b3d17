#!/usr/bin/env python3
"""How fast the variants of rungs 12 and 13 are, beside the rung below: the tables in lessons 12 and 13.

    tools/measure/variant_times.py --json docs/results/variants.json

Needs an NVIDIA GPU, PyTorch and the library of all stages, as tools/measure/compare_torch.py does. All take turns in
one run, on each problem: medians.
"""
import argparse
import dataclasses
import datetime
import json
import pathlib

from block_orders import measure_times
from card import card_state, clocks_of, start_card_query
from kernels import LIBRARY, open_library, torch
from ncu import commit, output_of
from problems import shape

VARIANTS = {"12-overlap": ["", "no overlap", "ping-pong", "intra", "no overlap, scores multiplied before",
                           "scores multiplied before"],
            "13-lean-softmax": ["", "two consumers", "two consumers, lazy", "three consumers", "three consumers, lazy",
                                "and blocks skipped", "all but lazy"]}
STAGES = ["11-persistent-grid", *(f"{stage}/{variant}".rstrip("/") for stage, variants in VARIANTS.items()
                                  for variant in variants)]
SHAPES = [shape(d, n, causal) for d in (64, 128) for causal in (False, True) for n in (1024, 4096, 16384)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    library = open_library(arguments.library)
    rows, cards = [], []
    for of in SHAPES:
        query = start_card_query()
        times = measure_times(library, of, STAGES)
        cards.append(card_state(query.communicate()[0]) if query else {})
        for stage, ms in times.items():
            rows.append({"stage": stage, "dtype": "bf16", "shape": dataclasses.asdict(of), "ms": ms,
                         "tflops": of.flops() / ms / 1e9})
            print(f"{str(of):40} {stage:55} {ms:8.3f} ms {rows[-1]['tflops']:6.0f} TFLOP/s")
    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    result = {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda, "commit": commit(),
              "clocks": clocks_of(cards), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
              "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
