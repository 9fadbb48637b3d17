"""The PyTorch operator flashladder::attention, so that torch.compile sees one node and CUDA graphs can be captured."""
import typing

import torch

from . import _library


def _outputs(q, return_lse):
    """Empty: strides of the output are those of q, as far as they leave no gaps."""
    return torch.empty_like(q), q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: typing.Optional[float], stage: str,
         return_lse: bool) -> typing.Tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, return_lse)
    # Without __dlpack__, which would let PyTorch's default stream wait for the current one: no graph could be captured.
    capsules = [torch.utils.dlpack.to_dlpack(x) for x in (q, k, v, out, lse)]
    if not return_lse:
        capsules[-1] = None
    if not q.is_cuda:
        _library.forward("cpu", stage, *capsules, causal, scale)
        return out, lse

    def allocate(scratch_bytes):
        return torch.utils.dlpack.to_dlpack(torch.empty(scratch_bytes, dtype=torch.uint8, device=q.device))
    with torch.cuda.device(q.device):
        stream = torch.cuda.current_stream().cuda_stream
        _library.forward("gpu", stage, *capsules, causal, scale, stream, allocate)
    return out, lse


if hasattr(torch.library, "custom_op"):  # PyTorch 2.4
    _operator = torch.library.custom_op("flashladder::attention", _run, mutates_args=())
    _operator.register_fake(lambda q, k, v, causal, scale, stage, return_lse: _outputs(q, return_lse))
else:
    _operator = _run


def attention(q, k, v, causal, scale, stage, return_lse):
    """flashladder.attention of PyTorch tensors."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.layout != torch.strided:
            raise TypeError(f"{name} has layout {x.layout}, but must have torch.strided")
        if x.device != q.device:  # here, because PyTorch takes a tensor of its meta device as a wish for a dry run
            raise ValueError(f"{name} is on {x.device}, but q is on {q.device}")
    out, lse = _operator(q, k, v, bool(causal), scale, str(stage), return_lse)
    return (out, lse) if return_lse else out
