"""Chains of products of 16 bits on GPUs: random ones, and attention as networks have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gensor_gym import hardware
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.frontends.aten.norms import softmax
from gensor_gym.frontends.builder import Builder
from gensor_gym.networks.folding import with_triangles
from gensor_gym.operators.kinds.linear import batched_gemm
from tests.support.chain_cases import ChainDraw

MACHINES = ("a100", "rtx4090", "h100")


class HalfChain(ChainDraw):
    """One random chain of 16-bit matrices whose weights are rounded: `graph`."""

    def _between(self, x: str, rows: int, columns: int) -> str:
        made = super()._between(x, rows, columns)
        return self.b.halved(made, self.b.half)


class MappedChain(HalfChain):
    """One whose extents tensor maps can describe, if the axes lie so: rows of multiples of 16 bytes."""

    extents = (40, 72, 96, 136, 200)


def random_chain(seed: int) -> Dataflow:
    """The random chain of a seed."""
    return HalfChain(seed, half=HALVES[seed % 2]).graph


def mapped_chain(seed: int) -> Dataflow:
    """The random chain of a seed with extents for tensor maps."""
    return MappedChain(seed, half=HALVES[seed % 2]).graph


def random_kernels(graphs: Iterable[Dataflow], seed: int = 0) -> list[Kernel]:
    """Of each chain the kernel of a random legal schedule, for one of three machines in turn.

    Few have something between their products that no row nest says, as where a row has one column.
    """
    found = []
    for number, graph in enumerate(graphs):
        rng = np.random.default_rng([seed, number])
        try:
            space = GpuChainGraph(graph, hardware.get(MACHINES[number % len(MACHINES)]))
        except ValueError as error:
            assert "between the products" in str(error) or str(error).startswith("middle"), error
            continue
        found.append(generate(graph, space.random_schedule(rng), space.hardware))
    return found


def ring_kernels(graphs: Iterable[Dataflow], seed: int = 0) -> list[Kernel]:
    """Of each chain that has one the kernel of a random legal schedule with wgmma, with overlap in turn if one has that."""
    found = []
    for number, graph in enumerate(graphs):
        rng = np.random.default_rng([seed, number])
        try:
            space = GpuChainGraph(graph, hardware.get("h100"))
        except ValueError:
            continue
        rows = next(space.enumerate())
        header = GpuChainSchedule.columns(rows)
        wide = header["tensor"] == 2
        if not wide.any():
            continue
        wanted = wide & (header["overlap"] == number % 3)
        rows = rows[wanted if wanted.any() else wide]
        found.append(generate(graph, space.schedule(rows[rng.integers(len(rows))]), space.hardware))
    return found


def attention(
    rows: int, keys: int, size: int, heads: int = 2, own: int = 2, batch: int = 1, mask: str = "", half: str = "bfloat16",
    wide: int = 0, diagonal: int = 0,
) -> Dataflow:  # fmt: skip
    """softmax(q k^T / sqrt(size) + mask) v with `own` heads of keys and values, values of `wide` elements (0: `size`).

    Heads lie beside one another in each row. A mask is `added` [rows, keys], a number for every key of each element of the batch
    (`keys`), or `truth`: of bools, where the score is minus infinity if it is 0. The constant masks `causal` (added) and `lower`
    (1 or 0) show row r the keys up to r + `diagonal`. Without `half` all is float32.
    """
    b, wide = Builder(), wide or size
    b.half = half
    q, k, v = (
        _heads(b, b.input(name, (batch, length, count * width), half or "float32"), count, width, heads)
        for name, length, count, width in (("q", rows, heads, size), ("k", keys, own, size), ("v", keys, own, wide))
    )
    turned = b.transpose(k, (0, 2, 1))
    x = b.reshape(b.contract(batched_gemm(batch * heads, rows, keys, size), q, turned), (batch, heads, rows, keys))
    x = b.call("multiply", x, size**-0.5)
    seen = np.tri(rows, keys, diagonal, dtype=bool)
    if mask == "causal":
        x = b.call("add", x, b.constant("mask", np.where(seen, 0.0, -np.inf)))
    elif mask == "lower":
        x = b.call("where", b.constant("mask", seen), x, -np.inf)
    elif mask == "truth":
        x = b.call("where", b.input("mask", (rows, keys), "bool"), x, -np.inf)
    elif mask:
        x = b.call("add", x, b.input("mask", (rows, keys) if mask == "added" else (batch, 1, 1, keys)))
    made = softmax(b, x, -1)
    weights = b.reshape(b.halved(made, half) if half else made, (batch * heads, rows, keys))
    made = b.contract(batched_gemm(batch * heads, rows, wide, keys), weights, v)
    out = b.transpose(b.reshape(made, (batch, heads, rows, wide)), (0, 2, 1, 3))
    return with_triangles(b.network("attention", [out])).graph


def _heads(b: Builder, name: str, own: int, size: int, heads: int) -> str:
    """Rows of `own` heads beside one another as one matrix for each of `heads` heads."""
    batch, rows, _ = b.shapes[name]
    apart = b.reshape(b.transpose(b.reshape(name, (batch, rows, own, size)), (0, 2, 1, 3)), (batch, own, 1, rows, size))
    return b.reshape(b.repeat(apart, (batch, own, heads // own, rows, size)), (batch * heads, rows, size))


def long_attention(seed: int) -> Dataflow:
    """Attention of random sizes that have several tiles with wgmma."""
    return random_attention(seed, (40, 77, 150, 210, 330))


def causal_attention(seed: int, halves: Sequence[str] = HALVES) -> Dataflow:
    """Causal attention of random lengths, diagonals, sizes, groups and types."""
    rng = np.random.default_rng([seed, 10])
    rows, keys = (int(rng.choice((7, 16, 40, 77, 128, 150, 210))) for _ in range(2))
    size, wide = (int(rng.choice((8, 24, 32, 64, 128))) for _ in range(2))
    own, groups = (int(rng.choice((1, 2))) for _ in range(2))
    diagonal = min(keys - 2, int(rng.choice((0, 0, 1, 20, 70))))
    mask, half = str(rng.choice(("causal", "lower"))), str(rng.choice(halves))
    return attention(rows, keys, size, own * groups, own, int(rng.choice((1, 2))), mask, half, wide, diagonal)


def random_attention(seed: int, lengths: Sequence[int] = (1, 16, 40, 77, 128, 150)) -> Dataflow:
    """Attention of random sizes, types, masks and groups."""
    rng = np.random.default_rng([seed, 9])
    rows, keys = (int(rng.choice(lengths)) for _ in range(2))
    size, wide = (int(rng.choice((8, 24, 32, 64, 80, 96, 128))) for _ in range(2))
    own, groups = (int(rng.choice((1, 2, 3))) for _ in range(2))
    mask, half = str(rng.choice(("", "added", "keys", "truth"))), str(rng.choice(HALVES))
    return attention(rows, max(keys, 2), size, own * groups, own, int(rng.choice((1, 2))), mask, half, wide)
