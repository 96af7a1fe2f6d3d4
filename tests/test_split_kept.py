"""The split is kept: whatever was fitted, tuned or trained names its operators, and none is of the test part."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from agents import get_strategy
from agents.cli.arguments import compose
from agents.runs.settings import ROOT
from experiments.tuning.tune import score, tasks_of
from gensor_gym import operators
from gensor_gym.cost.calibration import shipped_fits
from gensor_gym.cost.constants import CPU_CONSTANTS, constant_values, shipped_constants
from gensor_gym.operators.inputs import ARRAY_OFFSET

TUNED = ("markov", "markov_ext")
POLICIES = sorted((ROOT / "agents" / "data" / "policies").glob("*/card.json"))


def _parts(texts: list[str]) -> set[str]:
    """Parts that operators, given as text, belong to."""
    return {operators.part_of(op) for op in operators.resolve(texts)}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_constants_of_the_cpu_model_come_from_the_train_part() -> None:
    shipped: Any = shipped_constants()
    assert len(shipped["operators"]) >= 40 and _parts(shipped["operators"]) == {"train"}
    assert shipped["device"] and shipped["date"] and shipped["schedules"] >= 1000
    values = tuple(shipped["values"][constant.name] for constant in CPU_CONSTANTS)
    assert constant_values("cascade_lake") == (*values, 0.0) and constant_values("host") == (*values, ARRAY_OFFSET)
    assert all(c.low <= v <= c.high for c, v in zip(CPU_CONSTANTS, values, strict=True))


def test_fits_of_machines_name_operators_of_train_and_validation() -> None:
    for fit in shipped_fits().values():
        assert _parts(fit["operators"]) <= {"train", "validation"}  # type: ignore[arg-type]


def test_the_model_benchmark_fits_on_train_and_scores_on_validation() -> None:
    config: Any = OmegaConf.load(ROOT / "conf" / "bench" / "model.yaml")
    assert _parts(list(config.operators)) == {"train"} and _parts(list(config.held_out)) == {"validation"}


@pytest.mark.parametrize("name", TUNED)
def test_values_of_the_traverser_are_those_that_tuning_found(name: str) -> None:
    result = _read(ROOT / "experiments" / "data" / "tuned" / f"{name}.json")
    assert _parts(result["train"]) == {"train"} and _parts(result["validation"]) == {"validation"}
    used = asdict(get_strategy(name))  # type: ignore[call-overload]
    assert {key: used[key] for key in result["values"]} == result["values"]
    choices: Any = OmegaConf.load(ROOT / "conf" / "tune" / f"{name}.yaml").choices
    assert all(value in choices[key] for key, value in result["values"].items())


@pytest.mark.parametrize("name", ["markov", "model_annealing", "markov_annealing"])
def test_values_for_evaluations_come_from_train_and_validation(name: str) -> None:
    result = _read(ROOT / "experiments" / "data" / "tuned" / f"{name}_budgets.json")
    assert _parts(result["train"]) == {"train"} and _parts(result["validation"]) == {"validation"}
    config: Any = compose([f"choices={name}"], "tune_budgets")
    assert result["strategy"] == config.strategy == name
    assert list(result["values"]) == [str(count) for count in config.counts]
    chosen = [*result["values"].values(), *result.get("values_within", {}).values()]
    assert all(value in config.choices[key] for values in chosen for key, value in values.items())


def test_chains_take_the_values_chosen_for_4096_evaluations() -> None:
    """By default."""
    chosen = _read(ROOT / "experiments" / "data" / "tuned" / "model_annealing_budgets.json")["values"]["4096"]
    default: Any = get_strategy("model_annealing")
    assert {name: getattr(default, name) for name in chosen} == chosen
    behind = {"chains": chosen["chains"], "chain_steps": chosen["steps"], "chain_temperature": chosen["start_temperature"]}
    for name in ("policy_annealing", "columns_annealing", "markov_annealing"):
        used: Any = get_strategy(name)
        assert {field: getattr(used, field) for field in behind} == behind


def test_tuning_refuses_the_test_part() -> None:
    with pytest.raises(ValueError, match="'test'.*train and validation only"):
        tasks_of("test", OmegaConf.create({"hardware": ["h200"], "space": "gensor"}))


@pytest.mark.thorough
def test_a_setting_behind_roller_scores_worse() -> None:
    config = OmegaConf.create({"hardware": ["cascade_lake"], "space": "gensor"})
    tasks = tasks_of("validation", config)[:2]
    level = np.array([[task.baseline for task in tasks]])
    assert score(level * 1.01, tasks, 0.5) - score(level, tasks, 0.5) == pytest.approx(np.log(1.01) + 0.5)


@pytest.mark.parametrize("path", POLICIES, ids=[path.parent.name for path in POLICIES])
def test_policies_were_trained_on_the_train_part(path: Path) -> None:
    given = _read(path)["operators"]
    given = [given] if isinstance(given, str) else given  # in other types too
    assert given[0] == "split/v1/train" and _parts(given) == {"train"}
