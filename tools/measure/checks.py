"""Whether what a kernel computes is right: against float64, by the rules of the tests."""
import math

from kernels import torch
from problems import sampled_rows

# As common/operations/attention/comparison.cpp has them: the relative error that is allowed, and the last place.
ALLOWED_ERROR = {"f32": 1e-5, "bf16": 5e-3, "f16": 1e-3}
EPSILON = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}
ALLOWED_GRADIENT_ERROR = {"f32": 1e-5, "bf16": 4e-3, "f16": 6e-4}  # attention_backward/comparison.cpp
CHUNK_BYTES = 1 << 30  # of the scores that a reference holds at a time


def why_wrong(dtype, error, worst_row, allowed_worst_row, lse_error=0.0, allowed_errors=ALLOWED_ERROR):
    """The rules of the tests: a line that says which is broken, or "". NaN breaks each."""
    allowed = allowed_errors[dtype]
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


# ---- gradients


def gradients_of(q, k, v, dO, causal, real, stored):
    """dQ, dK, dV as the definition reads, a head at a time. Sums are of type `real`, as is what comes back; what the
    standard way would store is rounded to `stored`."""
    n_q, n_k, scale, group = q.shape[2], k.shape[2], q.shape[3]**-0.5, q.shape[1] // k.shape[1]
    hidden = torch.arange(n_k, device=q.device) > torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    dQ, dK, dV = (torch.zeros(x.shape, dtype=real, device=q.device) for x in (q, k, v))
    rounded = lambda x: x.to(stored).to(real)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            Q, K, V, dO_h = (x.to(real) for x in (q[b, h], k[b, h // group], v[b, h // group], dO[b, h]))
            S = scale * (Q @ K.mT)
            if causal:
                S.masked_fill_(hidden, -math.inf)
            exact_P = S.softmax(-1)
            D = (dO_h * rounded(exact_P @ V)).sum(-1, keepdim=True)
            P = rounded(exact_P)
            dS = rounded(P * (rounded(dO_h @ V.mT) - D))
            dQ[b, h] = scale * (dS @ K)
            dK[b, h // group] += scale * (dS.mT @ Q)
            dV[b, h // group] += P.mT @ dO_h
    return tuple(map(rounded, (dQ, dK, dV)))


def gradient_errors(found, reference):
    """Relative Frobenius error of a gradient, and the largest error of a row. That is a part of the largest row, for
    rows may be 0: a query that sees one key. NaN if anything is not finite."""
    if not torch.isfinite(found).all():
        return math.nan, math.nan
    difference = found.double() - reference
    return ((difference.norm() / reference.norm()).item(),
            (difference.norm(dim=-1).max() / reference.norm(dim=-1).max()).item())


class GradientCheck:
    """Judges the variants of one problem on inputs q, k, v, O, lse, dO, against float64."""

    def __init__(self, inputs, causal, dtype):
        self.inputs, self.dtype = inputs, dtype
        q, k, v, _, _, dO = inputs
        self.reference = gradients_of(q, k, v, dO, causal, torch.float64, torch.float64)
        standard = gradients_of(q, k, v, dO, causal, torch.float32, q.dtype)
        self.allowed_worst_rows = [2 * max(gradient_errors(x, y)[1], EPSILON[dtype])
                                   for x, y in zip(standard, self.reference)]

    def verdict(self, run, writes_to_ours=False):
        """{error, worst_row, wrong?} of the worst of the three. Ours is given gradients full of NaN."""
        given = {}
        if writes_to_ours:
            given["gradients"] = tuple(torch.full_like(x, math.nan) for x in self.inputs[:3])
        of_each = [gradient_errors(x, y) for x, y in zip(run(*self.inputs, **given), self.reference)]
        wrong = [f"{name}: {why}"
                 for name, (error, worst_row), allowed in zip(("dQ", "dK", "dV"), of_each, self.allowed_worst_rows)
                 if (why := why_wrong(self.dtype, error, worst_row, allowed, allowed_errors=ALLOWED_GRADIENT_ERROR))]
        worst = lambda values: max(values) if all(map(math.isfinite, values)) else None  # JSON has no NaN
        error, worst_row = map(worst, zip(*of_each))
        return {"error": error, "worst_row": worst_row} | ({"wrong": "; ".join(wrong)} if wrong else {})
