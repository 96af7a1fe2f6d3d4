"""Clusters of wgmma kernels: right in the emulator, whose two blocks lag behind each other, and as NVRTC wants them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import (
    TINY,
    assert_compiles_well,
    compile_well,
    faults,
    faults_of,
    gemm,
    legal_kernels,
    needs_nvrtc,
    planted_show,
    right,
    wgmma_kernel,
)

CASES = {
    "even": [  # two tiles along m, or four
        wgmma_kernel(gemm(70, 72, 200), [64, 64], [64, 64], stages=1, cluster=2),
        wgmma_kernel(gemm(150, 40, 72, "float16"), [64, 40], [128, 40], stages=4, cluster=2),
        wgmma_kernel(gemm(200, 200, 392, "bfloat16", "bias", "gelu", "residual"), [64, 96], [64, 192], stages=3, cluster=2),
        wgmma_kernel(gemm(250, 264, 64), [64, 64], [64, 128], stages=5, raster=4, cluster=2),
    ],
    "odd": [  # three tiles along m: one block has none
        wgmma_kernel(gemm(130, 136, 328), [64, 64], [64, 128], stages=2, cluster=2),
        wgmma_kernel(gemm(192, 72, 136, "float16", "scale"), [64, 72], [64, 72], stages=3, cluster=2),
        wgmma_kernel(gemm(300, 200, 136, "float16", "bias", "relu"), [64, 64], [128, 64], stages=2, raster=4, cluster=2),
    ],
    "persistent": [
        wgmma_kernel(gemm(300, 200, 136), [64, 64], [64, 64], TINY, stages=3, persistent=1, raster=4, cluster=2),
        wgmma_kernel(gemm(128, 264, 72), [64, 128], [64, 128], TINY, stages=2, persistent=1, cluster=2),
        wgmma_kernel(
            operators.batched_gemm(3, 130, 72, 136, dtype="bfloat16"), [64, 64], [64, 64], TINY, stages=1, persistent=1, cluster=2
        ),
    ],
    "batched and split": [
        wgmma_kernel(operators.batched_gemm(2, 130, 136, 88, dtype="float16"), [64, 64], [64, 64], stages=2, raster=2, cluster=2),
        wgmma_kernel(gemm(130, 72, 328, "bfloat16", "bias", "relu"), [64, 64], [64, 64], stages=2, split_k=4, cluster=2),
        wgmma_kernel(gemm(70, 136, 200), [64, 64], [64, 64], TINY, stages=3, split_k=2, persistent=1, cluster=2),
    ],
}

MASK = " & 0x3fff"
"""What leaves 14 bits of an address for the field of a matrix descriptor."""


test_products_are_right = right(CASES, "odd")


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(CASES, "even"))
def test_addresses_that_are_not_cut_to_their_field_fail(name: str) -> None:
    """The text before its mask gave wrong answers on an H100: the rank ran into the leading offset of B's panels."""
    uncut = [replace(kernel, source=kernel.source.replace(MASK, "")) for kernel in CASES[name]]
    assert all(kernel.source.count(MASK) == 2 for kernel in CASES[name])
    found = faults(uncut)
    assert len(found) == len(uncut)
    assert all("have bits of the address run into it" in fault for fault in found), found
    assert all(int(re.findall(r"block (\d+),", fault)[0]) % 2 == 1 for fault in found), "only that of the cluster's second block"


def test_launches_are_whole_clusters() -> None:
    """The launch says what the text says, for the first kernel alone; persistent blocks are whole clusters as well."""
    (plain,) = CASES["odd"][0].launches
    assert plain.grid == (2 * 2 * 2, 1, 1) and plain.cluster == 2  # three tiles along m take four blocks
    assert "__cluster_dims__(2, 1, 1)" in CASES["odd"][0].source
    assert CASES["persistent"][0].launches[0].grid == (2, 1, 1)  # three fit a multiprocessor
    main, finish = CASES["batched and split"][1].launches
    assert (main.cluster, finish.cluster) == (2, 1)
    assert CASES["batched and split"][1].source.count("__cluster_dims__") == 1


def test_a_cluster_copies_b_once() -> None:
    """Half the rows of a panel in a box; bytes announced are those of the whole stage."""
    kernel, alone = (wgmma_kernel(gemm(256, 128, 128), [64, 128], [64, 128], stages=2, cluster=c) for c in (2, 1))
    assert kernel.maps[0] == alone.maps[0]
    assert (kernel.maps[1].box, alone.maps[1].box) == ((32, 64), (64, 64))
    assert "barrier_expect_bytes(ready, STAGE_BYTES)" in kernel.source
    assert len(re.findall(r"multicast_box_2d\(b_share", kernel.source)) == 2


DAMAGED = wgmma_kernel(gemm(130, 64, 520), [64, 64], [64, 64], TINY, stages=2, persistent=1, cluster=2)
"""Two turns of one cluster: three tiles, nine steps each through two stages."""

FIRST, LAST, LOOP = "cluster_sync();\n  const", "cluster_sync();  // until", "step < STEPS; ++step) {\n        const"
OWN = ("cluster_arrive(empty + before * 8, lane)", "cluster_arrive(empty + before * 8, blockIdx.x % CLUSTER)")
FAULTS: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "no remote arrive": ((("lane < CLUSTER && step > 0", "lane == blockIdx.x % CLUSTER && step > 0"),), "deadlock"),
    "all arrive at one block": (((OWN[0], "cluster_arrive(empty + before * 8, 0)"),), "more arrivals|deadlock"),
    "a block does not wait for the other": (
        (OWN, ("lane < CLUSTER", "lane == 0"), ("CONSUMER_WARPS = 8", "CONSUMER_WARPS = 4")),
        "wrong|more arrivals|deadlock|block ends|has ended",
    ),
    "arrivals of one block expected": ((("CONSUMER_WARPS = 8", "CONSUMER_WARPS = 4"),), "more arrivals|wrong|deadlock"),
    "no barrier at the end": (((LAST, "// until"),), "the block ends|has ended"),
    "the block's own barrier at the start": (((FIRST, "__syncthreads();\n  const"),), "says that it has begun"),
    "no barrier at the start": (((FIRST, "const"),), "not initialised|before a fence|says that it has begun"),
    "the block's own barrier at the end": (((LAST, "__syncthreads();  // until"),), "barrier divergence"),
    "one block does not wait at the end": (((LAST, f"if (rank == 0) {LAST}"),), "the block ends|has ended"),
    "mask without the other": ((("EVERY_BLOCK = 3", "EVERY_BLOCK = 1"),), "deadlock"),
    "mask of four blocks": ((("EVERY_BLOCK = 3", "EVERY_BLOCK = 15"),), "a block that the cluster does not have"),
    "the other's share": ((("b_tile + rank *", "b_tile + (1 - rank) *"),), "wrong"),
    "rows of the first share": ((("step * STEP_K + rank * (STEP_K / CLUSTER)", "step * STEP_K"),), "wrong"),
    "bytes of its own copies": ((("(ready, STAGE_BYTES)", "(ready, A_BYTES + PANEL_BYTES / CLUSTER)"),), "."),
    "no multicast": ((("multicast_box_2d(b_share, B_map, ready, EVERY_BLOCK", "load_box_2d(b_share, B_map, ready"),), "deadlock"),
    "one tile for both": ((("* CLUSTER + rank) * BLOCK_M", "* CLUSTER) * BLOCK_M"),), "wrong"),
    "tiles of other clusters": ((("work += gridDim.x / CLUSTER", "work += gridDim.x"),), "wrong"),
    "no guard": ((("if (out_m < 130) {", "{"),), "heap-buffer-overflow|exit status"),  # by default without sanitizers
    "a block without a tile stays away": (((LOOP, LOOP.replace("STEPS;", "STEPS && block_m < 130;")),), "deadlock"),
}

QUICK = (
    "no remote arrive", "arrivals of one block expected", "no barrier at the end", "no barrier at the start",
    "mask of four blocks", "one tile for both",
)  # fmt: skip
"""Faults that are planted by default; kernels of others are compiled where they are asked for."""


@pytest.fixture(scope="module")
def damaged(planted: list[str]) -> Iterator[EmulatedKernels]:
    """The sound kernel, then one with each fault that is asked for."""
    sources = [DAMAGED.source]
    for changes, _ in (FAULTS[name] for name in planted):
        sources.append(DAMAGED.source)
        for old, new in changes:
            main = sources[-1].index('extern "C"')
            assert old in sources[-1][main:], old
            sources[-1] = sources[-1][:main] + sources[-1][main:].replace(old, new)
    with EmulatedKernels([replace(DAMAGED, source=source) for source in sources]) as program:
        assert faults_of(program, 0, seeds=3) == []
        yield program


test_planted_faults_are_caught = planted_show(FAULTS, *QUICK)


def test_the_emulator_refuses_clusters_that_do_not_divide_the_grid() -> None:
    """As the driver does."""
    (launch,) = DAMAGED.launches
    broken = replace(DAMAGED, launches=(replace(launch, grid=(3, 1, 1)),))
    assert "that divide the grid" in faults([broken])[0]


def test_a_cluster_needs_a_tile_for_each_block() -> None:
    """Two along m."""
    with pytest.raises(ValueError, match="1 tiles along m: a cluster takes 2"):
        wgmma_kernel(gemm(64, 512, 512), [64, 64], [64, 64], cluster=2)


@pytest.mark.thorough
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, and is right."""
    rng = np.random.default_rng(5)
    small = operators.batched_gemm(2, 192, 136, 200, dtype="float16").with_epilogue("bias", "relu")
    kernels = legal_kernels(small, 5, rng, cluster=2)
    assert all(kernel.launches[0].cluster == 2 for kernel in kernels)
    assert faults(kernels) == []
    assert len(legal_kernels(gemm(2048, 2048, 2048), 40, rng, cluster=2)) == 40


MENU = {
    "128x256": wgmma_kernel(gemm(8192, 8192, 8192), [64, 256], [128, 256], stages=4, persistent=1, raster=16, cluster=2),
    "256x128": wgmma_kernel(gemm(8192, 8192, 8192, "float16"), [128, 128], [256, 128], stages=4, persistent=1, cluster=2),
    "128x128": wgmma_kernel(gemm(4000, 4040, 4000, "float16", "bias", "gelu"), [64, 128], [128, 128], stages=4, cluster=2),
}

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU)


@pytest.mark.thorough
@needs_nvrtc
def test_nvrtc_takes_legal_schedules() -> None:
    """A cubin without spills or warnings."""
    kernels = legal_kernels(gemm(2048, 2048, 2048), 8, np.random.default_rng(6), cluster=2)
    for kernel in [*kernels, *CASES["batched and split"]]:
        assert_compiles_well(kernel)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
def test_machine_code_has_multicast_and_cluster_barriers() -> None:
    """Copies of B are multicasts, those of A are not."""
    cubin = nvrtc.compile_cubin(MENU["128x256"]).cubin
    (lines,) = sass.instructions(sass.disassemble(cubin)).values()
    names = Counter(line.partition(" ")[0] for line in lines)
    loads = {name: count for name, count in names.items() if name.startswith("UTMALDG")}
    shared = sum(count for name, count in loads.items() if "MULTICAST" in name)
    assert shared > 0 and shared * 5 == 4 * sum(loads.values())  # four panels of B to a box of A
    assert any(name.startswith("UCGABAR") for name in names)
    assert sass.main_loop(cubin).counts["HGMMA"] % 4 == 0
    assert sass.main_loop(cubin).counts["MEMBAR"] == 0  # .release.cluster of a remote arrive would put two into every step
