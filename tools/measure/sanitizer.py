#!/usr/bin/env python3
"""What compute-sanitizer says of the synchronisation mutants, for the table in docs/emulator.md.

    tools/measure/sanitizer.py docs/results/racecheck.json   on a machine with a GPU, after `cmake --build --preset gpu`

Each mutant runs in processes of its own: without a tool, several times, and under each tool once. One that hangs is
stopped.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess

from ncu import ROOT, commit, output_of

PROGRAM = ROOT / "build/gpu/bin/sync-mutants"
TOOLS = ["racecheck", "synccheck", "memcheck"]
PLAIN_RUNS = 5
SECONDS = 20  # for one process; the tools take some two to start


def output_within(command):
    """What a command prints; None if it had to be stopped, with all that it has started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def last_word(output):
    """right, wrong, gave up waiting, or an error: the program's own line, which is the last one not of the tool."""
    if output is None:
        return "hangs"
    lines = [line for line in output.splitlines() if line and not line.startswith("=========")]
    return lines[-1] if lines else "nothing"


def verdict(output):
    """Errors and warnings by the tool's summary, and its first words."""
    if output is None:
        return {"stopped": True}
    said = [line.removeprefix("=========").strip() for line in output.splitlines() if line.startswith("=========")]
    summary = next((line for line in said if "SUMMARY" in line), "")
    number = lambda what: int((re.search(rf"(\d+) {what}", summary) or [0, 0])[1])
    first = next((line for line in said if line and "COMPUTE-SANITIZER" not in line and "SUMMARY" not in line), "")
    return {"errors": number("error"), "warnings": number("warning"), "first": first, "summary": summary,
            "result": last_word(output)}


def examine(mutant):
    row = {"name": mutant, "results": sorted({last_word(output_within([PROGRAM, mutant])) for _ in range(PLAIN_RUNS)})}
    for tool in TOOLS:
        row[tool] = verdict(output_within(["compute-sanitizer", "--tool", tool, "--print-limit", "10", PROGRAM, mutant]))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=12, help="at a time")
    arguments = parser.parse_args()
    mutants = [line.split()[0] for line in subprocess.check_output([PROGRAM], text=True).splitlines()]
    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        rows = list(pool.map(examine, mutants))
    result = {"commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
              "gpu": output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]),
              "driver": output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
              "cuda": (re.search(r"release ([\d.]+)", output_of(["nvcc", "--version"])) or ["", ""])[1],
              "sanitizer": (re.search(r"Version ([\d.]+)", output_of(["compute-sanitizer", "--version"])) or ["", ""])[1],
              "runs": PLAIN_RUNS, "rows": rows}
    arguments.result.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
