#!/usr/bin/env python3
"""How long a learner waits after an edit, for each chapter: until the first red exercise, and until all is green.

    tools/measure/chapter_times.py [--json FILE] [CHAPTER ...]

Works on a copy of the project in a temporary folder. Each chapter is built once before; then a line is added to the file
and `./ladder test NN` is timed: of the starter until its first FAIL is on the screen, of the solution until its end. Also
the first `./ladder test` of a clean copy, in seconds of the processor. Nothing else should run on the machine.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def ladder(project, *arguments):
    return subprocess.run([project / "ladder", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def seconds_until(project, chapter, wanted):
    """Of `./ladder test` after an edit; until a line has `wanted`."""
    file = next((project / "chapters").glob(f"{chapter}-*/*.cu"))
    file.write_text(file.read_text() + f"// {time.time_ns()}\n")
    start = time.monotonic()
    with subprocess.Popen([project / "ladder", "test", chapter], stdout=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL) as process:
        output = ""
        for line in process.stdout:
            output += line
            if wanted in line:
                seconds = time.monotonic() - start
                process.stdout.read()  # to its end
                return seconds
    sys.exit(f"./ladder test {chapter} does not say '{wanted}':\n{output}")


def times(project, chapter):
    row = {"chapter": chapter}
    for verb, wanted, key in (("reset", "FAIL", "until_red"), ("solve", "all green", "until_green")):
        ladder(project, verb, chapter)
        seconds_until(project, chapter, wanted)  # builds what the chapter's tests are made of
        row[key] = round(seconds_until(project, chapter, wanted), 1)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="01; without any: all")
    parser.add_argument("--json", type=pathlib.Path, help="write the times to this file")
    options = parser.parse_args()
    chapters = options.chapters or sorted(rung.name.split("-")[0] for rung in (ROOT / "solutions").glob("[0-9][0-9]-*"))
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder, "project")
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns("build", ".git"))
        os.environ.pop("LADDER_BUILD", None)
        first = ladder(project, "test", chapters[0])
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        results = {"cores": os.cpu_count(), "first_test_cpu_seconds": round(used.ru_utime + used.ru_stime, 1), "rows": []}
        if "EXERCISE" not in first.stdout:
            sys.exit(f"./ladder test {chapters[0]} failed:\n{first.stdout}{first.stderr}")
        print(f"the first ./ladder test {chapters[0]}: {results['first_test_cpu_seconds']} s of the processor\n"
              "chapter   until the first red exercise, s   until all is green, s", flush=True)
        for chapter in chapters:
            row = times(project, chapter)
            results["rows"].append(row)
            print(f"{chapter:<9} {row['until_red']:>32} {row['until_green']:>23}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
