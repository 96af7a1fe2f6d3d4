"""Values of searches, chosen for what they may spend: on train, decided on validation, the best of each amount."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.tuning import tune_budgets
from experiments.tuning.settings import distinct
from gensor_gym import operators


def test_values_for_budgets_come_from_train_and_validation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train and validation only"):
        tune_budgets.tasks_of("test", 3)
    assert {operators.part_of(operators.parse(t)) for t in tune_budgets.tasks_of("validation", 5)} == {"validation"}
    scores = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    assert tune_budgets.leading([{"a": 0}, {"a": 1}, {"a": 2}], scores, 1) == [{"a": 1}, {"a": 0}]


def test_more_settings_than_there_are_is_an_error() -> None:
    config = OmegaConf.create({"choices": {"walkers": [1, 2], "steps": [16, 16]}, "rungs": [{"settings": 3}]})
    with pytest.raises(ValueError, match="expected at most the 2 that"):
        distinct(config, np.random.default_rng(0))
