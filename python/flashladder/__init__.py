"""Attention by the stages of FlashLadder: CUDA tensors on the GPU, NumPy arrays and CPU tensors on the emulator."""
from . import _library
from ._library import backward_stages, stages

try:
    import torch
except ImportError:
    torch = None
else:
    from . import _torch

__all__ = ["attention", "attention_backward", "backward_stages", "block_lists", "block_sparse_attention", "paged_attention",
           "ring_attention", "stages", "varlen_attention"]
CUDA_DEVICES = (2, 13)  # DLPack's numbers: device memory, managed memory


def attention(q, k, v, causal=False, scale=None, stage="14-lcsf", return_lse=False, stage_backward="best"):
    """softmax(scale * q @ k^T) @ v for each batch and head, by one stage of the ladder.

    q is (batch, heads, n_q, d); k and v are (batch, kv_heads, n_k, d), and heads is a multiple of kv_heads. They are
    float32, float16 or bfloat16, as the stage supports. Rows of d elements are contiguous; the strides from row to row,
    head to head and batch to batch are those that the stage takes, and stages() says which: nothing is copied on a GPU.

    causal          query i sees the keys j <= i + n_k - n_q
    scale           of the scores; 1 / sqrt(d) if None
    stage           a name of stages(), or a variant of one: "04-tensor-cores/split-K"; "27-merge" is for few queries and
                    many keys
    return_lse      return (output, log(sum(exp(scale * q @ k^T)))); the second is float32, (batch, heads, n_q)
    stage_backward  where PyTorch wants gradients: a name of backward_stages(), or "best", the highest that can do this

    The output is like q. PyTorch's tensors give PyTorch's, on their device and its current stream. NumPy arrays, and
    other tensors on the CPU, give NumPy arrays. Other CUDA tensors need PyTorch, and give its. Gradients of PyTorch's
    tensors flow through the output, once, and not through the LSE; attention_backward() is for all others.

    TypeError: not a tensor, or a dtype that no stage has. ValueError: no such stage; or shapes, strides, devices or a
    dtype that this one does not support, nor, where gradients are wanted, stage_backward. RuntimeError: CUDA or the
    kernel failed; there is no library for the device; second derivatives.
    """
    scale = None if scale is None else float(scale)
    given, in_torch = _placed(q=q, k=k, v=v)
    if in_torch:
        return _torch.attention(*given, causal, scale, stage, return_lse, stage_backward)

    import numpy as np
    q, k, v = given
    out = np.empty(q.shape, q.dtype)
    lse = np.empty(q.shape[:3], np.float32) if return_lse else None
    _library.forward("cpu", stage, q, k, v, out, lse, causal, scale)
    return (out, lse) if return_lse else out


def block_sparse_attention(q, k, v, first, blocks, causal=False, scale=None, stage="26-block-lists", return_lse=False):
    """attention() in which 128 queries at a time see the blocks of 128 keys that a list names, and no others.

    q, k and v are as of attention(). List r is blocks[first[r]:first[r + 1]], ascending, and belongs to block r % T_r of
    the queries, of all heads or of head r // T_r, where T_r is n_q / 128, rounded up. block_lists() makes both of a mask.

    first   int32: T_r + 1 numbers, or heads * T_r + 1
    blocks  int32: numbers of blocks of keys
    causal  of these keys, query i sees those with j <= i + n_k - n_q
    stage   the one that has lists

    A query that sees no key has an output of 0. scale, return_lse, the output, of which libraries tensors may be, and
    errors are as of attention(). There are no gradients. On a GPU nobody looks whether lists are good ones.
    """
    scale = None if scale is None else float(scale)
    given, in_torch = _placed(q=q, k=k, v=v, first=first, blocks=blocks)
    if in_torch:
        return _torch.block_sparse_attention(*given, causal, scale, stage, return_lse)

    import numpy as np
    q = given[0]
    out = np.empty(q.shape, q.dtype)
    lse = np.empty(q.shape[:3], np.float32) if return_lse else None
    _library.block_sparse_attention("cpu", stage, *given, out, lse, causal, scale)
    return (out, lse) if return_lse else out


def block_lists(mask):
    """(first, blocks), as block_sparse_attention() takes them, of a mask of blocks: bool, (T_r, T_c) for all heads or
    (heads, T_r, T_c), true where block r of queries sees block c of keys. NumPy's or PyTorch's, on its device; the mask
    of flex_attention's BlockMask with blocks of 128 is `block_mask.to_dense()[0].bool()`. ValueError: other shapes.
    """
    if getattr(mask, "ndim", 0) not in (2, 3):
        raise ValueError(f"mask has shape {tuple(getattr(mask, 'shape', ()))}, but must have (T_r, T_c) or (heads, T_r, T_c)")
    if torch and isinstance(mask, torch.Tensor):
        return _torch.block_lists(mask.bool())
    import numpy as np
    lists = np.asarray(mask, bool).reshape(-1, mask.shape[-1])
    first = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lists.sum(1), out=first[1:])
    return first, np.nonzero(lists)[1].astype(np.int32)


def paged_attention(q, k_pages, v_pages, block_table, lengths, causal=False, scale=None, stage="27b-paged",
                    return_lse=False, max_length=None):
    """attention() of sequences of unlike length, whose keys and values lie in pages: a step of decoding from a cache.

    q is (batch, heads, n_q, d), one row of batch for each sequence; k_pages and v_pages are (pages, kv_heads, page_size,
    d), in any strides: of a cache of (pages, page_size, kv_heads, d) give cache.transpose(1, 2). Key j of sequence b is
    row j % page_size of page block_table[b, j // page_size].

    block_table  int32, (batch, n): behind a sequence's last page there may be anything
    lengths      int32, (batch): how many keys each sequence has; 0 gives an output of 0
    causal       query i of a sequence sees the keys j <= i + length - n_q
    max_length   no sequence has more keys; n * page_size if None. The keys are split into parts by this
    stage        the one that has pages

    scale, return_lse, the output, of which libraries tensors may be, and errors are as of attention(). There are no
    gradients. On a GPU nobody looks whether table and lengths are good ones.
    """
    scale = None if scale is None else float(scale)
    given, in_torch = _placed(q=q, k_pages=k_pages, v_pages=v_pages, block_table=block_table, lengths=lengths)
    if max_length is not None and int(max_length) < 1:
        raise ValueError(f"max_length is {max_length}, but must be at least 1")
    options = causal, scale, stage, return_lse, 0 if max_length is None else int(max_length)
    if in_torch:
        return _torch.paged_attention(*given, *options)

    import numpy as np
    q = given[0]
    out = np.empty(q.shape, q.dtype)
    lse = np.empty(q.shape[:3], np.float32) if return_lse else None
    _library.paged_attention("cpu", stage, *given, out, lse, causal, scale, options[-1])
    return (out, lse) if return_lse else out


def varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, causal=False, scale=None,
                     stage="26b-varlen", return_lse=False):
    """attention() of sequences of unlike length, packed row behind row: a batch without padding.

    q is (total_q, heads, d); k is (total_k, kv_heads, d), v (total_k, kv_heads, d_v), in any strides: d and d_v are multiples
    of 8 up to 256. The output is (total_q, heads, d_v). Sequence b has the rows of q from
    cu_seqlens_q[b] on up to, but not with, cu_seqlens_q[b + 1], and those of k and v by cu_seqlens_k.

    cu_seqlens_q  int32, (sequences + 1): 0 first, never less than the one before, total_q last. So cu_seqlens_k, up to
                  total_k. Where they are the same tensor, queries and keys are as many
    causal        query i of a sequence sees its keys j <= i + n_k - n_q
    max_seqlen_q  as other libraries want them, and so max_seqlen_k: not needed here, and not looked at
    stage         the one that has packed sequences
    return_lse    the second output is float32, (heads, total_q)

    A sequence may have no queries, or no keys: then its output is 0. scale, the output, of which libraries tensors may
    be, and errors are as of attention(). There are no gradients. On a GPU nobody looks whether the lists are good ones,
    and what a bad one leads to is undefined.
    """
    scale = None if scale is None else float(scale)
    given, in_torch = _placed(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    if in_torch:
        return _torch.varlen_attention(*given, causal, scale, stage, return_lse)

    import numpy as np
    q, _, v = given[:3]
    out = np.empty((*q.shape[:2], v.shape[-1]), q.dtype)
    lse = np.empty(q.shape[1::-1], np.float32) if return_lse else None
    _library.varlen_attention("cpu", stage, *given, out, lse, causal, scale)
    return (out, lse) if return_lse else out


def ring_attention(q, k, v, group=None, causal=False, scale=None, stage="27c-ring", return_lse=False):
    """attention() of one long sequence to itself, spread over the processes of a group of torch.distributed.

    q is (batch, heads, n, d), k and v (batch, kv_heads, n, d): the rows that this rank has. The keys and values of all go
    around, from each rank to the next one, while kernels run. CUDA tensors need a group with NCCL; CPU tensors one with
    gloo, and the emulator computes.

    group   of G ranks; all processes if None
    causal  queries see the keys before them alone. Then the sequence has 2 G chunks of n / 2 rows, and rank g has chunks g
            and 2 G - 1 - g, one behind the other; else it has the g-th part
    stage   the one that has rounds

    scale, return_lse, the output and errors are as of attention(), of PyTorch's tensors alone. There are no gradients.
    All ranks must call it, with the same shapes.
    """
    scale = None if scale is None else float(scale)
    if not torch:
        raise RuntimeError("ring_attention needs PyTorch, whose torch.distributed sends keys and values")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, but must be a PyTorch tensor")
    if k.shape != v.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}, but k has {tuple(k.shape)}")
    return _torch.ring_attention(q, k, v, group, bool(causal), scale, str(stage), return_lse)


def attention_backward(q, k, v, out, lse, dout, causal=False, scale=None, stage="best"):
    """The gradients (dq, dk, dv) of sum(attention(q, k, v) * dout) for a given dout, by one stage of the ladder.

    q, k, v, causal and scale are those of attention(), out and lse what it has returned with return_lse=True. out and
    dout are like q, lse is float32, (batch, heads, n_q); all are contiguous, unless backward_stages() says that the
    stage takes strides: a dout that is expanded, of which all elements are one, is refused. dq is like q, dk like k
    and dv like v: where heads share one of k and v, theirs are the sums. Nothing is copied on a GPU.

    stage  a name of backward_stages(), or "best": the highest that can do this

    Of which libraries tensors may be, and TypeError, ValueError, RuntimeError: as of attention(). PyTorch's tensors
    need not call this, their backward() does.
    """
    scale = None if scale is None else float(scale)
    given, in_torch = _placed(q=q, k=k, v=v, out=out, lse=lse, dout=dout)
    if in_torch:
        return _torch.attention_backward(*given, causal, scale, stage)

    import numpy as np
    q, k, v = given[:3]
    contiguous = all(x.flags.c_contiguous for x in (q, k, v))
    stage = _library.backward_stage("cpu", stage, lambda: (q, k, v), contiguous, causal)
    gradients = tuple(np.empty(x.shape, x.dtype) for x in (q, k, v))
    _library.backward("cpu", stage, *given, *gradients, causal, scale)
    return gradients


def _placed(**tensors):
    """All as PyTorch's tensors, or all as NumPy's arrays; and whether they are PyTorch's. TypeError if they are
    neither."""
    names = list(tensors)
    if torch and any(isinstance(x, torch.Tensor) for x in tensors.values()):
        for name, x in tensors.items():
            if not isinstance(x, torch.Tensor):
                raise TypeError(f"{name} is a {type(x).__name__}, but others of {', '.join(names)} are PyTorch tensors")
        return list(tensors.values()), True

    for name, x in tensors.items():
        if not hasattr(x, "__dlpack_device__"):
            raise TypeError(f"{name} is a {type(x).__name__}, but must be an array of NumPy or a tensor with DLPack")
    if tensors["q"].__dlpack_device__()[0] in CUDA_DEVICES:
        if not torch:
            raise RuntimeError("CUDA tensors need PyTorch, which allocates the output, and this Python has none")
        return [torch.from_dlpack(x) for x in tensors.values()], True
    import numpy as np
    return [x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in tensors.values()], False
