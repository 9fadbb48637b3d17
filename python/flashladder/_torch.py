"""The PyTorch operators of this package, flashladder::attention and the others that end in attention or backward, so that
torch.compile sees one node for each and CUDA graphs can be captured."""
import contextlib
import typing

import torch

from . import _library

Scale = typing.Optional[float]


def _dlpack(*tensors):
    """Without __dlpack__, which would let PyTorch's default stream wait for the current one: no graph could be
    captured."""
    return [torch.utils.dlpack.to_dlpack(x) for x in tensors]


def _backend(q):
    return "gpu" if q.is_cuda else "cpu"


@contextlib.contextmanager
def _launch_options(q):
    """The last arguments of _library's functions: PyTorch's stream on q's device, and its allocator for the scratch."""
    if not q.is_cuda:
        yield ()
        return
    with torch.cuda.device(q.device):
        yield torch.cuda.current_stream().cuda_stream, lambda size: _dlpack(
            torch.empty(size, dtype=torch.uint8, device=q.device))[0]


def _backward_stage(stage, q, k, v, causal):
    contiguous = all(x.is_contiguous() for x in (q, k, v))
    return _library.backward_stage(_backend(q), stage, lambda: _dlpack(q, k, v), contiguous, causal,
                                   torch.are_deterministic_algorithms_enabled())


def _outputs(q, return_lse):
    """Empty: strides of the output are those of q, as far as they leave no gaps."""
    return torch.empty_like(q), q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: Scale, stage: str, return_lse: bool,
         stage_backward: typing.Optional[str] = None) -> typing.Tuple[torch.Tensor, torch.Tensor]:
    return_lse = return_lse or stage_backward is not None
    if stage_backward is not None:  # what the way back will refuse is refused now
        _library.check_lse(_backend(q), stage)
        _backward_stage(stage_backward, q, k, v, causal)
    out, lse = _outputs(q, return_lse)
    capsules = _dlpack(q, k, v, out, lse)
    if not return_lse:
        capsules[-1] = None
    with _launch_options(q) as options:
        _library.forward(_backend(q), stage, *capsules, causal, scale, *options)
    return out, lse


def _fake(q, k, v, causal, scale, stage, return_lse, stage_backward=None):
    return _outputs(q, return_lse or stage_backward is not None)


def _run_paged(q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor,
               lengths: torch.Tensor, causal: bool, scale: Scale, stage: str, return_lse: bool,
               n_k: int) -> typing.Tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, return_lse)
    *capsules, of_lse = _dlpack(q, k_pages, v_pages, block_table, lengths, out, lse)
    with _launch_options(q) as options:
        _library.paged_attention(_backend(q), stage, *capsules, of_lse if return_lse else None, causal, scale, n_k, *options)
    return out, lse


def _fake_paged(q, k_pages, v_pages, block_table, lengths, causal, scale, stage, return_lse, n_k):
    return _outputs(q, return_lse)


def _packed_outputs(q, v, return_lse):
    return q.new_empty((*q.shape[:2], v.shape[-1])), q.new_empty((q.shape[1], q.shape[0]) if return_lse else (0,), dtype=torch.float32)


def _run_varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor,
                cu_seqlens_k: torch.Tensor, causal: bool, scale: Scale, stage: str,
                return_lse: bool) -> typing.Tuple[torch.Tensor, torch.Tensor]:
    out, lse = _packed_outputs(q, v, return_lse)
    *capsules, of_lse = _dlpack(q, k, v, cu_seqlens_q, cu_seqlens_k, out, lse)
    with _launch_options(q) as options:
        _library.varlen_attention(_backend(q), stage, *capsules, of_lse if return_lse else None, causal, scale, *options)
    return out, lse


def _fake_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, stage, return_lse):
    return _packed_outputs(q, v, return_lse)


def _run_lists(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first: torch.Tensor, blocks: torch.Tensor, causal: bool,
               scale: Scale, stage: str, return_lse: bool) -> typing.Tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, return_lse)
    *capsules, of_lse = _dlpack(q, k, v, first, blocks, out, lse)
    with _launch_options(q) as options:
        _library.block_sparse_attention(_backend(q), stage, *capsules, of_lse if return_lse else None, causal, scale, *options)
    return out, lse


def _fake_lists(q, k, v, first, blocks, causal, scale, stage, return_lse):
    return _outputs(q, return_lse)


def _run_backward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                  dout: torch.Tensor, causal: bool, scale: Scale,
                  stage: str) -> typing.Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    stage = _backward_stage(stage, q, k, v, causal)
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    with _launch_options(q) as options:
        _library.backward(_backend(q), stage, *_dlpack(q, k, v, out, lse, dout, *gradients), causal, scale, *options)
    return tuple(gradients)


def _save(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale, _, _, ctx.stage = inputs
    out, lse = output
    if ctx.stage is None:
        raise RuntimeError("flashladder::attention gives gradients only where its stage_backward names a stage, or is "
                           "\"best\"")
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse)


def _gradients(ctx, dout, _):
    q, k, v, out, lse = ctx.saved_tensors
    if dout.stride() != out.stride():  # of a sum's gradient, say, all elements are one; the stages want them apart
        dout = torch.empty_like(out).copy_(dout)
    gradients = _backward_operator(q, k, v, out, lse, dout, ctx.causal, ctx.scale, ctx.stage)
    return *gradients, None, None, None, None, None


def _refuse_second_derivatives(ctx, *_):
    raise RuntimeError("flashladder.attention has no second derivatives: its gradients cannot be differentiated again")


if hasattr(torch.library, "custom_op"):  # PyTorch 2.4
    _operator = torch.library.custom_op("flashladder::attention", _run, mutates_args=())
    _operator.register_fake(_fake)
    _backward_operator = torch.library.custom_op("flashladder::attention_backward", _run_backward, mutates_args=())
    _backward_operator.register_fake(lambda q, k, v, *_: tuple(torch.empty_like(x) for x in (q, k, v)))
    _paged_operator = torch.library.custom_op("flashladder::paged_attention", _run_paged, mutates_args=())
    _paged_operator.register_fake(_fake_paged)
    _lists_operator = torch.library.custom_op("flashladder::block_sparse_attention", _run_lists, mutates_args=())
    _lists_operator.register_fake(_fake_lists)
    _varlen_operator = torch.library.custom_op("flashladder::varlen_attention", _run_varlen, mutates_args=())
    _varlen_operator.register_fake(_fake_varlen)
    _operator.register_autograd(_gradients, setup_context=_save)
    _backward_operator.register_autograd(_refuse_second_derivatives)
else:
    _operator, _backward_operator, _paged_operator = _run, _run_backward, _run_paged
    _lists_operator, _varlen_operator = _run_lists, _run_varlen


def _check(q, **tensors):
    for name, x in {"q": q, **tensors}.items():
        if x.layout != torch.strided:
            raise TypeError(f"{name} has layout {x.layout}, but must have torch.strided")
        if x.device != q.device:  # here, because PyTorch takes a tensor of its meta device as a wish for a dry run
            raise ValueError(f"{name} is on {x.device}, but q is on {q.device}")


def attention(q, k, v, causal, scale, stage, return_lse, stage_backward):
    """flashladder.attention of PyTorch tensors."""
    _check(q, k=k, v=v)
    differentiable = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    out, lse = _operator(q, k, v, bool(causal), scale, str(stage), bool(return_lse),
                         str(stage_backward) if differentiable else None)
    return (out, lse) if return_lse else out


def attention_backward(q, k, v, out, lse, dout, causal, scale, stage):
    """flashladder.attention_backward of PyTorch tensors."""
    _check(q, k=k, v=v, out=out, lse=lse, dout=dout)
    return _backward_operator(q, k, v, out, lse, dout, bool(causal), scale, str(stage))


def paged_attention(q, k_pages, v_pages, block_table, lengths, causal, scale, stage, return_lse, n_k):
    """flashladder.paged_attention of PyTorch tensors."""
    _check(q, k_pages=k_pages, v_pages=v_pages, block_table=block_table, lengths=lengths)
    out, lse = _paged_operator(q, k_pages, v_pages, block_table, lengths, bool(causal), scale, str(stage), bool(return_lse),
                               n_k)
    return (out, lse) if return_lse else out


def varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, stage, return_lse):
    """flashladder.varlen_attention of PyTorch tensors."""
    _check(q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    out, lse = _varlen_operator(q, k, v, cu_seqlens_q, cu_seqlens_k, bool(causal), scale, str(stage), bool(return_lse))
    return (out, lse) if return_lse else out


def block_sparse_attention(q, k, v, first, blocks, causal, scale, stage, return_lse):
    """flashladder.block_sparse_attention of PyTorch tensors."""
    _check(q, k=k, v=v, first=first, blocks=blocks)
    out, lse = _lists_operator(q, k, v, first, blocks, bool(causal), scale, str(stage), bool(return_lse))
    return (out, lse) if return_lse else out


def block_lists(mask):
    """flashladder.block_lists of a PyTorch tensor."""
    lists = mask.reshape(-1, mask.shape[-1])
    first = torch.zeros(len(lists) + 1, dtype=torch.int32, device=mask.device)
    first[1:] = lists.sum(1).cumsum(0)
    return first, lists.nonzero()[:, 1].to(torch.int32)


def ring_attention(q, k, v, group, causal, scale, stage, return_lse):
    """flashladder.ring_attention of PyTorch tensors."""
    import torch.distributed as dist
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    if group is not None:
        before, after = dist.get_global_rank(group, before), dist.get_global_rank(group, after)
    q = q.detach().contiguous()
    here = torch.stack([k.detach(), v.detach()])  # what travels, in one piece
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32) if return_lse else None

    def call(scratch, round, stream=0):
        given = [x if x is None else _dlpack(x)[0] for x in (q, here[0], here[1], out, lse, scratch)]
        return _library.ring_round(_backend(q), stage, *given, causal, scale, ranks, rank, round, stream)

    with _launch_options(q) as options:
        scratch = torch.empty(call(None, 0), dtype=torch.uint8, device=q.device)
        for round in range(ranks):
            waits = []
            if round + 1 < ranks:
                there = torch.empty_like(here)
                waits = dist.batch_isend_irecv([
                    dist.P2POp(dist.isend, here.view(torch.uint8), after, group),
                    dist.P2POp(dist.irecv, there.view(torch.uint8), before, group)])
            call(scratch, round, *options[:1])
            for wait in waits:  # of NCCL, the stream waits, and not the host
                wait.wait()
            if round + 1 < ranks:
                here = there
    return (out, lse) if return_lse else out
