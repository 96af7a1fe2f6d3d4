"""Tables of papers: found by name, stamped, of today's model; the model against recorded tables."""

from __future__ import annotations

import io
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.settings import ROOT
from experiments.tables.reproduce import OLDER, known, lines, mark, marked, reproduce, show
from experiments.tables.sim_to_real import read_folder, regret_of_first, regret_of_random, regrets
from experiments.tables.table import Stamp, Table
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import file_name, write_table


def _config(table: str, folder: Path, **values: object) -> DictConfig:
    """As conf/reproduce.yaml, without its part for the command line."""
    config = compose([], "reproduce")
    return OmegaConf.merge(config, {"table": table, "output": str(folder), **values})  # type: ignore[return-value]


def test_gpu_published(tmp_path: Path) -> None:
    (table,) = reproduce(_config("gpu_published", tmp_path, limit=2))
    assert [row[3] for row in table.rows] == ["45.5-45.7", "47.3-50.5"] and all(0.8 < row[4] < 1.2 for row in table.rows)
    assert "predicted" in table.columns[2] and "published" in table.columns[3]
    assert "nothing was timed" in (tmp_path / "gpu_published.md").read_text()


def test_tables_are_found_in_their_folder() -> None:
    """Modules that make tables, and not those that help them."""
    assert {"gensor_gemm", "ansor", "sim_to_real"} <= set(known()) and not {"reproduce", "table", "recorded"} & set(known())


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing_table1.*expected one of ansor, autotvm"):
        reproduce(_config("nothing_table1", tmp_path))


def test_a_table_says_how_its_numbers_came_about() -> None:
    table = Table("T", Stamp.PREDICTED, ("what", "ours"), (("a", 1.0),), ("a note",), ("t.png",))
    lines = table.markdown().splitlines()
    said = "latencies are the analytic model's, no kernel was timed; no claim rests on this table"
    assert lines[2] == f"Stamp: **predicted** ({said})."
    assert "![T](t.png)" in lines and lines[-1] == "- a note"
    console = Console(file=io.StringIO(), width=120)
    show(console, table)
    assert "stamp: predicted" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="1 cells"):
        Table("T", Stamp.REPLICATED, ("what", "ours"), (("a",),), ())


SEARCHED = ("gensor_*", "ansor*", "autotvm*")
"""Pages of searches by the model of a GPU; that of IntelliGen's fused operators is of another model."""
PAGES = [page for pattern in SEARCHED for page in sorted((ROOT / "results" / "reproduce").glob(f"{pattern}.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_predicted_page_is_of_the_trees_model(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if OLDER in text:
        return
    found = dict(marked(text))
    assert found, f"{page.name} names no model: expected a line such as {lines(['rtx4090'])[0]!r}"
    assert found == {name: mark(name) for name in found}, f"make {page.name} again: gensor reproduce table={page.stem}"


def test_a_mark_follows_the_machine() -> None:
    assert mark("rtx4090") != mark("orin_nano")
    assert dict(marked(lines(["rtx4090"])[0])) == {"rtx4090": mark("rtx4090")}


TRAIN, TEST = "gemv(m=16, k=64)", "depthwise_conv2d(n=1, c=4, h=8, w=8, r=3, s=3, stride=1, padding=1)"


def _write(folder: Path, text: str, factor: float, complete: bool = True, shuffled: bool = False) -> None:
    """A table of space compact with `factor` times the model's seconds, in an order of chance where `shuffled`."""
    op, hw = operators.parse(text), hardware.get("cascade_lake")
    graph = ConstructionGraph(op, hw, "compact", calibrated=False)
    schedules = [Schedule(row) for batch in graph.enumerate() for row in batch]
    seconds = factor * np.array([graph.latency(s) for s in schedules])
    if shuffled:
        seconds = np.random.default_rng(0).permutation(seconds)
    records = []
    for i, (schedule, t) in enumerate(zip(schedules, seconds, strict=True)):
        samples = tuple(t * (1 + 1e-6 * j) for j in range(6))
        found = Measurement(Status.OK, samples, {"passes": [1, 1, 1, 2, 2, 2]}, "", f"{i:016x}")
        records.append(Record("somewhere", str(op), str(schedule), found, 0.0))
    about = {"operator": str(op), "space": "compact", "complete": complete, "hardware": hardware.to_json(hw)}
    write_table(folder / f"{file_name(op)}.parquet", records, about)


def _report(out: Path, folders: list[Path]) -> list:
    config = {"table": "sim_to_real", "output": str(out), "limit": None, "recordings": [str(f) for f in folders], "figures": True}
    config["space"] = "compact"
    return reproduce(OmegaConf.create(config))


@pytest.mark.thorough
def test_a_model_that_is_right_up_to_a_factor(tmp_path: Path) -> None:
    assert (operators.part_of(operators.parse(TRAIN)), operators.part_of(operators.parse(TEST))) == ("train", "test")
    folder = tmp_path / "made_up"
    folder.mkdir()
    _write(folder, TRAIN, 2.0)
    _write(folder, TEST, 3.0)
    tables = _report(tmp_path / "out", [folder])
    titles = ("classes of operators", "ranking and realised regret", "calibration")
    assert [t.title for t in tables] == [f"made_up: {title}" for title in titles]
    (machine,) = json.loads((tmp_path / "out" / "sim_to_real_values.json").read_text())["machines"]
    by_name = {row["operator"]: row for row in machine["tables"]}
    train, test = by_name[str(operators.parse(TRAIN))], by_name[str(operators.parse(TEST))]
    for row, factor in ((train, 2.0), (test, 3.0)):
        assert row["before"]["spearman"] == pytest.approx(1.0) and row["again"] == pytest.approx(1.0)
        assert row["before"]["regrets"] == [0.0, 0.0, 0.0]
        assert row["before"]["ratio"] == pytest.approx([factor] * 3, rel=1e-4)
    # the fit has seen the train table alone: it comes near 1 there, and leaves what the other differs by
    assert train["after"]["ratio"][0] == pytest.approx(1.0, abs=0.15)
    assert test["after"]["ratio"][0] > 1.2
    for name in ("times", "regret"):
        assert (tmp_path / "out" / f"sim_to_real_made_up_{name}.png").stat().st_size > 10_000


def test_a_model_that_knows_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "made_up"
    folder.mkdir()
    _write(folder, TRAIN, 1.0, shuffled=True)
    (table,) = read_folder(folder, "compact")
    predicted = table.sample.predicted()
    curve, chance = regret_of_first(table, predicted), regret_of_random(table)
    assert curve[0] == regrets(table)[np.argmin(predicted)] and curve[-1] == chance[-1] == 0.0
    assert (np.diff(curve) <= 0).all() and (np.diff(chance) <= 1e-12).all()
    assert chance[0] == pytest.approx(regrets(table).mean())
    pairs = [min(a, b) for a, b in itertools.combinations(regrets(table), 2)]
    assert chance[1] == pytest.approx(math.fsum(pairs) / len(pairs))


def test_tables_that_do_not_serve_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "made_up"
    folder.mkdir()
    _write(folder, TRAIN, 1.0, complete=False)
    with pytest.raises(ValueError, match="no complete recorded table"):
        _report(tmp_path / "out", [folder])
    _write(folder, TEST, 1.0)
    with pytest.raises(ValueError, match="train part"):
        _report(tmp_path / "out", [folder])
