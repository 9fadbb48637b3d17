"""bench.py NAMES [--shapes d:causal:n,...] [--check]: variants beside FA3 and r20, interleaved, in graphs."""
# PEERS: a folder with peers.py, whose fa3() and fa3_bwd() call FlashAttention-3. v/NAME.so: by build.sh.
import ctypes, json, os, random, statistics, sys, torch, glob
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.environ["PEERS"])
import peers
names = sys.argv[1].split(",")
shapes = [tuple(int(x) for x in s.split(":")) for s in sys.argv[2].split(",")] if len(sys.argv) > 2 else [(d, c, n) for d in (64, 128) for c in (0, 1) for n in (512, 1024, 4096, 16384)]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
libs = {}
for n in names:
    l = ctypes.CDLL(f"{here}/v/{n}.so"); l.fl_scratch.restype = ctypes.c_size_t; libs[n] = l
P = lambda t: ctypes.c_void_p(t.data_ptr())
def run(lib, B, H, KH, nq, nk, d, causal, q, k, v, o, do, lse, g, scratch):
    r = lib.fl_launch(B, H, KH, nq, nk, d, causal, ctypes.c_float(d ** -0.5), P(q), P(k), P(v), P(o), P(do), P(lse), P(g[0]), P(g[1]), P(g[2]), P(scratch), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    assert r == 0
def reference(q, k, v, do, causal):
    q, k, v = (x.double().requires_grad_() for x in (q, k, v)); G = q.shape[1] // k.shape[1]
    kk, vv = k.repeat_interleave(G, 1), v.repeat_interleave(G, 1)
    s = q @ kk.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        nq, nk = s.shape[-2:]; s = s.masked_fill(~torch.ones(nq, nk, dtype=torch.bool, device="cuda").tril(nk - nq), -float("inf"))
    lse = torch.logsumexp(s, -1); p = torch.exp(s - torch.where(lse == -float("inf"), 0, lse)[..., None]); o = p @ vv
    return o.detach(), lse.detach(), torch.autograd.grad(o, (q, k, v), do.double())
if rounds and "--nocheck" not in sys.argv:
    torch.manual_seed(1)
    for d in (64, 128):
        for (B, H, KH, nq, nk, causal) in [(2, 4, 4, 512, 512, 0), (1, 4, 2, 300, 333, 0), (1, 4, 4, 512, 512, 1), (2, 4, 2, 333, 700, 1), (1, 2, 2, 700, 333, 1), (1, 3, 3, 65, 129, 0), (2, 3, 1, 1000, 1000, 1), (1, 1, 1, 31, 1, 0), (16, 16, 16, 512, 512, 0), (16,16,16,512,512,1)]:
            q, do = (torch.randn(B, H, nq, d, device="cuda").bfloat16() for _ in range(2)); k, v = (torch.randn(B, KH, nk, d, device="cuda").bfloat16() for _ in range(2))
            o, lse, ref = reference(q, k, v, do, causal); o, lse = o.bfloat16(), lse.float().contiguous()
            for n, lib in libs.items():
                if n == "fa3": continue
                g = [torch.full_like(x, float("nan")) for x in (q, k, v)]
                scratch = torch.full((lib.fl_scratch(B, H, KH, nq, nk, d, causal) // 4 + 4,), float("nan"), device="cuda")
                run(lib, B, H, KH, nq, nk, d, causal, q, k, v, o, do, lse, g, scratch); torch.cuda.synchronize()
                first = [x.clone() for x in g]
                run(lib, B, H, KH, nq, nk, d, causal, q, k, v, o, do, lse, g, scratch); torch.cuda.synchronize()
                e = [((a.double() - b).norm() / b.norm().clamp_min(1e-30)).item() for a, b in zip(g, ref)]
                bad = [x for x in e if not x < 4e-3] if nk > 1 else []
                same = all(torch.equal(a, b) for a, b in zip(first[1:], g[1:]))
                if bad or not same: print("WRONG", n, d, (B, H, KH, nq, nk, causal), e, "same" if same else "DIFFERS", flush=True)
            del ref
    print("checked", flush=True)
res = []
for d, causal, n in shapes:
    B, H = 16384 // n, 2048 // d
    q, k, v, do = (torch.randn(B, H, n, d, device="cuda").bfloat16() for _ in range(4))
    o, lse = peers.fa3(q, k, v, bool(causal))
    calls, keep = {}, []
    g = [torch.empty_like(q) for _ in range(3)]
    calls["fa3"] = lambda: peers.fa3_bwd(do, q, k, v, o, lse, bool(causal), grads=g)
    for name, lib in libs.items():
        gg = [torch.empty_like(q) for _ in range(3)]
        sc = torch.zeros(lib.fl_scratch(B, H, H, n, n, d, causal) // 4 + 4, device="cuda"); keep.append(sc)
        calls[name] = lambda lib=lib, gg=gg, sc=sc: run(lib, B, H, H, n, n, d, causal, q, k, v, o, do, lse, gg, sc)
    flops = 10 * B * H * n * n * d * (0.5 if causal else 1)
    reps = max(2, int(5e-3 * 4e14 / flops)); graphs = {}
    for name in calls:
        s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s): calls[name]()
        torch.cuda.current_stream().wait_stream(s); torch.cuda.synchronize()
        gr = torch.cuda.CUDAGraph()
        with torch.cuda.graph(gr):
            for _ in range(reps): calls[name]()
        graphs[name] = gr
    times = {x: [] for x in graphs}
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            gr = graphs[name]; a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            gr.replay(); a.record(); gr.replay(); b.record(); b.synchronize(); times[name].append(a.elapsed_time(b) / reps)
    sp = {x: flops / statistics.median(y) / 1e9 for x, y in times.items()}
    print(d, causal, n, {x: round(y) for x, y in sp.items()}, flush=True)
    res.append({"d": d, "causal": causal, "n": n, **sp})
    del graphs, calls, keep; torch.cuda.empty_cache()
for x in res[0]:
    if x in ("d", "causal", "n"): continue
    print(x, "vs fa3 %.3f" % statistics.geometric_mean([r[x] / r["fa3"] for r in res]), "d64 %.3f" % statistics.geometric_mean([r[x] / r["fa3"] for r in res if r["d"] == 64] or [1]), "d128 %.3f" % statistics.geometric_mean([r[x] / r["fa3"] for r in res if r["d"] == 128] or [1]))
json.dump({"gpu": torch.cuda.get_device_name(), "rows": res}, open(os.environ.get("OUT", ".") + "/rows.json", "w"), indent=1)
