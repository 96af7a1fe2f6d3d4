"""Tasks of `Write-v0`: operators with their construction graphs and the decisions that write a program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.tasks import OperatorSpec, TaskSet
from gensor_gym.env.writing.decisions import CHOICES, MOST_SIZES, Decision, decisions_of, packed, smallest
from gensor_gym.env.writing.observation import NUM_FEATURES
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


class Written(NamedTuple):
    """Arrays with the decisions (from `decisions.packed`) and the tables (from `TaskSet`) of K tasks, for compiled code."""

    facts: np.ndarray
    options: np.ndarray
    counts: np.ndarray
    subjects: np.ndarray
    ints: np.ndarray
    sizes: np.ndarray
    floats: np.ndarray
    static: np.ndarray
    initial: np.ndarray


class WriteTasks(TaskSet):
    """Tasks of `Write-v0`: a `TaskSet` with the decisions of every task. `initial` holds rows in which nothing is written."""

    num_features = NUM_FEATURES
    starts_anywhere = False

    def __init__(self, operator: OperatorSpec, hardware: Hardware | str, space: str, choices: str) -> None:
        """Build graphs and decisions. ValueError names an unknown argument or an operator without decisions."""
        if choices not in CHOICES:
            raise ValueError(f"no choices {choices!r}; it is one of {CHOICES}")
        self.choices = choices
        self.num_actions = 0  # until the decisions of all operators are listed
        self.decisions: list[list[Decision]] = []
        super().__init__(operator, hardware, space)
        longest = [len(decision.options) for decisions in self.decisions for decision in decisions]
        self.num_actions = MOST_SIZES if choices == "sizes" else max(longest)

    def _append(self, op: Operator) -> None:
        """Add the task of an operator. ValueError if one of its decisions has more options than the environment has actions."""
        if op in self._index:
            return
        decisions = decisions_of(ConstructionGraph(op, self.hardware, self.space), self.choices)
        longest = max(len(decision.options) for decision in decisions)
        if self.num_actions and longest > self.num_actions:
            raise ValueError(
                f"{op} has {longest} options of a decision; this environment has {self.num_actions} actions, after the operators "
                "it was made with"
            )
        super()._append(op)
        self.decisions.append(decisions)

    def _stack(self) -> None:
        super()._stack()
        self.initial = np.stack([smallest(graph) for graph in self.graphs])
        parts = *packed(self.decisions), self.ints, self.sizes, self.floats, self.static, self.initial
        self.written = Written(*parts)
