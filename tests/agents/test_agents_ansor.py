"""Ansor: sketches against the rules, moves that keep programs legal, features by hand, model, search, task scheduler."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agents import get_strategy, optimize, optimize_tasks
from agents.ansor.ansor import TUNINGS, Ansor, AnsorSmall
from agents.ansor.beam_of_sketches import BeamOfSketches
from agents.ansor.evolution import Evolution, Settings
from agents.ansor.loop_nests import UNROLLED, VECTORISED, Programs, nests_of
from agents.ansor.score_model import ScoreModel
from agents.ansor.sketches import LOCATIONS, derive_sketches, has_data_reuse, has_more_reduction_parallel
from agents.ansor.statement_features import NUM_FEATURES, statement_features
from agents.ansor.task_scheduler import (
    GradientScheduler,
    Progress,
    RoundRobin,
    geometric_speedup,
    groups_of,
    latency_targets,
    total_latency,
)
from agents.ansor.thread_binding import binds
from agents.ansor.tile_moves import TileMoves
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.rules import fits, is_well_formed
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_LEVELS, TILE, VTHREAD
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators import parse
from tests.support.thorough import thorough_but

GEMM = "gemm(m=256, n=128, k=128)"
TALL = "gemm(m=4, n=4, k=512)"
OPERATORS = [
    GEMM,
    TALL,
    "conv2d(n=1, c=16, h=14, w=14, k=32, r=3, s=3, padding=1)+bias+relu",
    "reduce_sum(m=16, k=65536)",
    "avg_pool2d(n=2, c=8, h=20, w=20, r=3, s=3, stride=2, padding=1)",
    'elementwise("exp", 1000)',
    "gemm(m=1, n=1, k=1)",
]


@pytest.mark.parametrize(
    ("operator", "reuse", "cpu"),
    [
        (GEMM, True, False),
        (TALL, True, True),
        ("reduce_sum(m=16, k=65536)", False, True),
        ("avg_pool2d(n=1, c=8, h=20, w=20, r=3, s=3)", False, True),
        ('elementwise("exp", 1000)', False, False),
    ],
)
def test_conditions_of_the_rules(operator: str, reuse: bool, cpu: bool) -> None:
    """Multi-level tiling where inputs are reused; factored reductions where there are few outputs (cores: two)."""
    graph = ConstructionGraph(operator, "cascade_lake", "extended")
    assert has_data_reuse(parse(operator)) == reuse
    many = has_more_reduction_parallel(graph)
    assert many == cpu
    assert any("thread_split" in sketch.name for sketch in derive_sketches(graph)) == many


def test_sketches_of_a_gpu() -> None:
    names = [s.name for s in derive_sketches(ConstructionGraph(TALL, "h200", "extended"))]
    assert names == ["tiled", "tiled+reduce_threads", "tiled+split_k"]
    half = ConstructionGraph('gemm(m=256, n=256, k=256, dtype="float16")', "h200", "extended")
    assert [s.name for s in derive_sketches(half)] == ["tiled", "tiled tensor_core=1", "tiled tensor_core=2"]
    assert [s.name for s in derive_sketches(half, beyond=False)] == ["tiled"]


@pytest.mark.parametrize("operator", [GEMM, "gemv(m=1024, k=1024)"])
def test_random_programs_of_a_gpu_are_of_whole_warps(operator: str) -> None:
    """As the authors' thread binding has it; few outputs are exempt, and so is a CPU."""
    graph = ConstructionGraph(operator, "rtx4090", "extended")
    rows = Evolution(graph, derive_sketches(graph), Settings(population=64)).sample(np.random.default_rng(0), 64).rows
    for row in rows:
        schedule = Schedule(row)
        register, block = (row[TILE + 8 * level : TILE + 8 * level + 5].prod() for level in (0, 1))
        assert block // register * schedule.knob("reduce_threads") >= 32 and row[VTHREAD : VTHREAD + 5].prod() <= 8
    assert not binds(graph, graph.initial().row[None])[0]
    few = ConstructionGraph("gemv(m=64, k=1024)", "rtx4090", "extended")
    assert binds(few, few.initial().row[None])[0]
    cpu = ConstructionGraph(operator, "cascade_lake", "extended")
    assert binds(cpu, cpu.initial().row[None])[0]


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_a_limited_space_is_within_the_whole_one(machine: str) -> None:
    graph = ConstructionGraph(GEMM, machine, "extended")
    whole, limited = (derive_sketches(graph, beyond=False, limited=only) for only in (False, True))
    assert [sketch.name for sketch in limited] == [sketch.name for sketch in whole]
    for small, large in zip(limited, whole, strict=True):
        gone = {knob.first for knob in large.knobs} - {knob.first for knob in small.knobs}
        assert gone == {knob.first for knob in large.knobs if knob.first in [KNOB + KNOB_INDEX[n] for n in LOCATIONS]}
        assert bool(gone) == (machine == "cascade_lake")
        for few, many in zip(*([axis.values for axis in of.axes] for of in (small, large)), strict=True):
            assert {c.tobytes() for c in few} <= {c.tobytes() for c in many}
            inner = few[:, 0] // few[:, MAX_LEVELS]
            assert set(inner.tolist()) <= {1, 2, 4, 8, 16}
        assert sum(len(axis.values) for axis in small.axes) < sum(len(axis.values) for axis in large.axes)


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_a_beam_keeps_what_the_score_likes(machine: str) -> None:
    """With the truth as score the beam is far above random programs, legal, and different."""
    graph = ConstructionGraph(GEMM, machine, "extended")
    sketches, rng = derive_sketches(graph), np.random.default_rng(0)
    found = BeamOfSketches(graph, sketches).construct(lambda rows: -graph.latencies(np.ascontiguousarray(rows)), rng)
    assert graph.fits(found.rows).all() and len(np.unique(found.rows, axis=0)) == len(found) >= 64
    seconds = graph.latencies(found.rows[:64])
    assert (np.diff(seconds) >= 0).all()
    assert seconds.min() < 0.7 * np.median(graph.latencies(Evolution(graph, sketches, Settings()).sample(rng, 64).rows))


@pytest.mark.thorough
@pytest.mark.parametrize("tuning", thorough_but(TUNINGS, *list(TUNINGS)[:1]))
def test_ablations_search_with_the_same_budget(tuning: str) -> None:
    strategy = AnsorSmall(space="compact", population=64, tuning=tuning, limited=True)
    trace = optimize(GEMM, "zen5_1c", strategy, trials=40, backend="recorded").trace
    assert len(trace) == 40 == len({row.schedule for row in trace})


@pytest.mark.parametrize("space", thorough_but(["compact", "extended"], "extended"))
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_programs_sampled_and_bred_are_legal_and_of_their_sketch(operator: str, machine: str, space: str) -> None:
    graph = ConstructionGraph(operator, machine, space)
    sketches = derive_sketches(graph)
    evolution = Evolution(graph, sketches, Settings(population=96, crossover=0.15, mutation=0.8))
    rng = np.random.default_rng(0)
    first = evolution.sample(rng, 96)
    assert len(first)
    bred = evolution.evolve(first, lambda rows: rng.random(len(rows)), 3, rng)
    assert len(np.unique(bred.rows, axis=0)) == len(bred.rows)
    for row, number in zip(bred.rows, bred.sketches, strict=True):
        assert fits(row, graph.tables.ints) and is_well_formed(row, graph.tables.ints, graph.tables.sizes)
        sketch = sketches[number]
        free = {knob.first: set(knob.values[:, 0].tolist()) for knob in sketch.knobs}
        for place in range(TILE + 41, len(row)):
            assert row[place] in free.get(place, {sketch.base[place]})


def test_every_tensor_core_sketch_gives_programs() -> None:
    graph = ConstructionGraph('gemm(m=512, n=512, k=512, dtype="float16")', "h200", "extended")
    for sketch in derive_sketches(graph):
        assert graph.fits(sketch.sample(np.random.default_rng(0), 4000)).any(), sketch.name


def test_a_tile_move_takes_a_factor_from_one_level_to_another() -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "cascade_lake", "gensor")
    chains = derive_sketches(graph)[0].axes[3].values
    chain = np.array([4, 8, 16, 16, 1], dtype=np.int32)
    groups = TileMoves(chains, 3).groups(chain)
    reached = {tuple(c[:3].tolist()) for group in groups for c in group}
    assert {(2, 8, 16), (2, 4, 16), (2, 4, 8), (4, 4, 16), (8, 8, 16), (8, 16, 16), (4, 8, 32), (16, 32, 64)} <= reached
    assert not reached & {(4, 8, 16), (2, 8, 32), (4, 16, 64), (1, 4, 16)}
    outer = {tuple(c[:3].tolist()) for group in TileMoves(chains, 3).groups(chain, True) for c in group}
    assert (4, 8, 32) in outer and all(c[:2] == (4, 8) for c in outer)


def test_virtual_threads_are_a_level_of_a_gpu() -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "h200", "gensor")
    chains = derive_sketches(graph)[0].axes[4].values
    chain = np.array([8, 32, 32, 32, 2], dtype=np.int32)
    reached = {tuple(c[[0, 1, MAX_LEVELS]].tolist()) for group in TileMoves(chains, 2).groups(chain) for c in group}
    assert {(8, 32, 4), (8, 32, 1), (4, 32, 1), (4, 16, 1)} <= reached


def test_loops_cover_the_iterations_of_a_product() -> None:
    for machine in ("h200", "cascade_lake"):
        graph = ConstructionGraph("gemm(m=64, n=64, k=64)", machine, "extended")
        evolution = Evolution(graph, derive_sketches(graph), Settings())
        rows = evolution.sample(np.random.default_rng(1), 64).rows
        for row in rows:
            programs = Programs(graph, row[None])
            update = nests_of(programs)[0]
            turns = math.prod(float(loop.extent[0]) for loop in update.loops)
            assert turns >= 64**3
            inner = [x for x in update.loops if x.kind in (UNROLLED, VECTORISED) and x.axis < 5]
            tile = math.prod(float(t) for t in programs.tiles[0, 0, :5])
            virtual = 1.0 if machine != "h200" else float(np.prod(programs.vthread[0, :5]))
            assert math.prod(float(loop.extent[0]) for loop in inner) * virtual >= tile


def test_features_see_what_differs() -> None:
    """Finite, one vector a statement, and different for different tiles or knobs."""
    for operator in OPERATORS:
        for machine in ("h200", "cascade_lake"):
            graph = ConstructionGraph(operator, machine, "extended")
            rows = Evolution(graph, derive_sketches(graph), Settings()).sample(np.random.default_rng(2), 40).rows
            found = statement_features(graph, rows)
            assert found.values.shape == (len(found.program), NUM_FEATURES) and np.isfinite(found.values).all()
            assert set(found.program.tolist()) == set(range(len(rows)))
            knobs = {row[41:].tobytes(): found.values[found.program == i].tobytes() for i, row in enumerate(rows)}
            assert len(set(knobs.values())) == len(knobs)


def test_the_model_learns_the_sum_over_statements() -> None:
    graph = ConstructionGraph(GEMM, "cascade_lake", "extended")
    rows = Evolution(graph, derive_sketches(graph), Settings()).sample(np.random.default_rng(3), 400).rows
    seconds = graph.latencies(rows)
    model = ScoreModel(warmup=100)
    model.add("a", statement_features(graph, rows[:99]), seconds[:99])
    model.fit()
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(statement_features(graph, rows))
    model.add("a", statement_features(graph, rows[99:300]), np.where(np.arange(201) == 7, np.inf, seconds[99:300]))
    model.fit()
    scores = model.predict(statement_features(graph, rows[300:]))
    order, true = np.argsort(np.argsort(scores)), np.argsort(np.argsort(-seconds[300:]))
    assert np.corrcoef(order, true)[0, 1] > 0.7
    with pytest.raises(ValueError, match="one each"):
        model.add("a", statement_features(graph, rows[:2]), seconds[:3])


def test_a_model_of_failures_alone_is_not_fitted() -> None:
    graph = ConstructionGraph(GEMM, "cascade_lake", "compact")
    model = ScoreModel(warmup=1)
    model.add("a", statement_features(graph, graph.initial().row[None]), np.array([np.inf]))
    model.fit()
    assert not model.ready


@pytest.mark.thorough
def test_paper_and_small_setting_find_the_recorded_optimum() -> None:
    from gensor_gym import hardware
    from gensor_gym.measure.records.backend import open_recorded

    machine = hardware.get("zen5_1c")
    graph = ConstructionGraph(GEMM, machine, "compact")
    table = open_recorded("recorded", machine)
    for strategy, trials in ((Ansor(space="compact"), 256), (AnsorSmall(space="compact"), 96)):
        found = optimize(GEMM, machine, strategy, trials=trials, backend="recorded")
        assert len({row.schedule for row in found.trace}) == len(found.trace) == trials
        assert (table.regret(graph, found.schedule) or 0.0) < 0.05


def test_the_analytic_model_is_not_asked_and_a_space_ends() -> None:
    session = Session(Task.of("gemv(m=16, k=64)", "cascade_lake", "analytic", "compact"), Budget())
    AnsorSmall(space="compact", batch=64, population=256).search(session, np.random.default_rng(0))
    everything = sum(len(rows) for rows in session.graph.enumerate())
    assert session.evaluations == 0
    assert 0.9 * everything <= session.trials <= everything


def test_numbers_that_mean_nothing_are_named() -> None:
    for wrong in ({"batch": 0}, {"epsilon": 2.0}, {"max_innermost": 0}, {"tuning": "luck"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            optimize(GEMM, "h200", get_strategy("ansor", **wrong), trials=1, backend="analytic")


def _task(latencies: list[float], flops: float = 1e9, kind: str = "gemm") -> Progress:
    progress = Progress(flops, kind)
    for latency in latencies:
        progress.record(latency, 1, None)
    return progress


def test_gradients_by_hand() -> None:
    """alpha 0.2, window 3: backward (4 - 10) / 3 = -2, forward min(-4 / 4, .) = -1; weight 5."""
    tasks = [_task([10.0, 8.0, 6.0, 4.0]), _task([3.0], kind="conv2d")]
    found = GradientScheduler(total_latency(np.array([5.0, 1.0]))).gradients(tasks)
    assert found == pytest.approx([5 * (0.2 * -2 + 0.8 * -1), 0.8 * -3], rel=1e-6)


def test_tasks_alike_lend_their_speed() -> None:
    """The slower of two like tasks could be at beta C / V = 2 * 1e9 / 1e9 = 2 s, so it may gain 8 s."""
    tasks = [_task([10.0] * 4), _task([1.0] * 4)]
    found = GradientScheduler(total_latency(np.ones(2))).gradients(tasks)
    assert found[0] == pytest.approx(0.8 * (2.0 - 10.0), rel=1e-6)
    tasks[0] = _task([10.0] * 10)
    assert groups_of(tasks, 2.0)[0] is None
    assert GradientScheduler(total_latency(np.ones(2))).gradients(tasks)[0] == pytest.approx(0.8 * -1.0, rel=1e-6)


def test_objectives() -> None:
    weights, g = np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([3.0, 5.0])
    assert total_latency(weights)(g) == 18.0
    assert latency_targets(weights, np.array([20.0, 1.0]))(g) == 25.0
    assert geometric_speedup(weights, np.array([26.0, 5.0]))(g) == pytest.approx(-math.sqrt(2.0))
    with pytest.raises(ValueError, match="negative"):
        total_latency(np.array([-1.0]))(g[:1])


def test_a_target_that_is_met_and_a_dead_task_get_nothing() -> None:
    tasks = [_task([3.0, 3.0]), _task([5.0, 5.0], kind="conv2d")]
    aim = latency_targets(np.eye(2), np.array([4.0, 1.0]))
    scheduler = GradientScheduler(aim, epsilon=0.0)
    assert scheduler.choose(tasks, np.random.default_rng(0)) == 1
    tasks[1].record(5.0, 0, None)
    assert tasks[1].dead and scheduler.choose(tasks, np.random.default_rng(0)) == 0
    stopped = Progress(1e9, "gemm")
    for latency in (2.0, 1.0, 1.0, 1.0):
        stopped.record(latency, 8, early_stopping=16)
    assert stopped.dead


def test_a_task_without_a_program_does_not_take_all() -> None:
    """It comes first in every choice until it has one, but by batches given; when it is dead the others go on."""
    tasks = [_task([math.inf] * 3), _task([1.0] * 3)]
    scheduler = GradientScheduler(total_latency(np.ones(2)), epsilon=0.0)
    assert scheduler.choose(tasks, np.random.default_rng(0)) == 0
    tasks[0].dead = True
    assert scheduler.choose(tasks, np.random.default_rng(0)) == 1
    tasks[1].dead = True
    assert scheduler.choose(tasks, np.random.default_rng(0)) is None


def test_without_a_scheduler_every_task_gets_as_much() -> None:
    names = ["gemv(m=768, k=3072)", "reduce_sum(m=16, k=65536)", GEMM]
    found = optimize_tasks(
        names, "zen5_1c", trials=72, weights=[1, 1, 100], strategy=AnsorSmall(space="compact", population=64),
        scheduler=RoundRobin, backend="recorded",
    )  # fmt: skip
    assert all(task == i % 3 for i, task in enumerate(found.order)) and len(found.order) >= 9
    assert len(found.trials) == len(found.order) and np.all(np.diff(found.trials) > 0) and found.trials[-1] == 72
    tasks = [_task([1.0, 1.0]), _task([1.0])]
    tasks[1].dead = True
    robin = RoundRobin(total_latency(np.ones(2)))
    assert robin.choose(tasks, np.random.default_rng(0)) == 0
    tasks[0].dead = True
    assert robin.choose(tasks, np.random.default_rng(0)) is None


@pytest.mark.thorough
def test_tasks_of_the_recorded_tables_share_a_budget() -> None:
    names = ["gemv(m=768, k=3072)", "reduce_sum(m=16, k=65536)", GEMM]
    found = optimize_tasks(
        names, "zen5_1c", trials=240, weights=[1, 1, 100], strategy=AnsorSmall(space="compact", population=128),
        backend="recorded",
    )  # fmt: skip
    results = [result for result in found.results if result is not None]
    assert len(results) == 3 and sum(len(result.trace) for result in results) <= 240
    assert list(found.order[:3]) == [0, 1, 2]
    assert found.objective[-1] == pytest.approx(sum(w * r.seconds for w, r in zip([1, 1, 100], results, strict=True)))
    assert all(b <= a for a, b in zip(found.objective[2:], found.objective[3:], strict=False))
    assert found.order.count(2) == max(found.order.count(i) for i in range(3))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"operators": []}, "one or more"),
        ({"operators": [GEMM, GEMM]}, "each once"),
        ({"trials": 1}, "at least one each"),
        ({"early_stopping": 0}, "early_stopping"),
        ({"weights": [1.0]}, "weights of 1"),
    ],
)
def test_the_front_door_names_what_is_wrong(wrong: dict[str, object], match: str) -> None:
    good: dict[str, object] = {"operators": [GEMM, TALL], "hardware": "h200", "backend": "analytic", "trials": 8}
    with pytest.raises(ValueError, match=match):
        optimize_tasks(**(good | wrong))  # type: ignore[arg-type]
