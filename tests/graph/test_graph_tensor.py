"""Tensor-core programs in the graph: roles of axes, legality against the oracle, and that construction reaches them."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.graph import resources
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.matrices.choices import instruction_k, tensor_core_choices
from gensor_gym.graph.structure import MatrixAxes, matrix_axes
from gensor_gym.graph.tables.layout import LEVEL
from gensor_gym.graph.tables.tables import KNOB_BITS
from tests.support.graph_walks import TENSOR, climbed, graph_of, moved, of_damaged, tensor_start, walk
from tests.support.oracle import Oracle
from tests.support.thorough import thorough_but


@pytest.mark.parametrize(
    ("operator", "roles"),
    [
        ("gemm(m=64, n=48, k=40)", MatrixAxes(0, 1, 0, 1, 2)),
        ("batched_gemm(b=3, m=16, n=40, k=24)", MatrixAxes(0, 1, 1, 2, 3)),
        ("conv2d(n=2, c=8, h=14, w=14, k=32, r=3, s=3)", MatrixAxes(1, 0, 1, 3, 4)),
        ("conv2d(n=2, c=8, h=14, w=14, k=32, r=3, s=3, groups=2)", MatrixAxes(1, 0, 2, 4, 5)),
        ("gemv(m=100, k=333)", None),
        ("depthwise_conv2d(n=2, c=6, h=20, w=20, r=3, s=3)", None),
        ("reduce_sum(m=64, k=4000)", None),
        ('elementwise("add", 3, 5)', None),
    ],
)
def test_roles_of_axes(operator: str, roles: MatrixAxes | None) -> None:
    assert matrix_axes(operators.parse(operator)) == roles


@pytest.mark.parametrize(
    ("operator", "choices"),
    [
        ("gemm(m=64, n=64, k=64)", {"h200": (0,), "a100": (0,), "t4": (0,)}),
        ('gemm(m=64, n=64, k=64, dtype="float16")', {"h200": (0, 1, 2), "a100": (0, 1), "t4": (0, 1), "v100": (0,)}),
        ('gemm(m=64, n=64, k=64, dtype="bfloat16")', {"h200": (0, 1, 2), "a100": (0, 1), "t4": (0,)}),
        ('gemm(m=64, n=64, k=64, dtype="int8")', {"h200": (0, 1), "t4": (0, 1), "host": (0,)}),  # a step is 128 of them
        ('gemm(m=64, n=61, k=128, dtype="int8")', {"h200": (0, 1, 2), "a100": (0, 1), "t4": (0, 1), "host": (0,)}),
        ('gemm(m=64, n=61, k=136, dtype="int8")', {"h200": (0, 1)}),  # rows of A of 136 bytes have no tensor map
        ('gemm(m=64, n=8, k=128, dtype="int8")', {"h200": (0, 1)}),
        ('gemm(m=64, n=7, k=32, dtype="tf32")', {"h200": (0, 1, 2), "a100": (0, 1), "t4": (0,)}),
        ('gemm(m=64, n=64, k=30, dtype="tf32")', {"h200": (0, 1)}),
        ('gemm(m=64, n=64, k=64, dtype="tf32x3")', {"h200": (0, 1)}),
        ('batched_gemm(b=3, m=64, n=9, k=36, dtype="tf32")', {"h200": (0, 1, 2)}),
        ('conv2d(n=2, c=64, h=14, w=14, k=64, r=3, s=3, dtype="tf32")', {"h200": (0, 1, 2)}),
        ('conv2d(n=2, c=16, h=14, w=14, k=64, r=1, s=1, dtype="tf32")', {"h200": (0, 1, 2)}),
        ('conv2d(n=2, c=128, h=14, w=14, k=64, r=3, s=3, dtype="int8")', {"h200": (0, 1, 2)}),
        ('conv2d(n=2, c=64, h=9, w=9, k=64, r=3, s=3, dtype="int8")', {"h200": (0, 1, 2)}),  # two rows of eight pixels
        ('conv2d(n=1, c=64, h=3, w=9, k=64, r=3, s=3, dtype="int8")', {"h200": (0, 1)}),
        ('conv2d(n=2, c=56, h=14, w=14, k=64, r=3, s=3, dtype="int8")', {"h200": (0, 1)}),  # under half a step
        ('conv2d(n=2, c=128, h=14, w=14, k=64, r=3, s=3, dtype="float8_e4m3fn")', {"h200": (0, 1, 2), "rtx4090": (0, 1)}),
        ('gemm(m=64, n=61, k=128, dtype="float8_e4m3fn")', {"h200": (0, 1, 2), "rtx4090": (0, 1), "a100": (0,), "host": (0,)}),
        ('gemm(m=64, n=60, k=64, dtype="float16")', {"h200": (0, 1)}),  # rows of B of 120 bytes have no tensor map
        ('gemm(m=64, n=60, k=68, dtype="float16")', {"h200": (0, 1)}),  # rows of A of 136 bytes have no tensor map
        ('gemm(m=64, n=60, k=64, dtype="float16", weights="nk")', {"h200": (0, 1, 2), "a100": (0, 1)}),
        ('gemm(m=64, n=60, k=68, dtype="float16", weights="nk")', {"h200": (0, 1)}),
        ('gemm(m=8, n=64, k=64, dtype="float16")', {"h200": (0, 2), "a100": (0,)}),
        ('gemm(m=3, n=64, k=64, dtype="float16")', {"h200": (0, 2), "a100": (0,)}),
        ('gemm(m=8, n=64, k=48, dtype="float16")', {"h200": (0,)}),
        ('gemm(m=64, n=64, k=24, dtype="int8")', {"h200": (0, 1), "t4": (0, 1)}),
        ('gemm(m=40, n=64, k=64, dtype="float16")', {"h200": (0, 1, 2)}),
        ('conv2d(n=1, c=64, h=8, w=8, k=64, r=3, s=3, padding=1, dtype="int8")', {"h200": (0, 1, 2), "t4": (0, 1)}),
        ('conv2d(n=1, c=64, h=8, w=8, k=64, r=3, s=3, padding=1, dtype="int8", pad_value=7)', {"h200": (0,), "t4": (0,)}),
    ],
)
def test_choices_of_tensor_cores(operator: str, choices: dict[str, tuple[int, ...]]) -> None:
    op = operators.parse(operator)
    for machine, expected in choices.items():
        assert tensor_core_choices(op, hardware.get(machine)) == expected


def test_an_instruction_that_is_not_there_is_refused() -> None:
    op = operators.parse('gemm(m=64, n=64, k=64, dtype="bfloat16")')
    for dtype, depth in (("tf32", 8), ("int8", 32)):
        assert instruction_k(operators.gemm(128, 128, 128, dtype=dtype), hardware.get("h200"), 2) == depth
    assert instruction_k(op, hardware.get("h200"), 2) == 16
    for machine, value in (("t4", 1), ("a100", 2), ("h200", 0)):
        with pytest.raises(ValueError, match=f"tensor_core={value}"):
            instruction_k(op, hardware.get(machine), value)


@pytest.mark.parametrize("operator", thorough_but(TENSOR, *TENSOR[::3]))
@pytest.mark.parametrize("machine", ["h200", "t4"])
def test_masks_and_resources_are_the_oracles(operator: str, machine: str) -> None:
    graph = graph_of(operator, machine, "extended")
    if tensor_core_choices(graph.operator, graph.hardware) == (0,):
        assert graph.operator.dtype in ("bfloat16", "tf32") and machine == "t4"
        return
    rng, oracle, ints = np.random.default_rng(31), Oracle(graph.operator, graph.hardware, "extended"), graph.tables.ints
    cores = set()
    for _ in range(3):
        for schedule in list(walk(graph, rng, 60, tensor_start(graph)))[::6]:
            state, row = oracle.read(schedule), schedule.row
            cores.add(state.knob("tensor_core"))
            assert graph.action_mask(schedule).tolist() == oracle.mask(state), str(schedule)
            assert resources.threads_of(row, ints) == oracle.threads(state)
            assert resources.registers_of(row, ints) == oracle.registers(state)
            assert resources.shared_bytes_of(row, ints) == oracle.shared_bytes(state)
    assert 1 in cores


@pytest.mark.parametrize("operator", TENSOR)
def test_legality_of_damaged_schedules_is_the_oracles(operator: str) -> None:
    rng, graph = np.random.default_rng(32), graph_of(operator, "h200", "extended")
    schedules, values = list(walk(graph, rng, 60, tensor_start(graph)))[::4], (0, 1, 2, 3, 8, 16, 24, 32, 64, 128)
    verdicts = of_damaged(graph, schedules, 20, values, rng)
    assert 0.02 < np.mean(verdicts) < 0.98


def test_construction_reaches_large_warp_tiles() -> None:
    """Single legal moves lead to warp tiles of 64 x 64 x 32 by mma.sync."""
    graph = ConstructionGraph('gemm(m=4096, n=4096, k=4096, dtype="float16")', "a100", space="extended")
    schedule = tensor_start(graph)
    for slot, length in ((3, 64), (4, 64), (5, 32)):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot, n=length: s.tile[0][at] == n)
    schedule = climbed(graph, schedule, "cache", lambda s: s.level == 1)
    for slot, length in ((3, 128), (4, 256)):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot, n=length: s.tile[1][at] == n)
    schedule = climbed(graph, schedule, "raise[stages]", lambda s: s.knob("stages") == 3)
    assert graph.is_legal(schedule) and schedule.knob("tensor_core") == 1
    assert resources.threads_of(plain(schedule.row), graph.tables.ints) == 8 * 32
    assert resources.registers_of(plain(schedule.row), graph.tables.ints) == 40 + 128 + 32


def test_construction_reaches_wgmma() -> None:
    """From mma.sync on: a warpgroup's tile of 64 x 256 with steps of one swizzle row, two of them, four stages, persistent."""
    graph = ConstructionGraph('gemm(m=4096, n=4096, k=4096, dtype="bfloat16")', "h200", space="extended")
    schedule = tensor_start(graph)
    for slot in (3, 5):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot: s.tile[0][at] == 64)
    assert moved(graph, schedule, "raise[persistent]") is None
    schedule = climbed(graph, schedule, "raise[tensor_core]", lambda s: s.knob("tensor_core") == 2)
    assert moved(graph, schedule, "tile[5]") is None and moved(graph, schedule, "inverse_tile[5]") is None
    schedule = climbed(graph, schedule, "tile[4]", lambda s: s.tile[0][4] == 256)
    assert moved(graph, schedule, "tile[4]") is None
    schedule = climbed(graph, schedule, "cache", lambda s: s.level == 1)
    schedule = climbed(graph, schedule, "tile[3]", lambda s: s.tile[1][3] == 128)
    schedule = climbed(graph, schedule, "raise[stages]", lambda s: s.knob("stages") == 4)
    schedule = climbed(graph, schedule, "raise[persistent]", lambda s: s.knob("persistent") == 1)
    ints = graph.tables.ints
    assert graph.is_legal(schedule) and schedule.row[LEVEL] == 1
    assert resources.threads_of(plain(schedule.row), ints) == 384 and resources.registers_of(plain(schedule.row), ints) == 168
    assert resources.shared_bytes_of(plain(schedule.row), ints) == 1024 + 4 * (128 * 128 + 64 * 512 + 16)


@pytest.mark.parametrize("operator", TENSOR[:2])
def test_clusters_have_a_tile_along_m_for_every_block(operator: str) -> None:
    """Where there are not two tiles the knob stays at 1, and tiles do not grow past that; masks along walks are the oracle's."""
    graph = graph_of(operator, "h200", "extended")
    rng, oracle, found = np.random.default_rng(34), Oracle(graph.operator, graph.hardware, "extended"), []
    schedule = tensor_start(graph)
    assert moved(graph, schedule, "raise[cluster]") is None
    for slot in (3, 5):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot: s.tile[0][at] == 64)
    wgmma = climbed(graph, schedule, "raise[tensor_core]", lambda s: s.knob("tensor_core") == 2)
    paired = climbed(graph, wgmma, "raise[cluster]", lambda s: s.knob("cluster") == 2)
    assert moved(graph, paired, "lower[tensor_core]") is None and moved(graph, paired, "raise[cluster]") is None
    for _ in range(4):
        for schedule in walk(graph, rng, 25, paired):
            state = oracle.read(schedule)
            found.append(state.knob("cluster"))
            assert graph.action_mask(schedule).tolist() == oracle.mask(state), str(schedule)
    assert np.mean(np.array(found) == 2) > 0.5
    largest = 64 if "batched" in operator else 192  # of 72 rows, of 256: the second tile may overhang
    full = climbed(graph, paired, "tile[3]", lambda s: s.tile[0][3] == largest)
    assert moved(graph, full, "tile[3]") is None


def test_one_tile_along_m_has_no_cluster() -> None:
    for m, values in ((64, [1]), (65, [1, 2])):
        graph = graph_of(f'gemm(m={m}, n=512, k=128, dtype="bfloat16")', "h200", "extended")
        bits = int(graph.tables.ints[KNOB_BITS + KNOB_INDEX["cluster"]])
        assert [v for i, v in enumerate(KNOBS[KNOB_INDEX["cluster"]].values) if bits >> i & 1] == values


def test_warps_are_laid_over_whole_patches() -> None:
    graph = ConstructionGraph("gemm(m=512, n=512, k=512)", "h200", space="extended")
    schedule = climbed(graph, graph.initial(), "cache", lambda s: s.level == 1)
    assert moved(graph, schedule, "raise[warp_tile]") is None
    schedule = climbed(graph, schedule, "tile[4]", lambda s: s.tile[1][4] == 8)
    schedule = climbed(graph, schedule, "tile[3]", lambda s: s.tile[1][3] == 4)
    patched = climbed(graph, schedule, "raise[warp_tile]", lambda s: s.knob("warp_tile") == 1)
    assert moved(graph, patched, "raise[warp_tile]") is None and moved(graph, patched, "inverse_tile[4]") is None
    assert moved(graph, patched, "raise[reduce_threads]") is None and moved(graph, schedule, "raise[lane_map]") is None
    interleaved = climbed(graph, patched, "raise[lane_map]", lambda s: s.knob("lane_map") == 1)
    assert moved(graph, interleaved, "lower[warp_tile]") is None


def test_shared_memory_counts_stages_and_matrices() -> None:
    graph = ConstructionGraph("conv2d(n=1, c=8, h=16, w=16, k=16, r=3, s=3, padding=1)", "h200", space="extended")
    schedule = climbed(graph, graph.initial(), "cache", lambda s: s.level == 1)
    for slot, length in ((2, 16), (3, 4), (4, 16), (5, 8), (6, 3), (7, 3)):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot, n=length: s.tile[1][at] >= n)
    schedule = climbed(graph, schedule, "lower[shared_layout]", lambda s: s.knob("shared_layout") == 0)
    schedule = climbed(graph, schedule, "lower[vector]", lambda s: s.knob("vector") == 1)
    size = lambda s: resources.shared_bytes_of(plain(s.row), graph.tables.ints)  # noqa: E731
    window = tuple(int(n) for n in schedule.tile[1][6:])
    assert size(schedule) == 4 * (8 * (4 + window[0] - 1) * (16 + window[1] - 1) + 16 * 8 * window[0] * window[1])
    implicit = climbed(graph, schedule, "raise[convolution]", lambda s: s.knob("convolution") == 3)
    assert size(implicit) == 4 * (8 * window[0] * window[1] * 4 * 16 + 16 * 8 * window[0] * window[1])
    assert size(climbed(graph, schedule, "raise[stages]", lambda s: s.knob("stages") == 3)) == 3 * size(schedule)


@pytest.mark.parametrize(("machine", "most"), [("t4", 2), ("v100", 2), ("a100", 5), ("host", 1)])
def test_stages_by_architecture(machine: str, most: int) -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", machine, space="extended")
    schedule, count = graph.initial(), 1
    while (after := moved(graph, schedule, "raise[stages]")) is not None:
        schedule, count = after, count + 1
    assert count == most == schedule.knob("stages")
    assert graph.action_mask(schedule).shape == (NUM_ACTIONS,)
