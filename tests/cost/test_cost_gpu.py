"""The analytic model of a GPU: its terms, equal shares of a persistent kernel, its floor."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.tables.gpu_published import MMA, PUBLISHED, SIMT, WGMMA, WITHIN, Kernel, Published, make, ratio
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.cost.gpu.gpu import latency_gpu, second_kernel
from gensor_gym.cost.gpu.lanes import shared_wavefronts
from gensor_gym.cost.gpu.shares import addition, parts_of_tiles, shares_steps, sharing
from gensor_gym.cost.gpu.simt import simt_step
from gensor_gym.cost.gpu.tensor import narrow_share
from gensor_gym.cost.gpu.traffic import grid_blocks
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.cost.terms import LAUNCH_TERM, NUM_TERMS
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.rules import fits
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import SPLIT_K
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.graph_walks import moved


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: f"{case.hardware}-{case.dtype}-{case.n}")
def test_published_rates_are_met(case: Published) -> None:
    assert abs(ratio(case) - 1.0) <= WITHIN


def test_the_table_has_every_published_figure(tmp_path: Path) -> None:
    (table,) = make(OmegaConf.create({"limit": None}), tmp_path)
    assert len(table.rows) == len(PUBLISHED) == 7
    assert len(make(OmegaConf.create({"limit": 2}), tmp_path)[0].rows) == 2
    assert all(row[4] == ratio(case) for row, case in zip(table.rows, PUBLISHED, strict=True))


def graph(n: int, dtype: str, machine: str) -> ConstructionGraph:
    return ConstructionGraph(f'gemm(m={n}, n={n}, k={n}, dtype="{dtype}")', machine, space="extended")


def seconds(on: ConstructionGraph, kernel: Kernel, **knobs: int) -> float:
    """Model latency of a kernel with some knobs changed; it must fit."""
    row = replace(kernel, knobs=tuple({**dict(kernel.knobs), **knobs}.items())).row()
    assert fits(row, on.tables.ints)
    return float(on.latencies(row[None])[0])


@pytest.mark.parametrize(("n", "machine"), [(1024, "h100"), (4096, "h100"), (4096, "a100")])
def test_rungs_of_cuda_cores_gain(n: int, machine: str) -> None:
    on = graph(n, "float32", machine)
    best = seconds(on, SIMT)
    for worse in ({"stages": 1}, {"unroll": 1}, {"register_buffer": 1}, {"vector": 1}):
        if machine == "a100" and worse != {"stages": 1}:  # other instructions hide between the multiply-adds of 64 lanes
            assert seconds(on, SIMT, **worse) >= best
        else:
            assert seconds(on, SIMT, **worse) > 1.005 * best


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_rungs_of_mma_gain(machine: str) -> None:
    on = graph(4096, "float16", machine)
    best = seconds(on, MMA)
    assert seconds(on, MMA, stages=1) > 1.05 * best
    assert seconds(on, MMA, shared_layout=0) > 1.2 * best
    small = replace(MMA, block=(64, 32, 32), worker=(16, 8, 32))
    assert seconds(on, small) > 2 * best


def test_wgmma_is_what_a_hopper_needs() -> None:
    on = graph(8192, "float16", "h100")
    plain = {"cluster": 1}
    best = seconds(on, WGMMA, **plain)
    assert seconds(on, MMA) > 1.3 * seconds(on, WGMMA)
    assert seconds(on, WGMMA, stages=1, **plain) > 1.1 * best
    assert seconds(on, WGMMA, persistent=0, **plain) > best
    assert seconds(on, WGMMA) == best  # a cluster of two measured no faster


def test_the_layout_of_a_convolution_is_charged() -> None:
    """A second launch, and both operands read and written: from L2 where they fit it."""
    for n, c, level in ((16, 256, "dram"), (1, 64, "l2")):
        op = operators.conv2d(n, c, 56, 56, 128, 3, 3, padding=1, dtype="float16")
        on = ConstructionGraph(op, "h100", space="extended")
        schedule = make_schedule(op, [1, 64, 4, 56, 64, 1, 1], [1, 128, 4, 56, 64, 1, 1], tensor_core=2, stages=4)
        assert on.is_legal(schedule)
        terms = np.zeros(NUM_TERMS)
        latency_gpu(plain(schedule.row), on.tables.ints, on.tables.floats, terms)
        moved = 2 * sum(tensor.nbytes for tensor in op.inputs)
        rate = next(m.bandwidth for m in on.hardware.memory if m.name == level)
        assert terms[LAUNCH_TERM] == pytest.approx(2 * on.hardware.launch_overhead + moved / rate)


@pytest.mark.parametrize(
    ("dtype", "n", "tile", "level", "share"),
    [("tf32", 4096, (8, 32), "dram", 2), ("tf32", 1024, (8, 32), "l2", 2), ("int8", 4096, (32, 128), "l2", 0.5)],
)
def test_the_transposition_of_b_is_charged_and_the_rate_is_the_types(
    dtype: str, n: int, tile: tuple[int, int], level: str, share: float
) -> None:
    """A second launch, and B read and written; tf32 at half, int8 at twice the rate of 16 bits."""
    terms = {}
    for kind, (chunk, step) in ((dtype, tile), ("float16", (16, 64))):
        op = operators.gemm(n, n, n, dtype=kind)
        on = ConstructionGraph(op, "h100", space="extended")
        schedule = make_schedule(op, [64, 256, chunk], [128, 256, step], tensor_core=2, stages=4)
        assert on.is_legal(schedule)
        terms[kind] = on.terms(schedule)
    assert terms[dtype]["arithmetic"] == pytest.approx(share * terms["float16"]["arithmetic"], rel=1e-3)
    moved = 2 * operators.gemm(n, n, n, dtype=dtype).inputs[1].nbytes
    rate = next(m.bandwidth for m in hardware.get("h100").memory if m.name == level)
    launch = hardware.get("h100").launch_overhead
    assert terms["float16"]["launch"] == pytest.approx(launch)
    assert terms[dtype]["launch"] == pytest.approx(2 * launch + moved / rate)


def test_clusters_are_whole() -> None:
    """Three tiles along m and two along n are six blocks, in pairs eight."""
    on = ConstructionGraph('gemm(m=300, n=512, k=512, dtype="float16")', "h100", space="extended")
    for cluster, blocks in ((1, 6), (2, 8)):
        knobs = tuple({**dict(WGMMA.knobs), "cluster": cluster}.items())
        assert grid_blocks(replace(WGMMA, knobs=knobs).row(), on.tables.ints) == blocks


def test_mma_on_hopper_stays_below_its_instruction_ceiling() -> None:
    machine = hardware.get("h100")
    assert machine.tensor_rate("float16", 1) == pytest.approx(989.4e12 * 490.7 / 756.5)
    assert machine.tensor_rate("float16", 2) == pytest.approx(989.4e12 * 788 / 894)
    assert machine.tensor_rate("float32", 1) == 0.0
    assert 2 * 8192**3 / seconds(graph(8192, "float16", "h100"), MMA) < machine.tensor_rate("float16", 1)


def test_narrow_instructions_lose_rate() -> None:
    for columns, share in ((8, 0.21), (16, 0.38), (32, 0.63), (64, 1.0), (256, 1.0)):
        assert narrow_share(columns) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize(
    ("block", "worker", "unroll", "share"),
    [
        ((64, 64, 16), (4, 4, 1), 16, 0.788),
        ((128, 64, 16), (8, 4, 1), 16, 0.837),
        ((128, 128, 8), (8, 8, 1), 8, 0.878),
        ((128, 128, 8), (8, 8, 1), 4, 0.798),
        ((128, 128, 16), (8, 8, 1), 16, 0.894),
        ((256, 128, 8), (16, 8, 1), 8, 0.915),
        ((128, 256, 8), (8, 16, 1), 8, 0.924),
        ((256, 64, 8), (16, 4, 1), 8, 0.868),
    ],
)
def test_the_share_of_multiply_adds_is_that_of_machine_code(block: tuple, worker: tuple, unroll: int, share: float) -> None:
    """Shares of FFMA in the main loop that were counted in NVRTC's machine code, `gpu_codegen.md` 1.3."""
    kernel = Kernel("", block, worker, (("vector", 4), ("unroll", unroll), ("stages", 2), ("shared_layout", 1)))
    on, row = graph(4096, "float32", "h100"), kernel.row()
    fma, issue, _, _, _ = simt_step(row, 10**6, 512, on.tables.ints)  # so many blocks that no slot is lost to stalls
    assert fma / issue == pytest.approx(share, abs=0.025)


def test_interleaved_lanes_have_the_least_wavefronts() -> None:
    """8 x 8 tiles: 2 wavefronts for every 128-bit load with interleaved lanes, 4 for B's in row order."""
    on = graph(4096, "float32", "h100")
    kernel = Kernel("", (128, 128, 8), (8, 8, 1), (("vector", 4), ("shared_layout", 2), ("warp_tile", 1)))
    ints = on.tables.ints
    counts = {}
    for lanes in (0, 1):
        row = replace(kernel, knobs=(*kernel.knobs, ("lane_map", lanes))).row()
        counts[lanes] = [shared_wavefronts(row, t, ints) for t in (0, 1)]
    assert counts == {0: [4.0, 8.0], 1: [4.0, 4.0]}


def test_floors_count_tensor_cores_where_the_task_has_them() -> None:
    flops, machine = 2.0 * 8192**3, hardware.get("h100")
    for dtype, rate in (("float32", 66.9e12), ("float16", 989.4e12), ("int8", 1979e12)):
        op = operators.gemm(8192, 8192, 8192, dtype=dtype)
        assert roofline_floor(op, machine) == pytest.approx(flops / rate, rel=0.01)
    for case in PUBLISHED:
        assert 2.0 * case.n**3 / (case.high * 1e12) > graph(case.n, case.dtype, case.hardware).floor


@pytest.mark.parametrize(("parts", "split_k"), [(4, 2), (64, 6)])
def test_the_second_kernel_writes_and_reads_every_part(parts: int, split_k: int) -> None:
    """By hand: 4 bytes of each output element, once out and once in, for every part, at the rate of DRAM beyond L2."""
    on, machine = graph(4096, "float32", "h100"), hardware.get("h100")
    row = on.initial().row.copy()
    row[SPLIT_K] = split_k
    moved = 2 * 4 * 4096 * 4096 * parts
    rate = next(level.bandwidth for level in machine.memory if level.name == "dram")
    found = second_kernel(row, on.tables.ints, on.tables.floats)
    assert found == pytest.approx(machine.launch_overhead + moved / rate)


def test_split_reductions_pay_for_their_second_kernel() -> None:
    on = graph(4096, "float32", "h100")
    assert seconds(on, SIMT, split_k=4) > seconds(on, SIMT) + hardware.get("h100").launch_overhead
    assert np.isfinite(seconds(on, SIMT, split_k=64))


TILES = "tile[1x1x1x8x32x4x1x1 1x1x1x8x32x64x1x1 1x1x1x64x64x64x1x1 1x1x1x64x64x64x1x1] vthread[1x1x1x1x1x1x1x1] level=2 unroll=4"


@pytest.mark.parametrize(("knobs", "slower"), [("", True), (" pack_b=1", False)])
def test_only_loads_of_what_is_not_packed_lie_in_two_lines(knobs: str, slower: bool) -> None:
    """The lanes run along B: whole lines of it are loaded where it lies, or from panels that begin at lines."""
    described = hardware.get("cascade_lake")
    at_hand = dataclasses.replace(described, name="host")
    schedule = Schedule.parse(TILES + knobs)
    there, here = (ConstructionGraph("gemm(m=256, n=256, k=256)", hw, "extended") for hw in (described, at_hand))
    assert here.is_legal(schedule)
    assert (here.latency(schedule) > there.latency(schedule)) is slower
    assert here.latency(schedule) >= there.latency(schedule)


def schedule(op: Operator, **knobs: int) -> Schedule:
    """One consumer of 64 x 128, five stages."""
    return make_schedule(op, [64, 128, 16], [64, 128, 64], None, tensor_core=2, stages=5, **knobs)


def test_parts_are_those_of_the_cut_line() -> None:
    """Counted one by one: no fewer than the model says, and as many where no cut falls between two tiles."""
    rng = np.random.default_rng(0)
    for tiles, steps, places in rng.integers((1, 2, 1), (300, 60, 200), (400, 3)).tolist():
        shares = min(places, tiles * steps)
        cuts = {share * tiles * steps // shares for share in range(shares + 1)}
        ends = sorted(cuts | {tile * steps for tile in range(tiles + 1)})
        runs = zip(ends, ends[1:], strict=False)
        parts = sum(last - first < steps for first, last in runs)
        between = sum(cut % steps == 0 for cut in cuts) - 2  # the two ends of the line
        most = parts_of_tiles(tiles, shares)
        assert parts <= most
        if between == 0:
            assert most - parts <= 2


def test_few_tiles_are_faster_shared_out() -> None:
    """48 tiles of 64 steps on 132 multiprocessors, against every split; where tiles fill them, whole ones are faster."""
    few, many = operators.gemm(384, 1024, 4096, dtype="bfloat16"), operators.gemm(4096, 4224, 1024, dtype="bfloat16")
    graph = ConstructionGraph(few, "h100", space="extended")
    whole = [graph.latency(schedule(few, persistent=stays, split_k=parts)) for stays in (0, 1) for parts in (1, 2, 4, 8)]
    assert graph.latency(schedule(few, persistent=2)) < min(whole)
    graph = ConstructionGraph(many, "h100", space="extended")
    assert graph.latency(schedule(many, persistent=2)) == graph.latency(schedule(many, persistent=1))  # 16 tiles a block
    odd = operators.gemm(4096, 4224 + 128, 1024, dtype="bfloat16")
    graph = ConstructionGraph(odd, "h100", space="extended")
    assert graph.latency(schedule(odd, persistent=2)) < 1.2 * graph.latency(schedule(odd, persistent=1))


@pytest.mark.parametrize(("cluster", "shares"), [(1, 132), (2, 132)])
def test_shares_are_whole_clusters(cluster: int, shares: int) -> None:
    """As many as live at a time, each with a step at least; what they leave is written and read once, 4 bytes a sum."""
    op = operators.gemm(384, 1024, 4096, dtype="bfloat16")
    graph = ConstructionGraph(op, "h100", space="extended")
    row, tables = schedule(op, persistent=2, cluster=cluster).row.copy(), graph.tables
    assert shares_steps(row, 48, 64, 132)
    assert sharing(row, 48, 64, 132) == shares and sharing(row, 2, 3, 132) == 6
    assert not shares_steps(row, 264, 64, 132) and not shares_steps(row, 48, 1, 132)
    waits = 3 * graph.hardware.memory[-2].latency
    moved = 2 * (48 + 132) * 64 * 128 * 4 / graph.hardware.memory[-2].bandwidth
    assert addition(row, 48, 132, tables.ints, tables.floats) == pytest.approx(moved + waits)


def test_shares_and_a_split_do_not_go_together() -> None:
    """Neither move is legal in a program that has the other."""
    op = operators.gemm(384, 1024, 4096, dtype="bfloat16")
    graph = ConstructionGraph(op, "h100", space="extended")
    assert graph.is_legal(schedule(op, persistent=2)) and graph.is_legal(schedule(op, persistent=1, split_k=2))
    assert not graph.is_legal(schedule(op, persistent=2, split_k=2))
    shares, split = schedule(op, persistent=2), schedule(op, persistent=1, split_k=2)
    assert moved(graph, shares, "raise[split_k]") is None and moved(graph, split, "raise[persistent]") is None
