"""Attention by the stages of FlashLadder: CUDA tensors on the GPU, NumPy arrays and CPU tensors on the emulator."""
from . import _library
from ._library import stages

try:
    import torch
except ImportError:
    torch = None
else:
    from . import _torch

__all__ = ["attention", "stages"]
CUDA_DEVICES = (2, 13)  # DLPack's numbers: device memory, managed memory


def attention(q, k, v, causal=False, scale=None, stage="14-lcsf", return_lse=False):
    """softmax(scale * q @ k^T) @ v for each batch and head, by one stage of the ladder.

    q is (batch, heads, n_q, d); k and v are (batch, kv_heads, n_k, d), and heads is a multiple of kv_heads. They are
    float32, float16 or bfloat16, as the stage supports. Rows of d elements are contiguous; the strides from row to row,
    head to head and batch to batch are those that the stage takes, and stages() says which: nothing is copied on a GPU.

    causal      query i sees the keys j <= i + n_k - n_q
    scale       of the scores; 1 / sqrt(d) if None
    stage       a name of stages(), or a variant of one: "04-tensor-cores/split-K"
    return_lse  return (output, log(sum(exp(scale * q @ k^T)))); the second is float32, (batch, heads, n_q)

    The output is like q. PyTorch's tensors give PyTorch's, on their device and its current stream. NumPy arrays, and
    other tensors on the CPU, give NumPy arrays. Other CUDA tensors need PyTorch, and give its. There are no gradients.

    TypeError: not a tensor, or a dtype that no stage has. ValueError: no such stage; or shapes, strides, devices or a
    dtype that this one does not support. RuntimeError: CUDA or the kernel failed; there is no library for the device.
    """
    scale = None if scale is None else float(scale)
    if torch and any(isinstance(x, torch.Tensor) for x in (q, k, v)):
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, torch.Tensor):
                raise TypeError(f"{name} is a {type(x).__name__}, but others of q, k, v are PyTorch tensors")
        return _torch.attention(q, k, v, causal, scale, stage, return_lse)

    for name, x in (("q", q), ("k", k), ("v", v)):
        if not hasattr(x, "__dlpack_device__"):
            raise TypeError(f"{name} is a {type(x).__name__}, but must be an array of NumPy or a tensor with DLPack")
    if q.__dlpack_device__()[0] in CUDA_DEVICES:
        if not torch:
            raise RuntimeError("CUDA tensors need PyTorch, which allocates the output, and this Python has none")
        return _torch.attention(*map(torch.from_dlpack, (q, k, v)), causal, scale, stage, return_lse)
    return _numpy_attention(q, k, v, causal, scale, stage, return_lse)


def _numpy_attention(q, k, v, causal, scale, stage, return_lse):
    import numpy as np
    q, k, v = (x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in (q, k, v))
    out = np.empty(q.shape, q.dtype)
    lse = np.empty(q.shape[:3], np.float32) if return_lse else None
    _library.forward("cpu", stage, q, k, v, out, lse, causal, scale)
    return (out, lse) if return_lse else out
