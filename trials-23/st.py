
import sys, torch, ctypes, os, numpy as np
here = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, here + "/peers")
import peers
for name in sys.argv[1].split(","):
  for spec in sys.argv[2].split(","):
    d, causal, n = map(int, spec.split(":"))
    B, H = 16384 // n, 2048 // d
    q, k, v, do = (torch.randn(B, H, n, d, device="cuda").bfloat16() for _ in range(4))
    o, lse = peers.fa3(q, k, v, bool(causal)); g = [torch.empty_like(q) for _ in range(3)]
    P = lambda t: ctypes.c_void_p(t.data_ptr())
    lib = ctypes.CDLL(f"{here}/v/{name}.so"); lib.fl_scratch.restype = ctypes.c_size_t
    sc = torch.empty(lib.fl_scratch(B, H, H, n, n, d, causal) // 4 + 4, device="cuda")
    for _ in range(3):
        lib.fl_launch(B, H, H, n, n, d, causal, ctypes.c_float(d ** -0.5), P(q), P(k), P(v), P(o), P(do), P(lse), P(g[0]), P(g[1]), P(g[2]), P(sc), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)); torch.cuda.synchronize()
    st = np.zeros(1 << 16, dtype=np.uint64); lib.fl_stamps(ctypes.c_void_p(st.ctypes.data))
    tasks = H * B * ((n + (256 if d == 64 else 128) - 1) // (256 if d == 64 else 128))
    s = st.reshape(-1, 8)[:tasks].astype(np.int64); t0 = s[:, 0].min(); T = (s[:, :5] - t0) / 1000
    print(name, d, causal, n, "total %.0f us, tasks %d; main %.1f store %.1f is_last %.2f" % (T[:, 4].max(), tasks, (T[:, 1] - T[:, 0]).mean(), (T[:, 2] - T[:, 1]).mean(), (T[:, 3] - T[:, 2]).mean()), flush=True)
    L = s[:, 6] == 1; f = T[L, 4] - T[L, 3]
    print("  finish: n %d mean %.1f max %.1f us; last heads: " % (L.sum(), f.mean(), f.max()), [(int(s[i, 7]), i, int(s[i,5]), "%.0f-%.0f" % (T[i, 3], T[i, 4])) for i in np.argsort(T[:, 4])[-400:] if L[i]][-4:])
    ends = {}
    busy = {}
    for i in range(tasks): ends[s[i, 5]] = max(ends.get(s[i, 5], 0), T[i, 4]); busy[s[i,5]] = busy.get(s[i,5],0) + T[i,4]-T[i,0]
    e = np.sort(np.array(list(ends.values()))); print("  SM ends: min %.0f p10 %.0f median %.0f p90 %.0f max %.0f; busy mean %.0f" % (e[0], np.percentile(e, 10), np.median(e), np.percentile(e, 90), e[-1], np.mean(list(busy.values()))))
    o_ = np.argsort(T[:,0]); gaps = []
    for sm in ends:
        r = sorted([(T[i,0],T[i,4]) for i in range(tasks) if s[i,5]==sm]); gaps += [b[0]-a[1] for a,b in zip(r,r[1:])]
    print("  gap between tasks of an SM: mean %.2f us" % np.mean(gaps))
