#!/usr/bin/env python3
"""Rung 26b beside other people's attention for sequences of unlike length, taking turns in one run on a GPU: each is
checked first, then timed.

    tools/measure/compare_varlen.py --json docs/results/varlen.json    26 problems: a table in lesson 26b
    tools/measure/compare_varlen.py --only 'd 256' --json docs/results/varlen.json    some of them, into 'more' of that file

Peers: PyTorch's varlen_attn; FlashInfer with FlashAttention-3's kernel; FlashAttention-4, where they are installed; and
cuDNN with each sequence padded to the longest one. Needs what tools/measure/compare_torch.py does. Ends with 1 if the stage
is wrong.
"""
import argparse
import math
import pathlib
import random
import statistics
import sys

from card import clocks_of
from checks import ALLOWED_ERROR
from compare_torch import (check_only, copy_gb_per_s, first_line, format_table, matmul_tflops, new_result, speed_ratio,
                           time_variants, write_rows)
from kernels import (LIBRARY, Sequences, flash_attention_varlen_run, flashinfer_varlen_run, open_library, padded_run,
                     torch, varlen_attn_run, varlen_run)

STAGE, PADDED = "26b-varlen", "peer:cudnn, padded"
PEERS = {"peer:varlen_attn": varlen_attn_run, "peer:flash_attn.cute": flash_attention_varlen_run,
         "peer:flashinfer": lambda of: flashinfer_varlen_run(of, torch.bfloat16), PADDED: padded_run}
CHECKED_ROWS = 32  # of each sequence, at most
L2_COPIES_BYTES = 128 << 20
HEAD_SIZES = (64, 64), (128, 128)  # columns of Q and K, and of V, with all batches
OTHER_HEAD_SIZES = (80, 80), (96, 96), (192, 128), (192, 192), (256, 256)  # with the first one


def lengths_of_batches():
    """{what it is: lengths of its sequences}, the same each time."""
    draw = random.Random(2026)
    return {"8 up to 2048": [draw.randint(1, 2048) for _ in range(8)],
            "32 up to 512": [draw.randint(1, 512) for _ in range(32)],
            "4 up to 16384": [draw.randint(4096, 16384) for _ in range(4)],
            "1 of 16384, 31 up to 256": [16384] + [draw.randint(1, 256) for _ in range(31)]}


def problems():
    """{"d 192/128 causal, 8 up to 2048": (head_dim, value_dim, causal, what the sequences are, their lengths)}"""
    batches = list(lengths_of_batches().items())
    return {f"d {head_dim}/{value_dim}{' causal' if causal else ''}, {name}": (head_dim, value_dim, causal, name, lengths)
            for head_dim, value_dim in HEAD_SIZES + OTHER_HEAD_SIZES for causal in (False, True)
            for name, lengths in (batches if (head_dim, value_dim) in HEAD_SIZES else batches[:1])}


def inputs_of(of):
    generator = torch.Generator("cuda").manual_seed(1)
    sizes = [(of.total, of.heads, of.head_dim), (of.total, of.kv_heads, of.head_dim), (of.total, of.kv_heads, of.value_dim)]
    copies = max(2, math.ceil(L2_COPIES_BYTES / (2 * sum(map(math.prod, sizes)))))
    return [tuple(torch.randn(size, device="cuda", dtype=torch.bfloat16, generator=generator) for size in sizes)
            for _ in range(copies)]


def reference_of(q, k, v, of, lengths):
    """Some rows, and O (rows, heads, columns) of them in double."""
    draw, first, rows, outputs, group = random.Random(1), 0, [], [], of.heads // of.kv_heads
    for n in lengths:
        some = sorted(draw.sample(range(n), min(n, CHECKED_ROWS)) + [n - 1])
        K, V = (x[first:first + n].double().repeat_interleave(group, 1) for x in (k, v))
        S = torch.einsum("qhd,khd->hqk", q[[first + i for i in some]].double(), K) * of.head_dim**-0.5
        if of.causal:
            S.masked_fill_(torch.arange(n, device="cuda") > torch.tensor(some, device="cuda")[:, None], -math.inf)
        outputs.append(torch.einsum("hqk,khd->qhd", S.softmax(-1), V))
        rows += [first + i for i in some]
        first += n
    return rows, torch.cat(outputs)


def compare(of, name, lengths, library, options):
    inputs, skipped, runs = inputs_of(of), {}, {STAGE: varlen_run(library, STAGE, of, "bf16")}
    for peer, make in PEERS.items():
        try:
            run = make(of)
            run(*inputs[0])
            runs[peer] = run
        except Exception as error:  # of many kinds: what a compiler throws
            skipped[peer] = first_line(error)
    rows, reference = reference_of(*inputs[0], of, lengths)
    checked = {}
    for peer in runs.keys() - {PADDED}:
        error = ((runs[peer](*inputs[0])[rows].double() - reference).norm() / reference.norm()).item()
        checked[peer] = {"error": error if math.isfinite(error) else None}
        if not error <= ALLOWED_ERROR["bf16"]:
            checked[peer]["wrong"] = f"error {error:.2e}, allowed {ALLOWED_ERROR['bf16']:.2e}"
    right = {peer: run for peer, run in runs.items() if "wrong" not in checked.get(peer, {})}
    times, launches, method, state = time_variants(right, inputs, options, math.inf, seed=repr((of, name)))
    flops = sum(2 * of.heads * (of.head_dim + of.value_dim) * n * n / (2 if of.causal else 1) for n in lengths)
    result = []
    fastest = min((peer for peer in times if peer.startswith("peer:")), key=lambda p: statistics.median(times[p]), default=None)
    for peer in sorted(runs):
        row = {"stage": peer, "origin": "solution" if peer == STAGE else "peer", "dtype": "bf16", "launched": method,
               "shape": {"head_dim": of.head_dim, "value_dim": of.value_dim, "causal": of.causal, "heads": of.heads, "kv_heads": of.kv_heads,
                         "sequences": name, "rows": sum(lengths)}, **checked.get(peer, {})}
        if peer in times:
            ms = statistics.median(times[peer])
            row |= {"ms": ms, "ms_min": min(times[peer]), "ms_max": max(times[peer]), "samples": len(times[peer]),
                    "launches": launches, "tflops": flops / ms / 1e9,
                    "ratios": {other: speed_ratio(times[peer], times[other]) for other in times if other != peer},
                    "ratio_fastest": speed_ratio(times[peer], times.get(fastest))}
        result.append(row)
    return result, skipped, state, matmul_tflops(times), copy_gb_per_s(times)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--only", nargs="+", metavar="PROBLEM", help="those whose line above their numbers begins so; of "
                        "the result file, which must be there, it writes 'more' alone")
    parser.add_argument("--json", type=pathlib.Path, help="result file, written after each problem")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--no-graph", action="store_true", help="launch from the host instead of a CUDA graph")
    options = parser.parse_args(arguments)
    all_of_them = problems()
    options.problems = {title: all_of_them[title] for title in check_only(parser, options, list(all_of_them))}
    return options


def main():
    options = parse()
    library = open_library(options.library)
    result = new_result()
    states, matmuls, copies = [], [], []
    for title, (head_dim, value_dim, causal, name, lengths) in options.problems.items():
        cu = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
        of = Sequences(cu, max(lengths), options.heads, options.heads, head_dim, value_dim, causal)
        rows, skipped, state, matmul, copy = compare(of, name, lengths, library, options)
        states.append(state), matmuls.append(matmul), copies.append(copy)
        result["rows"] += rows
        result["skipped"] |= skipped
        result |= {"driver": state.get("driver_version", "unknown"), "clocks": clocks_of(states),
                   "matmul_tflops": statistics.median(matmuls), "copy_gb_per_s": statistics.median(copies)}
        cell = lambda row, key, form: "" if row.get(key) is None else format(row[key], form)
        print(f"\n{title}")
        print(format_table(["stage", "us", "TFLOP/s", "x fastest peer", "error"],
                           [[row["stage"], format(1000 * row["ms"], ".1f") if "ms" in row else row["wrong"],
                             cell(row, "tflops", ".0f"), cell(row, "ratio_fastest", ".3f"), cell(row, "error", ".1e")]
                            for row in rows]), flush=True)
        for peer, why in skipped.items():
            print(f"skipped: {peer}: {why}")
        if options.json:
            write_rows(result, options.json, more=options.only)
    for peer in PEERS:
        ratios = [row["ratios"][peer] for row in result["rows"] if row["stage"] == STAGE and peer in row.get("ratios", {})]
        if ratios:
            print(f"{STAGE}: {statistics.geometric_mean(ratios):.3f} x {peer} in geometric mean, lowest {min(ratios):.2f}")
    wrong = [f"{row['stage']}: {row['wrong']}" for row in result["rows"] if "wrong" in row]
    print("".join(f"FAILED: {line}\n" for line in wrong), end="")
    sys.exit(1 if any(line.startswith(STAGE) for line in wrong) else 0)


if __name__ == "__main__":
    main()
