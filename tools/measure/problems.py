"""The problems that stages and peers are measured on."""
import dataclasses
import itertools
import random


@dataclasses.dataclass(frozen=True)
class Shape:
    """AttentionShape of common/operations/attention/problem.h, without the dtype."""
    batch: int
    heads: int
    kv_heads: int
    n_q: int
    n_k: int
    head_dim: int
    causal: bool

    def flops(self, backward=False):
        """Of the forward pass, as every paper counts them, or of the way back: five products for two."""
        return (10 if backward else 4) * self.batch * self.heads * self.n_q * self.n_k * self.head_dim // (2 if self.causal else 1)

    def elements(self):
        """Of Q, K, V and O, each once."""
        return 2 * self.batch * self.head_dim * (self.heads * self.n_q + self.kv_heads * self.n_k)

    def __str__(self):
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads < self.heads else f"{self.heads}"
        n = f"N {self.n_q}" if self.n_q == self.n_k else f"N_q {self.n_q}, N_k {self.n_k}"
        return f"d {self.head_dim}{' causal' if self.causal else ''}, {n}, B {self.batch}, H {heads}"


def shape(head_dim, n, causal, batch=None, heads=None, kv_heads=None):
    """16384 tokens and a model width of 2048, where nothing else is said."""
    heads = heads or max(1, 2048 // head_dim)
    return Shape(batch or max(1, 16384 // n), heads, kv_heads or heads, n, n, head_dim, causal)


def step_of_decoding(batch, heads, kv_heads, n_k, head_dim):
    """A query for each head, against all keys so far."""
    return Shape(batch, heads, kv_heads, 1, n_k, head_dim, False)


MOST_FLOPS_DRAWN = 6e12  # some 10 ms: of longer ones a grid has time for few rounds


def drawn_shapes(number, seed=2026):
    """Of all sizes, the same each time: what nothing was tuned for."""
    draw = random.Random(seed)
    shapes = (shape(draw.choice((64, 128)), draw.randint(500, 20000), draw.random() < 0.5, draw.randint(1, 8),
                    draw.randint(2, 48)) for _ in itertools.count())
    return list(itertools.islice((drawn for drawn in shapes if drawn.flops() <= MOST_FLOPS_DRAWN), number))


GRIDS = {
    "full": [shape(d, n, causal) for d in (64, 128) for causal in (False, True)
             for n in (512, 1024, 2048, 4096, 8192, 16384)],
    "short": [shape(d, n, causal) for d in (64, 128) for causal in (False, True) for n in (1024, 8192)],
    "ladder": [shape(128, 4096, False), shape(64, 4096, False)],
    "few": [shape(d, n, causal, batch=1, heads=heads) for d in (64, 128) for causal in (False, True)
            for heads in (4, 8, 32) for n in (1024, 2048, 4096, 8192)],
    "drawn": drawn_shapes(24),
    # many heads of K and V, few of them, one, as in common/operations/attention/operation.cpp; and others
    "decoding": [step_of_decoding(*of, d) for d in (64, 128) for of in
                 ((16, 64, 8, 8192), (8, 32, 32, 4096), (1, 32, 8, 8192), (1, 32, 8, 65536), (1, 8, 1, 1 << 20),
                  (16, 8, 8, 8192), (64, 32, 8, 1000), (3, 28, 4, 20000), (1, 16, 16, 2048))],
}
# the same, and some queries for each head: what the merge of parts is timed on
GRIDS["merge"] = GRIDS["decoding"] + [of for d in (64, 128) for of in (
    *(Shape(1, 32, 8, n, 8192, d, True) for n in (4, 16)), Shape(1, 16, 16, 16, 4096, d, True),
    step_of_decoding(4, 32, 8, 2000, d), Shape(2, 8, 1, 16, 100000, d, True))]
NEIGHBOURS = {1000: 1024, 4097: 4096}  # a length that is no multiple of a tile, and one that is: of the same batch
MORE = [*(shape(128, 4096, causal, heads=64, kv_heads=8) for causal in (False, True)),
        *(shape(256, 4096, causal) for causal in (False, True)),
        *(shape(d, n, causal, batch=16384 // neighbour) for d in (64, 128) for causal in (False, True)
          for odd, neighbour in NEIGHBOURS.items() for n in (odd, neighbour))]
SUSTAINED = [shape(128, n, False) for n in (4096, 16384)]


def sampled_rows(n, seed=1):
    """The queries of each head to check: all up to 2048, else the first and last of blocks of 64, and random ones."""
    if n <= 2048:
        return list(range(n))
    edges = {row for first in range(0, n, 64) for row in (first, min(first + 64, n) - 1)}
    return sorted(edges | set(random.Random(seed).sample(range(n), 512)))
