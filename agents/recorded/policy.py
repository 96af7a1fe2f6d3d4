"""A learned policy as a search of a recorded space: its episodes measure every configuration that they visit.

The policy was learned in `gensor_gym/Recorded-v0` on recordings of the same kernel, on this device or other devices (`gensor
train_recorded`). Its observations are the same here: indices of the values, times so far, the remaining budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.learners.stored import POLICY, ZIP
from agents.policies.card import CARD, read_card
from gensor_gym.env.recorded import RecordedEnv
from gensor_gym.locate import located
from gensor_gym.spaces import TuningSession, TuningSpace

STARTS = ("best", "random")


@dataclass(frozen=True)
class TuningPolicy:
    """Run episodes from random configurations, with actions drawn from the policy, until the budget is spent."""

    checkpoint: str = ""
    """Folder of the policy."""
    trust: bool = False
    """Whether a `policy.zip` of stable-baselines3 may be read. Reading it can run any code that its author put into it."""
    temperature: float = 1.0
    """Temperature of the draws. Above 1 the policy explores more."""
    starts: str = "best"
    """Start of the first episodes. `best` is the best configuration of each training recording, `random` is a random one."""
    patience: int = 100
    """Number of consecutive episodes without a new trial after which the search ends."""

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not self.checkpoint or self.starts not in STARTS:
            found = f"checkpoint={self.checkpoint!r}, temperature={self.temperature}, starts={self.starts!r}"
            raise ValueError(f"{found}: expected a folder, a number above 0, and one of {STARTS}")

    def search(self, session: TuningSession, rng: np.random.Generator) -> None:
        """Run episodes until the budget is spent or `patience` episodes in a row have no new trial."""
        learner, model, card = self._load()
        graph, timing = session.graph, session.backend.timing
        check_fits(card, graph.space, self.checkpoint)
        env = RecordedEnv(graph.space, timing=timing, **card["env"])
        starts = [] if self.starts == "random" else [best for best in card["best"] if env.space.find(best) is not None]
        idle = 0
        while idle < self.patience:
            before, ended = session.trials, False
            options = {"configuration": starts.pop(0)} if starts else None
            observation, _ = env.reset(seed=int(rng.integers(2**31)), options=options)
            while not ended:
                session.measure([graph.at(env.index)])
                logits = learner.logits(model, observation[None], env.action_masks()[None])[0]
                drawn = logits / self.temperature + rng.gumbel(size=len(logits))
                observation, _, ended, _, _ = env.step(int(np.argmax(drawn)))
            idle = 0 if session.trials > before else idle + 1

    def _load(self) -> tuple[Any, Any, dict[str, Any]]:
        from agents.learners.loading import load_model

        folder = located(self.checkpoint)
        held = any((folder / name).exists() for name in (POLICY, ZIP)) and (folder / CARD).exists()
        card = read_card(folder) if held else {}
        if "parameters" not in card:
            raise FileNotFoundError(
                f"no policy of recorded spaces in {folder}; train one with: "
                "python -m experiments train_recorded 'spaces=[FILE]' output=FOLDER"
            )
        return *load_model(folder, card, self.trust), card


def check_fits(card: dict[str, Any], space: TuningSpace, checkpoint: str) -> None:
    """Check that a policy was trained on the parameters and values of `space`. ValueError if not."""
    learned = [(name, tuple(values)) for name, values in card["parameters"]]
    if learned != space.variables:
        raise ValueError(
            f"policy {checkpoint} learned on parameters {learned}, {space.source} has {space.variables}: expected a space "
            "with the same ones"
        )
