#!/usr/bin/env python3
"""Rung 26 beside PyTorch's flex_attention with the same blocks, and beside rung 14 with all of them, taking turns in one
run on a GPU: each is checked first, then timed.

    tools/measure/compare_lists.py --json docs/results/lists.json      28 problems: the table in lesson 26
    tools/measure/compare_lists.py --n 4096 --rounds 5                 the same patterns, of shorter sequences
    tools/measure/compare_lists.py --only 100% --json docs/results/lists.json    some of them, into 'more' of that file

Needs what tools/measure/compare_torch.py does, and a PyTorch that can compile. flex_attention is compiled once for each
head size and mask; its block masks say which blocks need no mask of single scores. Ends with 1 if a stage is wrong.
"""
import argparse
import dataclasses
import math
import pathlib
import random
import statistics
import sys
import time

from card import clocks_of
from checks import ALLOWED_ERROR, errors
from compare_torch import (check_only, copy_gb_per_s, first_line, format_table, matmul_tflops, new_result, random_inputs,
                           speed_ratio, time_variants, write_rows)
from kernels import LIBRARY, lists_run, open_library, stage_run, torch
from problems import shape

BLOCK = 128  # queries, and keys
LISTS, DENSE, FLEX = "26-block-lists", "14-lcsf", "peer:flex_attention"
# By d, if what rung 14 chooses has other tiles: the variant that has the bits of rung 26 where all blocks are listed.
SAME_TILES = {128: DENSE + "/2 x 128 keys, 2 slots, dynamic, turns"}
CHECKED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Pattern:
    """As common/operations/block_sparse_attention/problem.h has it, for all heads."""
    density: int = 0    # percent of all blocks, drawn
    window: int = 0     # blocks beside the diagonal
    butterfly: bool = False

    def __str__(self):
        return " + ".join([f"{self.density}%"] * (self.density > 0) + [f"window {self.window}"] * (self.window > 0) +
                          ["butterfly"] * self.butterfly) or "diagonal"

    def mask(self, blocks, causal, seed=1):
        """[[whether block r of queries sees block c of keys]]; blocks on the diagonal always, those behind it never if
        causal."""
        draw = random.Random(seed)

        def listed(r, c):
            drawn, away = draw.random() * 100 < self.density, abs(r - c)
            return (drawn or away <= self.window or (self.butterfly and away & (away - 1) == 0)) and not (causal and c > r)
        return [[listed(r, c) for c in range(blocks)] for r in range(blocks)]


PATTERNS = [*(Pattern(density=density) for density in (5, 10, 25, 50, 100)), Pattern(window=4), Pattern(butterfly=True)]


def lists_of(mask):
    """(first, blocks) of a mask, as rung 26 has them."""
    first, blocks = [0], []
    for row in mask:
        blocks += [c for c, listed in enumerate(row) if listed]
        first.append(len(blocks))
    return first, blocks


def scores(mask, causal):
    """That are computed, of one head: of a block on the diagonal half, if causal."""
    return sum(BLOCK * BLOCK / (2 if causal and r == c else 1) for r, row in enumerate(mask)
               for c, listed in enumerate(row) if listed)


def causal_scores(b, h, q, k):
    return q >= k


def flex_run(of, mask):
    """run(q, k, v) of flex_attention, compiled. Blocks without a mask of single scores are `full` to it."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    listed = torch.tensor(mask, device="cuda")
    partial = listed & torch.eye(len(mask), dtype=torch.bool, device="cuda") if of.causal else torch.zeros_like(listed)

    def numbers(blocks):
        """How many a row has, and which: those first, then the others."""
        return (blocks.sum(1, dtype=torch.int32)[None, None],
                blocks.int().argsort(dim=1, descending=True, stable=True).int()[None, None].contiguous())
    block_mask = BlockMask.from_kv_blocks(*numbers(partial), *numbers(listed & ~partial), BLOCK_SIZE=BLOCK,
                                          mask_mod=causal_scores if of.causal else None, seq_lengths=(of.n_q, of.n_k))
    global compiled
    compiled = compiled or torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask)


compiled = None


def reference_rows(q, k, v, rows, mask, causal):
    """O (batch * heads, rows, d) in double, of some queries."""
    seen = torch.tensor([mask[i // BLOCK] for i in rows], device="cuda").repeat_interleave(BLOCK, 1)[:, :k.shape[2]]
    if causal:
        seen &= torch.arange(k.shape[2], device="cuda") <= torch.tensor(rows, device="cuda")[:, None]
    all_heads = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            S = q[b, h, rows].double() @ k[b, h].double().mT * q.shape[3]**-0.5
            all_heads.append(S.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0) @ v[b, h].double())
    return torch.stack(all_heads)


def compare(of, pattern, library, options):
    """Rows of the result file, {name: why} of what was skipped, and the card's numbers."""
    mask = pattern.mask(of.n_q // BLOCK, of.causal)
    first, blocks = (torch.tensor(numbers, dtype=torch.int32, device="cuda") for numbers in lists_of(mask))
    inputs, skipped = random_inputs(of, torch.bfloat16), {}
    runs = {LISTS: lists_run(library, LISTS, of, "bf16", first, blocks), DENSE: stage_run(library, DENSE, of, "bf16")}
    same_tiles = SAME_TILES.get(of.head_dim) if pattern.density == 100 else None
    if same_tiles:
        runs[same_tiles] = stage_run(library, same_tiles, of, "bf16")
    try:
        runs[FLEX] = flex_run(of, mask)
        runs[FLEX](*inputs[0])
    except Exception as error:  # of many kinds: what a compiler throws
        skipped[FLEX] = first_line(error)
        runs.pop(FLEX, None)
    rows = sorted(random.Random(1).sample(range(of.n_q), CHECKED_ROWS))
    reference, checked = reference_rows(*inputs[0], rows, mask, of.causal), {}
    for name in runs.keys() - {DENSE}:
        error = errors(runs[name](*inputs[0]), reference, rows)[0]
        checked[name] = {"error": error if math.isfinite(error) else None}
        if not error <= ALLOWED_ERROR["bf16"]:
            checked[name]["wrong"] = f"error {error:.2e}, allowed {ALLOWED_ERROR['bf16']:.2e}"
    right = {name: run for name, run in runs.items() if "wrong" not in checked.get(name, {})}
    times, launches, method, state = time_variants(right, inputs, options, math.inf, seed=repr((of, pattern)))
    computed, listed = scores(mask, of.causal), len(lists_of(mask)[1])
    all_of_them = scores(Pattern(density=100).mask(len(mask), of.causal), of.causal)
    result = []
    for name in sorted(runs):
        row = {"stage": name, "origin": "peer" if name == FLEX else "solution", "dtype": "bf16",
               "shape": dataclasses.asdict(of) | {"lists": str(pattern)}, "blocks": listed, "share": computed / all_of_them,
               "launched": method, **checked.get(name, {})}
        if name in times:
            ms = statistics.median(times[name])
            row |= {"ms": ms, "ms_min": min(times[name]), "ms_max": max(times[name]), "samples": len(times[name]),
                    "launches": launches, "tflops": 4 * of.batch * of.heads * of.head_dim * computed / ms / 1e9,
                    "ratio_flex": speed_ratio(times[name], times.get(FLEX)),
                    "time_of_dense": statistics.median(a / b for a, b in zip(times[name], times[DENSE]))}
            if same_tiles in times:
                row["time_of_same_tiles"] = statistics.median(a / b for a, b in zip(times[name], times[same_tiles]))
        result.append(row)
    return result, skipped, state, matmul_tflops(times), copy_gb_per_s(times)


def table(rows):
    cell = lambda row, key, form: "" if row.get(key) is None else format(row[key], form)
    return format_table(["stage", "ms", "min", "max", "TFLOP/s", "x flex", "of dense", "of same tiles",
                         "of all scores", "error"],
                        [[row["stage"], cell(row, "ms", ".3f") or row.get("wrong", ""), cell(row, "ms_min", ".3f"),
                          cell(row, "ms_max", ".3f"), cell(row, "tflops", ".0f"), cell(row, "ratio_flex", ".2f"),
                          cell(row, "time_of_dense", ".3f"), cell(row, "time_of_same_tiles", ".3f"),
                          cell(row, "share", ".3f"), cell(row, "error", ".1e")]
                         for row in rows])


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=16384, help="a multiple of 128")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", metavar="LISTS", help="of the patterns those that begin so; of the result "
                        "file, which must be there, it writes 'more' alone")
    parser.add_argument("--json", type=pathlib.Path, help="result file, written after each problem")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--no-graph", action="store_true", help="launch from the host instead of a CUDA graph")
    options = parser.parse_args(arguments)
    if options.n < BLOCK or options.n % BLOCK:
        parser.error(f"--n is {options.n}, but must be a multiple of {BLOCK}")
    if min(options.heads, options.rounds) < 1:
        parser.error("--heads and --rounds are at least 1")
    names = check_only(parser, options, [str(pattern) for pattern in PATTERNS])
    options.patterns = [pattern for pattern in PATTERNS if str(pattern) in names]
    return options


def main():
    options = parse()
    library = open_library(options.library)
    result = new_result()
    states, matmuls, copies, began = [], [], [], time.monotonic()
    for head_dim in (64, 128):
        for causal in (False, True):
            of = shape(head_dim, options.n, causal, 1, options.heads)
            for pattern in options.patterns:
                rows, skipped, state, matmul, copy = compare(of, pattern, library, options)
                states.append(state), matmuls.append(matmul), copies.append(copy)
                result["rows"] += rows
                result["skipped"] |= skipped
                result |= {"driver": state.get("driver_version", "unknown"), "clocks": clocks_of(states),
                           "matmul_tflops": statistics.median(matmuls), "copy_gb_per_s": statistics.median(copies)}
                print(f"\n{of}, {pattern} ({time.monotonic() - began:.0f} s)\n{table(rows)}", flush=True)
                for name, why in skipped.items():
                    print(f"skipped: {name}: {why}")
                if options.json:
                    write_rows(result, options.json, more=options.only)
    beside = [row["ratio_flex"] for row in result["rows"] if row["stage"] == LISTS and row.get("ratio_flex")]
    if beside:
        print(f"\n{LISTS}: {statistics.geometric_mean(beside):.3f} x flex_attention in geometric mean, lowest {min(beside):.2f}")
    wrong = [f"{row['stage']}: {row['wrong']}" for row in result["rows"] if "wrong" in row]
    print("".join(f"FAILED: {line}\n" for line in wrong), end="")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
