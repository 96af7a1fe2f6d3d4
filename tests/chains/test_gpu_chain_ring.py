"""Chains by wgmma on Hopper: random ones are right in the emulator, planted faults are found, NVRTC spills nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.cuda import sass
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.codegen.kernel import Kernel
from tests.support.chain_gpu_cases import attention, long_attention, mapped_chain, ring_kernels
from tests.support.gir_cases import planted
from tests.support.gir_gpu_cases import faults_of
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc


@pytest.mark.parametrize("seeds", thorough_but([range(4), *(range(s, s + 20) for s in range(4, 64, 20))], range(4)), ids=str)
def test_random_attention_is_right(seeds: range) -> None:
    """All attention of more than 32 rows and keys has a kernel, whose products overlap or not."""
    kernels = ring_kernels(map(long_attention, seeds), seeds.start)
    assert len(kernels) == len(seeds) and all(kernel.arch == "sm_90a" for kernel in kernels)
    assert faults_of(kernels) == {}


@pytest.mark.parametrize("seeds", thorough_but([range(6), range(6, 66)], range(6)), ids=str)
def test_random_chains_are_right(seeds: range) -> None:
    """Operands may lie in rows or columns, a nest may take several passes."""
    kernels = ring_kernels(map(mapped_chain, seeds), seeds.start)
    assert len(kernels) > len(seeds) // 4 and faults_of(kernels) == {}


RIGHT = {
    "apart": (attention(77, 150, 64, 4, 2, 1, "truth"), "warps=8 keys=64 stages=2 tensor=2"),
    "overlapped": (attention(77, 210, 64, 4, 2, 2, "added", "float16"), "warps=4 keys=64 stages=1 tensor=2 overlap=1"),
    "turns": (attention(140, 290, 64, 2, 2, 1, "", "float16"), "warps=12 keys=64 stages=2 tensor=2 overlap=2"),
}
"""Attention and schedules whose text the faults are planted in: three to five tiles of keys, the last one not whole."""
FAULTS: dict[str, tuple[str, str, str]] = {
    "running maximum not rescaled": ("apart", r"sums\[4 \* tile_out \+ 2 \* half \+ i\] \*= scale;", ""),
    "mask off by one": ("apart", r"(t_mask_at\d\[tile_m\]\[i / 2\] \+ column)", r"\1 + (column > 0 ? -1 : 0)"),
    "wrong group of shared keys": ("apart", r"(load_box.*first_map.*)element / 2 % 2", r"\1element % 2"),
    "tile read before it is there": ("apart", r"barrier_wait\(first_full.*", ""),
    "tile overwritten while it is read": ("overlapped", r"barrier_wait\(second_empty.*", ""),
    "parity of the ring does not change": ("apart", r"second_parity \^= 1;", ""),
    "products not awaited": ("overlapped", r"wgmma_wait<1>\(\);", "wgmma_wait<2>();"),
    "weights changed while they are multiplied": ("overlapped", r"wgmma_wait<0>\(\);\n( *settle\(sums\))", r"\1"),
    "rows read before they are there": ("apart", r"barrier_wait\(left_full, 0\);", ""),
    "places are taken before they are free": ("overlapped", r"unsigned first_parity = 1;", "unsigned first_parity = 0;"),
    "sums of the tile before not rescaled": ("overlapped", r"sums\[4 \* tile_out \+ 2 \* half \+ i\] \*= scale.*", ""),
    "keys past the last one": ("overlapped", r"column < COLUMNS \? (v_\w+) : -INFINITY", r"\1"),
    "no fence before products": ("apart", r"wgmma_fence\(\);(\n.*\n.*point < KEY_TILES)", r"\1"),
    "too few bytes announced": ("apart", r"(_bytes\(ready, FIRST_BYTES)", r"\1 / 2"),
    "given back before the products are done": (
        "apart", r"(wgmma_wait<0>\(\);\n *settle\(scores\);)\n( *if \(lane == 0\).*)", r"\2\n\1",
    ),
    "nobody has a turn": ("turns", r"unsigned turn = consumer == 0;", "unsigned turn = 0;"),
    "a turn is not passed on": ("turns", r"if \(lane == 0\) barrier_arrive\(turns.*", ""),
    "rows of another consumer": ("apart", r"tiles \+ warp / 4 \* 8192", "tiles"),
    "point of another panel": ("apart", r"seconds \+ second_stage \* SECOND_BYTES \+ point \* 2048", "seconds + point * 2048"),
}  # fmt: skip
"""What is wrong -> which kernel, pattern in its text, what is put in its place."""
QUICK = list(FAULTS)[:8]
"""The running maximum, masks, groups, barriers, parity, waits."""


def right(kind: str) -> Kernel:
    graph, words = RIGHT[kind]
    return generate(graph, GpuChainSchedule.parse(words), "h100")


@pytest.mark.parametrize("faults", thorough_but([QUICK, list(FAULTS)[8:]], QUICK), ids=len)
def test_faults_are_caught(faults: Sequence[str]) -> None:
    found = faults_of([planted(right(FAULTS[fault][0]), *FAULTS[fault][1:]) for fault in faults])
    assert [fault for number, fault in enumerate(faults) if number not in found] == []


def test_what_has_no_fault_passes() -> None:
    assert faults_of([right(kind) for kind in RIGHT]) == {}


@needs_nvrtc
@pytest.mark.parametrize("seeds", thorough_but([range(4), range(4, 44)], range(4)), ids=str)
def test_random_programs_spill_nothing(seeds: range) -> None:
    """Nor are their wgmma instructions serialised."""
    rng = np.random.default_rng(seeds.start)
    lengths = (96, 100, 256, 1000)
    graphs = [
        attention(*rng.choice(lengths, 2).tolist(), size, 8, 4, 1, str(rng.choice(("", "added", "keys", "truth"))), wide=wide)
        for size, wide in rng.choice((48, 64, 80, 128, 256), (len(seeds), 2)).tolist()
    ]  # fmt: skip
    kernels = ring_kernels(graphs, seeds.start)
    assert len(kernels) > len(seeds) // 2 and {compile_cubin(kernel).loss for kernel in kernels} == {""}


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize(("size", "mask"), thorough_but([(64, ""), (64, "added"), (128, ""), (128, "truth")], (128, "truth")))
def test_powers_are_computed_while_products_run(size: int, mask: str) -> None:
    """In machine code the powers of a tile lie between the wait for its scores and that for the products of the tile before."""
    graph = attention(2048, 2048, size, 8, 8, 1, mask)
    kernel = generate(graph, GpuChainSchedule.parse("warps=8 keys=128 stages=2 tensor=2 overlap=1"), "h100")
    loop = sass.main_loop(compile_cubin(kernel).cubin).operations
    waits = [place for place, name in enumerate(loop) if name.startswith("WARPGROUP.DEPBAR")]
    powers = [place for place, name in enumerate(loop) if name.startswith("MUFU.EX2")]
    assert len(powers) >= 64
    assert sum(waits[0] < place < waits[1] for place in powers) >= 64


@pytest.mark.parametrize(
    ("machine", "size", "words"),
    [("a100", 64, "takes sm_90"), ("h100", 20, "rows at multiples of 16 bytes")],
)
def test_operands_that_no_map_describes_are_refused(machine: str, size: int, words: str) -> None:
    """Heads of 20 elements begin at multiples of 40 bytes; such chains are left to mma.sync."""
    graph = attention(96, 96, size)
    rows = next(GpuChainGraph(graph, hardware.get(machine)).enumerate())
    assert (GpuChainSchedule.columns(rows)["tensor"] == 1).all()
    with pytest.raises(ValueError, match=words):
        generate(graph, GpuChainSchedule.parse("warps=4 keys=64 tensor=2"), machine)


def test_long_attention_is_by_wgmma_and_faster() -> None:
    """By the model. FlashAttention-3 has 1.5 to 2 times the rate of FlashAttention-2 (arXiv 2407.08608, abstract, recalled)."""
    space = GpuChainGraph(attention(4096, 4096, 128, 8, 8, 4), hardware.get("h100"))
    rows = next(space.enumerate())
    wide, times = GpuChainSchedule.columns(rows)["tensor"] == 2, space.latencies(rows)
    assert 1.5 < times[~wide].min() / times[wide].min() < 2.0
