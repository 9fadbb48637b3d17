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


@functools.lru_cache(maxsize=None)
def names(backend):
    """Of stages, and of all that can be asked for, their variants too."""
    described = json.loads(library(backend).stages)
    plain = [stage["stage"] for stage in described]
    forms = [f"{stage['stage']}/{form['variant']}" for stage in described for form in stage["variants"]]
    return plain, {*plain, *forms}


def forward(backend, stage, q, k, v, out, lse, causal, scale, stream=0, allocate=None):
    """_core.Library.forward of the backend's library. ValueError if it has no such stage."""
    plain, known = names(backend)
    if stage not in known:
        raise ValueError(f"there is no stage {stage!r}; there are {', '.join(plain)}")
    library(backend).forward(q, k, v, out, lse, stage, bool(causal), scale, stream, allocate)
