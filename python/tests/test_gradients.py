"""Gradients against those of PyTorch in double precision, and a small transformer that learns by them. Without PyTorch only
what NumPy can judge; without a GPU on the emulator."""
import json
import math
import pathlib
import struct

import numpy as np
import pytest

import flashladder
from test_attention import (BF16, DEVICES, FLOAT, STRIDES, as_array, inputs, names, needs_torch, reference, tensors, torch)

# In the norm, as common/operations/attention_backward/comparison.cpp has it.
ALLOWED_ERRORS = {"float32": 1e-5, "float16": 6e-4, "bfloat16": 4e-3}
ALLOWED_ERROR = ALLOWED_ERRORS["float32"]
TEXT = pathlib.Path(__file__).parents[2] / "tests/fixtures/minilm.safetensors"


def backward_names(what=lambda stage: True):
    return [stage["stage"] for stage in flashladder.backward_stages() if what(stage)]


def problem(q_shape=(1, 1, 40, 64), kv_shape=None, causal=False, scale=None, seed=1):
    """NumPy's q, k, v, out, lse, dout: out and lse as float32 has them."""
    q, k, v = inputs(q_shape, kv_shape, seed=seed)
    out, lse = (x.astype(np.float32) for x in reference(q, k, v, causal, scale))
    return q, k, v, out, lse, inputs(q_shape, seed=seed + 1)[0]


def double_gradients(q, k, v, dout, causal=False, scale=None):
    """dq, dk, dv by autograd through the definition, in double precision."""
    q, k, v, dout = (torch.tensor(x, dtype=torch.float64) for x in (q, k, v, dout))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        n_q, n_k = scores.shape[2:]
        scores = scores.masked_fill(torch.arange(n_k) > torch.arange(n_q)[:, None] + n_k - n_q, -math.inf)
    return [x.numpy() for x in torch.autograd.grad(scores.softmax(-1) @ v, leaves, dout)]


def relative_error(got, expected):
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / np.linalg.norm(expected)


def check_gradients(got, expected, allowed=ALLOWED_ERROR):
    got = list(got)
    assert len(got) == len(expected)
    for name, x, y in zip(("dq", "dk", "dv"), got, expected):
        assert x.shape == y.shape, name
        error = relative_error(x, y)
        assert error <= allowed, f"{name}: {error}"  # NaN fails


def leaves(*arrays, dtype="float32", device="cpu"):
    return [x.requires_grad_() for x in tensors(*arrays, dtype=dtype, device=device)]


# ---- NumPy


def test_stages():
    described = flashladder.backward_stages()
    assert [stage["stage"].split("-")[0] for stage in described] == [*map(str, range(15, 23)), "25", "25b"]
    assert {"head_dims", "dtypes", "causal", "grouped_query", "strides", "deterministic"} <= set(described[0])
    assert not set(backward_names()) & set(names())


@pytest.mark.parametrize("stage", backward_names(lambda stage: "f32" in stage["dtypes"]))
@pytest.mark.parametrize("causal", [False, True])
def test_differences(stage, causal):
    """The gradient along a direction beside central differences of the forward pass. The step h is the cube root of
    float32's epsilon: rounding of the outputs comes in as 1 / h, what a difference leaves out as h^2."""
    if causal and not next(s for s in flashladder.backward_stages() if s["stage"] == stage)["causal"]:
        pytest.skip("this stage is not causal")
    q, k, v, out, lse, dout = problem((1, 2, 33, 64), (1, 2, 45, 64), causal)
    gradients = flashladder.attention_backward(q, k, v, out, lse, dout, causal=causal, stage=stage)
    h = np.finfo(np.float32).eps ** (1 / 3)
    for i, gradient in enumerate(gradients):
        assert type(gradient) is np.ndarray and gradient.dtype == np.float32
        step = h * inputs(gradient.shape, seed=7)[0]
        ends = [[x + sign * step if j == i else x for j, x in enumerate((q, k, v))] for sign in (1, -1)]
        exact_step = ends[0][i].astype(np.float64) - ends[1][i]  # of the rounded ends
        found = [flashladder.attention(*end, causal=causal, stage=FLOAT) for end in ends]
        exact = [reference(*end, causal)[0] for end in ends]
        difference = np.vdot(found[0].astype(np.float64) - found[1], dout)
        # What each output is off, as if all went into one direction; what h leaves out, a part of h^2; the gradient's.
        rounding = sum(np.linalg.norm(x - y) for x, y in zip(found, exact)) * np.linalg.norm(dout)
        allowed = rounding + (h**2 + ALLOWED_ERROR) * np.linalg.norm(gradient) * np.linalg.norm(exact_step)
        assert allowed < 0.05 * np.linalg.norm(gradient) * h  # or else it would say nothing
        assert abs(difference - np.vdot(gradient.astype(np.float64), exact_step)) <= allowed, "qkv"[i]


def test_the_highest_stage_that_can_is_the_best(monkeypatch):
    chosen = []
    backward = flashladder._library.backward
    monkeypatch.setattr(flashladder._library, "backward", lambda *a: chosen.append(a[1]) or backward(*a))
    flashladder.attention_backward(*problem())
    assert chosen == backward_names(lambda stage: "f32" in stage["dtypes"])[-1:]
    with pytest.raises(ValueError, match="no stage has these gradients .*; 15-standard-backward: head_dim 80 is not supp"):
        flashladder.attention_backward(*problem((1, 1, 8, 80)))


def wrong(error, match, stage="17-key-blocks", **given):
    """One of the arguments is another than it should be."""
    good = dict(zip(("q", "k", "v", "out", "lse", "dout"), problem((1, 2, 20, 64), (1, 2, 30, 64))))
    with pytest.raises(error, match=match):
        flashladder.attention_backward(**{**good, **given}, stage=stage)


def test_errors():
    q, k, v, out, lse, dout = problem((1, 2, 20, 64), (1, 2, 30, 64))
    wrong(ValueError, "there is no stage '03-row-swapped-loops' for gradients; there are 15-standard-backward, ", stage=FLOAT)
    wrong(ValueError, "15-standard-backward: causal is not supported", stage="15-standard-backward", causal=True)
    wrong(TypeError, "dout is a list, but must be an array", dout=dout.tolist())
    wrong(TypeError, "dout has dtype float16, but q has float32", dout=dout.astype("float16"))
    wrong(TypeError, "q has dtype float64, but must have", q=q.astype(float))
    wrong(TypeError, "lse has dtype float64, but must have float32", lse=lse.astype(float))
    wrong(ValueError, r"lse does not have q's shape without d, \(1, 2, 20\)", lse=lse[:, :, :19])
    wrong(ValueError, r"lse does not have q's shape without d, \(1, 2, 20\)", lse=lse[0])
    wrong(ValueError, "lse is not contiguous", lse=np.repeat(lse, 2, axis=2)[:, :, ::2])
    wrong(ValueError, "out has n = 19, but q has 20", out=out[:, :, :19])
    wrong(ValueError, "dout has heads: 1, but q has 2", dout=dout[:, :1])
    wrong(ValueError, "v has n = 29, but k has 30", v=v[:, :, :29])
    wrong(ValueError, "scale is inf", scale=math.inf)
    wrong(ValueError, "dout has a stride of 0 from row to row", dout=np.broadcast_to(dout[:, :, :1], dout.shape))
    wrong(ValueError, "17-key-blocks: dO is not contiguous", dout=np.broadcast_to(dout[:, :1], dout.shape))
    wrong(ValueError, "17-key-blocks: q, k or v is not contiguous, and no strides are supported for gradients",
          k=np.repeat(k, 2, axis=2)[:, :, ::2])
    half = [x.astype("float16") for x in (q, k, v, out, dout)]
    wrong(ValueError, "17-key-blocks: dtype f16 is not supported", **dict(zip(("q", "k", "v", "out", "dout"), half)))


# ---- PyTorch


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage", backward_names(lambda stage: "f32" in stage["dtypes"]))
def test_gradients(stage, device):
    can = next(s for s in flashladder.backward_stages() if s["stage"] == stage)
    for turn, (q_shape, kv_shape) in enumerate([((2, 2, 33, 64), (2, 2, 33, 64)), ((1, 4, 17, 64), (1, 2, 35, 64)),
                                                ((1, 1, 1, 128), (1, 1, 67, 128)), ((1, 3, 66, 64), (1, 1, 129, 64)),
                                                ((1, 1, 65, 128), (1, 1, 64, 128))]):
        for causal in (False, True):
            if causal and (not can["causal"] or q_shape[2] > kv_shape[2]):
                continue
            if q_shape[1] != kv_shape[1] and not can["grouped_query"]:
                continue
            q, k, v, _, _, dout = problem(q_shape, kv_shape, seed=turn)
            scale = (None, 0.3)[turn % 2]
            given, (dout_tensor,) = leaves(q, k, v, device=device), tensors(dout, dtype="float32", device=device)
            out = flashladder.attention(*given, causal=causal, scale=scale, stage=FLOAT, stage_backward=stage)
            got = torch.autograd.grad(out, given, dout_tensor)
            assert all(x.device == q.device and x.dtype == q.dtype for x, q in zip(got, given))
            check_gradients(map(as_array, got), double_gradients(q, k, v, dout, causal, scale))


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_in_16_bits(dtype, device):
    for q_shape, kv_shape, causal in [((1, 4, 40, 64), (1, 2, 75, 64), True), ((2, 1, 33, 128), (2, 1, 70, 128), False)]:
        q, k, v, dout = (x.to(device) for x in tensors(*inputs(q_shape, kv_shape), inputs(q_shape, seed=2)[0], dtype=dtype))
        given = [x.requires_grad_() for x in (q, k, v)]
        flashladder.attention(*given, causal=causal, stage=BF16).backward(dout)
        assert all(x.grad.dtype == x.dtype for x in given)
        exact = double_gradients(*(as_array(x.detach()) for x in (q, k, v, dout)), causal)
        check_gradients([as_array(x.grad) for x in given], exact, ALLOWED_ERRORS[dtype])


@needs_torch
def test_queries_that_see_no_key():
    q, k, v = leaves(*inputs((1, 1, 40, 64), (1, 1, 30, 64)))
    dout = inputs()[0]
    flashladder.attention(q, k, v, causal=True, stage=FLOAT).backward(torch.from_numpy(dout))
    assert (q.grad[:, :, :10] == 0).all()
    seen = double_gradients(*(as_array(x.detach()) for x in (q[:, :, 10:], k, v)), dout[:, :, 10:], causal=True)
    check_gradients(map(as_array, (q.grad[:, :, 10:], k.grad, v.grad)), seen)


@needs_torch
@pytest.mark.parametrize("wanted", range(3))
def test_only_what_is_asked_for(wanted):
    arrays, dout = inputs((1, 1, 20, 64), (1, 1, 30, 64)), inputs((1, 1, 20, 64), seed=2)[0]
    given = tensors(*arrays, dtype="float32")
    given[wanted].requires_grad_()
    flashladder.attention(*given, stage=FLOAT).backward(torch.from_numpy(dout))
    assert [x.grad is not None for x in given] == [i == wanted for i in range(3)]
    assert relative_error(as_array(given[wanted].grad), double_gradients(*arrays, dout)[wanted]) <= ALLOWED_ERROR


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_the_output_that_lie_elsewhere(device):
    arrays = inputs((2, 3, 20, 64), seed=3)
    uniform = np.ones((2, 3, 20, 64), np.float32)
    given = leaves(*arrays, device=device)
    flashladder.attention(*given, stage=FLOAT).sum().backward()  # one element, expanded
    check_gradients([as_array(x.grad) for x in given], double_gradients(*arrays, uniform))
    given = leaves(*arrays, device=device)
    dout, = tensors(inputs((2, 20, 3, 64), seed=4)[0], dtype="float32", device=device)
    flashladder.attention(*given, stage=FLOAT).transpose(1, 2).backward(dout)
    check_gradients([as_array(x.grad) for x in given], double_gradients(*arrays, as_array(dout.transpose(1, 2))))


@needs_torch
def test_torch_tensors_without_autograd():
    q, k, v, out, lse, dout = problem((1, 4, 20, 64), (1, 2, 30, 64), causal=True)
    got = flashladder.attention_backward(*tensors(q, k, v, out, lse, dout, dtype="float32"), causal=True)
    assert all(type(x) is torch.Tensor for x in got)
    check_gradients(map(as_array, got), double_gradients(q, k, v, dout, causal=True))
    with pytest.raises(TypeError, match="dout is a ndarray, but others of q, k, v, out, lse, dout are PyTorch tensors"):
        flashladder.attention_backward(*tensors(q, k, v, out, lse, dtype="float32"), dout)
    with pytest.raises(ValueError, match="lse is on meta, but q is on cpu"):
        *given, dout = tensors(q, k, v, out, lse, dout, dtype="float32")
        flashladder.attention_backward(*given[:4], given[4].to("meta"), dout)


@needs_torch
def test_without_a_wish_for_gradients_there_is_no_lse(monkeypatch):
    asked = []
    forward = flashladder._library.forward
    monkeypatch.setattr(flashladder._library, "forward", lambda *a: asked.append(a[6] is not None) or forward(*a))
    q, k, v = leaves(*inputs())
    with torch.no_grad():
        out = flashladder.attention(q, k, v, stage="00-standard-attention", stage_backward="no stage")
        assert not out.requires_grad
    flashladder.attention(*(x.detach() for x in (q, k, v)), stage=FLOAT)
    assert asked == [False, False]
    assert flashladder.attention(q, k, v, stage=FLOAT).requires_grad
    assert asked == [False, False, True]


@needs_torch
@pytest.mark.parametrize("stage", [*backward_names(lambda stage: stage["strides"]), "best"])
@pytest.mark.parametrize("device", DEVICES)
def test_any_strides(stage, device):
    given = leaves(*inputs((2, 70, 4, 64), (2, 90, 2, 64)), dtype="bfloat16", device=device)
    turned = [x.transpose(1, 2) for x in given]
    out = flashladder.attention(*turned, causal=True, stage=STRIDES, stage_backward=stage)
    dout = torch.randn_like(out)
    got = torch.autograd.grad(out, given, dout)
    expected = double_gradients(*(as_array(x.detach().float()) for x in (*turned, dout)), causal=True)
    check_gradients([as_array(x.float().transpose(1, 2)) for x in got], expected, ALLOWED_ERRORS["bfloat16"])


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bits_where_they_are_asked_for(device, monkeypatch):
    asked, backward = [], flashladder._library.backward
    monkeypatch.setattr(flashladder._library, "backward", lambda *a: asked.append(a[1]) or backward(*a))
    given = leaves(*inputs((1, 2, 300, 64), (1, 1, 500, 64)), dtype="bfloat16", device=device)
    dout = torch.randn(1, 2, 300, 64, device=device).bfloat16()
    torch.use_deterministic_algorithms(True)
    try:
        each = [torch.autograd.grad(flashladder.attention(*given, stage=BF16), given, dout) for _ in range(3)]
        with pytest.raises(ValueError, match="no stage has these gradients with the same bits in each launch"):
            flashladder.attention(*leaves(*inputs((1, 1, 8, 96)), dtype="bfloat16", device=device), stage="14-lcsf")
    finally:
        torch.use_deterministic_algorithms(False)
    assert asked == ["22-out-of-step/deterministic"] * 3
    for other in each[1:]:
        assert all(torch.equal(x, y) for x, y in zip(each[0], other))


@needs_torch
def test_the_lse_has_no_gradient():
    q, k, v = leaves(*inputs())
    out, lse = flashladder.attention(q, k, v, stage=FLOAT, return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    np.testing.assert_allclose(as_array(lse), reference(*(as_array(x.detach()) for x in (q, k, v)))[1], rtol=1e-5)


@needs_torch
def test_errors_of_gradients():
    q, k, v = leaves(*inputs())

    def refused(match, error=ValueError, x=(q, k, v), **options):
        with pytest.raises(error, match=match):
            flashladder.attention(*x, **{"stage": FLOAT, **options})
    refused("00-standard-attention gives no LSE, which gradients need; stages that do are 03-row-swapped-loops, .*14-lcsf",
            stage="00-standard-attention")
    refused("there is no stage '16-magic' for gradients; there are 15-standard-backward, 16-", stage_backward="16-magic")
    refused("there is no stage 'None' for gradients", stage_backward=None)
    refused("no stage has these gradients .*; 15-standard-backward: head_dim 80 is not supp", x=leaves(*inputs((1, 1, 8, 80))))
    refused("there is no stage '15-magic'; there are 00-", stage="15-magic")
    refused("15-standard-backward: causal is not supported", stage_backward="15-standard-backward", causal=True)
    refused("17-key-blocks: dtype bf16 is not supported", x=leaves(*inputs(), dtype="bfloat16"), stage=BF16,
            stage_backward="17-key-blocks")
    turned = [x.transpose(1, 2) for x in leaves(*inputs((1, 2, 20, 64)))]
    refused("17-key-blocks: q, k or v is not contiguous", x=turned, stage_backward="17-key-blocks")
    with pytest.raises(RuntimeError, match="only where its stage_backward names a stage"):
        torch.ops.flashladder.attention(q, k, v, False, None, FLOAT, True)


@needs_torch
def test_there_are_no_second_derivatives():
    given = leaves(*inputs())
    dq, = torch.autograd.grad(flashladder.attention(*given, stage=FLOAT).sum(), given[:1], create_graph=True)
    check_gradients([as_array(dq.detach())],
                    double_gradients(*(as_array(x.detach()) for x in given), np.ones(dq.shape))[:1])
    with pytest.raises(RuntimeError, match="flashladder.attention has no second derivatives"):
        dq.square().sum().backward()


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_are_what_torch_expects(device):
    arguments = problem((1, 2, 20, 64), (1, 1, 30, 64))
    given = leaves(*arguments[:3], device=device)
    torch.library.opcheck(torch.ops.flashladder.attention.default, (*given, True, None, FLOAT, False, "best"))
    given = tensors(*arguments, dtype="float32", device=device)
    torch.library.opcheck(torch.ops.flashladder.attention_backward.default, (*given, True, None, "best"))


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_torch_compile_has_a_node_for_each_way(device):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    nodes = {}

    def note(way):
        def compiler(module, _):
            nodes[way] = [str(node.target) for node in module.graph.nodes]
            return make_boxed_func(module.forward)
        return compiler

    def layer(q, k, v):
        return flashladder.attention(2 * q, k, v, causal=True, stage=FLOAT, stage_backward="17-key-blocks") + 1
    compiled = torch.compile(layer, fullgraph=True, backend=aot_autograd(fw_compiler=note("forward"), bw_compiler=note("backward")))
    q, k, v, _, _, dout = problem((1, 2, 20, 64), (1, 1, 30, 64))
    given = leaves(q, k, v, device=device)
    compiled(*given).backward(*tensors(dout, dtype="float32", device=device))
    dq, dk, dv = double_gradients(2 * q, k, v, dout, causal=True)
    check_gradients([as_array(x.grad) for x in given], (2 * dq, dk, dv))
    assert nodes["forward"].count("flashladder.attention.default") == 1
    assert nodes["backward"].count("flashladder.attention_backward.default") == 1
    assert "flashladder.attention.default" not in nodes["backward"]


# ---- a transformer learns


WIDTH, HEADS, KV_HEADS, D, LAYERS = 64, 2, 1, 64, 2
LENGTH, STEPS, RATE = 96, 5, 0.3


def text():
    """A paragraph of Moby-Dick: tests/fixtures/README.md."""
    if not TEXT.exists():
        pytest.skip("the sources are not here, with their text")
    data = TEXT.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]["text"]


def first_weights(letters):
    random = np.random.default_rng(1)
    shapes = {"letters": (letters, WIDTH), "places": (LENGTH, WIDTH), "head": (WIDTH, letters)}
    for i in range(LAYERS):
        shapes |= {f"q{i}": (WIDTH, HEADS * D), f"kv{i}": (WIDTH, 2 * KV_HEADS * D), f"o{i}": (HEADS * D, WIDTH),
                   f"up{i}": (WIDTH, 4 * WIDTH), f"down{i}": (4 * WIDTH, WIDTH)}
    return {name: (random.standard_normal(shape) / (1 if name in ("letters", "places") else math.sqrt(shape[0]))).astype(np.float32)
            for name, shape in shapes.items()}


def losses(weights, tokens, attend):
    """Of each token that is to be foretold."""
    import torch.nn.functional as F
    x = weights["letters"][tokens[:, :-1]] + weights["places"]
    heads = lambda y, count: y.unflatten(-1, (count, D)).transpose(1, 2).contiguous()
    for i in range(LAYERS):
        y = F.layer_norm(x, (WIDTH,))
        q, (k, v) = y @ weights[f"q{i}"], (y @ weights[f"kv{i}"]).chunk(2, -1)
        x = x + attend(heads(q, HEADS), heads(k, KV_HEADS), heads(v, KV_HEADS)).transpose(1, 2).flatten(2) @ weights[f"o{i}"]
        x = x + F.gelu(F.layer_norm(x, (WIDTH,)) @ weights[f"up{i}"]) @ weights[f"down{i}"]
    return F.cross_entropy((F.layer_norm(x, (WIDTH,)) @ weights["head"]).flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


def learn(attend, dtype, device):
    """Losses (step, token), and how far each weight has come after the last step, as arrays of float64."""
    letters = sorted(set(text()))
    tokens = torch.tensor([letters.index(letter) for letter in text()][:2 * (LENGTH + 1)], device=device).view(2, LENGTH + 1)
    first = first_weights(len(letters))
    weights = {name: torch.tensor(x, dtype=dtype, device=device, requires_grad=True) for name, x in first.items()}
    optimizer, curve = torch.optim.SGD(weights.values(), lr=RATE), []
    for _ in range(STEPS):
        of_tokens = losses(weights, tokens, attend)
        curve.append(as_array(of_tokens.detach()))
        optimizer.zero_grad()
        of_tokens.mean().backward()
        optimizer.step()
    return np.stack(curve), {name: as_array(x.detach()) - first[name] for name, x in weights.items()}


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_a_transformer_learns_as_with_torchs_attention(device):
    """The same steps three times: with PyTorch's attention in double precision and in float32, and with ours in float32. How
    far PyTorch's float32 is from double is what rounding does to this model; ours may be twice as far. That is asked of
    all losses together, and of all changes of a matrix of weights: of a single number it would be a matter of luck."""
    def of_torch(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def ours(q, k, v):
        return flashladder.attention(q, k, v, causal=True, stage=FLOAT)
    (exact, exact_ways), (standard, standard_ways), (found, ways) = (
        learn(of_torch, torch.float64, device), learn(of_torch, torch.float32, device), learn(ours, torch.float32, device))
    assert exact[-1].mean() < exact[0].mean() - 0.5  # it learns
    for name in ["losses", *ways]:
        x, y, z = (found, standard, exact) if name == "losses" else (ways[name], standard_ways[name], exact_ways[name])
        error, allowed = relative_error(x, z), 2 * relative_error(y, z)
        assert error <= allowed, f"{name}: {error}, allowed {allowed}"
