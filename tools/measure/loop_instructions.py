#!/usr/bin/env python3
"""How many instructions a warp issues in the unmasked loop of rungs 13 and 14, from the machine code: the table in their
lessons.

    nvcc -std=c++20 -O3 -arch=sm_90a -DFLASHLADDER_GPU -Icommon -cubin -o 13.cubin solutions/13-lean-softmax/variants.cu
    nvcc -std=c++20 -O3 -arch=sm_90a -DFLASHLADDER_GPU -Icommon -cubin -o 14.cubin solutions/14-lcsf/attention.cu
    tools/measure/loop_instructions.py 13.cubin 14.cubin --json docs/results/loops.json

Needs nvcc and nvdisasm, in PATH or by --nvcc and --nvdisasm; no GPU. Counted is the shortest way around the smallest loop
with HGMMA: of a step that raises no maximum and finds all that it waits for.
"""
import argparse
import collections
import datetime
import heapq
import json
import pathlib
import re
import subprocess
import sys

KINDS = {"maximum": ("FMNMX", "VIMNMX3", "VIMNMX", "SHFL", "VOTE", "VOTEU"), "FMUL": ("FMUL",), "FFMA": ("FFMA",),
         "exponential": ("MUFU",), "FADD": ("FADD",), "to 16 bits": ("F2FP",), "wgmma": ("HGMMA",)}
# Of rung 13: consumers; whether the softmax is lazy, tasks are mixed and blocks skipped (T) or not (F).
VARIANTS = {"3 TTT": "", "2 FFF": "two consumers", "2 TFF": "two consumers, lazy", "3 FFF": "three consumers",
            "3 TFF": "three consumers, lazy", "3 TFT": "and blocks skipped", "3 FTT": "all but lazy"}
SHOWN_OF_14 = (("64", "4", "64"), ("128", "3", "64"))  # d, consumers, B_c: dynamic, with turns


def output_of(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def kernels(sass):
    """Yields (name, code, labels): code is [(predicate, opcode, operands)], labels index it."""
    for text in re.split(r"\n\.text\.", sass)[1:]:
        code, labels = [], {}
        for line in text.split("\n"):
            if label := re.match(r"\s*(\.L_\w+):", line):
                labels[label.group(1)] = len(code)
            elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\S+)\s+)?([A-Z][A-Z0-9_.]+)(.*;)", line):
                code.append(instruction.groups())
        yield text.split(":")[0], code, labels


def target_of(instruction, labels):
    label = re.search(r"\.L_\w+", instruction[2])
    return labels.get(label.group()) if label and instruction[1].startswith("BRA") else None


def smallest_loop(code, labels):
    """(first, last): from a label to the branch that goes back to it, with HGMMA between."""
    loops = [(target, i) for i, instruction in enumerate(code)
             if (target := target_of(instruction, labels)) is not None and target <= i
             and any(c[1].startswith("HGMMA") for c in code[target:i])]
    return min(loops, key=lambda loop: loop[1] - loop[0], default=None)


def shortest_way_around(code, labels, first, last):
    """The indices of the instructions on it. Both sides of a branch with a condition are possible."""
    ways, seen = [(1, first, [first])], set()
    while ways:
        length, at, way = heapq.heappop(ways)
        if at == last:
            return way
        if at in seen:
            continue
        seen.add(at)
        predicate, opcode, operands = code[at]
        target = target_of(code[at], labels)
        nexts = [] if target is None else [target]
        if target is None or predicate or re.match(r"\s*!?U?P\d", operands):
            nexts.append(at + 1)
        for next_one in nexts:
            if next_one < len(code):
                heapq.heappush(ways, (length + 1, next_one, way + [next_one]))
    raise ValueError("no way around the loop")


def variant_of(kernel):
    """(name, d, consumers, B_c) of a kernel, demangled, that is shown in the table; else None."""
    bf16_not_causal = "<__nv_bfloat16, "
    if config := re.search(r"lean_flash" + bf16_not_causal + r"(\d+), false, .*?Config<(\d), (\d+), \d((?:, \w+)*)>", kernel):
        d, consumers, B_c, saving = config.groups()
        letters = "".join(word[0].upper() for word in re.findall(r"\w+", saving)).ljust(3, "T")  # what it does not say is true
        return VARIANTS[f"{consumers} {letters}"], int(d), int(consumers), int(B_c)
    if config := re.search(r"Attention" + bf16_not_causal + r"false, .*?Configuration\{(\d+), (\d), (\d+), 4, true, "
                           r"\([^)]*Schedule\)2, 2, ", kernel):
        if config.groups() in SHOWN_OF_14:
            d, consumers, B_c = map(int, config.groups())
            return f"rung 14, {consumers} x {B_c} keys", d, consumers, B_c
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", nargs="+")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    arguments = parser.parse_args()
    rows, order = [], list(VARIANTS.values())
    for name, code, labels in (kernel for cubin in arguments.cubins
                               for kernel in kernels(output_of([arguments.nvdisasm, cubin]))):
        variant = variant_of(output_of(["c++filt", name]))
        loop = smallest_loop(code, labels)
        if not variant or not loop:  # the kernel before rung 14's, which has its name, multiplies nothing
            continue
        name, d, consumers, B_c = variant
        if name not in order:
            order.append(name)
        way = shortest_way_around(code, labels, *loop)
        opcodes = collections.Counter(code[i][1].split(".")[0] for i in way)
        kinds = {kind: sum(opcodes[opcode] for opcode in of) for kind, of in KINDS.items()}
        rows.append({"variant": name, "d": d, "consumers": consumers, "B_c": B_c,
                     "instructions": len(way), "kinds": kinds, "opcodes": dict(sorted(opcodes.items()))})
    if not rows:
        sys.exit(f"no kernel of rungs 13 and 14 in {' '.join(arguments.cubins)}")
    rows.sort(key=lambda row: (row["d"], order.index(row["variant"])))
    version = re.search(r"V([\d.]+)", output_of([arguments.nvcc, "--version"])).group(1)
    result = {"nvcc": version, "architecture": "sm_90a",
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(f"d {row['d']:3}  {row['variant'] or 'rung 13':24} {row['instructions']:4} instructions, "
              f"{row['instructions'] / (row['B_c'] / 2):5.2f} an element  {row['kinds']}")


if __name__ == "__main__":
    main()
