"""The tables of plans: every number is percent above the proved optimum."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agents.cli.arguments import compose
from experiments.networks import attention, suite
from experiments.tables import plans
from experiments.tables.reproduce import reproduce


def test_tables_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),))
    monkeypatch.setattr(plans, "SUITE", {"small": small})
    monkeypatch.setattr(suite, "SUITE", {"small": small})
    monkeypatch.setattr(plans, "names_of", lambda part: ["layered(seed=4)"])
    monkeypatch.setattr(plans, "BUDGETS", (20, 60))
    settings = OmegaConf.merge(compose([], "reproduce"), {"output": str(tmp_path)})
    (table,) = reproduce(OmegaConf.merge(settings, {"table": "plans"}))  # type: ignore[arg-type]
    (row,) = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows)
    assert row["nodes"] == 6.0 and 0 < row["kernels"] <= 6 and row["fine"] >= row["local"] == 0.0  # type: ignore[operator]
    assert all(row[name] >= 0 for name in ("cut_all", *plans.SEARCHES))  # type: ignore[operator]
    tables = reproduce(OmegaConf.merge(settings, {"table": "plan_searches"}))  # type: ignore[arg-type]
    assert [one.rows[-1][0] for one in tables] == ["local", "local"] and tables[0].rows[0][0] == "random"
    assert plans.above(1.0 - 1e-15, 1.0) == 0.0 and plans.above(1.02, 1.0) == 2.0
