"""Tables of networks and graphs: what their cells say of rows, what is missing is named, a run goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from agents.cli.arguments import compose
from experiments.benches.networks import suite as cases
from experiments.benches.networks.process import prepare
from experiments.benches.networks.suite import Case, Settings
from experiments.networks import attention, suite
from experiments.tables import gpu_networks, networks
from experiments.tables.reproduce import known, reproduce
from experiments.tables.table import register_table
from gensor_gym.codegen.cuda import nvrtc

NONE, FINE = networks.MODES["none"], networks.PLAN_SIDES["fine"]


def config(**values: object) -> DictConfig:
    return OmegaConf.merge(compose([], "reproduce"), {"rounds": 3, "limit": 1, **values})  # type: ignore[return-value]


def raced(names: list[str], asked: dict[str, Any], rounds: int, *_: object) -> dict[str, Any]:
    """Ours takes two seconds, cut everywhere four; what one is asked of batch 64 is wrong."""
    seconds = {name: 4.0 if name in ("ours", NONE) else 2.0 for name in names}
    facts = {"arena_bytes": 120, "least_arena_bytes": 100}
    wrong = {name: {"called": "far away"} for name in names if name == FINE and asked["batch"] == 64}
    return {
        "missing": {"eager": "it is not there"} if "eager" in names else {}, "out_of_bounds": wrong,
        "answers": {name: dict(facts) for name in names},
        "samples": {name: {"called": [seconds[name]] * rounds} for name in names if name != "eager"}, "waiting_busy": 0.0,
    }  # fmt: skip


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Races that take no time, and what was asked of them."""
    asked: list[Any] = []

    def race(names: list[str], what: dict[str, Any], *more: Any) -> dict[str, Any]:
        asked.append((names, what))
        if what["network"] == "mlp_2":
            raise cases.Lost("ours: a call holds 99.0 GB, more than 1.0")
        return raced(names, what, *more)

    monkeypatch.setattr(cases, "raced", race)
    return asked


def test_tables_in_rooms_are_known() -> None:
    assert {"onednn_mlp", "onednn_mha", "onednn_memory", "networks"} <= set(known()) and "measured" not in known()
    with pytest.raises(ValueError, match="experiments.tables has one"):
        register_table("onednn_mha")


def test_three_series_beside_the_published(racing: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "PLANS", {"cut_all": None, "fine": None})
    (table,) = networks.make_onednn_mlp(config(limit=2), tmp_path)
    first, second, left_out, _ = table.rows
    assert first[:2] == ("mlp_1", "32") and first[3].startswith("2.00x") and first[4:7] == (1.37, None, 1.58)  # type: ignore[union-attr]
    assert first[8].startswith("1.00x") and first[2].startswith("4 s")  # type: ignore[union-attr]
    assert second[3] is None and any("Wrong, and not shown: ours/fine/hot of mlp_1, batch 64" in note for note in table.notes)
    assert left_out[2:4] == (None, None) and any("Left out: mlp_2, batch 32" in note for note in table.notes)
    assert any("fine_coarse is there" in note for note in table.notes)
    assert racing[0][0] == ["ours", FINE, "inductor"] and racing[0][1]["most_bytes"] == networks.MOST_BYTES / 3
    done = len(racing)
    assert networks.make_onednn_mlp(config(limit=2), tmp_path)[0].rows == table.rows
    assert len(racing) == done + 2  # those that failed are tried again


def test_small_batches_of_large_attention_have_nothing_published(racing: list[Any], tmp_path: Path) -> None:
    (table,) = networks.make_onednn_mha(config(), tmp_path)
    assert [(row[0], row[1], row[4]) for row in table.rows] == [
        ("mha_1", "32", 1.16), ("mha_2", "32", 1.30), ("mha_3", "8", None), ("mha_4", "8", None),
    ]  # fmt: skip


def test_memory_and_networks(racing: list[Any], tmp_path: Path) -> None:
    table = reproduce(config(table="onednn_memory", output=str(tmp_path)))[0]
    (row,) = table.rows
    assert row[4].startswith("1.00x") and row[5].startswith("0.50x") and row[-1] == 1.2  # type: ignore[union-attr]
    assert row[6:10] == ("0.00 MB",) * 4 and racing[0][0] == ["ours", NONE, networks.MODES["whole"]]
    done = len(racing)
    (table,) = networks.make_networks(config(), tmp_path)
    assert racing[done][1]["plan"] == "fine" and racing[0][1]["plan"] == "cut_all"  # as users compile; series begin at the other
    assert table.rows[0][2] is None and any("eager of mobilenet_v2, batch 1: it is not there" in note for note in table.notes)


def test_settings_are_checked() -> None:
    asked, silent = (networks.settings_of(each, "fine") for each in (config(trials=5), config()))
    assert (asked.trials, silent.trials) == (5, networks.TRIALS)
    with pytest.raises(ValueError, match="hardware=h200.*expected host"):
        networks.settings_of(config(hardware="h200"), "fine")
    with pytest.raises(ValueError, match=r"seeds=\[0, 1\]"):
        networks.settings_of(config(seeds=[0, 1]), "fine")


ASKED = {"network": "mlp_1", "batch": 16, "threads": 1, "seed": 0, "trials": 1, "plan": "cut_all", "arena": "hot"}


def test_a_case_that_is_too_large_is_refused_before_anything_is_searched() -> None:
    """Inputs, weights, outputs and the widest pair of values of MLP_1: 13x512, 512x256 and 256x128 weights, 3 biases."""
    weights = 13 * 512 + 512 * 256 + 256 * 128 + 512 + 256 + 128
    size = 4 * (weights + 16 * (13 + 128) + 16 * (512 + 256))
    with pytest.raises(ValueError, match=f"holds {size / 1e9:.1f} GB, more than"):
        prepare("ours", {**ASKED, "most_bytes": size - 1})


@pytest.mark.thorough
def test_sides_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory used again or not, in processes of their own, with right outputs."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    (row,) = cases.timed([Case("mlp_1", 16, (NONE,))], Settings(1, 2, 1, "cut_all"), tmp_path)
    assert row["out_of_bounds"] == {} == row["missing"]
    assert row["sides"][NONE]["arena_bytes"] == row["arena_bytes"] == 4 * 16 * (512 + 256)
    assert set(row["times"]) == {"ours", NONE}


@pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
def test_networks_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),))
    monkeypatch.setattr(suite, "SUITE", {"small": small})
    monkeypatch.setattr(gpu_networks, "NETWORKS", ("small",))
    monkeypatch.setattr(gpu_networks, "MACHINES", ("a100", "h100"))
    (table,) = reproduce(config(table="gpu_networks", output=str(tmp_path)))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["type"], row["machine"]) for row in rows] == [
        (kind, machine) for kind in gpu_networks.TYPES for machine in ("a100", "h100")
    ]
    for row in rows:
        assert (row["kernels"], row["different"], row["launches of torch"]) == (2.0, 2.0, 4.0), "two products, two of relu"
        assert row["launches"] >= 2 and row["over the least"] >= 1.0 and row["kernels that spill"] == 0
        assert 0 < row["floor over predicted"] <= 1.0 and row["most registers"] > 8 and "gemv 100%" in row["where the time goes"]


def test_operations_that_launch_kernels_are_counted() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x.view(2, 6).transpose(0, 1)).reshape(-1)[1:] + 1

    assert suite.operations(Module(), (torch.randn(3, 4),)) == 2
