"""Causal attention: what its mask hides is skipped, the mask is not read, answers are right on CPUs and in the emulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.chains.generate import ChainProgram, generate_chain
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.families import parsed
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES, Triangle
from gensor_gym.dataflow.text import parse, text_of
from gensor_gym.frontends.aten.norms import softmax
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.networks.folding import with_triangles
from gensor_gym.operators.inputs import encode
from gensor_gym.operators.kinds.linear import gemm
from tests.support import gir_cases
from tests.support.apart import in_a_process_of_its_own
from tests.support.chain_gpu_cases import attention, causal_attention, random_kernels, ring_kernels
from tests.support.gir_cases import machine, planted
from tests.support.gir_gpu_cases import faults_of
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc


def test_triangles_are_recognised_by_their_elements() -> None:
    for rows, columns, diagonal in np.ndindex(5, 5, 5):
        matrix = np.where(seen := np.tri(rows + 1, columns + 1, diagonal, dtype=bool), 0.0, -np.inf)
        found = Triangle.of(encode(matrix[None], "bfloat16"), "bfloat16")
        is_one = rows > 0 and diagonal < columns
        assert found == (Triangle(diagonal, 0.0, -np.inf) if is_one else None)
        if found is not None:
            assert np.array_equal(found.array(matrix.shape), matrix) and found.visible(*matrix.shape) == np.count_nonzero(seen)
            assert Triangle.of(matrix[:, ::-1], "float32") is None or columns == 1
    other = np.tri(6, 6)
    other[5, 0] = 0.0
    assert Triangle.of(other, "float32") is None and Triangle.of(np.tri(6, 6, -1), "float32") is None
    assert Triangle.of(np.stack([np.tri(6, 6)] * 2), "float32") is None


def test_a_triangle_is_part_of_a_graph() -> None:
    """Of its text and digest, and of the work and the traffic that any kernel needs."""
    causal, plain = attention(64, 64, 16, mask="causal"), attention(64, 64, 16, mask="added")
    unknown = dataclasses.replace(causal, inputs=tuple(dataclasses.replace(one, triangle=None) for one in causal.inputs))
    assert parse(text_of(causal)) == dataclasses.replace(causal, label="")
    assert causal.digest != unknown.digest and repr(causal) != repr(unknown), "caches and stores tell them apart"
    assert 0.5 < causal.flops / plain.flops < 0.52
    assert plain.compulsory_bytes - causal.compulsory_bytes == 4 * 64 * 64
    with pytest.raises(ValueError, match="a diagonal of 0 or more"):
        parse(text_of(causal).replace("], 0, 0.0", "], -1, 0.0"))


def chain_with(between: str, half: str = "", size: int = 8) -> Dataflow:
    """A chain with a causal mask and something else between its products."""
    b, shape = Builder(), (size, size)
    b.half = half
    q, k, v = (b.input(name, shape, half or "float32") for name in "qkv")
    hidden = {"lowest": np.finfo(np.float32).min, "small": -1e9}.get(between, -np.inf)
    x, mask = b.contract(gemm(size, size, size), q, k), b.constant("mask", np.where(np.tri(size), 0.0, hidden))
    match between:
        case "capped":  # as in Gemma 2 (arXiv 2408.00118)
            x = softmax(b, b.call("add", b.call("tanh", x), mask), -1)
        case "lowest" | "small":
            x = softmax(b, b.call("add", x, mask), -1)
        case "scaled":
            x = softmax(b, b.map(of("multiply", of("add", x, mask), 0.125), "scaled"), -1)
        case "normed after":
            x = softmax(b, b.call("add", x, mask), -1)
            x = b.call("divide", x, b.repeat(b.call("sqrt", b.reduce(b.call("multiply", x, x), "sum", [-1])), shape))
        case "linear":
            x = b.call("multiply", x, b.call("exp", mask))
        case "normed before":
            x = softmax(b, b.call("add", b.call("multiply", x, b.repeat(b.mean(x, [-1]), shape)), mask), -1)
        case "turned":
            x = softmax(b, b.call("subtract", x, mask), -1)
        case "other columns":
            x = softmax(b, b.call("add", x, b.transpose(mask, (1, 0))), -1)
        case "shifted":
            x = b.call("add", softmax(b, b.call("add", x, mask), -1), 0.5)
    x = b.halved(x, half) if half else x
    return with_triangles(b.network("chain", [b.contract(gemm(size, size, size), x, v)])).graph


SKIP = "capped", "scaled", "normed after", "linear", "lowest"
NOT = "normed before", "turned", "other columns", "shifted", "small"


@pytest.mark.parametrize(("names", "diagonal"), [(SKIP, 0), (NOT, None)])
def test_columns_are_skipped_only_if_they_cannot_matter(names: Sequence[str], diagonal: int | None) -> None:
    assert {name: chain_of(chain_with(name)).diagonal for name in names} == dict.fromkeys(names, diagonal)


def without_mask(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs with a mask of NaN if the kernel should not read it."""
    values = kernel.operator.inputs
    unread = {value.name for value in values if chain_of(kernel.operator).diagonal is not None and value.triangle}
    return [np.full_like(array, np.nan) if one.name in unread else array for one, array in zip(values, inputs, strict=True)]


def c_kernels(graphs: Iterable[Dataflow], seed: int = 0) -> list[Kernel]:
    """Of each chain the C kernel of a random legal schedule, for one of three widths of vectors."""
    found = []
    for number, graph in enumerate(graphs):
        rng = np.random.default_rng([seed, number])
        space = ChainGraph(graph, machine(int(rng.choice((16, 8, 4)))))
        found.append(generate_chain(ChainProgram(space.chain, space.random_schedule(rng, 60), space.hardware)))
    return found


def c_faults(kernels: Sequence[Kernel]) -> dict[int, str]:
    """Of every wrong C kernel its number and what is wrong, between pages that nobody may touch."""
    found = dict[int, str]()
    for number, (kernel, entry) in enumerate(zip(kernels, gir_cases.entries_of(kernels), strict=True)):
        for draw in fused_draws(kernel.operator, 0)[:2]:
            if fault := draw.fault(gir_cases.called(kernel, entry, without_mask(kernel, draw.inputs))[0]):
                found[number] = f"{kernel.source.partition(' */')[0]}: {fault}"
    return found


def check_c(seeds: range) -> None:
    """No C kernel is wrong."""
    others = [chain_with(name, size=33) for name in SKIP] if not seeds.start else []
    assert c_faults(c_kernels([*(causal_attention(seed, ("", *HALVES)) for seed in seeds), *others], seeds.start)) == {}


CASES = [range(4), range(4, 8), *(range(start, start + 48) for start in range(8, 200, 48))]


@pytest.mark.parametrize("seeds", thorough_but(CASES, range(4)), ids=str)
def test_random_programs_are_right_on_cpus(seeds: range) -> None:
    in_a_process_of_its_own(__name__, f"check_c({seeds!r})")


@pytest.mark.parametrize("seeds", thorough_but(CASES, range(4)), ids=str)
def test_random_programs_are_right_on_gpus(seeds: range) -> None:
    """By mma.sync and, for every fourth, by wgmma."""
    others = [chain_with(name, "float16", 40) for name in SKIP] if not seeds.start else []
    graphs = [*map(causal_attention, seeds), *others]
    kernels = [*random_kernels(graphs, seeds.start), *ring_kernels(graphs[::4], seeds.start)]
    assert sum("seen_tiles" in kernel.source for kernel in kernels) > len(graphs)
    assert faults_of(kernels, change=without_mask) == {}


RIGHT = {
    "c": (attention(40, 50, 16, mask="causal", half=""), "vector=8 height=4 first=1 second=1 block=8 loop=1", "host"),
    "mma": (attention(77, 90, 24, 2, 2, 1, "causal"), "warps=2 keys=16 stages=2", "a100"),
    "wgmma": (
        attention(140, 330, 64, 2, 2, 1, "lower", "float16", diagonal=20),
        "warps=8 keys=64 stages=2 tensor=2 overlap=1", "h100",
    ),
}
"""Attention and schedules whose text the faults are planted in: rows and keys are no multiples of a tile."""
FAULTS: dict[str, tuple[str, str, str]] = {
    "diagonal tile not masked, C": ("c", r"triangle_8\(.*\);", "splat_8(0.0f);"),
    "off by one, C": ("c", r"(up_to_0_\d = .*) \+ 1;", r"\1;"),
    "one key too many, C": ("c", r"(up_to_0_\d = .*) \+ 1;", r"\1 + 2;"),
    "last columns skipped, C": ("c", r"\(row % 40 \+ \d+\)", "(row % 40 + 1)"),
    "columns of the nest skipped, C": ("c", r"least\(seen, (\d+)\); c \+=", r"least(seen - 8, \1); c +="),
    "diagonal tile not masked": ("mma", r"if \(key \+ KEYS - 1 > .*\) \{", "if (false) {"),
    "off by one": ("mma", r"column <= ", "column < "),
    "one key too many": ("mma", r"column <= ", "column - 1 <= "),
    "last tile skipped": ("mma", r"\+ DIAGONAL \+ KEYS - 1\)", "+ DIAGONAL - 1)"),
    "tile of other warps taken for whole": ("mma", r"> first_row \+ warp \* M_TILES \* 16", "> first_row + BLOCK_ROWS"),
    "diagonal of another tile": ("wgmma", r"const int key = tile \* KEYS;", "const int key = (tile - 1) * KEYS;"),
    "diagonal forgotten": ("wgmma", r"\+ 20 \? 1", "+ 0 ? 1"),
    "last tile skipped, wgmma": ("wgmma", r"\+ DIAGONAL \+ KEYS - 1\)", "+ DIAGONAL - 1)"),
}  # fmt: skip
"""What is wrong -> which kernel, pattern in its text, what is put in its place."""


def right(kind: str) -> Kernel:
    graph, words, name = RIGHT[kind]
    return generate(graph, parsed(graph, words), name)


def found_faults(kernels: Mapping[str, Kernel]) -> dict[str, str]:
    """Of the wrong ones among kernels of all kinds, what is wrong."""
    found = dict[str, str]()
    for faults, language in ((c_faults, "c"), (faults_of, "cuda")):
        names = [name for name, kernel in kernels.items() if kernel.language == language]
        found |= {names[number]: fault for number, fault in faults([kernels[name] for name in names]).items()}
    return found


def test_faults_are_caught() -> None:
    kernels = {fault: planted(right(kind), *change) for fault, (kind, *change) in FAULTS.items()}
    assert found_faults(kernels | {kind: right(kind) for kind in RIGHT}).keys() == FAULTS.keys()


def best(mask: str, name: str) -> tuple[float, Kernel]:
    """(predicted seconds, kernel) of the fastest program by the model."""
    graph = attention(2048, 2048, 128, 16, 16, 1, mask, "" if name == "epyc" else "bfloat16")
    space = (ChainGraph if name == "epyc" else GpuChainGraph)(graph, hardware.get(name))
    rows = next(space.enumerate())
    times = space.latencies(rows)
    return float(times.min()), generate(graph, space.schedule(rows[int(np.argmin(times))]), name)


@needs_nvrtc
@pytest.mark.parametrize(("name", "arch"), thorough_but([("a100", "sm_80"), ("h100", "sm_90a")], ("h100", "sm_90a")))
def test_half_of_the_time_is_left_and_nothing_spills(name: str, arch: str) -> None:
    """By the model, of long attention without a mask; NVRTC serialises no products."""
    (whole, _), (half, kernel) = best("", name), best("causal", name)
    assert 0.5 < half / whole < 0.6
    compiled = compile_cubin(kernel, arch)
    assert compiled.spill_bytes == 0 and compiled.loss == ""
