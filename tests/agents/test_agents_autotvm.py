"""AutoTVM's search: features of the nest, the template, trees, annealing on a model, batches, and whole searches."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from agents import get_strategy, optimize
from agents.autotvm import autotvm
from agents.autotvm.annealing_on_model import AnnealingOnModel
from agents.autotvm.autotvm import AutoTvm, AutoTvmSmall
from agents.autotvm.diversity import diverse_pick
from agents.autotvm.loop_features import (
    ANNOTATION,
    ANNOTATIONS,
    COUNT,
    LENGTH,
    LOOP_FIELDS,
    LOOPS,
    POSITION,
    REUSE,
    TOPDOWN,
    WIDTH,
    fill_order,
    fill_trips,
    loop_blocks,
    loop_columns,
    loop_features,
)
from agents.autotvm.program_features import FEATURES, program_features
from agents.autotvm.template import Template, keys_of
from agents.autotvm.tree_gru import TreeGru
from agents.autotvm.tree_model import Ensemble, TreeModel, average_recall
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_TENSORS, TILE
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.measure.session import Budget, Session, Task
from tests.support.thorough import thorough_but

GEMM = "gemm(m=256, n=128, k=128)"
TASKS = [(GEMM, "zen5_1c"), (GEMM, "h200"), ("conv2d(n=1, c=8, h=14, w=14, k=16, r=3, s=3)", "zen5_1c")]


def programs(graph: ConstructionGraph, count: int) -> np.ndarray:
    """Rows of random programs."""
    rng = np.random.default_rng(0)
    return np.array([graph.random_schedule(rng).row for _ in range(count)])


@pytest.mark.thorough
@pytest.mark.parametrize(("operator", "machine"), thorough_but(TASKS, *TASKS[1:]))
def test_loops_cover_the_operator_and_stand_in_one_order(operator: str, machine: str) -> None:
    graph = ConstructionGraph(operator, machine, "extended")
    order, trips = np.empty(LOOPS, dtype=np.int64), np.empty((4, 8), dtype=np.int64)
    extents = graph.tables.ints[4:12]
    for row in programs(graph, 40):
        fill_order(row, graph.tables.ints, order)
        fill_trips(row, graph.tables.ints, trips)
        assert sorted(order) == list(range(LOOPS))
        assert (trips.prod(axis=0) >= extents).all(), "every point is visited"


@pytest.mark.thorough
@pytest.mark.parametrize(("operator", "machine"), thorough_but(TASKS, *TASKS[1:]))
def test_features_have_the_same_columns_for_every_task(operator: str, machine: str) -> None:
    graph = ConstructionGraph(operator, machine, "extended")
    features = loop_features(graph, programs(graph, 40))
    assert features.shape == (40, WIDTH) and len(set(loop_columns())) == WIDTH
    assert np.isfinite(features).all() and features.dtype == np.float32
    for kind in FEATURES:
        assert np.isfinite(program_features(kind, graph, programs(graph, 5))).all()
    with pytest.raises(ValueError, match="cubes"):
        program_features("cubes", graph, programs(graph, 1))


def test_features_of_a_product_by_hand() -> None:
    """The register tile of 4 x 16 x 2 touches 4*2 of A, 2*16 of B, 4*16 of C; the whole nest touches all of them."""
    graph = ConstructionGraph(GEMM, "zen5_1c", "extended")
    row = graph.initial().row.copy()
    for level in range(4):
        row[TILE + 8 * level + np.array([3, 4, 5])] = [4, 16, 2] if level == 0 else [32, 64, 2]
    row[KNOB + KNOB_INDEX["loop_order"]] = 0
    found = dict(zip(loop_columns(), loop_features(graph, row[None])[0].tolist(), strict=True))
    log = lambda x: pytest.approx(math.log2(x + 1))  # noqa: E731
    assert (found["s3.a3.length"], found["s3.a4.length"], found["s0.a5.length"]) == (log(4), log(16), log(64))
    assert (found["s3.a4.vectorized"], found["s3.a3.unrolled"], found["s0.a3.parallel"]) == (1.0, 1.0, 1.0)
    assert (found["s3.a3.t0.stride"], found["s3.a4.t0.stride"], found["s3.a5.t1.stride"]) == (log(128), 0.0, log(128))
    assert [found[f"s3.a5.t{t}.count"] for t in (0, 1, 4)] == [log(8), log(32), log(64)]
    assert [found[f"s0.a3.t{t}.count"] for t in (0, 1, 4)] == [log(256 * 128), log(128 * 128), log(256 * 128)]
    assert found["s0.a3.t0.reuse"] == log(128) and found["s0.a3.bottomup"] == log(256 * 128 * 128)
    assert found["s0.a3.t1.thread_count"] == pytest.approx(1.0), "two tasks side by side read all of B, each a half"


@pytest.mark.parametrize(("operator", "machine"), TASKS)
def test_a_template_is_the_legal_space(operator: str, machine: str) -> None:
    compact = ConstructionGraph(operator, machine, "compact")
    template = Template(compact)
    assert template.enumerated is not None
    rows = {Schedule(row) for row in template.rows(template.enumerated)}
    assert rows == {Schedule(row) for batch in compact.enumerate() for row in batch}
    wide = ConstructionGraph(operator, machine, "extended")
    template = Template(wide)
    rng = np.random.default_rng(0)
    points = template.random(64, rng)
    moved = template.mutated(points, rng)
    assert len(points) == 64 and ((moved != points).sum(axis=1) <= 1).all() and (moved != points).any()
    assert all(wide.is_legal(Schedule(row)) for row in np.concatenate([template.rows(points), template.rows(moved)]))


@pytest.mark.parametrize(("operator", "kinds"), [(f'gemm(m=512, n=512, k=512, dtype="{t}")', k) for t, k in
                                                 (("float32", {0}), ("tf32", {0, 1, 2}), ("float16", {0, 1, 2}))])  # fmt: skip
def test_random_programs_are_of_every_kind(operator: str, kinds: set[int]) -> None:
    graph = ConstructionGraph(operator, "h200", "extended")
    template = Template(graph)
    rows = template.rows(template.random(60, np.random.default_rng(0)))
    cores = [Schedule(row).knob("tensor_core") for row in rows]
    assert len(rows) == 60 and {core: cores.count(core) for core in kinds} == {core: 60 // len(kinds) for core in kinds}
    assert all(graph.is_legal(Schedule(row)) for row in rows)


def test_a_template_of_one_program() -> None:
    template = Template(ConstructionGraph("gemm(m=1, n=1, k=1)", "h200", "compact"))
    assert template.enumerated is not None and len(template.enumerated) == 1
    assert template.mutated(template.enumerated, np.random.default_rng(0)).shape == template.enumerated.shape


def test_average_recall() -> None:
    labels = np.array([4.0, 3.0, 2.0, 1.0])
    assert average_recall(labels, labels, 4) == 1.0
    assert average_recall(-labels, labels, 2) == 0.0
    assert average_recall(np.array([3.0, 4.0, 2.0, 1.0]), labels, 2) == pytest.approx(0.5)


def learnable() -> tuple[np.ndarray, np.ndarray]:
    """Features of programs and labels that follow from them."""
    graph = ConstructionGraph(GEMM, "zen5_1c", "compact")
    rows = np.concatenate(list(graph.enumerate()))[::5]
    seconds = graph.latencies(rows)
    return loop_features(graph, rows), seconds.min() / seconds


MODELS = [TreeModel("rank"), TreeModel("regression"), TreeGru("rank", minibatches=60), TreeGru("regression", minibatches=60)]
MODELS += [Ensemble([TreeModel("regression", seed=i) for i in range(3)], a) for a in ("mean", "ucb", "ei")]


@pytest.mark.parametrize("which", thorough_but(range(len(MODELS)), 0, 6))
def test_a_model_ranks_programs_it_has_not_seen(which: int) -> None:
    model, (features, labels) = MODELS[which], learnable()
    assert (model.predict(features) == 0).all() or isinstance(model, Ensemble)
    model.fit(features[::2], labels[::2])
    scores = model.predict(features[1::2])
    count = len(scores) // 4
    best = np.argsort(-scores)[:count]
    assert labels[1::2][best].mean() > 1.5 * labels[1::2].mean()
    model.fit(features[::2], labels[::2])
    assert (model.predict(features[1::2]) == scores).all(), "the same data gives the same model"


def test_the_tree_network_is_a_gru_from_the_leaves_to_the_root() -> None:
    """With PyTorch's own cell, one program and node after the other: accesses, loops longer than 1 from the inside, knobs."""

    features, labels = learnable()
    model = TreeGru("rank", minibatches=5)
    model.fit(features, labels)
    features = features[:: len(features) // 9]
    blocks, (_, _, counts, strides, knobs) = loop_blocks(features), model._inputs(features)
    assert len(set(counts.tolist())) > 1, "programs of several depths"
    scores = [_score(model, block, strides[i], knobs[i]) for i, block in enumerate(blocks)]
    np.testing.assert_allclose(model.predict(features), scores, rtol=1e-4, atol=1e-4)


def _score(model: TreeGru, block: np.ndarray, strides: Any, knobs: Any) -> float:
    """What the network should say of one program [LOOPS, BLOCK_WIDTH]."""
    import torch

    net = model._network
    with torch.no_grad():
        leaves = net.cell(net.variables.weight)
        buffers = zip(net.tensors, strides.T, strict=True)
        state = sum(net.cell(buffer[None], leaves[moves > 0].sum(dim=0)[None]) for buffer, moves in buffers)
        for at in sorted(np.flatnonzero(block[:, LENGTH] > 1.0), key=lambda at: -block[at, POSITION]):
            touches = block[at, len(LOOP_FIELDS) :].reshape(MAX_TENSORS, -1)[:, [COUNT, REUSE]].ravel()
            own = [block[at, LENGTH], block[at, TOPDOWN], *block[at, ANNOTATION : ANNOTATION + len(ANNOTATIONS)]]
            numbers = torch.tensor(np.concatenate([own, touches]), dtype=torch.float32)
            state = net.cell(net.loop(numbers)[None], state + leaves[at % MAX_AXES])
        return float(net.decoder(net.cell(net.knobs(knobs)[None], state)))


def test_a_margin_shifts_what_is_learned() -> None:
    features, labels = learnable()
    model = TreeModel("regression")
    model.fit(features, np.zeros(len(labels)), margin=labels)
    assert np.corrcoef(model.predict(features), labels)[0, 1] < 0, "the trees take the margin away"
    assert np.abs(model.predict(features, margin=labels)).mean() < 0.3 * np.abs(labels).mean()


def test_unknown_settings_are_named() -> None:
    for make, word in (
        (lambda: TreeModel("hinge"), "hinge"),
        (lambda: TreeGru("hinge"), "hinge"),
        (lambda: Ensemble([], "luck"), "luck"),
        (lambda: AutoTvm(model="forest"), "forest"),
        (lambda: AutoTvm(features="cubes"), "cubes"),
        (lambda: AutoTvm(batch=0), "batch=0"),
        (lambda: AutoTvm(epsilon=2.0), "epsilon=2.0"),
        (lambda: AutoTvm(acquisition="ei"), "regression"),
        (lambda: AutoTvm(model="treegru", features="curve"), "loops"),
    ):
        with pytest.raises(ValueError, match=word):
            make()


def test_annealing_finds_the_top_of_a_score_and_skips_what_was_tried() -> None:
    template = Template(ConstructionGraph(GEMM, "zen5_1c", "compact"))
    assert template.enumerated is not None
    score = lambda points: -np.abs(points - 1).sum(axis=1).astype(float)  # noqa: E731
    ordered = template.enumerated[np.argsort(-score(template.enumerated), kind="stable")]
    annealing = AnnealingOnModel(template)
    rng = np.random.default_rng(0)
    found, scores = annealing.best(score, 8, set(), rng)
    assert len(found) == 8 and (scores == score(found)).all() and (np.diff(scores) <= 0).all()
    assert scores[0] == score(ordered)[0]
    again, _ = annealing.best(score, 8, set(keys_of(found)), rng)
    assert not set(keys_of(again)) & set(keys_of(found))


def test_a_diverse_batch_covers_values() -> None:
    points = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [2, 2]])
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.1])
    assert diverse_pick(points, scores, 2, 0.0).tolist() == [0, 1]
    assert diverse_pick(points, scores, 3, 1.0).tolist() == [0, 3, 4]
    assert diverse_pick(points, scores, 9, math.inf).tolist()[:2] == [0, 3] and len(diverse_pick(points, scores, 9, 1.0)) == 5


VARIANTS: list[dict[str, object]] = [
    {}, {"objective": "regression"}, {"features": "curve"}, {"features": "knobs"}, {"diversity": 2},
    {"objective": "regression", "acquisition": "ei"},
]  # fmt: skip


@pytest.mark.parametrize("changes", thorough_but(VARIANTS, {}), ids=str)
def test_searches_beat_their_random_start_and_repeat(changes: dict[str, object]) -> None:
    def search(seed: int) -> list[tuple[str, float]]:
        strategy = get_strategy("autotvm", space="compact", batch=16, warm_up=16, **changes)
        return [(r.schedule, r.seconds) for r in optimize(GEMM, "zen5_1c", strategy, 96, seed, "recorded").trace]

    trace = search(1)
    assert trace == search(1)
    assert len(trace) == 96 == len({schedule for schedule, _ in trace})
    assert min(s for _, s in trace[16:]) < min(s for _, s in trace[:16])


@pytest.mark.thorough
@pytest.mark.parametrize(("operator", "machine"), thorough_but(TASKS, TASKS[1]))
@pytest.mark.parametrize("strategy", [AutoTvm(batch=16, warm_up=16), AutoTvmSmall()])
def test_searches_of_the_extended_space_ask_no_analytic_model(strategy: AutoTvm, operator: str, machine: str) -> None:
    session = Session(Task.of(operator, machine, "analytic", strategy.space), Budget(trials=40))
    from agents.optimizer import run

    run(strategy, session, 0)
    assert session.trials == 40 and session.evaluations == 0
    seconds = [row.seconds for row in session.trace]
    assert np.median(seconds[24:]) < np.median(seconds[:8])


def test_a_search_ends_when_the_space_is_exhausted() -> None:
    graph = ConstructionGraph("gemm(m=8, n=8, k=4)", "h200", "compact")
    total = sum(len(rows) for rows in graph.enumerate())
    for name in ("autotvm", "autotvm_small"):
        trace = optimize("gemm(m=8, n=8, k=4)", "h200", name, 10 * total, backend="analytic", space="compact").trace
        assert len(trace) == total


@pytest.mark.thorough
def test_treegru_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotvm, "TreeGru", partial(TreeGru, minibatches=50))
    strategy = AutoTvm(space="compact", model="treegru", batch=16, warm_up=16)
    assert len(optimize(GEMM, "zen5_1c", strategy, 32, backend="recorded").trace) == 32


@pytest.mark.thorough
def test_a_history_of_other_tasks_makes_a_better_start() -> None:
    """The first batch is proposed by the global model: most of it is faster than most of a random one."""

    def start(history: str) -> list[float]:
        strategy = AutoTvm(space="compact", batch=16, warm_up=16, history=history)
        trace = optimize(GEMM, "zen5_1c", strategy, 16, 0, "recorded").trace
        assert len(trace) == 16
        return [row.seconds for row in trace]

    assert np.median(start(str(RECORDINGS / "zen5_1c"))) < 0.5 * np.median(start(""))


def test_a_history_without_other_tasks_is_named() -> None:
    table = RECORDINGS / "zen5_1c" / "gemm_m256_n128_k128.parquet"
    with pytest.raises(ValueError, match="0 trials of other operators"):
        optimize(GEMM, "zen5_1c", AutoTvm(space="compact", history=str(table)), 1, backend="recorded")
    with pytest.raises(ValueError, match="nowhere"):
        optimize(GEMM, "zen5_1c", AutoTvm(history="/nowhere"), 1, backend="analytic")


def test_batches_may_be_random_altogether() -> None:
    found = optimize(
        "gemm(m=16, n=16, k=16)", "h200", "autotvm", trials=20, backend="analytic", epsilon=1.0, batch=8, warm_up=8, chains=4
    )
    assert len(found.trace) == 20
