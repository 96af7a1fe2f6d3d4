"""The operators whose programs an environment writes: their graphs, and the decisions of each."""

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
    """Arrays for compiled code of K tasks with at most D decisions: as of `decisions.packed`, tables as of `TaskSet`."""

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
    """A `TaskSet` with the decisions of every task. `initial` is the row before anything is written."""

    num_features = NUM_FEATURES
    starts_anywhere = False

    def __init__(self, operator: OperatorSpec, hardware: Hardware | str, space: str, choices: str) -> None:
        """ValueError names the unknown argument, or an operator without decisions."""
        if choices not in CHOICES:
            raise ValueError(f"no choices {choices!r}; it is one of {CHOICES}")
        self.choices = choices
        self.num_actions = 0  # of columns, known when all are listed
        self.decisions: list[list[Decision]] = []
        super().__init__(operator, hardware, space)
        longest = [len(decision.options) for decisions in self.decisions for decision in decisions]
        self.num_actions = MOST_SIZES if choices == "sizes" else max(longest)

    def _append(self, op: Operator) -> None:
        """List the decisions of an operator that is not there yet; ValueError if one has too many options."""
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
        """Stack the graphs' tables, and the decisions."""
        super()._stack()
        self.initial = np.stack([smallest(graph) for graph in self.graphs])
        parts = *packed(self.decisions), self.ints, self.sizes, self.floats, self.static, self.initial
        self.written = Written(*parts)
