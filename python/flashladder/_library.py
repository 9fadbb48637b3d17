"""The libraries of the two backends: the package's own, or the GPU library that FLASHLADDER_LIBRARY names."""
import functools
import json
import os
import pathlib

from . import _core


@functools.lru_cache(maxsize=None)
def library(backend):
    """The _core.Library of "cpu" or "gpu". RuntimeError, with the way to one, if there is none."""
    path = pathlib.Path(__file__).parent / f"libflashladder-{backend}.so"
    named = os.environ.get("FLASHLADDER_LIBRARY") if backend == "gpu" else None
    if backend == "gpu" and not named and not path.exists():
        raise RuntimeError("this flashladder has no GPU library: it is built by pip where nvcc is found; or set "
                           "FLASHLADDER_LIBRARY to a build/gpu/lib/libflashladder.so, which another machine may build")
    try:
        opened = _core.Library(os.path.abspath(named) if named else str(path))
    except RuntimeError as error:
        raise RuntimeError(f"cannot use the {backend.upper()} library: {error}") from None
    if opened.backend != backend:
        raise RuntimeError(f"FLASHLADDER_LIBRARY is {named}, which is the emulator's library, not one for GPUs")
    return opened


def stages():
    """What each stage can do, lowest first: [{"stage": "04-tensor-cores", "head_dims": [64, 128], "dtypes": ["bf16",
    "f16"], "causal": True, "lse": True, "grouped_query": True, "strides": False, "compute_capability": 80,
    "max_batch_heads": 0, "max_n_k": 0, "variants": [...]}, ...]. A maximum of 0 is none, but batch and
    heads are at most 65535 each."""
    return json.loads(library("cpu").stages)


def backward_stages():
    """What each stage of the way back can do, lowest first, as stages() says it of the others. Instead of "lse" there
    is "deterministic": whether each launch gives the same bits."""
    return json.loads(library("cpu").backward_stages)


def _names(described):
    """Of stages, and of all that can be asked for, their variants too."""
    plain = [stage["stage"] for stage in described]
    forms = [f"{stage['stage']}/{form['variant']}" for stage in described for form in stage["variants"]]
    return plain, {*plain, *forms}


@functools.lru_cache(maxsize=None)
def _described(backend):
    return json.loads(library(backend).stages)


@functools.lru_cache(maxsize=None)
def _backward_described(backend):
    return json.loads(library(backend).backward_stages)


def forward(backend, stage, q, k, v, out, lse, causal, scale, stream=0, allocate=None):
    """_core.Library.forward of the backend's library. ValueError if it has no such stage."""
    plain, known = _names(_described(backend))
    if stage not in known:
        raise ValueError(f"there is no stage {stage!r}; there are {', '.join(plain)}")
    library(backend).forward(q, k, v, out, lse, stage, bool(causal), scale, stream, allocate)


def paged_attention(backend, stage, q, k_pages, v_pages, block_table, lengths, out, lse, causal, scale, n_k, stream=0,
                    allocate=None):
    """_core.Library.paged_attention of the backend's library."""
    library(backend).paged_attention(q, k_pages, v_pages, block_table, lengths, out, lse, stage, bool(causal), scale, n_k,
                                     stream, allocate)


def varlen_attention(backend, stage, q, k, v, cu_seqlens_q, cu_seqlens_k, out, lse, causal, scale, stream=0,
                     allocate=None):
    """_core.Library.varlen_attention of the backend's library."""
    library(backend).varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, out, lse, stage, bool(causal), scale, stream,
                                      allocate)


def block_sparse_attention(backend, stage, q, k, v, first, blocks, out, lse, causal, scale, stream=0, allocate=None):
    """_core.Library.block_sparse_attention of the backend's library."""
    library(backend).block_sparse_attention(q, k, v, first, blocks, out, lse, stage, bool(causal), scale, stream, allocate)


def ring_round(backend, stage, q, k, v, out, lse, scratch, causal, scale, ranks, rank, round, stream=0):
    """_core.Library.ring_round of the backend's library."""
    return library(backend).ring_round(q, k, v, out, lse, scratch, stage, bool(causal), scale, ranks, rank, round, stream)


def check_lse(backend, stage):
    """ValueError if the stage's gradients are wanted, but it has no LSE for them."""
    able = [described["stage"] for described in _described(backend) if described["lse"]]
    if stage.split("/")[0] in set(_names(_described(backend))[0]) - set(able):
        raise ValueError(f"{stage} gives no LSE, which gradients need; stages that do are {', '.join(able)}")


def backward_stage(backend, stage, qkv, contiguous, causal, deterministic=False):
    """The stage that is to compute the gradients; of "best" the highest that can. ValueError if it cannot, or if there
    is none. `qkv()` gives q, k and v each time anew, for a capsule can be opened once. `contiguous`: whether they are,
    which stages without strides need. `deterministic`: "best" is one that gives the same bits in each launch."""
    described = _backward_described(backend)
    plain, known = _names(described)
    if stage != "best" and stage not in known:
        raise ValueError(f"there is no stage {stage!r} for gradients; there are {', '.join(plain)}")

    def check(name):
        library(backend).check_backward(*qkv(), name, bool(causal))
        strides = next(s["strides"] for s in described if s["stage"] == name.split("/")[0])
        if not (contiguous or strides):
            raise ValueError(f"{name}: q, k or v is not contiguous, and no strides are supported for gradients")
    if stage != "best":
        check(stage)
        return stage
    able = plain
    if deterministic:
        able = [name for s in described
                for name in [f"{s['stage']}/{form['variant']}" for form in s["variants"] if form["deterministic"]] +
                [s["stage"]] * s["deterministic"]]
    reasons = []
    for name in reversed(able):
        try:
            check(name)
            return name
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(f"no stage has these gradients{' with the same bits in each launch' * deterministic} "
                     f"({'; '.join(reasons)})")


def backward(backend, stage, q, k, v, out, lse, dout, dq, dk, dv, causal, scale, stream=0, allocate=None):
    """_core.Library.backward of the backend's library, by a stage that backward_stage() has given."""
    library(backend).backward(q, k, v, out, lse, dout, dq, dk, dv, stage, bool(causal), scale, stream, allocate)
