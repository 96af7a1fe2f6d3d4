"""The tables of plans: every number is percent above the proved optimum."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agents.cli.arguments import compose
from experiments.networks import attention, ranks, suite
from experiments.tables import plan_searches, plans, plans_measured
from experiments.tables.reproduce import reproduce


def test_tables_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),))
    monkeypatch.setattr(plans, "SUITE", {"small": small})
    monkeypatch.setattr(suite, "SUITE", {"small": small})
    monkeypatch.setattr(plans, "BUDGET", 60)
    settings = OmegaConf.merge(compose([], "reproduce"), {"output": str(tmp_path), "table": "plans"})
    (table,) = reproduce(settings)  # type: ignore[arg-type]
    (row,) = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows)
    assert row["nodes"] == 6.0 and 0 < row["kernels"] <= 6 and row["fine"] >= row["local"] == 0.0  # type: ignore[operator]
    assert all(row[name] >= 0 for name in ("cut_all", *plans.SEARCHES))  # type: ignore[operator]
    assert plans.above(1.0 - 1e-15, 1.0) == 0.0 and plans.above(1.02, 1.0) == 2.0


def test_tables_of_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_searches, "names_of", lambda part: ["layered(seed=4)"])
    monkeypatch.setattr(plan_searches, "BUDGETS", (20, 60))
    monkeypatch.setattr(plan_searches, "UPDATES", 1)
    monkeypatch.setattr(plan_searches, "RESAMPLES", 20)
    more = {"output": str(tmp_path), "table": "plan_searches", "seeds": [0, 1]}
    tables = reproduce(OmegaConf.merge(compose([], "reproduce"), more))  # type: ignore[arg-type]
    assert [len(table.rows) for table in tables] == [len(plans.SEARCHES) + 1 + len(plan_searches.RULES)] * 2
    rows = {row[0]: row for row in tables[0].rows}
    assert rows["annealing"][4] is None and rows["random"][3] > 0.0 and rows["local"][1] == "0.00"  # type: ignore[operator]
    assert float(str(rows["random"][1]).split(" ")[0]) >= float(str(rows["random"][2]).split(" ")[0]) > 0.0
    assert tables[1].figures == ("plan_searches.png",) and (tmp_path / "plan_searches.png").stat().st_size > 10_000


def test_table_of_measured_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network in this process: every plan is right and timed, a lost process is an error, a second start reads files."""
    small = ranks.Case(suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),)), 4)
    for module in (ranks, plans_measured):
        monkeypatch.setattr(module, "NETWORKS", {"small": small, "lost": small})
    calls = list[str]()

    def asked(name: str, threads: int, trials: int, rounds: int) -> subprocess.CompletedProcess[str]:
        calls.append(name)
        if name == "lost":
            return subprocess.CompletedProcess([], 1, "", "Killed")
        return subprocess.CompletedProcess([], 0, json.dumps(ranks.timed(name, trials, rounds)), "")

    monkeypatch.setattr(plans_measured, "asked", asked)
    monkeypatch.setattr(plans_measured, "THREADS", (1,))
    more = {"output": str(tmp_path), "table": "plans_measured", "rounds": 6}
    config = OmegaConf.merge(compose([], "reproduce"), more)
    table, pieces = reproduce(config)  # type: ignore[arg-type]
    (row, lost) = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows)
    assert row["fine ms"] > 0 and all(row[f"rank {rank} over fine"] for rank in (1, 10))  # type: ignore[operator]
    assert row["random over fine"] > 0 and -1 <= row["Spearman"] <= 1 and "Killed" in str(lost["fine ms"])  # type: ignore[operator]
    assert " of 1 rows" in table.notes[-1]
    assert pieces.rows and all(cells[4] > 0 for cells in pieces.rows)  # type: ignore[operator]
    assert reproduce(config)[0].rows == table.rows and calls == ["small", "lost", "lost"]  # type: ignore[arg-type]
