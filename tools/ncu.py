#!/usr/bin/env python3
"""What the same launches cost on a GPU, by Nsight Compute, and on the emulator: for the table in docs/counting.md.

    tools/ncu.py profile docs/results/ncu.json            on a machine with a GPU, after `cmake --build --preset gpu`
    tools/ncu.py count docs/results/ncu-emulator.json     anywhere, after `./ladder`
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

RUNGS = ["00", "01", "02", "03", "04", "05", "06", "07"]
WORKLOADS = {f"rung {rung}": ["ladder", "launch", rung, "--n", "1024", "--d", "64"] for rung in RUNGS}
WORKLOADS["tutorials"] = ["emulator-tutorials", "--test-case=tutorial: the same bits*"]

# Ours: Nsight Compute's metrics, which are added up.
METRICS = {
    "global_read_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global_write_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "global_atomic_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
                              "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum"],
    "shared_read_wavefronts": ["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
    "shared_write_wavefronts": ["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
    "shared_atomic_wavefronts": ["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_atom.sum"],
    "shared_read_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
    "shared_write_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
}


def output_of(command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """As in tools/results.cpp: LADDER_COMMIT's, else git's."""
    if "LADDER_COMMIT" in os.environ:
        return os.environ["LADDER_COMMIT"]
    found = output_of(["git", "rev-parse", "--short=12", "HEAD"])
    changed = output_of(["git", "status", "--porcelain", "--untracked-files=no", "cmake", "common", "solutions",
                         "tools"])
    return found + ("-dirty" if changed else "") if found else "unknown"


def profile(command):
    """The launches of a program on the GPU: [{kernel, counts}]."""
    metrics = ",".join(sorted({metric for parts in METRICS.values() for metric in parts}))
    ncu = subprocess.run(["ncu", "--csv", "--page", "raw", "--metrics", metrics,
                          ROOT / "build/gpu/bin" / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    if ncu.returncode != 0:
        sys.exit(f"ncu failed:\n{ncu.stdout}{ncu.stderr}")
    rows = [row for row in csv.DictReader(line for line in ncu.stdout.splitlines() if line.startswith('"')) if row["ID"]]
    value = lambda row, metric: round(float(row[metric].replace(",", "")))
    return [{"kernel": row["Kernel Name"].split("(")[0].split("::")[-1],
             "counts": {name: sum(value(row, metric) for metric in parts) for name, parts in METRICS.items()}}
            for row in rows]


def count(command):
    """The same of the emulator."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "counts.json"
        subprocess.run([ROOT / "build/cpu/bin" / command[0], *command[1:]], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"LADDER_COUNTS": str(file), "LADDER_SEED": "1"})
        launches = json.loads(file.read_text())["launches"]

    def counts(work):
        of = lambda memory, kind, what: work.get(memory, {}).get(kind, {}).get(what, 0)
        kinds = ("read", "write", "atomic")
        return ({f"global_{kind}_sectors": of("global", kind, "sectors") for kind in kinds}
                | {f"shared_{kind}_wavefronts": of("shared", kind, "wavefronts") for kind in kinds}
                | {f"shared_{kind}_conflicts": of("shared", kind, "conflicts") for kind in kinds[:2]})
    return [{"kernel": launch["kernel"], "counts": counts(launch["work"])} for launch in launches]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["profile", "count"])
    parser.add_argument("result", type=pathlib.Path)
    arguments = parser.parse_args()
    on_gpu = arguments.how == "profile"
    result = {"commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
    if on_gpu:
        result["gpu"] = output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
        result["driver"] = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
        result["profiler"] = "Nsight Compute " + output_of(["ncu", "--version"]).split("Version ")[-1].split(" ")[0]
    else:
        result["gpu"] = "FlashLadder emulator"
    result["programs"] = {name: (profile if on_gpu else count)(command) for name, command in WORKLOADS.items()}
    arguments.result.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
