"""The package against attention in double precision. What needs PyTorch or a GPU is skipped without; it needs neither
the sources nor a build folder: `pytest python/tests`, wherever flashladder is installed."""
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import flashladder

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")
has_cuda = torch is not None and torch.cuda.is_available()
needs_cuda = pytest.mark.skipif(not has_cuda, reason="no CUDA device that PyTorch sees")
is_hopper = has_cuda and torch.cuda.get_device_capability()[0] == 9
needs_hopper = pytest.mark.skipif(not is_hopper, reason="no GPU of compute capability 9.0")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]

FLOAT, BF16, STRIDES = "03-row-swapped-loops", "04-tensor-cores", "14-lcsf"
# As common/harness/run.cpp has it, in the norm.
ALLOWED_ERROR = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 5e-3}


def reference(q, k, v, causal=False, scale=None):
    """Output and LSE of arrays, in double precision."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    n_q, n_k = scores.shape[2:]
    if causal:
        scores = np.where(np.arange(n_k) <= np.arange(n_q)[:, None] + n_k - n_q, scores, -np.inf)
    highest = scores.max(axis=3, keepdims=True)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=3, keepdims=True)
    return weights / total @ v, (np.log(total) + highest)[..., 0]


def check(got, expected, dtype):
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape
    error, size = np.linalg.norm(got - expected), np.linalg.norm(expected)  # 0 where no query sees a key
    assert error <= ALLOWED_ERROR[dtype] * size, (error, size)  # NaN fails


def inputs(shape=(1, 1, 40, 64), kv=None, dtype="float32", seed=1):
    """q of the shape, k and v of `kv`, by default the same."""
    random = np.random.default_rng(seed)
    return [random.standard_normal(s).astype(dtype) for s in (shape, kv or shape, kv or shape)]


def tensors(*arrays, dtype="bfloat16", device="cpu"):
    return [torch.from_numpy(x).to(device, getattr(torch, dtype)) for x in arrays]


def as_array(tensor):
    return tensor.double().cpu().numpy()


# ---- NumPy


def names(what=lambda stage: True):
    return [stage["stage"] for stage in flashladder.stages() if what(stage)]


def test_stages():
    described = flashladder.stages()
    numbers = [stage["stage"][:2] for stage in described]
    assert numbers[:15] == [f"{i:02}" for i in range(15)] and numbers == sorted(set(numbers))  # others are between
    assert flashladder.attention.__defaults__[2] in names()
    assert {"head_dims", "dtypes", "causal", "lse", "grouped_query", "strides"} <= set(described[0])


def test_a_step_of_decoding():
    q, k, v = inputs((2, 6, 1, 64), kv=(2, 2, 1100, 64), dtype="float16")
    expected, expected_lse = reference(q, k, v)
    out, lse = flashladder.attention(q, k, v, stage="27-merge", return_lse=True)
    check(out, expected, "float16")
    assert np.abs(lse - expected_lse).max() < 1e-3


def in_pages(k, lengths, page_size, seed=1):
    """A pool of pages with the keys of sequences in it, NaN everywhere else, and the table of where they are."""
    batch, heads, n_k, d = k.shape
    of_sequence = -(-n_k // page_size)
    order = np.random.default_rng(seed).permutation(batch * of_sequence + 1)
    pool = np.full((len(order), heads, page_size, d), np.nan, k.dtype)
    table = np.full((batch, of_sequence), -7, np.int32)  # nobody follows what is behind the last page
    for b in range(batch):
        for j in range(0, lengths[b], page_size):
            table[b, j // page_size] = page = order[b * of_sequence + j // page_size]
            rows = k[b, :, j:min(j + page_size, lengths[b])]
            pool[page, :, :rows.shape[1]] = rows
    return pool, table


def paged(lengths=(75, 0, 32, 130), n_q=2, page_size=16):
    q, k, v = inputs((len(lengths), 6, n_q, 64), kv=(len(lengths), 2, max(lengths), 64), dtype="float16")
    (k_pages, table), (v_pages, _) = (in_pages(x, lengths, page_size) for x in (k, v))
    return q, k, v, k_pages, v_pages, table, np.array(lengths, np.int32)


def check_paged(out, lse, q, k, v, lengths, causal):
    for b, length in enumerate(lengths):
        if length == 0:
            assert not out[b].any() and np.isneginf(lse[b]).all()
            continue
        expected, expected_lse = reference(*(x[b:b + 1, :, :n] for x, n in ((q, None), (k, length), (v, length))), causal)
        check(out[b:b + 1], expected, "float16")
        assert np.abs(lse[b:b + 1] - expected_lse).max() < 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_keys_in_pages(causal):
    q, k, v, k_pages, v_pages, table, lengths = paged()
    out, lse = flashladder.paged_attention(q, k_pages, v_pages, table, lengths, causal=causal, return_lse=True)
    check_paged(out, lse, q, k, v, lengths, causal)
    rows_first = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (k_pages, v_pages)]
    again = flashladder.paged_attention(q, *rows_first, table, lengths, causal=causal, max_length=130)
    np.testing.assert_array_equal(again, out)


def test_errors_of_pages():
    q, _, _, k_pages, v_pages, table, lengths = paged()

    def wrong(error, match, q=q, k_pages=k_pages, v_pages=v_pages, table=table, lengths=lengths, **options):
        with pytest.raises(error, match=match):
            flashladder.paged_attention(q, k_pages, v_pages, table, lengths, **options)
    wrong(ValueError, r"k_pages has shape .* but must have \(pages, kv_heads, page_size, d\)", k_pages=k_pages[0])
    wrong(ValueError, "v_pages has pages: .*, but k_pages has", v_pages=v_pages[1:])
    wrong(TypeError, "block_table has dtype int64, but must have int32", table=table.astype(np.int64))
    wrong(ValueError, "block_table must have a row for q's 4 sequences", table=table[1:])
    wrong(ValueError, "lengths must have a number for q's 4 sequences", lengths=lengths[1:])
    wrong(ValueError, "block_table is not contiguous", table=np.repeat(table, 2, axis=1)[:, ::2])
    wrong(ValueError, "sequence 3 has length 1000, but must have 0 to 144 keys", lengths=np.array([75, 0, 32, 1000], np.int32))
    wrong(ValueError, "sequence 3 has length 130, but must have 0 to 100 keys", max_length=100)
    wrong(ValueError, "max_length is 0", max_length=0)
    bad = table.copy()
    bad[0, 4] = len(k_pages)
    wrong(ValueError, rf"block_table\[0\]\[4\] is {len(k_pages)}, but the pool has pages 0 to {len(k_pages) - 1}", table=bad)
    wrong(ValueError, "page_size is 12, but must be a multiple of 8", k_pages=k_pages[:, :, :12], v_pages=v_pages[:, :, :12])
    wrong(ValueError, "14-lcsf does not compute paged attention", stage="14-lcsf")


@needs_torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_hopper)])
def test_keys_in_pages_with_torch(device):
    q, k, v, k_pages, v_pages, table, lengths = paged()
    given = [torch.from_numpy(x).to(device) for x in (q, k_pages, v_pages, table, lengths)]
    out, lse = flashladder.paged_attention(*given, return_lse=True)
    check_paged(as_array(out), as_array(lse), q, k, v, lengths, False)
    torch.library.opcheck(torch.ops.flashladder.paged_attention.default, (*given, False, None, "27b-paged", True, 0))
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again = flashladder.paged_attention(*given)
        given[4][0] = 0  # a cache grows, or not, between replays
        graph.replay()
        assert not again[0].any() and torch.equal(again[3], out[3])


def packed(n_q=(40, 0, 70, 9), n_k=(50, 3, 0, 100), d=64, d_v=64):
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal(shape).astype("float16")
               for shape in ((sum(n_q), 6, d), (sum(n_k), 2, d), (sum(n_k), 2, d_v)))
    return (q, k, v, *(np.concatenate([[0], np.cumsum(n)]).astype(np.int32) for n in (n_q, n_k)))


def check_packed(out, lse, q, k, v, of_queries, of_keys, causal):
    assert out.shape == (*q.shape[:2], v.shape[2]) and lse.shape == q.shape[1::-1]
    for b in range(len(of_queries) - 1):
        rows, keys = (slice(places[b], places[b + 1]) for places in (of_queries, of_keys))
        if rows.start == rows.stop:
            continue
        if keys.start == keys.stop:
            assert not out[rows].any() and np.isneginf(lse[:, rows]).all()
            continue
        alone = [x[part].swapaxes(0, 1)[None] for x, part in ((q, rows), (k, keys), (v, keys))]
        expected, expected_lse = reference(*alone, causal)
        check(out[rows].swapaxes(0, 1)[None], expected, "float16")
        assert np.abs(lse[:, rows] - expected_lse[0]).max() < 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d, d_v", [(64, 64), (80, 80), (192, 128), (24, 136)])
def test_packed_sequences(causal, d, d_v):
    given = packed(n_k=(50, 3, 0, 100) if not causal else (45, 3, 0, 100), d=d, d_v=d_v)
    out, lse = flashladder.varlen_attention(*given, causal=causal, return_lse=True)
    check_packed(out, lse, *given, causal)
    heads_first = [np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1) for x in given[:3]]
    again = flashladder.varlen_attention(*heads_first, *given[3:], 70, 100, causal=causal)
    np.testing.assert_array_equal(again, out)


def test_packed_sequences_of_nothing():
    q, k, v, of_queries, of_keys = packed((5, 7), (0, 0))
    out, lse = flashladder.varlen_attention(q, k, v, of_queries, of_keys, return_lse=True)
    assert not out.any() and np.isneginf(lse).all()
    q, k, v, of_queries, of_keys = packed((0, 0), (4, 5))
    assert flashladder.varlen_attention(q, k, v, of_queries, of_keys).shape == (0, 6, 64)


def test_errors_of_packed_sequences():
    q, k, v, of_queries, of_keys = packed()

    def wrong(error, match, q=q, k=k, v=v, of_queries=of_queries, of_keys=of_keys, **options):
        with pytest.raises(error, match=match):
            flashladder.varlen_attention(q, k, v, of_queries, of_keys, **options)
    wrong(ValueError, r"q has shape .* but must have \(total_q, heads, d\)", q=q[None])
    wrong(ValueError, "v has rows: 152, but k has 153", v=v[1:])
    wrong(TypeError, "cu_seqlens_q has dtype int64, but must have int32", of_queries=of_queries.astype(np.int64))
    wrong(ValueError, "cu_seqlens_k has 4 numbers, but cu_seqlens_q has 5", of_keys=of_keys[1:])
    wrong(ValueError, "cu_seqlens_q must have one dimension", of_queries=of_queries[None])
    wrong(ValueError, "cu_seqlens_k is not contiguous", of_keys=np.repeat(of_keys, 2)[::2])
    wrong(ValueError, r"cu_seqlens_q\[0\] is 1, but must be 0", of_queries=of_queries + np.int32(1))
    wrong(ValueError, r"cu_seqlens_k\[4\] is 153, but must be 152, the number of all rows", k=k[1:], v=v[1:])
    bad = of_queries.copy()
    bad[2] = 39
    wrong(ValueError, r"cu_seqlens_q\[2\] is 39, but must be at least the one before, 40", of_queries=bad)
    wrong(ValueError, "k has d = 56, but q has 64", k=k[:, :, :56])
    wrong(ValueError, r"head_dim 44 is not supported \(only multiples of 8 up to 256\)", q=q[:, :, :44], k=k[:, :, :44])
    wrong(ValueError, "value_dim 44 is not supported", v=v[:, :, :44])
    wrong(ValueError, "14-lcsf does not compute attention of packed sequences", stage="14-lcsf")


def blocks_of_keys(heads=(), n_q=150, n_k=400):
    q, k, v = inputs((2, 4, n_q, 64), kv=(2, 2, n_k, 64), dtype="float16")
    return q, k, v, np.random.default_rng().random((*heads, -(-n_q // 128), -(-n_k // 128))) < 0.5


def check_blocks(out, lse, q, k, v, mask, causal):
    """In float, by a mask of single scores."""
    n_q, n_k = q.shape[2], k.shape[2]
    seen = np.repeat(np.repeat(mask, 128, -2), 128, -1)[..., :n_q, :n_k]
    if causal:
        seen = seen & (np.arange(n_k) <= np.arange(n_q)[:, None] + n_k - n_q)
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    p = np.where(seen, np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[3])), 0)
    total = p.sum(-1, keepdims=True)
    check(out, p @ v / np.where(total > 0, total, 1), "float16")
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(total[..., 0]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(), (4,)])
def test_lists_of_blocks(heads, causal):
    q, k, v, mask = blocks_of_keys(heads)
    first, blocks = flashladder.block_lists(mask)
    assert first.dtype == blocks.dtype == np.int32 and len(blocks) == mask.sum()
    out, lse = flashladder.block_sparse_attention(q, k, v, first, blocks, causal=causal, return_lse=True)
    check_blocks(out, lse, q, k, v, mask, causal)
    mask[:] = False
    nothing = flashladder.block_sparse_attention(q, k, v, *flashladder.block_lists(mask), causal=causal, return_lse=True)
    check_blocks(*nothing, q, k, v, mask, causal)


def test_errors_of_lists():
    q, k, v, mask = blocks_of_keys()
    first, blocks = flashladder.block_lists(np.ones_like(mask))

    def wrong(error, match, q=q, first=first, blocks=blocks, **options):
        with pytest.raises(error, match=match):
            flashladder.block_sparse_attention(q, k, v, first, blocks, **options)
    wrong(ValueError, "first must have 3 numbers, or 9 with lists for each head", first=first[1:])
    wrong(TypeError, "blocks has dtype int64, but must have int32", blocks=blocks.astype(np.int64))
    wrong(ValueError, "blocks is not contiguous", blocks=np.repeat(blocks, 2)[::2])
    wrong(ValueError, "first ends with 8, but there are 7 blocks", blocks=blocks[1:])
    wrong(ValueError, r"blocks\[7\] is 4, but blocks of keys are 0 to 3", blocks=np.append(blocks[:7], 4).astype(np.int32))
    wrong(ValueError, "a list ascends", blocks=blocks[::-1].copy())
    wrong(ValueError, "14-lcsf does not compute block-sparse attention", stage="14-lcsf")
    with pytest.raises(ValueError, match=r"mask has shape \(3,\), but must have"):
        flashladder.block_lists(np.ones(3, bool))


@needs_torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_hopper)])
@pytest.mark.parametrize("d, d_v", [(64, 64), (192, 128)])
def test_packed_sequences_with_torch(device, d, d_v):
    arrays = packed(d=d, d_v=d_v)
    given = [torch.from_numpy(x).to(device) for x in arrays]
    out, lse = flashladder.varlen_attention(*given, return_lse=True)
    check_packed(as_array(out), as_array(lse), *arrays, False)
    operator = torch.ops.flashladder.varlen_attention.default
    torch.library.opcheck(operator, (*given, True, None, "26b-varlen", True))
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again = flashladder.varlen_attention(*given)
        given[4][3:] -= 1  # other lengths, of as many rows, between replays
        given[4][4] += 1
        graph.replay()
        assert torch.equal(again[:40], out[:40])


@needs_torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_hopper)])
def test_lists_of_blocks_with_torch(device):
    q, k, v, mask = blocks_of_keys((4,))
    given = [torch.from_numpy(x).to(device) for x in (q, k, v)]
    lists = flashladder.block_lists(torch.from_numpy(mask).to(device))
    for mine, numpys in zip(lists, flashladder.block_lists(mask)):
        np.testing.assert_array_equal(as_array(mine), numpys)
    out, lse = flashladder.block_sparse_attention(*given, *lists, return_lse=True)
    check_blocks(as_array(out), as_array(lse), q, k, v, mask, False)
    torch.library.opcheck(torch.ops.flashladder.block_sparse_attention.default,
                          (*given, *lists, False, None, "26-block-lists", True))


@pytest.mark.parametrize("stage", names(lambda stage: "f32" in stage["dtypes"]))
def test_numpy_float32(stage):
    q, k, v = inputs((1, 2, 33, 64), (1, 2, 45, 64))
    got = flashladder.attention(q, k, v, stage=stage)
    assert type(got) is np.ndarray and got.dtype == np.float32
    check(got, reference(q, k, v)[0], "float32")


@pytest.mark.parametrize("stage", names(lambda stage: "f16" in stage["dtypes"]))
def test_numpy_float16(stage):
    q, k, v = inputs((1, 1, 70, 64), (1, 1, 90, 64), "float16")
    got = flashladder.attention(q, k, v, stage=stage)
    assert got.dtype == np.float16
    check(got, reference(q, k, v)[0], "float16")


@pytest.mark.parametrize("shape, kv", [((1, 1, 1, 64), (1, 1, 1, 64)), ((1, 1, 1, 128), (1, 1, 67, 128)),
                                       ((2, 4, 17, 64), (2, 2, 35, 64)), ((1, 3, 65, 64), (1, 1, 64, 64))])
@pytest.mark.parametrize("causal", [False, True])
def test_shapes_causal_grouped_queries_and_lse(shape, kv, causal):
    if causal and shape[2] > kv[2]:
        kv = (*kv[:2], shape[2], kv[3])  # else some query sees no key
    q, k, v = inputs(shape, kv)
    got, lse = flashladder.attention(q, k, v, causal=causal, stage=FLOAT, return_lse=True)
    expected, expected_lse = reference(q, k, v, causal)
    check(got, expected, "float32")
    assert lse.dtype == np.float32
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=1e-5)


def test_scale():
    q, k, v = inputs()
    check(flashladder.attention(q, k, v, scale=0.5, stage=FLOAT), reference(q, k, v, scale=0.5)[0], "float32")
    check(flashladder.attention(q, k, v, scale=-1, stage=FLOAT), reference(q, k, v, scale=-1)[0], "float32")


def test_the_default_stage():
    q, k, v = inputs(dtype="float16")
    check(flashladder.attention(q, k, v), reference(q, k, v)[0], "float16")


def test_a_variant_is_a_stage():
    stage = next(stage for stage in flashladder.stages() if stage["variants"])
    name = f"{stage['stage']}/{stage['variants'][0]['variant']}"
    with pytest.raises(ValueError, match=f"{name}: dtype f32 is not supported"):
        flashladder.attention(*inputs(), stage=name)


def sequence_first(x):
    """The same values, but (batch, n, heads, d) in memory."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)


def test_strides_are_passed_through_where_the_stage_takes_them():
    q, k, v = (sequence_first(x) for x in inputs((2, 3, 20, 64), dtype="float16"))
    assert not q.flags.c_contiguous
    check(flashladder.attention(q, k, v, stage=STRIDES), reference(q, k, v)[0], "float16")
    with pytest.raises(ValueError, match=f"{BF16}: Q is not contiguous .*from 08"):
        flashladder.attention(q, k, v, stage=BF16)


def test_a_part_of_a_packed_tensor():
    packed = np.random.default_rng(1).standard_normal((2, 30, 3, 2, 64)).astype("float16")  # (batch, n, qkv, heads, d)
    q, k, v = packed.transpose(2, 0, 3, 1, 4)
    check(flashladder.attention(q, k, v, stage=STRIDES), reference(q, k, v)[0], "float16")


def test_strides_of_extents_of_1_mean_nothing():
    q, k, v = (np.lib.stride_tricks.as_strided(x, (1, 1, 1, 64), (0, 0, 0, 4)) for x in inputs((1, 1, 1, 64)))
    check(flashladder.attention(q, k, v, stage=FLOAT), reference(q, k, v)[0], "float32")


def test_a_broadcast_batch():
    q, k, v = inputs((2, 1, 20, 64), dtype="float16")
    k, v = (np.broadcast_to(x[:1], x.shape) for x in (k, v))
    check(flashladder.attention(q, k, v, stage=STRIDES), reference(q, k, v)[0], "float16")


def test_read_only_arrays():
    arrays = inputs()
    for x in arrays:
        x.flags.writeable = False
    check(flashladder.attention(*arrays, stage=FLOAT), reference(*arrays)[0], "float32")


def test_inputs_stay_as_they_are():
    arrays = inputs()
    copies = [x.copy() for x in arrays]
    flashladder.attention(*arrays, stage=FLOAT)
    for x, copy in zip(arrays, copies):
        np.testing.assert_array_equal(x, copy)


class OfAnotherLibrary:
    """A tensor that has DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_other_tensors_on_the_cpu_give_numpy_arrays():
    arrays = inputs()
    got = flashladder.attention(*map(OfAnotherLibrary, arrays), stage=FLOAT)
    assert type(got) is np.ndarray
    check(got, reference(*arrays)[0], "float32")


# ---- errors


def wrong(error, match, q=None, k=None, v=None, **options):
    """One of the inputs is another than it should be."""
    good = inputs()
    with pytest.raises(error, match=match):
        flashladder.attention(*(x if given is None else given for x, given in zip(good, (q, k, v))),
                              **{"stage": FLOAT, **options})


def test_errors_of_types_and_dtypes():
    x = inputs()[0]
    wrong(TypeError, "k is a list, but must be", k=x.tolist())
    wrong(TypeError, "q has dtype float64, but must have float32, float16 or bfloat16", q=x.astype(float))
    wrong(TypeError, "k has dtype float16, but q has float32", k=x.astype("float16"))
    wrong(TypeError, "v has dtype int32, but q has float32", v=x.astype("int32"))
    wrong(TypeError, "v is no tensor that DLPack can pass on .dtype: >f4", v=x.astype(">f4"))
    wrong(ValueError, "14-lcsf: dtype f32 is not supported .only bf16, f16", stage="14-lcsf")


def test_errors_of_shapes():
    x = inputs()[0]
    wrong(ValueError, r"q has shape \(40, 64\), but must have \(batch, heads, n, d\)", q=x[0, 0])
    wrong(ValueError, "k has batch 2, but q has 1", k=np.concatenate([x, x]))
    wrong(ValueError, "k has d = 32, but q has 64", k=np.ascontiguousarray(x[..., :32]))
    wrong(ValueError, "v has n = 39, but k has 40", v=x[:, :, :39])
    wrong(ValueError, "v has heads: 2, but k has 1", v=np.concatenate([x, x], axis=1))
    wrong(ValueError, r"v has shape \(1, 1, 0, 64\): each extent", v=x[:, :, :0])
    two, three = (np.concatenate([x] * n, axis=1) for n in (2, 3))
    wrong(ValueError, "heads 3 is not a multiple of kv_heads 2", q=three, k=two, v=two)
    q, k, v = inputs((1, 1, 8, 80))
    wrong(ValueError, r"head_dim 80 is not supported \(only 64, 128\)", q, k, v)


def test_errors_of_strides():
    x = inputs((2, 1, 40, 128))[0]
    small = inputs((2, 1, 40, 64))[0]
    wrong(ValueError, "q has a stride of 2 in its last dimension", x[..., ::2], small, small)
    one_row = np.broadcast_to(small[:, :, :1], small.shape)
    wrong(ValueError, "k has a stride of 0 from row to row", small, one_row, small)
    half = inputs((2, 1, 40, 64), dtype="float16")
    wrong(ValueError, "14-lcsf: V has a negative row stride", half[0], half[1], half[2][:, :, ::-1], stage=STRIDES)
    wrong(ValueError, "is not contiguous", small[::-1], small, small)
    shifted = np.empty(1 + small.size, np.float32)[1:].reshape(small.shape)
    wrong(ValueError, "v begins at 0x.* no multiple of 16 bytes", small, small, shifted)


def test_errors_of_what_a_stage_cannot():
    wrong(ValueError, "00-standard-attention: causal is not supported", stage="00-standard-attention", causal=True)
    wrong(ValueError, "00-standard-attention: lse is not supported", stage="00-standard-attention", return_lse=True)
    wrong(ValueError, "scale is nan", scale=math.nan)
    wrong(ValueError, "there is no stage '15-magic'; there are 00-standard-attention, .*14-lcsf", stage="15-magic")
    with pytest.raises((TypeError, ValueError)):
        flashladder.attention(*inputs(), stage=FLOAT, scale="large")


def test_what_fails_is_a_runtime_error():
    q = np.zeros((1, 1, 1 << 17, 64), np.float32)  # its scores are more than the emulator's device has
    with pytest.raises(RuntimeError, match="cudaErrorMemoryAllocation"):
        flashladder.attention(q, q, q, stage="00-standard-attention")


def error_of_the_gpu_library(path):
    """What a process says that wants one, where FLASHLADDER_LIBRARY names this path."""
    code = "import flashladder._library as library; library.library('gpu')"
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, "FLASHLADDER_LIBRARY": path},
                          capture_output=True, text=True).stderr


def test_libraries_that_are_none():
    said = error_of_the_gpu_library("/nowhere/libflashladder.so")
    assert "RuntimeError: cannot use the GPU library: /nowhere/libflashladder.so: cannot open" in said
    said = error_of_the_gpu_library(flashladder._core.__file__)
    assert "it has no flashladder_backend: it is no FlashLadder library" in said
    emulator = os.path.join(os.path.dirname(flashladder.__file__), "libflashladder-cpu.so")
    assert "which is the emulator's library, not one for GPUs" in error_of_the_gpu_library(emulator)


def test_without_a_gpu_library():
    folder = os.path.dirname(flashladder.__file__)
    if os.path.exists(os.path.join(folder, "libflashladder-gpu.so")):
        pytest.skip("this package has one")
    assert "RuntimeError: this flashladder has no GPU library" in error_of_the_gpu_library("")


class OnCuda(OfAnotherLibrary):
    def __dlpack_device__(self):
        return (2, 0)


def test_other_cuda_tensors_need_torch(monkeypatch):
    monkeypatch.setattr(flashladder, "torch", None)
    with pytest.raises(RuntimeError, match="CUDA tensors need PyTorch"):
        flashladder.attention(*map(OnCuda, inputs()))


# ---- PyTorch


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage, dtype", [(FLOAT, "float32"), (BF16, "bfloat16"), (BF16, "float16")])
def test_torch_tensors(device, stage, dtype):
    q, k, v = tensors(*inputs((2, 4, 33, 64), (2, 2, 50, 64)), dtype=dtype, device=device)
    got, lse = flashladder.attention(q, k, v, causal=True, stage=stage, return_lse=True)
    assert type(got) is torch.Tensor and (got.device, got.dtype, lse.device) == (q.device, q.dtype, q.device)
    expected, expected_lse = reference(*map(as_array, (q, k, v)), causal=True)
    check(as_array(got), expected, dtype)
    np.testing.assert_allclose(as_array(lse), expected_lse, rtol=ALLOWED_ERROR[dtype], atol=ALLOWED_ERROR[dtype])


@needs_cuda
@pytest.mark.parametrize("stage", names())
def test_every_stage_on_the_gpu(stage):
    described = next(s for s in flashladder.stages() if s["stage"] == stage)
    if torch.cuda.get_device_capability() < divmod(described["compute_capability"], 10):
        pytest.skip("the GPU is too old")
    dtype = {"f32": "float32", "bf16": "bfloat16"}[described["dtypes"][0]]
    q, k, v = tensors(*inputs((2, 3, 300, 64), (2, 3, 170, 64)), dtype=dtype, device="cuda")
    check(as_array(flashladder.attention(q, k, v, stage=stage)), reference(*map(as_array, (q, k, v)))[0], dtype)


@needs_torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_hopper)])
def test_torch_strides_and_those_of_the_output(device):
    arrays = inputs((2, 20, 3, 64))
    q, k, v = (x.transpose(1, 2) for x in tensors(*arrays, device=device))  # (batch, n, heads, d) in memory
    got = flashladder.attention(q, k, v, stage=STRIDES)
    assert got.stride() == q.stride()
    expected = reference(*map(as_array, (q, k, v)))[0]
    check(as_array(got), expected, "bfloat16")
    one = q[:, :1].expand(q.shape)  # all heads in one place
    got = flashladder.attention(one, k, v, stage=STRIDES)
    check(as_array(got), reference(*map(as_array, (one, k, v)))[0], "bfloat16")


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_is_what_torch_expects(device):
    q, k, v = tensors(*inputs((1, 2, 20, 64)), device=device)
    for return_lse in (False, True):
        torch.library.opcheck(torch.ops.flashladder.attention.default, (q, k, v, True, None, BF16, return_lse))


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_torch_compile(device):
    q, k, v = tensors(*inputs((1, 2, 20, 64)), dtype="float32", device=device)

    def layer(q, k, v):
        out, lse = flashladder.attention(2 * q, k, v, causal=True, stage=FLOAT, return_lse=True)
        return out + 1, lse
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager" if device == "cpu" else "inductor")
    for got, expected in zip(compiled(q, k, v), layer(q, k, v)):
        torch.testing.assert_close(got, expected)


@needs_torch
def test_errors_with_torch():
    q, k, v = tensors(*inputs())
    with pytest.raises(TypeError, match="k is a ndarray, but others of q, k, v are PyTorch tensors"):
        flashladder.attention(q, inputs()[0], v)
    with pytest.raises(ValueError, match="there is no stage '15-magic'"):
        flashladder.attention(q, k, v, stage="15-magic")
    with pytest.raises(ValueError, match="there is no stage '3'"):
        flashladder.attention(q, k, v, stage=3)
    with pytest.raises(TypeError, match="q has dtype float64"):
        flashladder.attention(q.double(), k, v)
    with pytest.raises(TypeError, match="v has layout torch.sparse_coo"):
        flashladder.attention(q, k, v.to_sparse())
    with pytest.raises(ValueError, match="k is on meta, but q is on cpu"):
        flashladder.attention(q, k.to("meta"), v)
    with pytest.raises(ValueError, match="v has n = 39, but k has 40"):
        flashladder.attention(q, k, v[:, :, :39])
    if has_cuda:
        with pytest.raises(ValueError, match="k is on cpu, but q is on cuda:0"):
            flashladder.attention(q.cuda(), k, v)
        with pytest.raises(ValueError, match="k is on cuda:0, but q is on cpu"):
            flashladder.attention(q, k.cuda(), v.cuda())


@needs_torch
def test_a_dry_run_on_the_meta_device():
    q, k, v = (x.to("meta") for x in tensors(*inputs((1, 2, 20, 64), (1, 1, 30, 64))))
    out, lse = flashladder.attention(q, k, v, return_lse=True)
    assert out.is_meta and out.shape == q.shape and lse.shape == (1, 2, 20)


# ---- on a GPU


def cuda_inputs(stage, n=500):
    """For one of the tests below: a stage with scratch, or without."""
    dtype = "float32" if stage == "00-standard-attention" else "bfloat16"
    return tensors(*inputs((2, 4, n, 64)), dtype=dtype, device="cuda"), dtype


@needs_cuda
@pytest.mark.parametrize("stage", ["00-standard-attention", BF16])
def test_the_current_stream_is_used(stage):
    (q, k, v), dtype = cuda_inputs(stage)
    side = torch.cuda.Stream()
    flashladder.attention(q, k, v, stage=stage)  # its code is loaded by the first call, which may take longer than what follows
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # clocks: q is written a tenth of a second later
        q.copy_(k)
        got = flashladder.attention(q, k, v, stage=stage)
        assert not side.query()  # it did not wait
    side.synchronize()
    check(as_array(got), reference(*map(as_array, (k, k, v)))[0], dtype)


@needs_cuda
@pytest.mark.parametrize("stage", ["00-standard-attention", BF16, pytest.param(STRIDES, marks=needs_hopper)])
def test_cuda_graphs(stage):
    (q, k, v), dtype = cuda_inputs(stage)
    flashladder.attention(q, k, v, stage=stage)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = flashladder.attention(q, k, v, stage=stage)
    for seed in (2, 3):
        fresh = inputs(tuple(q.shape), seed=seed)
        for x, values in zip((q, k, v), fresh):
            x.copy_(torch.from_numpy(values))
        got.fill_(math.nan)
        graph.replay()
        check(as_array(got), reference(*map(as_array, (q, k, v)))[0], dtype)


@needs_cuda
def test_torch_compile_with_cuda_graphs():
    (q, k, v), dtype = cuda_inputs(BF16)
    compiled = torch.compile(lambda *x: flashladder.attention(*x, stage=BF16) + 0, mode="reduce-overhead",
                             fullgraph=True)
    for _ in range(4):
        got = compiled(q, k, v).clone()
    check(as_array(got), reference(*map(as_array, (q, k, v)))[0], dtype)


@needs_cuda
def test_other_cuda_tensors_give_torchs():
    (q, k, v), dtype = cuda_inputs(BF16)
    got = flashladder.attention(*map(OfAnotherLibrary, (q, k, v)), stage=BF16)
    assert type(got) is torch.Tensor
    check(as_array(got), reference(*map(as_array, (q, k, v)))[0], dtype)


@pytest.mark.skipif(not has_cuda or torch.cuda.device_count() < 2, reason="fewer than two GPUs")
def test_the_tensors_device_need_not_be_the_current_one():
    (q, k, v), dtype = cuda_inputs(BF16)
    expected = reference(*map(as_array, (q, k, v)))[0]
    got = flashladder.attention(*(x.to("cuda:1") for x in (q, k, v)), stage=BF16)
    assert got.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
    check(as_array(got), expected, dtype)
    with pytest.raises(ValueError, match="k is on cuda:1, but q is on cuda:0"):
        flashladder.attention(q, k.to("cuda:1"), v, stage=BF16)


# Run as a process of its own: rank, ranks, port, causal. Without a sequence that all know, nobody could compare.
RING = """
import sys, torch, flashladder
rank, ranks, port, causal = (int(x) for x in sys.argv[1:5])
torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
generator = torch.Generator().manual_seed(port)
n, half = 60, 30
q, k, v = (torch.randn(2, heads, n * ranks, 64, generator=generator).bfloat16() for heads in (4, 2, 2))
rows = range(rank * n, (rank + 1) * n)
if causal:
    rows = [*range(rank * half, (rank + 1) * half), *range((2 * ranks - 1 - rank) * half, (2 * ranks - rank) * half)]
shards = [x[:, :, list(rows)] for x in (q, k, v)]
out, lse = flashladder.ring_attention(*shards, causal=bool(causal), return_lse=True)
expected, expected_lse = flashladder.attention(q, k, v, causal=bool(causal), return_lse=True)
error = (out.float() - torch.as_tensor(expected[:, :, list(rows)]).float()).norm() / out.float().norm()
assert error <= 5e-3, error
assert (lse - torch.as_tensor(expected_lse[:, :, list(rows)])).abs().max() <= 1e-3
torch.distributed.destroy_process_group()
"""


@needs_torch
@pytest.mark.parametrize("ranks, causal", [(1, 1), (2, 1), (3, 0)])
def test_ring_of_processes(ranks, causal):
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [subprocess.Popen([sys.executable, "-c", RING, str(rank), str(ranks), str(port), str(causal)],
                                  stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


@needs_torch
def test_ring_refuses_what_it_cannot_do():
    x = torch.zeros(1, 1, 8, 64)
    with pytest.raises(TypeError, match="k is a list"):
        flashladder.ring_attention(x, [], x)
    with pytest.raises(ValueError, match="v has shape"):
        flashladder.ring_attention(x, x, x[:, :, :4])
