#!/usr/bin/env python3
"""Rung 27b beside FlashInfer's decoding, both with the same pages in any order, taking turns in one run on a GPU: each is
checked first, then timed.

    tools/measure/compare_pages.py --json docs/results/pages.json      18 problems: a table in lesson 27b

Needs what tools/measure/compare_torch.py does, and FlashInfer, which compiles its kernels at the first call. Ends with 1 if
the stage is wrong.
"""
import argparse
import dataclasses
import json
import math
import pathlib
import random
import statistics
import sys

from card import clocks_of
from checks import ALLOWED_ERROR
from compare_torch import (copy_gb_per_s, first_line, format_table, matmul_tflops, new_result, speed_ratio, time_variants)
from kernels import LIBRARY, flashinfer_paged_run, open_library, paged_run, torch
from problems import step_of_decoding

STAGE, PEER = "27b-paged", "peer:flashinfer"
PAGE_SIZES = 16, 64, 256
L2_COPIES_BYTES = 128 << 20  # inputs of one launch and the next are this far apart, more than L2 holds


def problems():
    """[(shape, lengths of the sequences)]: all long, one alone, many of unlike length, and one that is longer than all
    others together."""
    draw = random.Random(2026)
    unlike = [draw.randint(1, 2000) for _ in range(64)]
    one_long = [16384] + [draw.randint(1, 256) for _ in range(31)]
    return [(step_of_decoding(len(lengths), heads, kv_heads, max(lengths), d), lengths) for d in (64, 128)
            for heads, kv_heads, lengths in ((64, 8, [8192] * 16), (32, 8, [65536]), (32, 8, unlike), (32, 8, one_long))]


def pools(shape, lengths, page_size):
    """Inputs [(q, k_pages, v_pages), ...], and their table: pages in any order, one for each page_size keys."""
    of_sequence = -(-shape.n_k // page_size)
    generator = torch.Generator("cuda").manual_seed(1)
    table = torch.randperm(shape.batch * of_sequence, device="cuda", generator=generator).int().view(shape.batch, of_sequence)
    random_of = lambda *size: torch.randn(size, device="cuda", dtype=torch.bfloat16, generator=generator)
    pool = table.numel(), shape.kv_heads, page_size, shape.head_dim
    copies = max(2, math.ceil(L2_COPIES_BYTES / (4 * math.prod(pool))))
    return [(random_of(shape.batch, shape.heads, 1, shape.head_dim), random_of(*pool), random_of(*pool))
            for _ in range(copies)], table


def reference(q, k_pages, v_pages, table, lengths):
    """O in double."""
    group, all_of_them = q.shape[1] // k_pages.shape[1], []
    for b, n in enumerate(lengths):
        rows = lambda pages: pages[table[b].long()].transpose(0, 1).flatten(1, 2)[:, :n].double().repeat_interleave(group, 0)
        S = q[b].double() @ rows(k_pages).mT * q.shape[3]**-0.5
        all_of_them.append(S.softmax(-1) @ rows(v_pages))
    return torch.stack(all_of_them)


def compare(shape, lengths, page_size, library, options):
    inputs, table = pools(shape, lengths, page_size)
    on_device, skipped = torch.tensor(lengths, dtype=torch.int32, device="cuda"), {}
    runs = {STAGE: paged_run(library, STAGE, shape, "bf16", page_size, table, on_device)}
    try:
        runs[PEER] = flashinfer_paged_run(shape, torch.bfloat16, page_size, table, on_device)
        runs[PEER](*inputs[0])
    except Exception as error:  # of many kinds: what a compiler throws
        skipped[PEER] = first_line(error)
        runs.pop(PEER, None)
    right, checked = reference(*inputs[0], table, lengths), {}
    for name, run in runs.items():
        error = ((run(*inputs[0]).double() - right).norm() / right.norm()).item()
        checked[name] = {"error": error if math.isfinite(error) else None}
        if not error <= ALLOWED_ERROR["bf16"]:
            checked[name]["wrong"] = f"error {error:.2e}, allowed {ALLOWED_ERROR['bf16']:.2e}"
    times, launches, method, state = time_variants({name: run for name, run in runs.items() if "wrong" not in checked[name]},
                                                   inputs, options, math.inf, seed=repr((shape, page_size)))
    elements = shape.head_dim * (2 * shape.batch * shape.heads + 2 * shape.kv_heads * sum(lengths))
    rows = []
    for name in sorted(runs):
        row = {"stage": name, "origin": "peer" if name == PEER else "solution", "dtype": "bf16", "launched": method,
               "shape": dataclasses.asdict(shape) | {"page_size": page_size, "keys": sum(lengths)}, **checked[name]}
        if name in times:
            ms = statistics.median(times[name])
            row |= {"ms": ms, "ms_min": min(times[name]), "ms_max": max(times[name]), "samples": len(times[name]),
                    "launches": launches, "gb_per_s": 2 * elements / ms / 1e6,
                    "percent_of_copy": 100 * 2 * elements / ms / 1e6 / copy_gb_per_s(times),
                    "tflops": 4 * shape.heads * sum(lengths) * shape.head_dim / ms / 1e9,
                    "ratio_flashinfer": speed_ratio(times[name], times.get(PEER))}
        rows.append(row)
    return rows, skipped, state, matmul_tflops(times), copy_gb_per_s(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path, help="result file, written after each problem")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--no-graph", action="store_true", help="launch from the host instead of a CUDA graph")
    options = parser.parse_args()
    library = open_library(options.library)
    result = new_result()
    states, matmuls, copies = [], [], []
    for shape, lengths in problems():
        for page_size in PAGE_SIZES:
            rows, skipped, state, matmul, copy = compare(shape, lengths, page_size, library, options)
            states.append(state), matmuls.append(matmul), copies.append(copy)
            result["rows"] += rows
            result["skipped"] |= skipped
            result |= {"driver": state.get("driver_version", "unknown"), "clocks": clocks_of(states),
                       "matmul_tflops": statistics.median(matmuls), "copy_gb_per_s": statistics.median(copies)}
            cell = lambda row, key, form: "" if row.get(key) is None else format(row[key], form)
            print(f"\n{shape}, {sum(lengths)} keys in pages of {page_size}")
            print(format_table(["stage", "us", "GB/s", "% copy", "x FlashInfer", "error"],
                               [[row["stage"], format(1000 * row["ms"], ".1f") if "ms" in row else row["wrong"],
                                 cell(row, "gb_per_s", ".0f"), cell(row, "percent_of_copy", ".0f"),
                                 cell(row, "ratio_flashinfer", ".3f"), cell(row, "error", ".1e")] for row in rows]), flush=True)
            for name, why in skipped.items():
                print(f"skipped: {name}: {why}")
            if options.json:
                options.json.write_text(json.dumps(result, indent=1, sort_keys=True, allow_nan=False) + "\n")
    beside = [row["ratio_flashinfer"] for row in result["rows"] if row["stage"] == STAGE and row.get("ratio_flashinfer")]
    if beside:
        print(f"\n{STAGE}: {statistics.geometric_mean(beside):.3f} x FlashInfer in geometric mean, lowest {min(beside):.2f}")
    wrong = [f"{row['stage']}: {row['wrong']}" for row in result["rows"] if "wrong" in row]
    print("".join(f"FAILED: {line}\n" for line in wrong), end="")
    sys.exit(1 if any(not line.startswith("peer") for line in wrong) else 0)


if __name__ == "__main__":
    main()
