"""Whether what a kernel computes is right: against float64, by the rules of the tests."""
import math

from kernels import torch
from problems import sampled_rows

# As common/operations/attention/comparison.cpp has them: the relative error that is allowed, and the last place.
ALLOWED_ERROR = {"f32": 1e-5, "bf16": 5e-3, "f16": 1e-3}
EPSILON = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}
CHUNK_BYTES = 1 << 30  # of the scores that a reference holds at a time


def why_wrong(dtype, error, worst_row, allowed_worst_row, lse_error=0.0):
    """The rules of the tests: a line that says which is broken, or "". NaN breaks each."""
    allowed = ALLOWED_ERROR[dtype]
    for name, value, bound in (("error", error, allowed), ("worst row", worst_row, allowed_worst_row),
                               ("LSE error", lse_error, allowed)):
        if not value <= bound:
            return f"{name} {value:.2e}, allowed {bound:.2e}"
    return ""


def attention_rows(q, k, v, rows, causal, real, stored):
    """Some queries' attention as its definition reads. Sums are of type `real`; what standard attention would store is
    rounded to `stored`. O (batch * heads, rows, head_dim) and LSE (batch * heads, rows), both `real`."""
    n_q, n_k, scale = q.shape[2], k.shape[2], q.shape[3]**-0.5
    group = q.shape[1] // k.shape[1]
    rows = torch.tensor(rows, device=q.device)
    hidden = torch.arange(n_k, device=q.device) > rows[:, None] + n_k - n_q
    q = q[:, :, rows].flatten(0, 1)
    k, v = (x.repeat_interleave(group, dim=1).flatten(0, 1) for x in (k, v))
    heads_at_once = max(1, CHUNK_BYTES // (8 * len(rows) * n_k))
    parts = []
    for q_heads, k_heads, v_heads in zip(*(x.split(heads_at_once) for x in (q, k, v))):
        S = (scale * (q_heads.to(real) @ k_heads.to(real).mT)).to(stored).to(real)
        if causal:
            S.masked_fill_(hidden, -math.inf)
        P = S.softmax(-1).to(stored).to(real)
        parts.append(((P @ v_heads.to(real)).to(stored).to(real), S.logsumexp(-1)))
    return tuple(map(torch.cat, zip(*parts)))


def errors(O, reference, rows=None):
    """Relative Frobenius error over the rows of the reference, and that of the worst row. `rows` of a whole O
    (batch, heads, n_q, head_dim), which must be finite everywhere; none if O has the rows of the reference."""
    if rows is not None:
        if not torch.isfinite(O).all():
            return math.nan, math.nan
        O = O[:, :, torch.tensor(rows, device=O.device)].flatten(0, 1)
    difference = O.double() - reference
    return ((difference.norm() / reference.norm()).item(),
            (difference.norm(dim=-1) / reference.norm(dim=-1)).max().item())


class Check:
    """Judges the variants of one problem on inputs q, k, v, against float64."""

    def __init__(self, inputs, causal, dtype):
        self.inputs, self.dtype, self.rows = inputs, dtype, sampled_rows(inputs[0].shape[2])
        self.reference, self.lse = attention_rows(*inputs, self.rows, causal, torch.float64, torch.float64)
        standard, _ = attention_rows(*inputs, self.rows, causal, torch.float32, inputs[0].dtype)
        self.allowed_worst_row = 2 * max(errors(standard, self.reference)[1], 2 * EPSILON[dtype])

    def verdict(self, run, writes_to_ours=False, has_lse=False):
        """{error, worst_row, wrong?}. Ours is given outputs full of NaN; a peer allocates, where NaN has just been."""
        q = self.inputs[0]
        poison = torch.full_like(q, math.nan)
        if writes_to_ours:
            O = run(*self.inputs, O=poison)
        else:
            del poison
            O = run(*self.inputs)
        error, worst_row = errors(O, self.reference, self.rows)
        lse_error = 0.0
        if has_lse:
            lse = torch.full(q.shape[:3], math.nan, device=q.device)
            run(*self.inputs, lse=lse)
            lse = lse[:, :, torch.tensor(self.rows, device=q.device)].flatten(0, 1)
            lse_error = ((lse - self.lse).abs() / self.lse.abs().clamp(min=1)).max().item()
        wrong = why_wrong(self.dtype, error, worst_row, self.allowed_worst_row, lse_error)
        number = lambda x: x if math.isfinite(x) else None  # JSON has no NaN
        return {"error": number(error), "worst_row": number(worst_row)} | ({"wrong": wrong} if wrong else {})
