# The ways back beside each other: bb.py STAGE... ; ratios to the first.
import sys, os, json, math, statistics, argparse
sys.path.insert(0, "tools/measure")
import torch
from compare_torch import backward_inputs, GradientCheck, time_variants
from kernels import open_library, stage_backward_run
from problems import shape
library = open_library(os.environ.get("LIB", "build/gpu/lib/libflashladder.so"))
opt, rows, logs = argparse.Namespace(rounds=7, no_graph=False), [], {}
names = sys.argv[1:]
for d in (64, 128):
    for causal in (False, True):
        for n in (512, 1024, 2048, 4096, 8192, 16384):
            of = shape(d, n, causal)
            inputs = backward_inputs(of, torch.bfloat16)
            check = GradientCheck(inputs[0], causal, "bf16")
            runs = {}
            for name in names:
                try:
                    run = stage_backward_run(library, name, of, "bf16")
                    v = check.verdict(run, writes_to_ours=True)
                    if "wrong" in v: print(name, of, "WRONG", v["wrong"]); continue
                    runs[name] = run
                except RuntimeError as e:
                    print(name, of, "CANNOT", str(e)[:150])
            del check
            times, *_ = time_variants(runs, inputs, opt, math.inf)
            m = {name: 1000 * statistics.median(times[name]) for name in runs}
            first = m[names[0]]
            for name, us in m.items(): rows.append([d, causal, n, name, us]); logs.setdefault(name, []).append(math.log(first / us))
            print(f"d {d} {'c' if causal else '-'} N {n:5}", " ".join(f"{name} {us:.1f} ({first/us:.3f})" for name, us in m.items()), flush=True)
print({name: round(math.exp(sum(x) / len(x)), 4) for name, x in logs.items()})
json.dump(rows, open(os.path.join(os.environ.get("RESULTS", "."), "bb.json"), "w"))
