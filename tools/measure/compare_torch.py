#!/usr/bin/env python3
"""The stages beside PyTorch's attention, taking turns in one run on a GPU: each is checked first, then timed.

    tools/measure/compare_torch.py --stages 0,1 --json docs/results/compare.json    24 problems: the table in
                                                                       docs/measuring.md, of all rungs that are for them
    tools/measure/compare_torch.py --ladder                            two problems, N = 4096, under a minute
    tools/measure/compare_torch.py --d 128 --n 8192 --causal           one problem
    tools/measure/compare_torch.py --backward --dtype f32 --ladder     gradients, beside those of autograd
    tools/measure/compare_torch.py --more --json docs/results/compare.json    adds grouped queries, odd lengths, d = 256
                                                                       and speed over a longer time, of the highest two
                                                                       stages

Needs an NVIDIA GPU, PyTorch, and the library of all stages: `cmake --preset gpu`, then
`cmake --build --preset gpu --target flashladder`. docs/measuring.md says how it measures. Ends with 1 if a stage is
wrong, or less accurate than PyTorch's flash attention by more than a tenth.
"""
import argparse
import dataclasses
import datetime
import itertools
import json
import math
import pathlib
import random
import statistics
import sys
import time

from card import CardSampler, card_state, clocks_of, samples_between, start_card_query
from checks import EPSILON, Check, GradientCheck, attention_rows
from kernels import (CUDNN, FLASH, LIBRARY, PACKAGES, SDPA_BACKENDS, capture_stream, open_library, peer_backward_run,
                     peer_name, peer_run, stage_backward_run, stage_run, torch)
from ncu import commit
from problems import GRIDS, MORE, SUSTAINED, Shape, shape

ALLOWED_ERROR_RATIO = 1.1  # to FA2's error on the same inputs

LEAST_ROUNDS = 3
TIMED_MS = 5               # the fastest variant is launched so often in a row that it takes about this long
MOST_LAUNCHES = 256
MATMUL = "matmul"          # 8192^3, bf16: takes its turns with the others, for the card's ceiling
MATMUL_N, MATMUL_LAUNCHES = 8192, 4
COPY = "copy"              # of so many bytes, which takes its turns too: for what the memory can do
COPY_BYTES, COPY_LAUNCHES = 1 << 30, 4
SUSTAINED_MS, SUSTAINED_ROUNDS, REST_SECONDS = 400, 3, 0.3


# ---- numbers


def launches_in_a_row(fastest_ms):
    return min(MOST_LAUNCHES, max(1, math.ceil(TIMED_MS / fastest_ms)))


def interleave(names, measure, rounds, stop_at=math.inf, seed=1, clock=time.monotonic):
    """Rounds in which each name takes its turn, in random order: {name: what measure(name) said in each round}.
    Ends early, after LEAST_ROUNDS, once the clock has passed stop_at."""
    order, results = random.Random(seed), {name: [] for name in names}
    for done in range(rounds):
        if done >= LEAST_ROUNDS and clock() > stop_at:
            break
        for name in order.sample(names, len(names)):
            results[name].append(measure(name))
    return results


def speed_ratio(ms, other_ms):
    """How many times as fast as the other: median of the ratios of the same round. None if the other has no times."""
    return statistics.median(theirs / ours for ours, theirs in zip(ms, other_ms)) if other_ms else None


def matmul_tflops(times):
    return 2 * MATMUL_N**3 / statistics.median(times[MATMUL]) / 1e9


def copy_gb_per_s(times):
    """Read and written bytes."""
    return 2 * COPY_BYTES / statistics.median(times[COPY]) / 1e6


def result_rows(shape, dtype, checked, times, launches, backward=False):
    """Rows for the result file: of all that was checked, in the order of their names, stages first.
    checked: {name: {error, worst_row, wrong?}}; times: {name: [ms, by round]} of what was timed, of MATMUL and of COPY."""
    rows, below = [], None
    for name in sorted(checked, key=lambda name: (name.startswith("peer:"), name)):
        row = {"stage": name, "origin": "peer" if name.startswith("peer:") else "solution", "dtype": dtype,
               "shape": dataclasses.asdict(shape), **checked[name]}
        flash_error = checked.get(FLASH, {}).get("error")
        row["error_ratio_flash"] = row["error"] / flash_error if flash_error and row["error"] is not None else None
        if name in times:
            ms = times[name]
            median = statistics.median(ms)
            tflops = shape.flops(backward) / median / 1e9
            row |= {"ms": median, "ms_min": min(ms), "ms_max": max(ms), "samples": len(ms), "launches": launches,
                    "tflops": tflops, "percent_of_matmul": 100 * tflops / matmul_tflops(times),
                    "ratio_flash": speed_ratio(ms, times.get(FLASH)), "ratio_cudnn": speed_ratio(ms, times.get(CUDNN)),
                    "ratio_below": None if name.startswith("peer:") else speed_ratio(ms, times.get(below))}
            if not backward:
                gb_per_s = shape.elements() * (4 if dtype == "f32" else 2) / median / 1e6
                row |= {"gb_per_s": gb_per_s, "percent_of_copy": 100 * gb_per_s / copy_gb_per_s(times)}
            below = name
        rows.append(row)
    return rows


def geometric_means(rows):
    """Of the speed and the ratios of each stage, over the lengths, by head_dim and causal. Ratios that a stage lacks
    at some length are None."""
    groups = {}
    for row in rows:
        if "ms" in row:
            key = row["stage"], row["shape"]["head_dim"], row["shape"]["causal"]
            groups.setdefault(key, []).append(row)
    means = []
    for (stage, head_dim, causal), group in groups.items():
        mean = {"stage": stage, "head_dim": head_dim, "causal": causal, "problems": len(group)}
        for what in ("tflops", "ratio_flash", "ratio_cudnn", "ratio_below"):
            values = [row[what] for row in group]
            mean[what] = None if None in values else statistics.geometric_mean(values)
        means.append(mean)
    return means


def failures(rows):
    """What makes the run fail: stages that are wrong, or that lose more accuracy than FA2."""
    for row in rows:
        where = f"{row['stage']}, {Shape(**row['shape'])}"
        if row["origin"] == "solution" and "wrong" in row:
            yield f"{where}: {row['wrong']}"
        elif row["origin"] == "solution" and (row["error_ratio_flash"] or 0) > ALLOWED_ERROR_RATIO:
            yield f"{where}: {row['error_ratio_flash']:.2f}x the error of {FLASH}, allowed {ALLOWED_ERROR_RATIO}x"


def format_table(header, rows):
    """Text columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
                     for line in (header, *rows))


def rows_table(rows):
    cell = lambda row, key, form: "" if row.get(key) is None else format(row[key], form)
    header = ["stage", "ms", "min", "max", "TFLOP/s", "% matmul", "GB/s", "% copy", "x FA2", "x cuDNN", "x below",
              "error", "worst row", "error / FA2's"]
    lines = [[row["stage"], cell(row, "ms", ".3f"), cell(row, "ms_min", ".3f"), cell(row, "ms_max", ".3f"),
              cell(row, "tflops", ".1f"), cell(row, "percent_of_matmul", ".0f") or "WRONG",
              cell(row, "ratio_flash", ".3f"), cell(row, "ratio_cudnn", ".3f"), cell(row, "ratio_below", ".3f"),
              cell(row, "error", ".2e"), cell(row, "worst_row", ".1e"), cell(row, "error_ratio_flash", ".2f")]
             for row in rows]
    return format_table(header, lines)


def means_table(means):
    cell = lambda value, form: "" if value is None else format(value, form)
    return format_table(["geometric means", "d", "causal", "problems", "TFLOP/s", "x FA2", "x cuDNN", "x below"],
                        [[m["stage"], str(m["head_dim"]), "yes" if m["causal"] else "no", str(m["problems"]),
                          cell(m["tflops"], ".1f"), cell(m["ratio_flash"], ".3f"), cell(m["ratio_cudnn"], ".3f"),
                          cell(m["ratio_below"], ".3f")] for m in means])


# ---- times


def milliseconds(work):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def capture(run, inputs, launches):
    """A CUDA graph of so many launches in a row, each on other inputs than the one before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=capture_stream()):
        for arguments in itertools.islice(itertools.cycle(inputs), launches):
            run(*arguments)
    return graph.replay


def in_a_row(run, inputs, launches):
    def work():
        for arguments in itertools.islice(itertools.cycle(inputs), launches):
            run(*arguments)
    return work


def time_variants(runs, inputs, options, stop_at, seed):
    """{name: [ms a launch, by round]}, launches in a row, how they were launched, the same way for all, and the state
    of the card meanwhile. The seed is of the rounds' order: where power bounds a kernel, what came before it tells."""
    def warm_ms(run):
        milliseconds(lambda: run(*inputs[0]))
        return milliseconds(lambda: run(*inputs[-1]))
    launches = launches_in_a_row(min(map(warm_ms, runs.values()), default=TIMED_MS))
    method, work = "CUDA graph", {}
    try:
        if options.no_graph:
            raise RuntimeError("as asked")
        work = {name: capture(run, inputs, launches) for name, run in runs.items()}
    except RuntimeError as error:
        method = f"launches from the host: {first_line(error)}"
        work = {name: in_a_row(run, inputs, launches) for name, run in runs.items()}
    a, b = (torch.randn(MATMUL_N, MATMUL_N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    multiply = in_a_row(lambda *_: a @ b, inputs, MATMUL_LAUNCHES)
    source, copy = (torch.empty(COPY_BYTES, device="cuda", dtype=torch.uint8) for _ in range(2))
    copy_all = in_a_row(lambda *_: copy.copy_(source), inputs, COPY_LAUNCHES)

    def measure(name):
        if name == MATMUL:
            a @ b
            return milliseconds(multiply) / MATMUL_LAUNCHES
        if name == COPY:
            copy.copy_(source)
            return milliseconds(copy_all) / COPY_LAUNCHES
        runs[name](*inputs[-1])  # keeps the card busy while the host queues what is timed
        return milliseconds(work[name]) / launches
    query = start_card_query()
    times = interleave([*runs, MATMUL, COPY], measure, options.rounds, stop_at, seed)
    return times, launches, method, card_state(query.communicate()[0]) if query else {}


def random_inputs(shape, dtype):
    """Copies of q, k, v, fresh numbers each, that together are past twice the L2 cache: [(q, k, v), ...]"""
    generator = torch.Generator("cuda").manual_seed(1)
    sizes = [(shape.batch, heads, n, shape.head_dim)
             for heads, n in ((shape.heads, shape.n_q), (shape.kv_heads, shape.n_k), (shape.kv_heads, shape.n_k))]
    bytes_each = sum(map(math.prod, sizes)) * dtype.itemsize
    copies = max(2, math.ceil(2 * torch.cuda.get_device_properties(0).L2_cache_size / bytes_each))
    return [tuple(torch.randn(size, device="cuda", dtype=dtype, generator=generator) for size in sizes)
            for _ in range(copies)]


def backward_inputs(shape, dtype):
    """The same with what the forward pass has left, and a dO: [(q, k, v, O, lse, dO), ...]"""
    generator, all_of_them = torch.Generator("cuda").manual_seed(2), []
    for q, k, v in random_inputs(shape, dtype):
        O, lse = attention_rows(q, k, v, range(shape.n_q), shape.causal, torch.float32, torch.float32)
        dO = torch.randn(q.shape, device="cuda", dtype=dtype, generator=generator)
        all_of_them.append((q, k, v, O.view(q.shape).to(dtype), lse.view(q.shape[:3]), dO))
    return all_of_them


# ---- the run


def cudnn_version():
    number = torch.backends.cudnn.version()  # 91900
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "none"


def new_result():
    """A result file without rows: the card, the versions, the day."""
    device = torch.cuda.get_device_properties(0)
    return {"gpu": device.name, "multiprocessors": device.multi_processor_count, "cuda": torch.version.cuda,
            "torch": torch.__version__, "cudnn": cudnn_version(), "commit": commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "rows": [], "skipped": {}}


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def compare(shape, stages, library, options, stop_at):
    """Checks and times all that can do one problem. Rows of the result file, what was skipped {name: why}, how the
    launches were made, the matrix product's TFLOP/s, the copy's GB/s and the card's state meanwhile."""
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    inputs = (backward_inputs if options.backward else random_inputs)(shape, dtype)
    check = (GradientCheck if options.backward else Check)(inputs[0], shape.causal, options.dtype)
    run_of_stage = stage_backward_run if options.backward else stage_run
    runs, checked, skipped = {}, {}, {}
    for stage in stages:
        name = stage["stage"]
        try:
            run = run_of_stage(library, name, shape, options.dtype)
        except RuntimeError as error:
            skipped[name] = first_line(error)
            continue
        try:
            of_forward = {} if options.backward else {"has_lse": stage["lse"]}
            checked[name] = check.verdict(run, writes_to_ours=True, **of_forward)
        except RuntimeError as error:
            checked[name] = {"error": None, "worst_row": None, "wrong": first_line(error)}
        runs[name] = run
    for peer in options.peers:
        try:
            run = peer_backward_run(peer, shape, inputs) if options.backward else peer_run(peer, shape)
            checked[peer_name(peer)] = check.verdict(run)
            runs[peer_name(peer)] = run
        except (ImportError, RuntimeError) as error:
            skipped[peer_name(peer)] = first_line(error)
    right = {name: run for name, run in runs.items() if "wrong" not in checked[name]}
    del check
    times, launches, method, state = time_variants(right, inputs, options, stop_at, seed=repr(shape))
    rows = result_rows(shape, options.dtype, checked, times, launches, options.backward)
    return rows, skipped, method, matmul_tflops(times), copy_gb_per_s(times), state


def sustained(shape, stages, library, options):
    """Rows: each stage and cuDNN in launches for SUSTAINED_MS without a pause, and in a few after a rest, for the speed
    that the card does not keep up."""
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    inputs, runs = random_inputs(shape, dtype), {}
    for stage in stages:
        try:
            runs[stage["stage"]] = stage_run(library, stage["stage"], shape, options.dtype)
        except RuntimeError:
            pass
    if "cudnn" in options.peers:
        try:
            run = peer_run("cudnn", shape)
            run(*inputs[0])
            runs[CUDNN] = run
        except RuntimeError:
            pass

    def measure(name):
        few = in_a_row(runs[name], inputs, 3)
        few()
        torch.cuda.synchronize()
        time.sleep(REST_SECONDS)
        few()  # the card wakes up
        short_ms = milliseconds(few) / 3
        launches = max(1, round(SUSTAINED_MS / short_ms))
        torch.cuda.synchronize()
        start = time.monotonic()
        ms = milliseconds(in_a_row(runs[name], inputs, launches)) / launches
        return short_ms, ms, samples_between(sampler.samples, start, time.monotonic())
    with CardSampler() as sampler:
        measured = interleave(list(runs), measure, SUSTAINED_ROUNDS)
    return [sustained_row(name, shape, options.dtype, of) for name, of in measured.items()]


def sustained_row(name, shape, dtype, measured):
    """Medians of [(ms a launch after a rest, ms a launch when sustained, samples_between()), ...]."""
    median = lambda values: statistics.median(known) if (known := [v for v in values if v is not None]) else None
    short_ms, ms = (median(of[i] for of in measured) for i in (0, 1))
    return {"stage": name, "dtype": dtype, "shape": dataclasses.asdict(shape), "ms": ms, "seconds": SUSTAINED_MS / 1e3,
            "tflops": shape.flops() / ms / 1e9, "short_tflops": shape.flops() / short_ms / 1e9,
            **{key: median(of[2][key] for of in measured) for key in ("sm_mhz", "power_w", "card_samples")}}


def sustained_table(rows):
    cell = lambda value, form: "unknown" if value is None else format(value, form)
    return format_table(["sustained", "problem", "TFLOP/s", "after a rest", "SM MHz", "W", "samples"],
                        [[row["stage"], str(Shape(**row["shape"])), cell(row["tflops"], ".1f"),
                          cell(row["short_tflops"], ".1f"), cell(row["sm_mhz"], ".0f"), cell(row["power_w"], ".0f"),
                          cell(row["card_samples"], ".0f")] for row in rows])


def parse(arguments=None):
    names = lambda text: text.split(",") if text else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=names, help="04,05,... or a variant's whole name: default all that have the dtype")
    parser.add_argument("--peers", type=names, help=f"of {', '.join([*SDPA_BACKENDS, *PACKAGES])}; default all but "
                        "efficient and math, for f32 these two")
    parser.add_argument("--dtype", choices=list(EPSILON), default="bf16")
    parser.add_argument("--grid", choices=list(GRIDS), default="full")
    parser.add_argument("--ladder", dest="grid", action="store_const", const="ladder", help="short for --grid ladder")
    parser.add_argument("--more", dest="grid", action="store_const", const="more", help="other problems than those of "
                        "the grids; of the result file, which must be there, it writes 'more' alone")
    parser.add_argument("--backward", action="store_true", help="the gradients: stages of the way back, and the peers' "
                        "by autograd; a result file of its own")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, help="fewer rounds if need be, but at least "
                        f"{LEAST_ROUNDS} (default: 45 for --grid ladder, else no limit)")
    parser.add_argument("--json", type=pathlib.Path, help="result file, written after each problem")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--no-graph", action="store_true", help="launch from the host instead of a CUDA graph")
    one = parser.add_argument_group("one problem instead of a grid")
    for name in ("--d", "--n", "--batch", "--heads", "--kv-heads"):
        one.add_argument(name, type=int)
    one.add_argument("--causal", action="store_true")
    options = parser.parse_args(arguments)
    options.peers = options.peers if options.peers is not None else (
        ["efficient", "math"] if options.dtype == "f32" else ["cudnn", "flash", *PACKAGES])
    if unknown := set(options.peers) - {*SDPA_BACKENDS, *PACKAGES}:
        parser.error(f"no peer is called {', '.join(sorted(unknown))}")
    numbers = [options.d, options.n, options.batch, options.heads, options.kv_heads, options.rounds]
    if any(number is not None and number < 1 for number in numbers):
        parser.error("sizes and rounds are at least 1")
    if options.causal or any(number is not None for number in numbers[:5]):
        options.grid = None
        options.shapes = [shape(options.d or 128, options.n or 4096, options.causal, options.batch, options.heads,
                                options.kv_heads)]
        if options.shapes[0].heads % options.shapes[0].kv_heads:
            parser.error("--heads is not a multiple of --kv-heads")
    else:
        options.shapes = MORE if options.grid == "more" else GRIDS[options.grid]
    if options.grid == "more" and options.backward:
        parser.error("--more has no gradients")
    if options.grid == "more" and options.json and not options.json.exists():
        parser.error(f"--more adds to {options.json}, which is not there: run the grid first")
    if options.seconds is None:
        options.seconds = 45 if options.grid == "ladder" else math.inf
    return options


def chosen(stages, options):
    """The stages that were asked for, and variants by their whole names; of --more the highest two, if none was.
    SystemExit for a name that fits none."""
    if options.stages is None:
        able = [stage for stage in stages if options.dtype in stage["dtypes"]]
        return able[-2:] if options.grid == "more" else able
    variants = [stage | of | {"stage": f"{stage['stage']}/{of['variant']}"} for stage in stages
                for of in stage.get("variants", [])]
    for name in options.stages:
        if not (any(stage["stage"].startswith(name) for stage in stages) or
                any(variant["stage"] == name for variant in variants)):
            sys.exit(f"compare_torch.py: no stage of the library begins with '{name}'")
    return [stage for stage in stages if stage["stage"].startswith(tuple(options.stages))] + \
           [variant for variant in variants if variant["stage"] in options.stages]


def write_result(result, options):
    """To the result file. Its rows and what --more has found are measured at different times: one stays as it is while
    the other is written."""
    before = json.loads(options.json.read_text()) if options.json.exists() else {}
    if options.grid != "more" and "more" in before:
        result = result | {"more": before["more"]}
    write_rows(result, options.json, options.grid == "more")


def write_rows(result, file, more):
    """To the result file: all of it, or of one that is there 'more' alone, which has a card and a date of its own."""
    if more:
        result = json.loads(file.read_text()) | {"more": result}
    file.write_text(json.dumps(result, indent=1, sort_keys=True, allow_nan=False) + "\n")


def check_only(parser, options, names):
    """Those of the names of problems that --only asks for, which begin with one of its words; all, without it. An error of
    the parser if a word fits none, or if the result file that it adds to is not there."""
    for word in options.only or []:
        if not any(name.startswith(word) for name in names):
            parser.error(f"--only: no problem begins with '{word}'; the first one is '{names[0]}'")
    if options.only and options.json and not options.json.exists():
        parser.error(f"--only adds to {options.json}, which is not there: run all problems first")
    return [name for name in names if name.startswith(tuple(options.only or [""]))]


def main():
    options = parse()
    library = open_library(options.library)
    stages = chosen(library.stages(options.backward), options)

    result = new_result()
    if options.backward:
        result["operation"] = "attention_backward"
    print(f"{result['gpu']}, CUDA {result['cuda']}, PyTorch {result['torch']}, cuDNN {result['cudnn']}, commit "
          f"{result['commit']}, {options.dtype}")
    states, matmuls, copies, stop_at = [], [], [], time.monotonic() + options.seconds
    for done, problem in enumerate(options.shapes):
        now = time.monotonic()
        rows, skipped, method, matmul, copy, state = compare(problem, stages, library, options,
                                                       now + (stop_at - now) / (len(options.shapes) - done))
        matmuls.append(matmul)
        copies.append(copy)
        states.append(state)
        for name, why in skipped.items():
            if name not in result["skipped"]:
                print(f"skipped: {name}: {why}")
        clocks = clocks_of([state])
        conditions = {"launched": method, "sm_clock": clocks.get("sm"), "slowed_by": clocks.get("slowed_by")}
        result["rows"] += [row | conditions for row in rows]
        result |= {"driver": state.get("driver_version", "unknown"), "clocks": clocks_of(states),
                   "matmul_tflops": statistics.median(matmuls), "copy_gb_per_s": statistics.median(copies),
                   "skipped": skipped | result["skipped"],
                   "means": geometric_means(result["rows"])}
        print(f"\n{problem}: {method}; SM clock {clocks.get('sm')} of {clocks.get('sm_max')}, {clocks.get('power')}, "
              f"slowed by {', '.join(clocks.get('slowed_by', [])) or 'nothing'}; matrix product {matmul:.0f} TFLOP/s, copy "
              f"{copy:.0f} GB/s\n"
              f"{rows_table(rows)}", flush=True)
        if options.json:
            write_result(result, options)
    if options.grid == "more":
        result["sustained"] = [row for problem in SUSTAINED for row in sustained(problem, stages, library, options)]
        del result["means"]
        print(f"\n{sustained_table(result['sustained'])}")
        if options.json:
            write_result(result, options)
    else:
        print(f"\n{means_table(result['means'])}")
    failed = list(failures(result["rows"]))
    print("".join(f"FAILED: {line}\n" for line in failed), end="")
    sys.exit(1 if failed or not any("ms" in row for row in result["rows"]) else 0)


if __name__ == "__main__":
    main()
