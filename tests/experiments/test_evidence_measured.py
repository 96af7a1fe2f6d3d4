"""The table of Measured v1 that is made from a lease's trials."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from experiments.evidence import measured as lease
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records import measured

RAW = ROOT / "results" / "h200" / "raw" / "2026-11-27"


def test_the_shipped_table_is_that_of_the_leases_rows(tmp_path: Path) -> None:
    assert lease.main([str(RAW), "h200", "--output", str(tmp_path)]) == 0
    for ending in ("md", "json"):
        assert (tmp_path / f"h200.{ending}").read_text() == (measured.FOLDER / f"h200.{ending}").read_text()
    found, shipped = measured.load(tmp_path / "h200.parquet"), measured.load("h200")
    assert found.equals(shipped) and len(list(tmp_path.iterdir())) == 3


def test_times_origins_and_parts_are_those_of_the_trials() -> None:
    table, rng = measured.load("h200"), np.random.default_rng(0)
    trials = {(row["operator"], row["schedule"]): row for row in read_rows(RAW / "trials.jsonl.gz")}
    proposals = read_rows(RAW / "proposals.jsonl.gz")
    for place in rng.choice(len(table), 12, replace=False):
        row = table.iloc[place]
        trial = trials[row.operator, row.schedule]
        assert row.part == operators.part_of(operators.parse(row.operator)) and row.status == trial["status"]
        quiet = Measurement(Status(trial["status"]), tuple(trial["samples"])).quiet_seconds
        assert row.quiet == pytest.approx(quiet, rel=1e-3)
        of = [(p["arm"], p["rank"] - 1) for p in proposals if (p["operator"], p["digest"]) == (row.operator, trial["digest"])]
        assert (row.origin, row["rank"]) in of
        assert row.origin == "markov_ext" or "markov_ext" not in {arm for arm, _ in of}


def test_an_environment_of_the_card_is_paid_by_them() -> None:
    table = measured.load("h200", "train")
    row = table[table.status == Status.OK.value].iloc[0]
    hw = hardware.get("h200")
    graph = ConstructionGraph(row.operator, hw, "extended")
    known, other = get_backend("measured", hw).measure(graph.operator, [Schedule.parse(row.schedule), graph.initial()], hw)
    assert known.seconds == pytest.approx(row.quiet) and other.status is Status.NOT_RECORDED and math.isinf(other.seconds)


def test_names_by_kind() -> None:
    assert measured.names("gpu") == ["h200"] and "zen4_1c" in measured.names("cpu")
    assert sorted([*measured.names("gpu"), *measured.names("cpu")]) == measured.names()
    assert measured.here("h200") == measured.machine_of("h200") and measured.here("zen4_1c").name == "host"
