"""REINFORCE in `Write-v0`: the learner of `agent=columns` on a single task, within a budget of environment steps."""

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
    """A learner that writes its programs in a session's environments, so that their steps are counted."""

    session: LearningSession

    def writing(self, hardware: Hardware) -> Any:
        """Return the session's environments, in which programs are written; `hardware` is always the session's machine."""
        return self._envs

    def within(self, session: LearningSession) -> CountedLearner:
        """Use a session's environments from now on; return the learner itself."""
        made = {"choices": "columns", "masked": False, "autoreset_mode": "Disabled"}
        self._envs = session.make_vec(self.settings["programs"], WRITE, **made)
        return self


@dataclass(frozen=True)
class ScratchReinforce:
    """REINFORCE on ranks: the learner of `agent=columns`, trained from scratch on one task through `Write-v0`."""

    space: str = "gensor"
    width: int = 64
    programs: int = 32
    """Number of programs in a batch."""
    best: float = 0.15
    """Share of a batch's programs, the fastest, that become more probable."""
    learning_rate: float = 0.005
    entropy: float = 0.02

    def search(self, session: LearningSession, rng: np.random.Generator) -> None:
        """Train while steps are left, then measure the most probable program and further distinct draws.

        ValueError for a session without environments.
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
