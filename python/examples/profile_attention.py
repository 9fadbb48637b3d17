#!/usr/bin/env python3
"""Plain attention beside a stage, by torch.profiler: which kernels run, how long, and how much memory they take.

    python/examples/profile_attention.py                        bf16, 14-lcsf
    python/examples/profile_attention.py --stage 01-minimal-flash --dtype float32 --n 1024

Needs PyTorch and flashladder (docs/python.md). Without a GPU it compares the results, on a smaller problem, and times
nothing: the emulator is no model of time.
"""
import argparse
import sys

try:
    import torch
    import flashladder
except ImportError as error:
    sys.exit(f"profile_attention.py needs PyTorch and flashladder (docs/python.md): {error}")


def plain_attention(q, k, v, causal):
    """As the definition reads: all scores are in memory at once."""
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, dim=3) @ v


def profile(title, work):
    """Prints the kernels of one call and the memory that it takes beyond its inputs. The call before warms up."""
    from torch.profiler import ProfilerActivity
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    print(f"\n{title}: {(torch.cuda.max_memory_allocated() - before) / 1e6:.1f} MB beyond the inputs\n"
          f"{profiler.key_averages().table(sort_by='cuda_time_total', row_limit=8)}")


def main():
    has_cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", default="14-lcsf")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="bfloat16")
    for name, size in (("--batch", 4 if has_cuda else 1), ("--heads", 16 if has_cuda else 2), ("--d", 64),
                       ("--n", 4096 if has_cuda else 128)):
        parser.add_argument(name, type=int, default=size, help=f"default {size}")
    parser.add_argument("--causal", action="store_true")
    options = parser.parse_args()

    torch.manual_seed(1)
    q, k, v = (torch.randn(options.batch, options.heads, options.n, options.d, dtype=getattr(torch, options.dtype),
                           device="cuda" if has_cuda else "cpu") for _ in range(3))

    def plain():
        return plain_attention(q, k, v, options.causal)

    def ours():
        return flashladder.attention(q, k, v, causal=options.causal, stage=options.stage)
    try:
        got = ours()
    except (ValueError, RuntimeError) as error:
        sys.exit(f"profile_attention.py: {error}")
    exact = plain_attention(*(x[:1, :1].double() for x in (q, k, v)), options.causal)  # of one head
    error = {name: ((x[:1, :1] - exact).norm() / exact.norm()).item()
             for name, x in (("plain", plain()), ("ours", got))}
    del exact, got
    print(f"relative error against double precision: plain attention {error['plain']:.1e}, {options.stage} "
          f"{error['ours']:.1e}")
    if not error["ours"] <= 1.5 * max(error["plain"], 1e-6):
        sys.exit("FAILED: the stage is less accurate than plain attention")
    if has_cuda:
        profile("plain attention", plain)
        profile(options.stage, ours)
    else:
        print("PyTorch sees no GPU: compared on the emulator, and nothing is timed")


if __name__ == "__main__":
    main()
