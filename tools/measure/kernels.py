"""What is measured: the stages, by the library's C interface, and the peers, which are other people's kernels. Both as
functions of PyTorch's tensors."""
import ctypes
import dataclasses
import functools
import importlib
import inspect
import json
import math
import pathlib
import sys

from ncu import ROOT

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    torch = None

LIBRARY = ROOT / "build/gpu/lib/libflashladder.so"
FLASH, CUDNN = "peer:torch-flash", "peer:torch-cudnn"
SDPA_BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION",
                 "math": "MATH"}
# FlashAttention-2, -3 and -4, and FlashInfer's decoding, where they are installed
PACKAGES = ["flash_attn", "flash_attn_interface", "flash_attn.cute", "flashinfer"]
FLASHINFER_WORKSPACE, FLASHINFER_PAGE = 256 << 20, 64  # bytes, for what its parts of the keys leave behind; keys
MATH_BYTES = 4 << 30  # of the scores that PyTorch's math backend may hold, in float


# ---- the stages


class Forward(ctypes.Structure):
    """FlashLadderForward of common/interface/flashladder.h."""
    _fields_ = [("stage", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                *((name, ctypes.c_int) for name in ("batch", "heads", "kv_heads", "n_q", "n_k", "head_dim", "causal")),
                ("scale", ctypes.c_float),
                *((name, ctypes.c_void_p) for name in ("Q", "K", "V", "O", "lse", "scratch", "stream")),
                *((name + "_strides", ctypes.c_longlong * 3) for name in ("Q", "K", "V", "O"))]


GRADIENT_TENSORS = "Q", "K", "V", "O", "dO", "dQ", "dK", "dV"


class Backward(ctypes.Structure):
    """FlashLadderBackward."""
    _fields_ = [*Forward._fields_[:10],
                *((name, ctypes.c_void_p) for name in
                  ("Q", "K", "V", "O", "dO", "lse", "dQ", "dK", "dV", "scratch", "stream")),
                *((name + "_strides", ctypes.c_longlong * 3) for name in GRADIENT_TENSORS)]


class BlockSparse(ctypes.Structure):
    """FlashLadderBlockSparse."""
    _fields_ = [*Forward._fields_[:10], ("list_heads", ctypes.c_int),
                *((name, ctypes.c_void_p) for name in ("Q", "K", "V", "first", "blocks", "O", "lse", "scratch", "stream")),
                *Forward._fields_[-4:]]


class Paged(ctypes.Structure):
    """FlashLadderPaged."""
    _fields_ = [*Forward._fields_[:10], *((name, ctypes.c_int) for name in ("pages", "page_size", "pages_of_sequence")),
                *((name, ctypes.c_void_p) for name in
                  ("Q", "K", "V", "block_table", "lengths", "O", "lse", "scratch", "stream")), *Forward._fields_[-4:]]


class Varlen(ctypes.Structure):
    """FlashLadderVarlen."""
    _fields_ = [*Forward._fields_[:2],
                *((name, ctypes.c_int) for name in
                  ("sequences", "heads", "kv_heads", "total_q", "total_k", "head_dim", "value_dim", "causal")), ("scale", ctypes.c_float),
                *((name, ctypes.c_void_p) for name in
                  ("Q", "K", "V", "cu_seqlens_q", "cu_seqlens_k", "O", "lse", "scratch", "stream")),
                *((name + "_strides", ctypes.c_longlong * 2) for name in ("Q", "K", "V", "O"))]


class Library:
    """The C interface of libflashladder.so. Its errors are RuntimeError, a missing library OSError: open_library()."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def call(self, function, *arguments):
        function = getattr(self.library, function)
        function.restype = ctypes.c_char_p
        if error := function(*map(ctypes.byref, arguments)):
            raise RuntimeError(error.decode())

    def stages(self, backward=False):
        """[{stage, dtypes, head_dims, causal, lse, ...}]"""
        text = ctypes.c_char_p()
        self.call("flashladder_backward_stages" if backward else "flashladder_stages", text)
        return json.loads(text.value)

    def scratch_bytes(self, problem):
        size = ctypes.c_size_t()
        of = {Backward: "backward_", BlockSparse: "block_sparse_", Paged: "paged_", Varlen: "varlen_"}.get(type(problem), "")
        self.call(f"flashladder_{of}scratch_bytes", problem, size)
        return size.value

    def backward(self, problem):
        self.call("flashladder_backward", problem)


def open_library(path):
    """The library. SystemExit, with a sentence, if it is missing, or PyTorch, or a GPU: for all tools that time with
    PyTorch."""
    tool = pathlib.Path(sys.argv[0]).name
    if torch is None:
        sys.exit(f"{tool} needs PyTorch (2.5 or newer), and this Python has none")
    if not torch.cuda.is_available():
        sys.exit(f"{tool} needs an NVIDIA GPU, and PyTorch sees none")
    try:
        return Library(pathlib.Path(path).resolve())
    except OSError as error:
        sys.exit(f"{tool} needs the library of all stages ({error}), which is built by: cmake --preset gpu && "
                 "cmake --build --preset gpu --target flashladder")


def stage_run(library, stage, shape, dtype):
    """run(q, k, v, O, lse) of a stage on PyTorch's current stream; returns O. RuntimeError if it cannot do this."""
    return forward_run(library, "flashladder_forward", Forward(**problem_of(stage, shape, dtype)))


def lists_run(library, stage, shape, dtype, first, blocks):
    """The same of a stage of block-sparse attention, with lists that all heads share: int32 on the device."""
    problem = BlockSparse(**problem_of(stage, shape, dtype), list_heads=1, first=first.data_ptr(), blocks=blocks.data_ptr())
    run = forward_run(library, "flashladder_block_sparse_attention", problem)
    run.keeps = first, blocks
    return run


def paged_run(library, stage, shape, dtype, page_size, table, lengths):
    """The same of a stage of paged attention: run(q, k_pages, v_pages) of pools of (pages, kv_heads, page_size, head_dim).
    Table (batch, n) and lengths (batch): int32 on the device; shape.n_k: the longest length."""
    problem = Paged(**problem_of(stage, shape, dtype), pages=table.numel(), page_size=page_size,
                    pages_of_sequence=table.shape[1], block_table=table.data_ptr(), lengths=lengths.data_ptr())
    run = forward_run(library, "flashladder_paged_attention", problem)
    run.keeps = table, lengths
    return run


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Self-attention of sequences one behind the other: `cu`, int32 on the device, has where each begins, and the end.
    value_dim: columns of V and O."""
    cu: "torch.Tensor"
    longest: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    causal: bool

    @property
    def total(self):
        return int(self.cu[-1])


def varlen_run(library, stage, of, dtype):
    """run(q, k, v, O, lse) of a stage of attention with packed sequences: (total, heads, columns)."""
    problem = Varlen(stage=stage.encode(), dtype=dtype.encode(), sequences=len(of.cu) - 1, heads=of.heads,
                     kv_heads=of.kv_heads, total_q=of.total, total_k=of.total, head_dim=of.head_dim,
                     value_dim=of.value_dim, causal=of.causal, scale=of.head_dim**-0.5, cu_seqlens_q=of.cu.data_ptr(),
                     cu_seqlens_k=of.cu.data_ptr())
    run = forward_run(library, "flashladder_varlen_attention", problem)
    run.keeps = of
    return run


def problem_of(stage, shape, dtype):
    return {"stage": stage.encode(), "dtype": dtype.encode(), "scale": shape.head_dim**-0.5, **dataclasses.asdict(shape)}


def forward_run(library, function, problem):
    scratch = torch.full((library.scratch_bytes(problem),), 0xFF, dtype=torch.uint8, device="cuda")  # NaN

    def run(q, k, v, O=None, lse=None):
        if O is None:
            O = torch.empty_like(q) if v.shape[-1] == q.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
        for name, tensor in zip("QKVO", (q, k, v, O)):
            setattr(problem, name, tensor.data_ptr())
            setattr(problem, name + "_strides", tensor.stride()[:-1])
        problem.lse, problem.scratch = None if lse is None else lse.data_ptr(), scratch.data_ptr()
        problem.stream = torch.cuda.current_stream().cuda_stream
        library.call(function, problem)
        return O
    return run


def stage_backward_run(library, stage, shape, dtype):
    """run(q, k, v, O, lse, dO, gradients) of a stage of the way back on PyTorch's current stream; returns (dQ, dK,
    dV), which are `gradients` where they are given. RuntimeError if it cannot do this."""
    problem = Backward(stage=stage.encode(), dtype=dtype.encode(), scale=shape.head_dim**-0.5,
                       **dataclasses.asdict(shape))
    scratch = torch.full((library.scratch_bytes(problem),), 0xFF, dtype=torch.uint8, device="cuda")  # NaN

    def run(q, k, v, O, lse, dO, gradients=None):
        gradients = tuple(map(torch.empty_like, (q, k, v))) if gradients is None else gradients
        for name, tensor in zip(GRADIENT_TENSORS, (q, k, v, O, dO, *gradients)):
            setattr(problem, name, tensor.data_ptr())
            setattr(problem, name + "_strides", tensor.stride()[:3])
        problem.lse, problem.scratch = lse.data_ptr(), scratch.data_ptr()
        problem.stream = torch.cuda.current_stream().cuda_stream
        library.backward(problem)
        return gradients
    return run


# ---- the peers


@functools.lru_cache(maxsize=None)
def capture_stream():
    """Where CUDA graphs are captured. PyTorch runs the way back on the stream of the forward pass, so that a graph of
    the one needs the other on its stream."""
    return torch.cuda.Stream()


def peer_run(peer, shape):
    """run(q, k, v) of a peer; returns O. ImportError or RuntimeError, now or at the first run, if there is no such."""
    if peer == "flashinfer":
        return flashinfer_run(shape)
    if peer in PACKAGES:
        attention = getattr(importlib.import_module(peer), "flash_attn_func", None)
        if attention is None:  # of flash_attn that is a folder of FlashAttention-4's, and no package
            raise ImportError(f"{peer} has no flash_attn_func")

        def run(q, k, v):  # they take (batch, sequence, heads, head_dim), of any strides
            O = attention(*(x.transpose(1, 2) for x in (q, k, v)), causal=shape.causal)
            return (O[0] if isinstance(O, tuple) else O).transpose(1, 2)
        return run
    if peer == "math" and 4 * shape.batch * shape.heads * shape.n_q * shape.n_k > MATH_BYTES:
        raise RuntimeError("its scores would take too much memory")
    backend = getattr(SDPBackend, SDPA_BACKENDS[peer])

    def run(q, k, v):
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=shape.causal,
                                                enable_gqa=shape.kv_heads < shape.heads)
    return run


def flashinfer_run(shape):
    """The same of FlashInfer's decoding. It knows pages alone: keys of a head that lie one after another are some."""
    if shape.n_q != 1:
        raise RuntimeError("it is asked for decoding alone")
    flashinfer = importlib.import_module("flashinfer")
    workspace = torch.empty(FLASHINFER_WORKSPACE, dtype=torch.uint8, device="cuda")
    page = math.gcd(shape.n_k, FLASHINFER_PAGE)  # keys
    pages_of_head = shape.n_k // page
    pages_of_sequence = shape.kv_heads * pages_of_head  # counted in pages of one head, of which the next one follows
    numbers = lambda values: torch.tensor(list(values), dtype=torch.int32, device="cuda")
    planned = {}

    def planned_for(q):
        if q.dtype not in planned:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND",
                                                                    use_tensor_cores=shape.kv_heads < shape.heads)
            wrapper.plan(numbers(b * pages_of_head for b in range(shape.batch + 1)),
                         numbers(b * pages_of_sequence + j for b in range(shape.batch) for j in range(pages_of_head)),
                         numbers([page] * shape.batch), shape.heads, shape.kv_heads, shape.head_dim, page,
                         q_data_type=q.dtype, kv_data_type=q.dtype)
            planned[q.dtype] = wrapper
        return planned[q.dtype]

    def in_pages(x):
        return x.as_strided(((shape.batch - 1) * pages_of_sequence + pages_of_head, shape.kv_heads, page, shape.head_dim),
                            (page * shape.head_dim, shape.n_k * shape.head_dim, shape.head_dim, 1))
    return lambda q, k, v: planned_for(q).run(q[:, :, 0], (in_pages(k), in_pages(v)))[:, :, None]


def flashinfer_paged_run(shape, dtype, page_size, table, lengths):
    """run(q, k_pages, v_pages) of FlashInfer's decoding with the pages as they are."""
    flashinfer = importlib.import_module("flashinfer")
    workspace = torch.empty(FLASHINFER_WORKSPACE, dtype=torch.uint8, device="cuda")
    counts = [-(-n // page_size) for n in lengths.tolist()]
    first = [0]
    for count in counts:
        first.append(first[-1] + count)
    numbers = lambda values: torch.tensor(list(values), dtype=torch.int32, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=shape.kv_heads < shape.heads)
    wrapper.plan(numbers(first), torch.cat([row[:count] for row, count in zip(table, counts)]),
                 numbers((n - 1) % page_size + 1 for n in lengths.tolist()), shape.heads, shape.kv_heads, shape.head_dim,
                 page_size, q_data_type=dtype, kv_data_type=dtype)
    return lambda q, k, v: wrapper.run(q[:, :, 0], (k, v))[:, :, None]


def varlen_attn_run(of):
    """run(q, k, v) of PyTorch's varlen_attn."""
    from torch.nn.attention.varlen import varlen_attn
    known = inspect.signature(varlen_attn).parameters
    causal = {"is_causal": of.causal} if "is_causal" in known else {"window_size": (-1, 0 if of.causal else -1)}
    gqa = {"enable_gqa": True} if "enable_gqa" in known and of.kv_heads < of.heads else {}
    return lambda q, k, v: varlen_attn(q, k, v, of.cu, of.cu, of.longest, of.longest, **causal, **gqa)


def flash_attention_varlen_run(of):
    """The same of FlashAttention-4."""
    varlen = getattr(importlib.import_module("flash_attn.cute"), "flash_attn_varlen_func", None)
    if varlen is None:
        raise ImportError("flash_attn.cute has no flash_attn_varlen_func")

    def run(q, k, v):
        O = varlen(q, k, v, cu_seqlens_q=of.cu, cu_seqlens_k=of.cu, max_seqlen_q=of.longest, max_seqlen_k=of.longest,
                   causal=of.causal)
        return O[0] if isinstance(O, tuple) else O
    return run


def flashinfer_varlen_run(of, dtype):
    """The same of FlashInfer, whose kernel on Hopper is FlashAttention-3's."""
    flashinfer = importlib.import_module("flashinfer")
    workspace = torch.empty(FLASHINFER_WORKSPACE, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend="fa3")
    wrapper.plan(of.cu, of.cu, of.heads, of.kv_heads, of.head_dim, head_dim_vo=of.value_dim, causal=of.causal,
                 q_data_type=dtype, kv_data_type=dtype)
    return wrapper.run


def padded_run(of):
    """The same of cuDNN in SDPA, which has room for the longest sequence for each: the copies are not counted, so
    run(q, k, v) of tensors of any numbers is to be timed alone."""
    batch = len(of.cu) - 1
    q, k, v = (torch.randn(batch, heads, of.longest, columns, device="cuda", dtype=torch.bfloat16)
               for heads, columns in ((of.heads, of.head_dim), (of.kv_heads, of.head_dim), (of.kv_heads, of.value_dim)))

    def run(*_):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=of.causal, enable_gqa=of.kv_heads < of.heads)
    return run


def peer_backward_run(peer, shape, inputs):
    """run(q, k, v, O, lse, dO) of a peer's way back, of one of `inputs`; returns (dQ, dK, dV). Its forward pass has
    been before, for all of them. ImportError or RuntimeError, now or at the first run, if there is no such."""
    forward, passed = peer_run(peer, shape), {}
    capture_stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(capture_stream()):
        for q, k, v, *_ in inputs:
            leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))
            passed[q.data_ptr()] = forward(*leaves), leaves
    torch.cuda.current_stream().wait_stream(capture_stream())

    def run(q, k, v, O, lse, dO):
        out, leaves = passed[q.data_ptr()]
        return torch.autograd.grad(out, leaves, dO, retain_graph=True)
    return run


def peer_name(peer):
    return f"peer:torch-{peer}" if peer in SDPA_BACKENDS else f"peer:{peer}"
