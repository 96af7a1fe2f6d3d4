"""Strategies with a learned policy that walks: its episodes propose programs, the model ranks them, the best are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agents.learners.observer import Observer
from agents.learners.registry import Learner
from agents.policies.learned import Episodic, LearnedWalk
from agents.policies.visited import Visited
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP


@dataclass(frozen=True)
class Ppo(Episodic, LearnedWalk):
    """Run episodes of a policy and rank the programs on their way. The policy may come from any learner, by default PPO."""

    episodes: int = 64
    """Number of episodes per ranking. The first episode is greedy, the others are sampled."""
    temperature: float = 1.0
    """Temperature of sampling. Above 1 the policy explores more, which pays off with many episodes."""

    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Run the policy's episodes; return (observed programs, their model seconds, number of steps)."""
        learner, model = self.policy(graph)
        envs = ConstructVectorEnv(
            self.episodes, operator=graph.operator, hardware=graph.hardware, space=self.space, autoreset_mode="Disabled"
        )
        observer = learner.observer(envs, self.retain, graph.charge)
        steps = rollout(learner, model, envs, observer, rng, self.temperature)
        envs.close()
        return *observer.programs(), steps


@dataclass(frozen=True)
class A2c(Ppo):
    """Run episodes of a policy that `agent=a2c` trained, and rank the programs on their way."""

    agent: ClassVar[str] = "a2c"


@dataclass(frozen=True)
class Dqn(Ppo):
    """Run episodes by the action values that `agent=dqn` learned, and rank the programs on their way.

    One episode is greedy; the others sample from the Boltzmann distribution of the values.
    """

    agent: ClassVar[str] = "dqn"


@dataclass(frozen=True)
class QrDqn(Ppo):
    """Like `Dqn`, with the action values of `agent=qrdqn`, which are means of the learned quantiles."""

    agent: ClassVar[str] = "qrdqn"


def rollout(
    learner: Learner, model: Any, envs: EpisodesVectorEnv, observer: Observer, rng: np.random.Generator, temperature: float = 1.0
) -> int:
    """Run one episode of a policy in every environment, and return the total number of steps.

    `observer` remembers the programs. Environment 0 takes the most probable legal action, the other environments sample. No
    episode revisits a program. All environments have the same task.
    """
    flat, _ = envs.reset(seed=int(rng.integers(2**31)))
    over, steps, visited = np.zeros(envs.num_envs, dtype=bool), 0, Visited(envs.tasks.graphs[0], envs.num_envs)
    while True:
        live = np.flatnonzero(~over)
        observed, masks = observer.observe(flat, over)[live], envs.action_masks()[live]
        actions = np.full(envs.num_envs, STOP)
        scores = drawn(learner.logits(model, observed, masks) / temperature, live == 0, rng)
        actions[live] = visited.choose(live, envs.rows[live], scores)
        steps += len(live)
        flat, _, ended, _, _ = envs.step(actions)
        over |= ended
        if over.all():
            return steps
        if ended.any():
            flat, _ = envs.reset(options={"reset_mask": ended})


def drawn(logits: np.ndarray, greedy: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return scores [B, N] whose maximum is at the action to take.

    This is the most probable action if `greedy` [B], otherwise a random draw by the logits (Gumbel noise).
    """
    scores: np.ndarray = logits + np.where(greedy[:, None], 0.0, rng.gumbel(size=logits.shape))
    return scores
