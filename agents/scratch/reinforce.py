"""REINFORCE through `Write-v0`: the learner of `columns`, of one task alone, by the steps that writing takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.columns.choices import choices_of
from agents.columns.learner import ColumnLearner
from agents.columns.policy import Memory, write
from gensor_gym.env import WRITE
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.suites.session import LearningSession


class CountedLearner(ColumnLearner):
    """A learner whose programs are written in an environment that a session counts."""

    session: LearningSession

    def writing(self, hardware: Hardware) -> Any:
        """The session's environment, whose machine is the session's."""
        return self._envs

    def within(self, session: LearningSession) -> CountedLearner:
        """Itself, writing through a session."""
        made = {"choices": "columns", "masked": False, "autoreset_mode": "Disabled"}
        self._envs = session.make_vec(self.settings["programs"], WRITE, **made)
        return self


@dataclass(frozen=True)
class ScratchReinforce:
    """REINFORCE on ranks through `Write-v0`: the learner of `columns`, from nothing on one task."""

    space: str = "gensor"
    width: int = 64
    programs: int = 32
    """Programs of a batch."""
    best: float = 0.15
    """Share of a batch's programs that is made more probable."""
    learning_rate: float = 0.005
    entropy: float = 0.02

    def search(self, session: LearningSession, rng: np.random.Generator) -> None:
        """Learn while steps are left, then measure the most probable program and draws, none twice.

        ValueError for a session that counts no steps.
        """
        if not isinstance(session, LearningSession):
            raise ValueError("ScratchReinforce learns in environments: expected a session of from_scratch of suite v1")
        choices = choices_of(session.graph)
        batch = len(choices.counts) * self.programs
        settings = {
            "width": self.width, "tasks": 1, "programs": self.programs, "best": self.best, "learning_rate": self.learning_rate,
            "final_learning_rate": self.learning_rate / 10, "entropy": self.entropy, "final_entropy": self.entropy / 3,
        }  # fmt: skip
        total = session.steps_left // batch * self.programs
        learner = CountedLearner(settings, [session.graph], total, int(rng.integers(2**31))).within(session)
        while session.steps_left >= batch:
            learner.advance()
        count = session.budget.trials or self.programs
        rows = write(learner.network, choices, count, Memory(1.0), rng)
        session.measure([Schedule(row) for row in rows])
