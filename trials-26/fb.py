# Trial configurations of rung 14 beside those that are there: ms by rounds in one process. fb.py [d ...]
import sys, json, os
sys.path.insert(0, "tools/measure")
import torch
from block_orders import median_times, random_inputs
from kernels import open_library, stage_run
from problems import shape
from tune import check_against_sdpa, configurations, STAGE, ALLOWED_DIFFERENCE
library, known = open_library(os.environ.get("LIB", "build/gpu/lib/libflashladder.so")), configurations()
of_library = {v["variant"]: v for s in library.stages() if s["stage"] == STAGE for v in s["variants"]}
rows = []
for d in map(int, sys.argv[1:] or ["64", "128"]):
    names = [n for n, v in of_library.items() if v["head_dims"] == [d] and not (n.startswith("1 x") or ", 1 slot" in n or ", 3 slots" in n or "fixed" in n)]
    for causal in (False, True):
        for n in (512, 2048, 8192) if d == 64 else (512, 4096):
            of = shape(d, n, causal)
            inputs = [random_inputs(of) for _ in range(3)]
            O = torch.empty_like(inputs[0][0])
            stages = {}
            for name in names:
                try:
                    run = stage_run(library, f"{STAGE}/{name}", of, "bf16")
                    check_against_sdpa({name: run}, inputs[0], of)
                    stages[name] = run
                except SystemExit as e:
                    print("WRONG", e, flush=True)
            runs = {name: lambda i, run=run: run(*inputs[i % 3], O=O) for name, run in stages.items()}
            times = median_times(runs, 7, 16, in_graphs=True)
            best = min(v for k, v in times.items() if "late" not in k and "alone" not in k and "polynomial" not in k)
            print(f"--- d {d} {'causal' if causal else ''} N {n}: best of the old ones {of.flops()/best/1e9:.0f}", flush=True)
            for name, ms in sorted(times.items(), key=lambda x: x[1]):
                print(f"  {best/ms:.3f} {of.flops()/ms/1e9:5.0f} {name}", flush=True)
                rows.append([d, causal, n, name, ms])
json.dump(rows, open(os.path.join(os.environ.get("RESULTS", "."), "fb.json"), "w"))
