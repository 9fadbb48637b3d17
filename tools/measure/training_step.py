#!/usr/bin/env python3
"""Attention's part of a training step, forward and backward, beside other people's, taking turns in one run on a GPU:
each is checked first, then timed.

    tools/measure/training_step.py --json docs/results/training.json    three problems: a table in lesson 22

Of BERT-base and of a GPT with 1.3 billion parameters. Ours: rung 14 with 22 or 25 by the C interface, and
flashladder.attention by autograd, where the Python package is installed. Peers, by autograd too: cuDNN and
FlashAttention-2 in PyTorch's SDPA; FlashAttention-3 and -4, where they are installed. What is missing, or has no way
back, is named and left out. Needs what tools/measure/compare_torch.py does. Ends with 1 if ours is wrong.
"""
import argparse
import dataclasses
import importlib
import json
import math
import os
import pathlib
import statistics
import sys
import typing

from card import clocks_of
from checks import Check, GradientCheck
from compare_torch import (copy_gb_per_s, first_line, format_table, matmul_tflops, new_result, random_inputs,
                           speed_ratio, time_variants)
from kernels import LIBRARY, open_library, peer_name, peer_run, stage_backward_run, stage_run, torch
from problems import Shape

PROBLEMS = [("BERT-base", Shape(32, 12, 12, 512, 512, 64, False)),
            ("GPT, 1.3B", Shape(8, 16, 16, 2048, 2048, 128, True)),
            ("GPT, 1.3B", Shape(2, 16, 16, 8192, 8192, 128, True))]
DTYPE = "bf16"
FORWARD_STAGE = "14-lcsf"
STAGES = ["22-out-of-step", "22-out-of-step/deterministic", "25-lcsf-backward"]
PACKAGE = "flashladder.attention"
PEERS = ["cudnn", "flash", "flash_attn_interface", "flash_attn.cute"]
PASSES = ["forward", "step"]  # "step": forward and backward


class Step(typing.NamedTuple):
    """What is timed: functions of one of the inputs, q, k, v, dO."""
    forward: typing.Callable  # returns O, and leaves behind what the way back needs
    step: typing.Callable     # forward and backward; returns dQ, dK, dV


def stages_step(library, stage, shape, like):
    """Of FORWARD_STAGE and a stage of the way back. Their outputs lie where they lay the last time, as PyTorch's
    allocator would have it, and are full of NaN before; `like`: one of the inputs. RuntimeError if a stage cannot do
    this."""
    run, run_backward = (make(library, name, shape, DTYPE)
                         for make, name in ((stage_run, FORWARD_STAGE), (stage_backward_run, stage)))
    q, k, v, _ = like
    O, *gradients = (torch.full_like(x, math.nan) for x in (q, q, k, v))
    lse = torch.full(q.shape[:3], math.nan, device=q.device)

    def step(q, k, v, dO):
        run(q, k, v, O, lse)
        return run_backward(q, k, v, O, lse, dO, gradients)
    return Step(lambda q, k, v, _: run(q, k, v, O, lse), step)


def autograd_step(attention):
    """Of an attention(q, k, v) that PyTorch can differentiate."""
    def with_leaves(q, k, v):
        leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))
        return attention(*leaves), leaves

    def step(q, k, v, dO):
        O, leaves = with_leaves(q, k, v)
        return torch.autograd.grad(O, leaves, dO)
    return Step(lambda q, k, v, _: with_leaves(q, k, v)[0].detach(), step)


def package_step(shape):
    """Of the Python package: its stages, where none is named. ImportError if it is not installed."""
    attention = importlib.import_module("flashladder").attention
    return autograd_step(lambda q, k, v: attention(q, k, v, causal=shape.causal))


def makers(library, shape, like):
    """{name: what makes its Step}, ours first."""
    return ({stage: lambda stage=stage: stages_step(library, stage, shape, like) for stage in STAGES} |
            {PACKAGE: lambda: package_step(shape)} |
            {peer_name(peer): lambda peer=peer: autograd_step(peer_run(peer, shape)) for peer in PEERS})


def step_inputs(shape):
    """[(q, k, v, dO), ...], fresh numbers each, together past twice the L2 cache."""
    generator = torch.Generator("cuda").manual_seed(2)
    return [(*qkv, torch.randn(qkv[0].shape, device="cuda", dtype=qkv[0].dtype, generator=generator))
            for qkv in random_inputs(shape, torch.bfloat16)]


def ours(name):
    return not name.startswith("peer:")


class StepCheck:
    """Judges O and the gradients of one problem on inputs q, k, v, dO, against float64."""

    def __init__(self, inputs, causal):
        q, k, v, self.dO = inputs
        self.of_O = Check((q, k, v), causal, DTYPE)
        self.of_gradients = GradientCheck((q, k, v, None, None, self.dO), causal, DTYPE)

    def verdict(self, step):
        """{error, gradient_error, wrong?}"""
        # Gradients first: nothing of a forward pass alone may be there for them.
        gradients = self.of_gradients.verdict(lambda q, k, v, _O, _lse, dO: step.step(q, k, v, dO))
        O = self.of_O.verdict(lambda q, k, v: step.forward(q, k, v, self.dO))
        wrong = [f"{what}{of['wrong']}" for what, of in (("O: ", O), ("", gradients)) if "wrong" in of]
        errors = {"error": O["error"], "gradient_error": gradients["error"]}
        return errors | ({"wrong": "; ".join(wrong)} if wrong else {})


def checked_steps(steps_makers, check):
    """Right ones {name: Step}, verdicts {name: {error, gradient_error, wrong?}}, and what was skipped {name: why}: what
    is not there, and a peer that cannot do this."""
    right, checked, skipped = {}, {}, {}
    for name, make in steps_makers.items():
        step = None
        try:
            step = make()
            checked[name] = check.verdict(step)
        except Exception as error:  # of many kinds: what a compiler throws
            if ours(name) and step:
                checked[name] = {"error": None, "gradient_error": None, "wrong": first_line(error)}
            else:
                skipped[name] = first_line(error)
        if "wrong" not in checked.get(name, {"wrong": ""}):
            right[name] = step
    return right, checked, skipped


def result_rows(model, shape, checked, times, launches, method):
    """Rows for the result file: of all that was checked, ours first. times: {(name, passes): [ms, by round]} of what
    was timed, among others."""
    def fastest_peer(passes):
        peers = [name for name in checked if not ours(name) and (name, passes) in times]
        return min(peers, key=lambda name: statistics.median(times[name, passes]), default=None)
    rows = []
    for name in sorted(checked):
        row = {"stage": name, "origin": "solution" if ours(name) else "peer", "dtype": DTYPE, "launched": method,
               "shape": dataclasses.asdict(shape) | {"model": model}, **checked[name]}
        for passes, flops in zip(PASSES, (shape.flops(), shape.flops() + shape.flops(backward=True))):
            if (name, passes) in times:
                ms = times[name, passes]
                row[passes] = {"ms": statistics.median(ms), "ms_min": min(ms), "ms_max": max(ms), "samples": len(ms),
                               "launches": launches, "tflops": flops / statistics.median(ms) / 1e9,
                               "ratio_fastest": speed_ratio(ms, times.get((fastest_peer(passes), passes)))}
        rows.append(row)
    return rows


def compare(model, shape, library, options):
    """Rows of one problem, what was skipped {name: why}, the card's state meanwhile, and TFLOP/s and GB/s of the matrix
    product and the copy that took their turns."""
    inputs = step_inputs(shape)
    check = StepCheck(inputs[0], shape.causal)
    right, checked, skipped = checked_steps(makers(library, shape, inputs[0]), check)
    del check
    runs = {(name, passes): getattr(step, passes) for name, step in right.items() for passes in PASSES}
    times, launches, method, state = time_variants(runs, inputs, options, math.inf, seed=repr(shape))
    rows = result_rows(model, shape, checked, times, launches, method)
    return rows, skipped, state, matmul_tflops(times), copy_gb_per_s(times)


def rows_table(rows):
    cell = lambda of, key, form: "" if of.get(key) is None else format(of[key], form)
    header = ["stage", "forward, ms", "both, ms", "min", "max", "TFLOP/s", "x fastest peer", "error", "gradients'"]
    lines = []
    for row in rows:
        forward, step = (row.get(passes, {}) for passes in PASSES)
        lines.append([row["stage"], cell(forward, "ms", ".3f") or "WRONG", cell(step, "ms", ".3f") or "WRONG",
                      cell(step, "ms_min", ".3f"), cell(step, "ms_max", ".3f"), cell(step, "tflops", ".0f"),
                      cell(step, "ratio_fastest", ".3f"), cell(row, "error", ".1e"),
                      cell(row, "gradient_error", ".1e")])
    return format_table(header, lines)


def failures(rows):
    """What makes the run fail: ours, where it is wrong."""
    return [f"{row['stage']}, {row['shape']['model']}: {row['wrong']}"
            for row in rows if "wrong" in row and ours(row["stage"])]


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path, help="result file, written after each problem")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--no-graph", action="store_true", help="launch from the host instead of a CUDA graph")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    return options


def main():
    options = parse()
    library = open_library(options.library)
    os.environ.setdefault("FLASHLADDER_LIBRARY", str(options.library.resolve()))  # the package runs the same kernels
    result = new_result() | {"forward_stage": FORWARD_STAGE}
    states, matmuls, copies = [], [], []
    for model, shape in PROBLEMS:
        rows, skipped, state, matmul, copy = compare(model, shape, library, options)
        states.append(state), matmuls.append(matmul), copies.append(copy)
        result["rows"] += rows
        result["skipped"] |= skipped
        result |= {"driver": state.get("driver_version", "unknown"), "clocks": clocks_of(states),
                   "matmul_tflops": statistics.median(matmuls), "copy_gb_per_s": statistics.median(copies)}
        print(f"\n{model}: {shape}: {', '.join({row['launched'] for row in rows})}\n{rows_table(rows)}")
        print("".join(f"skipped: {name}: {why}\n" for name, why in skipped.items()), end="", flush=True)
        if options.json:
            options.json.write_text(json.dumps(result, indent=1, sort_keys=True, allow_nan=False) + "\n")
    failed = failures(result["rows"])
    print("".join(f"FAILED: {line}\n" for line in failed), end="")
    sys.exit(1 if failed or not any("step" in row for row in result["rows"]) else 0)


if __name__ == "__main__":
    main()
