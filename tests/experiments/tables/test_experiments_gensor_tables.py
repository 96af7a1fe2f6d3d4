"""Gensor's tables: made of small runs on the model, stamped, beside the published numbers, and continued where they stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from agents.cli.arguments import compose
from agents.runs.jobs import Jobs
from agents.runs.settings import code_digest
from experiments.tables import dynamic_shapes
from experiments.tables.gensor import figures as gensor_figures
from experiments.tables.gensor import (
    gensor_ablation,
    gensor_changing_shapes,
    gensor_compile_time,
    gensor_lengths,
    gensor_operators,
    gensor_over_time,
    searches,
)
from experiments.tables.gensor import published as gensor_published
from experiments.tables.gensor.gensor_changing_shapes import ahead
from experiments.tables.gensor.gensor_compile_time import slope
from experiments.tables.gensor.gensor_gemm import profile
from experiments.tables.gensor.gensor_operators import differ
from experiments.tables.gensor.published import HOST, ORIN, RTX_4090, stand_in
from experiments.tables.gensor.searches import LIVE, MODEL, Searches, mean_text
from experiments.tables.reproduce import reproduce
from experiments.tables.table import Stamp, Table
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.analytic import AnalyticBackend
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.thorough import thorough_but

pytestmark = COARSE_FIGURES
TINY = ("gemm(m=32, n=32, k=32)", "gemv(m=64, k=64)")
EACH_CLASS = (
    "conv2d(n=1, c=8, k=16, h=18, w=18, r=3, s=3)", *TINY, "avg_pool2d(n=1, c=8, h=18, w=18, r=2, s=2, stride=2)",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search before the first to load a strategy."""
    monkeypatch.setattr(Jobs, "warm_up", lambda *_: None)


def _config(table: str, folder: Path, **values: object) -> DictConfig:
    """A small run of conf/reproduce.yaml by the model, without figures."""
    config = compose([], "reproduce")
    small = {"table": table, "output": str(folder), "limit": 1, "model_trials": 6, "trials": 3, "rounds": 2, "figures": False}
    return OmegaConf.merge(config, small, {"tiers": ["model"]}, values)  # type: ignore[return-value]


def _made(table: str, folder: Path, **values: object) -> list[Table]:
    """The tables, all of which have a stamp, conditions and as many cells as columns in words on the page."""
    tables = reproduce(_config(table, folder, **values))
    page = (folder / f"{table}.md").read_text()
    saved = json.loads((folder / f"{table}.json").read_text())
    assert saved["code"] == code_digest() and len(saved["tables"]) == len(tables)
    for made, kept in zip(tables, saved["tables"], strict=True):
        assert kept["stamp"] == made.stamp and f"Stamp: **{made.stamp}**" in page
        assert any(note.startswith("Ours:") for note in made.notes) and any(note.startswith("Published:") for note in made.notes)
        assert all((folder / name).stat().st_size < 300_000 for name in made.figures)
    return tables


@pytest.mark.thorough
def test_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, board = gensor_operators.FIGURES  # there are no pools in the second
    small = (*desk[:2], EACH_CLASS, desk[3]), (*board[:2], EACH_CLASS[:3], board[3])
    monkeypatch.setattr(gensor_operators, "FIGURES", small)
    classes, each, orin, _ = _made("gensor_operators", tmp_path, figures=True)
    assert classes.stamp == Stamp.PREDICTED and classes.figures == ("gensor_operators_rtx4090.png",)
    names = [f"{name} (1 shapes)" for name in gensor_published.CLASSES.values()]
    assert [row[0] for row in classes.rows] == [*names, "all (4 shapes)"]
    column = classes.columns.index("Gensor over Roller, published")
    assert classes.rows[-1][column] == pytest.approx(1.374, abs=2e-3)  # derived from the figure beforehand
    assert all(float(str(row[1])[:4]) > 0.95 for row in classes.rows)  # the graph holds the tree
    assert len(each.rows) == 4 and all(isinstance(row[1], float) and row[1] > 0 for row in each.rows)
    assert len(orin.rows) == 4 and "orin_nano" in orin.title


@pytest.mark.thorough
def test_gemm_profile(tmp_path: Path) -> None:
    (table,) = _made("gensor_gemm", tmp_path, limit=2)
    published = [row[table.columns.index("ms") + 1] for row in table.rows]
    assert published == [0.287, None, 0.303, 0.369, None, 0.387]
    for row in table.rows:
        compute, memory, hit, ms = (row[table.columns.index(c)] for c in ("compute %", "memory busy %", "L2 hit %", "ms"))
        assert 0 < compute <= 101 and 0 < memory <= 101 and 0 < hit <= 100 and 0.05 < ms < 2.0  # type: ignore[operator]


@pytest.mark.thorough
def test_profile_of_a_product_that_stays_in_the_cache() -> None:
    graph = ConstructionGraph("gemm(m=1024, n=1024, k=1024)", "rtx4090")
    made = profile(graph, min(graph.successors(graph.initial()).values(), key=graph.latency))
    assert made.l2_hit > 0.95 and 0 < made.occupancy <= 1.0  # 12 MB in an L2 of 72 MB


@pytest.mark.thorough
def test_ablation_by_the_model(tmp_path: Path) -> None:
    (table,) = _made("gensor_ablation", tmp_path)
    assert table.stamp == Stamp.PREDICTED
    ours, theirs = (table.columns.index(c) for c in ("markov over roller, ours", "Gensor over Roller, published"))
    assert [round(float(row[theirs]), 2) for row in table.rows] == [1.52, 1.20, 2.04, 1.14]  # type: ignore[arg-type]
    assert all(float(row[ours]) > 0.95 for row in table.rows)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_ablation_on_this_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run; the same command again searches and times nothing."""
    monkeypatch.setattr(gensor_ablation, "HOST", TINY[:1])
    tables = [_made("gensor_ablation", tmp_path, tiers=["live"])]
    monkeypatch.setattr(Jobs, "run", None)
    monkeypatch.setattr("experiments.comparison.retime.Retimer._time", None)
    tables.append(_made("gensor_ablation", tmp_path, tiers=["live"]))
    assert tables[0] == tables[1]
    ((table,), _) = tables
    assert table.stamp == Stamp.REPLICATED and "no virtual threads" in " ".join(table.notes)
    assert [row[0] for row in table.rows] == ["gemm (1 shapes)", "all (1 shapes)"]
    assert all(float(str(cell)) > 0 for cell in table.rows[0][1:])


class _Posing(AnalyticBackend):
    """The model, posing as the hardware at hand, so that tables of tier `live` are made without kernels."""


@pytest.fixture
def posing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "get_backend", lambda *_: _Posing())


@pytest.mark.thorough
@pytest.mark.parametrize("all_strategies", thorough_but([False, True], False), ids=["some", "all"])
def test_compile_time(tmp_path: Path, posing: None, monkeypatch: pytest.MonkeyPatch, all_strategies: bool) -> None:
    some = {} if all_strategies else {"CONSTRUCTING": ("markov", "roller"), "MEASURING": ("random",)}
    some |= {} if all_strategies else {"MEASURING_LIVE": ("ansor_small", "random")}
    for name, strategies in some.items():
        monkeypatch.setattr(gensor_compile_time, name, strategies)
    model, live = _made("gensor_compile_time", tmp_path, limit=3, tiers=["model", "live"], figures=True)
    assert model.columns == ("seconds", "128", "256", "512", "slope") and model.stamp == Stamp.PREDICTED
    assert live.stamp == Stamp.REPLICATED and "flat." in live.notes[0]
    assert not any(": flat" in note or ": not flat" in note for note in model.notes)  # no claim on what is predicted
    rows = {str(row[0]): row for row in live.rows}
    assert rows["Gensor, published"][1:4] == (3.0, 2.2, 2.6) and "ansor_small (3 trials)" in rows
    assert 0 < rows["markov: construction alone"][1] <= rows["markov (1 trial)"][1]  # type: ignore[operator]


def test_slope() -> None:
    sizes = [128, 256, 512, 1024]
    cubic = np.array([[(n / 128) ** 3, (n / 128) ** 3] for n in sizes])
    assert slope(sizes, cubic) == pytest.approx((3.0, 3.0, 3.0))
    middle, low, high = slope(sizes, np.array([[1.0, 1.2], [1.1, 0.9], [1.0, 1.1], [0.9, 1.1]]))
    assert low < 0 < high and low < middle < high
    assert np.isnan(slope(sizes[:2], cubic[:2])).all()
    cubic[3] = np.nan  # a search that failed is left out
    assert slope(sizes, cubic)[0] == pytest.approx(3.0)


@pytest.mark.thorough
def test_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, posing: None) -> None:
    for tier in (MODEL, LIVE):
        monkeypatch.setitem(gensor_over_time.OPERATORS, tier, (TINY, 1))
    model, live = _made("gensor_over_time", tmp_path, tiers=["model", "live"], figures=True)
    assert (model.stamp, live.stamp) == (Stamp.PREDICTED, Stamp.REPLICATED)
    for row in (row for table in (model, live) for row in table.rows if "published" not in str(row[0])):
        first, then, _, _, end, total = row[1:]
        assert 0 < first <= total and 0 < then <= 1.0 and 0 < end <= 1.0  # type: ignore[operator]
    assert [row[5] for row in live.rows[-3:]] == pytest.approx([0.70, 0.865, 1.0], abs=2e-3)


@pytest.mark.thorough
def test_changing_shapes(tmp_path: Path) -> None:
    speed, cost = _made("gensor_changing_shapes", tmp_path, limit=2, calls=100, figures=True)
    assert [row[speed.columns.index("Gensor over Roller, published")] for row in speed.rows] == [1.07, 1.17]
    for row in cost.rows:
        changes, calls, total = (row[cost.columns.index(c)] for c in cost.columns[3:6])
        assert total == pytest.approx(changes + calls)  # type: ignore[operator]
    assert cost.rows[0][cost.columns.index("published, total over Roller's")] == pytest.approx(1419 / 1495)
    with pytest.raises(ValueError, match="calls is 0"):
        gensor_changing_shapes.make(_config("gensor_changing_shapes", tmp_path, calls=0), tmp_path)


@pytest.mark.thorough
def test_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every side computes a bucket's results; on several threads it is refused."""
    for name, value in {"LAYERS": 1, "WIDTH": 32, "HEADS": 2, "WORDS": 50}.items():
        monkeypatch.setattr(gensor_lengths, name, value)
    monkeypatch.setenv("GENSOR_GYM_THREADS", "1")
    (table,) = _made("gensor_lengths", tmp_path, limit=2, trials=1)
    assert [row[:2] for row in table.rows] == [("20", "32"), ("50", "64")]
    assert [row[-1] for row in table.rows] == pytest.approx([1.07 / 0.57, 1.17 / 0.59])
    assert all(" ms [" in str(cell) or " µs" in str(cell) for row in table.rows for cell in row[2:6])
    monkeypatch.setenv("GENSOR_GYM_THREADS", "2")
    with pytest.raises(ValueError, match="host of 2 threads: expected the host and GENSOR_GYM_THREADS=1"):
        gensor_lengths.make(_config("gensor_lengths", tmp_path), tmp_path)


@pytest.mark.thorough
def test_dynamic_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every side computes the module's results."""
    for name, value in {"LAYERS": 1, "WIDTH": 32, "HEADS": 2, "WORDS": 50, "MOST": 64}.items():
        monkeypatch.setattr(dynamic_shapes, name, value)
    monkeypatch.setenv("GENSOR_GYM_THREADS", "1")
    (table,) = _made("dynamic_shapes", tmp_path, limit=2, trials=1)
    assert [row[:2] for row in table.rows] == [(row[0], length) for row in table.rows[::2] for length in ("16", "24")]
    assert [row[3] is None for row in table.rows] == [False, False, True, True] and "buckets of 16, 32, 48, 64" in table.notes[1]


def test_calls_after_which_a_strategy_is_ahead() -> None:
    spent = {"markov": np.array([1.0, 1.0]), "search": np.array([6.0, 6.0]), "tree": np.array([0.5, 0.5])}
    run = {"markov": np.array([2e-3, 2e-3]), "search": np.array([1e-3, 1e-3]), "tree": np.array([3e-3, 3e-3])}
    assert (ahead(spent, run, "markov"), ahead(spent, run, "search"), ahead(spent, run, "tree")) == ("-", "5e+03", "up to 500")
    assert ahead(spent, run | {"tree": run["search"]}, "tree") == "always"
    assert ahead(spent, run | {"search": run["tree"]}, "search") == "never"


def test_stamps(tmp_path: Path, posing: None) -> None:
    config = _config("gensor_operators", tmp_path)
    here = Searches(config, tmp_path, LIVE, "rtx4090")
    assert (here.stamp("rtx4090"), here.stamp("orin_nano")) == (Stamp.REPRODUCED, Stamp.REPLICATED)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tiers"):
        reproduce(_config("gensor_operators", tmp_path, tiers=["paper"]))
    with pytest.raises(ValueError, match="seeds"):
        reproduce(_config("gensor_ablation", tmp_path, seeds=[]))
    with pytest.raises(ValueError, match="model alone"):
        reproduce(_config("gensor_gemm", tmp_path, tiers=["live"]))


def test_published_means_and_disagreement() -> None:
    library, roller, gensor, over = gensor_published.class_means(gensor_published.FIGURE_6, None)
    assert (library, roller, gensor) == pytest.approx((0.997, 0.604, 0.830), abs=2e-3)
    assert over == pytest.approx(gensor / roller)
    assert differ(0.8, 1.1) and differ(2.0, 1.5) and not differ(1.1, 1.3) and not differ(0.99, 1.01)


def test_the_stand_in_set_has_the_figures_numbers_of_operators() -> None:
    for names, figure in ((RTX_4090, gensor_published.FIGURE_6), (ORIN, gensor_published.FIGURE_7)):
        classes = [op.name for ops in stand_in(names).values() for op in ops]
        assert sorted(classes) == sorted(gensor_published.CLASSES[name[0]] for name in figure)
    assert sum(map(len, stand_in(HOST, 1).values())) == len(gensor_published.CLASSES)


def test_means_of_few_operators_have_no_interval() -> None:
    assert mean_text(np.log([[2.0]])) == "2.00" and mean_text(np.empty((0, 1))) == "-"
    text = mean_text(np.log([[1.0], [2.0], [4.0]]))
    assert text.startswith("2.00 [1.") and text.endswith("]")


def test_no_two_lines_of_a_figure_look_alike() -> None:
    """Ours: where colours come again, marks differ. The paper's have the looks of their counterparts here."""
    ours = [
        "markov (1 trial)", "markov_ext (1 trial)", "roller (1 trial)", "welder (1 trial)", "greedy (1 trial)", "beam (1 trial)",
        "markov, 10 timed (10 trials)", "roller, 10 timed (10 trials)", "ansor_small (16 trials)", "autotvm_small (16 trials)",
        "random (16 trials)", "genetic (16 trials)", "markov: construction alone", "roller: construction alone",
    ]  # fmt: skip
    looks = gensor_figures._looks([*ours, "Gensor", "Roller"])
    assert len({looks[name] for name in ours}) == len(ours)
    assert len({looks[name][0] for name in ours if name.startswith("markov") and "_ext" not in name}) == 1
    assert (looks["Gensor"], looks["Roller"]) == (looks["markov (1 trial)"], looks["roller (1 trial)"])
