#!/usr/bin/env python3
"""What the template of rung 14 is worth, attention and matrix product: the tables in lesson 14.

    tools/measure/template_tables.py --json docs/results/template.json          on a GPU: speed, bytes of device memory
    tools/measure/template_tables.py --sizes --json docs/results/template.json  without a GPU: lines and machine code

Each writes its own part of the file. The first needs an NVIDIA GPU, PyTorch, Nsight Compute and the library of all
stages, as tools/measure/block_orders.py does; each kernel is checked first, then all take turns. The second needs nvcc,
in PATH or by --nvcc, and the library to say how large it is. Its machine code is that for sm_90a.
"""
import argparse
import ctypes
import dataclasses
import datetime
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import tune
from card import card_state, clocks_of, start_card_query
from checks import ALLOWED_ERROR
from kernels import LIBRARY, open_library, stage_run
from ncu import ROOT, add_metrics, commit, output_of, second_launches
from problems import shape

# ---- what is measured

ATTENTION = "3 x 64 keys, {}, {}, turns"  # slots and schedule of a configuration at d = 128
SLOTS = {n: ATTENTION.format(f"{n} slot{'s' * (n > 1)}", "dynamic") for n in (1, 2, 3, 4)}
SCHEDULES = {name: ATTENTION.format("4 slots", name) for name in ("one block each", "fixed", "dynamic")}
GEMM_SLOTS = {2: "2 slots", 3: ""}
GEMM_SCHEDULES = {"one block each": "one block each", "fixed": "", "dynamic": "dynamic"}
GEMM_ORDERS = {"sections of 1": "sections of 1", "sections of 4": "sections of 4", "sections of 16": "",
               "one section": "one section"}
CUBLAS = "cuBLAS"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of C = A B: (m, n) = (m, k) (k, n)."""
    m: int
    n: int
    k: int

    def flops(self):
        return 2 * self.m * self.n * self.k

    def __str__(self):
        return f"{self.m} x {self.n} x {self.k}"


ORDER_SIZES = [Sizes(8192, 8192, 8192), Sizes(16384, 16384, 4096)]
# Squares; what a transformer of width 2048 or 4096 multiplies; what has few tasks.
CUBLAS_SIZES = [*(Sizes(n, n, n) for n in (2048, 4096, 8192, 16384)), Sizes(16384, 16384, 4096), Sizes(8192, 6144, 2048),
                Sizes(8192, 4096, 4096), Sizes(8192, 14336, 4096), Sizes(8192, 4096, 14336), Sizes(1000, 1096, 520)]
# table: (problems, {how it is called in the table: variant})
ATTENTION_TABLES = {"stages": ([shape(128, n, False) for n in (4096, 16384)], SLOTS),
                    "schedules": ([shape(128, n, causal) for causal in (False, True) for n in (1024, 4096, 16384)],
                                  SCHEDULES)}
GEMM_TABLES = {"stages": ([Sizes(8192, 8192, 8192)], GEMM_SLOTS),
               "schedules": ([Sizes(4096, 4096, k) for k in (512, 1024, 4096, 8192)], GEMM_SCHEDULES),
               "orders": (ORDER_SIZES, GEMM_ORDERS),
               "gemm": (CUBLAS_SIZES, {"ours": "", CUBLAS: CUBLAS})}
ROUNDS, MOST_LAUNCHES = 21, 64


# ---- attention


def attention_rows(library, table):
    import torch
    from block_orders import median_times, random_inputs
    problems, variants = ATTENTION_TABLES[table]
    for of in problems:
        inputs = [random_inputs(of) for _ in range(3)]
        O = torch.empty_like(inputs[0][0])
        stages = {name: stage_run(library, f"{tune.STAGE}/{variant}", of, "bf16") for name, variant in variants.items()}
        tune.check_against_sdpa(stages, inputs[0], of)
        runs = {name: lambda i, run=run: run(*inputs[i % 3], O=O) for name, run in stages.items()}
        for name, ms in median_times(runs, ROUNDS, MOST_LAUNCHES, in_graphs=True).items():
            yield {"kernel": "attention", "what": str(name), "variant": variants[name],
                   "shape": dataclasses.asdict(of), "ms": ms, "tflops": of.flops() / ms / 1e9}


# ---- matrix products


def gemm_run(library, variant, of, scratch):
    """run(A, B, C) of a variant, or of cuBLAS, on PyTorch's current stream."""
    import torch
    if variant == CUBLAS:
        return lambda A, B, C: torch.matmul(A, B, out=C)
    function = library.library.flashladder_gemm
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_char_p, *3 * [ctypes.c_int], *5 * [ctypes.c_void_p]]

    def run(A, B, C):
        error = function(variant.encode(), of.m, of.n, of.k, A.data_ptr(), B.data_ptr(), C.data_ptr(),
                         scratch.data_ptr(), torch.cuda.current_stream().cuda_stream)
        if error:
            raise RuntimeError(error.decode())
    return run


def gemm_problem(library, of, variants):
    """Three pairs of A and B, C full of NaN, and {name: run(A, B, C)}."""
    import torch
    make = lambda *size: torch.randn(size, device="cuda", dtype=torch.bfloat16)
    scratch = torch.full((4,), 0xFF, dtype=torch.uint8, device="cuda")
    C = torch.full((of.m, of.n), math.nan, device="cuda", dtype=torch.bfloat16)
    return ([(make(of.m, of.k), make(of.k, of.n)) for _ in range(3)], C,
            {name: gemm_run(library, variant, of, scratch) for name, variant in variants.items()})


def gemm_errors(pair, C, runs, of):
    """{name: relative error} against float64. SystemExit if one of ours is wrong."""
    expected, errors = pair[0].double() @ pair[1].double(), {}
    for name, run in runs.items():
        C.fill_(math.nan)
        run(*pair, C)
        errors[name] = ((C.double() - expected).norm() / expected.norm()).item()
        if name != CUBLAS and not errors[name] <= ALLOWED_ERROR["bf16"]:
            sys.exit(f"GEMM '{name}', {of}: error {errors[name]:.2e}, allowed {ALLOWED_ERROR['bf16']:.0e}")
    return errors


def gemm_rows(library, table):
    from block_orders import median_times
    problems, variants = GEMM_TABLES[table]
    for of in problems:
        pairs, C, runs = gemm_problem(library, of, variants)
        errors = gemm_errors(pairs[0], C, runs, of)
        times = median_times({name: lambda i, run=run: run(*pairs[i % 3], C) for name, run in runs.items()}, ROUNDS,
                             MOST_LAUNCHES, in_graphs=True)
        for name, ms in times.items():
            yield {"kernel": "GEMM", "what": str(name), "variant": variants[name], "shape": dataclasses.asdict(of),
                   "ms": ms, "tflops": of.flops() / ms / 1e9, "error": errors[name]}


def launch_for_profiler(library):
    """Two launches of each order on each problem: the second finds L2 as another launch leaves it."""
    import torch
    for of in ORDER_SIZES:
        pairs, C, runs = gemm_problem(library, of, GEMM_ORDERS)
        for run in runs.values():
            run(*pairs[0], C)
            run(*pairs[0], C)
    torch.cuda.synchronize()


def measured(library, path):
    """The part of the result file that a GPU is needed for."""
    import torch
    from block_orders import METRICS
    result, cards = {table: [] for table in GEMM_TABLES}, []
    for tables, rows_of in ((ATTENTION_TABLES, attention_rows), (GEMM_TABLES, gemm_rows)):
        for table in tables:
            query = start_card_query()
            for row in rows_of(library, table):
                result[table].append(row)
                problem = ", ".join(f"{key} {value}" for key, value in row["shape"].items())
                print(f"{table:10} {problem:100} {row['what']:16} {row['ms']:8.3f} ms {row['tflops']:6.0f} TFLOP/s",
                      flush=True)
            torch.cuda.empty_cache()
            cards.append(card_state(query.communicate()[0]) if query else {})
    launches = second_launches([sys.executable, __file__, "--library", path, "--launch"], METRICS.values(),
                               ["lcsf_kernel" for _ in result["orders"]])
    add_metrics(result["orders"], launches, METRICS)
    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda,
            "torch": torch.__version__, "commit": commit(), "clocks": clocks_of(cards), "date": today(), **result}


# ---- lines and bytes

# file: what the name of its kernel begins with, for bf16, d = 128, no mask; none of a header
COUNTED = {
    "solutions/01-minimal-flash/attention.cu": "minimal_flash(",  # f32, any d
    "solutions/09-warpgroup-mma/attention.cu": "warpgroup_flash<__nv_bfloat16, 128, false, Config<",
    "solutions/10-warp-specialization/attention.cu": "specialized_flash<__nv_bfloat16, 128, false, Config<",
    "solutions/11-persistent-grid/attention.cu":
        "persistent_flash<__nv_bfloat16, 128, false, Config<3, 128, 2, 1, (Schedule)2>",
    "solutions/12-overlap/attention.cu":
        "overlapped_flash<__nv_bfloat16, 128, false, Config<2, 128, 2, (Overlap)3, true>",
    "solutions/13-lean-softmax/attention.cu":
        "lean_flash<__nv_bfloat16, 128, false, Config<3, 64, 4>",
    "solutions/14-lcsf/attention.cu":
        "lcsf_kernel<Attention<__nv_bfloat16, false, Configuration{128, 3, 64, 4, true, (Schedule)2, 2, 67, false",
    "solutions/14b-gemm/gemm.cu": "lcsf_kernel<Gemm<3, 16, (Schedule)1>",
    "common/lcsf/lcsf.h": None, "common/lcsf/ring.h": None, "common/lcsf/schedule.h": None,
    "common/lcsf/tasks.h": None, "common/lcsf/turns.h": None,
}


def lines_of_code(source):
    """Without comments and blank lines."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
    without = token.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), source)
    return sum(bool(line.strip()) for line in without.split("\n"))


def code_sections(elf):
    """{kernel: bytes of machine code} of a cubin, which is an ELF file of 64 bits."""
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF file of 64 bits")
    table, = struct.unpack_from("<Q", elf, 0x28)
    entry_size, entries, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    # of each: name, type, flags, address, offset, size
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(entries)]
    names = sections[names_index][4]
    name_of = lambda section: elf[names + section[0]:elf.index(b"\0", names + section[0])].decode()
    return {name.removeprefix(".text."): section[5] for section in sections
            if (name := name_of(section)).startswith(".text.")}


def demangled(names):
    """Without namespaces and results."""
    answer = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.split("\n")
    return [plain_name(name) for name in answer[:len(names)]]


def plain_name(name):
    return re.sub(r"\(anonymous namespace\)::|\b[a-z_]\w*::|^void ", "", name)


def bytes_of(kernels, begin):
    """Of the one kernel whose name begins so. SystemExit if there is not one."""
    found = [kernel["bytes"] for kernel in kernels if kernel["kernel"].startswith(begin)]
    if len(found) != 1:
        sys.exit(f"template_tables.py: {len(found)} kernels are called {begin}...")
    return found[0]


def kernels_of(source, nvcc):
    """[{kernel, bytes}] of the kernels of a .cu file, for sm_90a."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder, "kernels.cubin")
        subprocess.run([nvcc, "-std=c++20", "-O3", "-arch=sm_90a", "-DFLASHLADDER_GPU", f"-I{ROOT / 'common'}",
                        "-cubin", "-o", cubin, source], check=True, stdout=subprocess.DEVNULL)
        code = code_sections(cubin.read_bytes())
    return sorted(({"kernel": name, "bytes": code[mangled]} for mangled, name in zip(code, demangled(code))),
                  key=lambda kernel: kernel["kernel"])


def sizes(library, nvcc):
    """The part of the result file that needs no GPU."""
    files = []
    for file, begin in COUNTED.items():
        row = {"file": file, "lines": lines_of_code((ROOT / file).read_text())}
        if begin:
            row["kernels"] = kernels_of(ROOT / file, nvcc)
            row["bytes"] = bytes_of(row["kernels"], begin)
        files.append(row)
        print(f"{file:50} {row['lines']:4} lines", f"{row['bytes']} bytes" if begin else "", flush=True)
    version = re.search(r"V([\d.]+)", output_of([nvcc, "--version"]))
    return {"files": files, "library_bytes": library.stat().st_size if library.exists() else None,
            "nvcc": version[1] if version else "unknown", "architecture": "sm_90a", "commit": commit(), "date": today()}


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--sizes", action="store_true", help="count lines and bytes; needs no GPU")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--launch", action="store_true", help="only launch: what the profiler looks at")
    arguments = parser.parse_args()
    path = arguments.library.resolve()
    if arguments.launch:
        return launch_for_profiler(open_library(path))
    result = {"sizes": sizes(path, arguments.nvcc)} if arguments.sizes else measured(open_library(path), path)
    if arguments.json:
        before = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        arguments.json.write_text(json.dumps(before | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
