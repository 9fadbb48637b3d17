#!/usr/bin/env python3
"""What the same launches cost on a GPU, by Nsight Compute, and on the emulator: for the table in docs/counting.md.

    tools/measure/ncu.py profile docs/results/ncu.json          on a machine with a GPU, after
                                                                `cmake --build --preset gpu`
    tools/measure/ncu.py count docs/results/ncu-emulator.json   anywhere, after `./ladder`

    tools/measure/ncu.py beside profile.json                    what `./ladder profile NN --json profile.json` has
                                                                counted beside what the same launch costs; adds it to
                                                                the file

With --operands, of kernels that do little but ldmatrix, stmatrix, cp.async or wgmma: docs/results/operands.json and
docs/results/operands-emulator.json. `profile` then also writes FILE.raw: every counter that has to do with these.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

RUNGS = sorted(folder.name[:2] for folder in (ROOT / "solutions").glob("[0-9][0-9]-*"))
WORKLOADS = {f"rung {rung}": ["stages", "launch", rung, "--n", "1024", "--d", "64"] for rung in RUNGS}
WORKLOADS["tutorials"] = ["emulator-tutorials", "--test-case=tutorial: the same bits*"]
# What the emulator has to have to launch the same kernel as the card: rung 14 chooses by the multiprocessors of an H100.
SAME_KERNEL = {"rung 14": {"LADDER_MULTIPROCESSORS": "132"}}

# Ours: Nsight Compute's metrics, which are added up.
WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
OPERAND_METRICS = {
    "shared_read_wavefronts": [WAVEFRONTS + "ld.sum", WAVEFRONTS + "ldsm.sum"],
    "shared_write_wavefronts": [WAVEFRONTS + "st.sum", WAVEFRONTS + "stsm.sum"],
    "cp_async_wavefronts": [WAVEFRONTS + "ldgsts.sum"],
    "cp_async_sectors": ["smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"],
    "wgmma_operand_wavefronts": [WAVEFRONTS.replace("smsp__", "sm__") + "gmma.sum"],  # not counted by quarters
}
METRICS = {
    "global_read_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global_write_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "global_atomic_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
                              "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum"],
    "shared_atomic_wavefronts": [WAVEFRONTS + "atom.sum"],
    "shared_read_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
    "shared_write_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
} | OPERAND_METRICS

# What the profiler alone knows: which parts of a launch's cycles the units are busy, and how long warps wait.
BUSY = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
PIPES = {
    "microseconds": "gpu__time_duration.sum",
    "cycles": "sm__cycles_elapsed.max",
    "HBM bytes": "dram__bytes.sum",
    "L2 sectors": "lts__t_sectors.sum",
    "tensor %": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "FMA %": BUSY.format("fma"),
    "ALU %": BUSY.format("alu"),
    "XU %": BUSY.format("xu"),
    "issue slots %": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "warps that wait for device memory or mbarriers": STALLED.format("long_scoreboard"),
    "warps that wait for shared memory or exponentials": STALLED.format("short_scoreboard"),
    "warps that wait at barriers": STALLED.format("barrier"),
}

OPERAND_WORKLOADS = {"operands": ["ptx-operands"]}
RELATED = re.compile("ldsm|stsm|ldgsts|gmma|mem_shared|utma")


def output_of(command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """As in tools/ladder/results.cpp: LADDER_COMMIT's, else git's."""
    if "LADDER_COMMIT" in os.environ:
        return os.environ["LADDER_COMMIT"]
    found = output_of(["git", "rev-parse", "--short=12", "HEAD"])
    changed = output_of(["git", "status", "--porcelain", "--untracked-files=no", "cmake", "common", "solutions",
                         "tools"])
    return found + ("-dirty" if changed else "") if found else "unknown"


def program_of(build, command):
    """The command with the program that lies in a build folder."""
    return [build / "bin" / command[0], *command[1:]]


def run_profiler(command, metrics, kernels=None, seconds=None):
    """A row for each launch of a command on the GPU, by metric, in base units: bytes, nanoseconds. With `kernels`, a
    regular expression, only of kernels with such names. SystemExit if the profiler fails."""
    only = ["--kernel-name", f"regex:{kernels}"] if kernels else []
    ncu = subprocess.run(["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", *only,
                          "--metrics", ",".join(sorted(metrics)), *map(str, command)],
                         cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    if ncu.returncode != 0:
        sys.exit(f"ncu failed:\n{ncu.stdout}{ncu.stderr}")
    lines = (line for line in ncu.stdout.splitlines() if line.startswith('"'))
    return [row for row in csv.DictReader(lines) if row["ID"]]  # the row without is that of the units


def second_launches(command, metrics, names):
    """Of a command that launches each kernel twice, in the order of their names (regular expressions), the rows of the
    second launches: these find L2 as another launch leaves it. SystemExit if the profiler saw others."""
    rows = run_profiler(command, metrics, "|".join(sorted(set(names))))
    if len(rows) != 2 * len(names):
        sys.exit(f"the profiler saw {len(rows)} launches instead of {2 * len(names)}: "
                 f"{sorted({row['Kernel Name'] for row in rows})}")
    for name, row in zip(names, rows[1::2]):
        if not re.search(name, row["Kernel Name"]):
            sys.exit(f"the profiler saw {row['Kernel Name']} instead of {name}")
    return rows[1::2]


def add_metrics(rows, launches, metrics):
    """To each row {name: the number that the profiler has} of its launch, for {name: metric}. SystemExit if this card
    does not tell one."""
    for row, launch in zip(rows, launches, strict=True):
        for name, metric in metrics.items():
            value = number(launch, metric)
            row[name] = round(value) if value is not None else sys.exit(f"this card does not tell {metric}")


def number(row, metric):
    """What the profiler says of a launch; None if this card does not tell."""
    try:
        return float(row[metric].replace(",", ""))
    except (KeyError, ValueError):
        return None


def profiler_version():
    return "Nsight Compute " + output_of(["ncu", "--version"]).split("Version ")[-1].split(" ")[0]


def kernel_name(row):
    """With template arguments, without casts of them, namespaces and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|\((\w+::)*\w+\)(?=\d)", "", row["Kernel Name"]).split("(")[0]
    return re.sub(r"^.*?(\w+(<.*>)?)$", r"\1", name)


def counters_of_card():
    return {line.split()[0] for line in output_of(["ncu", "--query-metrics"]).splitlines() if "__" in line.split(" ")[0]}


def profile(command, metrics, build=ROOT / "build/gpu"):
    """The launches of a program on the GPU: [{kernel, counts}]. What the profiler does not know is left out."""
    always = {metric for parts in METRICS.values() for metric in parts}
    asked = {metric for parts in metrics.values() for metric in parts}
    card = counters_of_card() if asked - always else set()
    rows = run_profiler(program_of(build, command),
                        {metric for metric in asked if metric in always or metric.removesuffix(".sum") in card})
    found = []
    for row in rows:
        known = {name: [value for metric in parts if (value := number(row, metric)) is not None]
                 for name, parts in metrics.items()}
        found.append({"kernel": kernel_name(row),
                      "counts": {name: round(sum(values)) for name, values in known.items() if values}})
    return found


def profile_related(command):
    """Every counter of the card that may have to do with operands, of each launch."""
    related = {f"{name}.sum" for name in counters_of_card() if RELATED.search(name)}
    try:
        rows = run_profiler(program_of(ROOT / "build/gpu", command), related, seconds=60)
    except (subprocess.TimeoutExpired, SystemExit) as error:
        return {"known": sorted(related), "failed": str(error)}
    return [{column: value for column, value in row.items() if column in related or column == "Kernel Name"}
            for row in rows]


def count(command, environment):
    """The same of the emulator."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "counts.json"
        subprocess.run(program_of(ROOT / "build/cpu", command), cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | environment | {"LADDER_COUNTS": str(file), "LADDER_SEED": "1"})
        launches = json.loads(file.read_text())["launches"]

    return [{"kernel": launch["kernel"], "counts": counts_of(launch["work"])} for launch in launches]


def counts_of(work):
    """What the emulator has counted of a launch, by our names for the profiler's metrics."""
    of = lambda memory, kind, what: work.get(memory, {}).get(kind, {}).get(what, 0)
    kinds = ("read", "write", "atomic")
    sectors = {f"global_{kind}_sectors": of("global", kind, "sectors") for kind in kinds}
    sectors["global_read_sectors"] += of("global", "cp_async", "sectors")  # to the profiler cp.async is a load too
    return (sectors
            | {f"shared_{kind}_wavefronts": of("shared", kind, "wavefronts") for kind in kinds}
            | {f"shared_{kind}_conflicts": of("shared", kind, "conflicts") for kind in kinds[:2]}
            | {f"{kind}_wavefronts": of("shared", kind, "wavefronts") for kind in ("cp_async", "wgmma_operand")}
            | {"cp_async_sectors": of("global", "cp_async", "sectors")})


def why_not_beside(build):
    """What is missing to profile a rung on a GPU; None if nothing is."""
    if "GPU " not in output_of(["nvidia-smi", "-L"]):
        return "no NVIDIA GPU here"
    if not shutil.which("ncu"):
        return "no ncu (Nsight Compute) in PATH"
    if not (build / "bin/stages").exists():
        return f"no {build / 'bin/stages'} yet: ./ladder --backend gpu launch 00 builds it"
    return None


def launch_command(row):
    """`ladder launch` of what a row of a result file has counted."""
    shape = row["shape"]
    sizes = {"batch": "batch", "heads": "heads", "kv-heads": "kv_heads", "n": "n_q", "n-k": "n_k", "d": "head_dim"}
    return (["stages", "launch", row["stage"]] + [part for option, key in sizes.items()
                                                  for part in (f"--{option}", str(shape[key]))] +
            (["--causal"] if shape["causal"] else []))


def table(rows):
    """Rows of text as lines, in columns; the first column to the left."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return "\n".join("  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])])
                     for row in rows)


def beside_tables(counted, profiled):
    """Two tables as text: what both count, summed over the launches; and what the profiler alone knows, by kernel."""
    total = lambda launches, name: sum(launch["counts"].get(name, 0) for launch in launches)
    known = [name for name in METRICS if any(name in launch["counts"] for launch in profiled)]
    both = [["", "emulator", "profiler"]] + [
        [name.replace("_", " "), str(total(counted, name)), str(total(profiled, name))]
        for name in known if total(counted, name) or total(profiled, name)]
    alone = [["", *(launch["kernel"].split("<")[0] for launch in profiled)]] + [
        [name, *(f"{launch['busy'][name]:.6g}" if name in launch["busy"] else "" for launch in profiled)]
        for name in PIPES if any(name in launch["busy"] for launch in profiled)]
    return table(both) + "\n\n" + table(alone)


def busy(row):
    """PIPES of one launch; what this card does not tell is left out."""
    found = {name: value for name, metric in PIPES.items() if (value := number(row, metric)) is not None}
    if "microseconds" in found:
        found["microseconds"] /= 1e3  # the profiler's base unit is a nanosecond
    return found


def beside(file, build):
    """Prints the tables of what a file of `ladder profile` holds, and adds what was profiled to its row."""
    missing = why_not_beside(build)
    if missing:
        return print(f"\nNot beside the profiler's counts: {missing}.")
    results = json.loads(file.read_text())
    row = results["rows"][0]
    command = launch_command(row)
    launches = profile(command, METRICS, build)
    card = counters_of_card()
    known = {metric for metric in PIPES.values() if metric.split(".")[0] in card}
    for launch, measured in zip(launches, run_profiler(program_of(build, command), known)):
        launch["busy"] = busy(measured)
    row["profiled"] = launches
    file.write_text(json.dumps(results, indent=1) + "\n")
    counted = [{"counts": counts_of(launch["work"])} for launch in row["counts"]["launches"]]
    print("\nBeside the profiler (Nsight Compute), the same problem on this GPU"
          f"{', without LSE' if row['lse'] else ''}:\n\n{beside_tables(counted, launches)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["profile", "count", "beside"])
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--operands", action="store_true", help="of the kernels of tests/ptx/operands.cu")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/gpu", help="where bin/stages for the GPU is")
    arguments = parser.parse_args()
    if arguments.how == "beside":
        return beside(arguments.result, arguments.build)
    on_gpu = arguments.how == "profile"
    result = {"commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
    if on_gpu:
        result["gpu"] = output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
        result["driver"] = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
        result["profiler"] = profiler_version()
    else:
        result["gpu"] = "FlashLadder emulator"
    workloads, metrics = (OPERAND_WORKLOADS, OPERAND_METRICS) if arguments.operands else (WORKLOADS, METRICS)
    result["programs"] = {
        name: profile(command, metrics, arguments.build) if on_gpu else count(command, SAME_KERNEL.get(name, {}))
        for name, command in workloads.items()}
    arguments.result.write_text(json.dumps(result, indent=1) + "\n")
    if on_gpu and arguments.operands:
        raw = {name: profile_related(command) for name, command in workloads.items()}
        arguments.result.with_suffix(".raw").write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
