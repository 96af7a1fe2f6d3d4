"""The Gymnasium environment of agents that write: `KernelEnv`, whose observations and actions are text."""

from __future__ import annotations

import math
import secrets
from typing import Any

import gymnasium

from gensor_gym import hardware as machines
from gensor_gym.env.episodes.single import check_render_mode
from gensor_gym.env.kernel.episode import TextEpisode
from gensor_gym.env.kernel.grammar import Command, names_of, parse
from gensor_gym.env.kernel.state import Best, Turn, state_text
from gensor_gym.env.kernel.task import task_text
from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.env.settings import DEFAULT_OPERATOR, TextSpec
from gensor_gym.env.tasks import OperatorSpec
from gensor_gym.graph.compiling.early import at_once
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.written.alike import alike
from gensor_gym.measure.written.text import MOST_CHARACTERS, kernel_of

CHARACTERS = frozenset(map(chr, (9, 10, *range(32, 127))))
"""Characters of observations and actions: printable ASCII, line breaks and tabs."""
MOST_OBSERVED = 64_000
"""Largest number of characters of an observation."""
MOST_SAID = 4_000
"""Largest number of characters of the answer to an action."""


class KernelEnv(TextSpec, gymnasium.Env):
    """Write a kernel in several turns: by primitives, whole schedules, or sources in C or CUDA C.

    ## Description
    The process is that of `gensor_gym/Construct-v0` with `reward="best_so_far"`, seen and steered through text. A turn takes one
    action. An action that is not understood, not legal or not correct gets an answer that says why, and costs a step.

    ## Action Space
    `Text`. The first word is the verb: `apply` with primitives (`apply tile[m] cache raise[unroll]`; each is a step), `schedule`
    with a schedule's text, `measure`, `source` with a source on the next lines, `stop`. `env/kernel/grammar.py` has the grammar.

    ## Observation Space
    `Text`: the task (operator, tensors, reference, machine, grammar), the state (schedule, loops, resources, terms of the model,
    share of the roofline, legal primitives with predicted times, generated source, best program so far), and the answer to the
    last action (a compiler's message, a measured time with its status).

    ## Rewards
    A primitive or a schedule pays discount * Phi(s') - Phi(s) - step_cost; `measure`, `source` and `stop` pay the gain in R over
    the best program evaluated before; see `gensor_gym/Construct-v0`. With discount 1 the return is R of the best program minus
    step_cost * steps.

    ## Starting State
    The unscheduled program, or `reset(options={"operator": .., "schedule": ..})`.

    ## Episode End
    Terminated by `stop`, after `turns` turns, or at the horizon of `Construct-v0`; the schedule is evaluated then. Never
    truncated. `info` then has `runtime_s`, `status`, `steps`, `paid`, `regret` where the optimum is known, and `best`, the
    fastest program as text. Every evaluation sets `paid_s` and `paid_status`.

    ## Arguments
    operator, hardware, backend, space, discount, step_cost, shaping as of `Construct-v0`; turns; render_mode. Sources need a
    backend that runs kernels: `cpu`, `cuda` or `auto`. In C, schedules and sources are then timed by one clock, outside the
    kernel's process, with new inputs for each call (`measure/written`).

    ## Version History
    v0: first version. It may change; sources in CUDA C have not run on a GPU.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        operator: OperatorSpec = DEFAULT_OPERATOR,
        hardware: Hardware | str = "host",
        backend: str | Backend = "analytic",
        space: str = "extended",
        turns: int = 24,
        discount: float = 1.0,
        step_cost: float = 0.001,
        shaping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        check_render_mode(render_mode, self.metadata["render_modes"])
        if not isinstance(turns, int) or turns < 1:
            raise ValueError(f"turns {turns!r}: expected a whole number from 1")
        final, self._trials = alike(backend, machines.get(hardware))
        self.episode = TextEpisode(
            operator, hardware, final, space, discount=discount, step_cost=step_cost, shaping=shaping, reward="best_so_far"
        )
        self.turns, self.render_mode = turns, render_mode
        self.sources = self._trials is not None
        """Whether sources are accepted."""
        text = gymnasium.spaces.Text
        self.action_space = text(MOST_CHARACTERS + 1024, min_length=0, charset=CHARACTERS)
        self.observation_space = text(MOST_OBSERVED, charset=CHARACTERS)
        self.best: Best | None = None
        """The fastest evaluated program of the episode."""
        self.said = ""
        """The answer to the last action."""
        self._turn, self._reward = 0, 0.0
        self._known: dict[tuple[str, str], Measurement] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode, and return (observation, info). The options are those of `Construct-v0`."""
        super().reset(seed=seed)
        self.episode.reset(seed=seed, options=options)
        self.best, self.said, self._turn, self._reward = None, "", 0, 0.0
        return self._observation(), {"turn": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action, like `gymnasium.Env.step`. ResetNeeded if no episode is running; a bad action never raises."""
        if not self.episode.running:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() first")
        self._turn += 1
        info: dict[str, Any] = {"turn": self._turn}
        try:
            command = parse(action, self.episode.graph.operator)
            reward, self.said = getattr(self, f"_{command.verb}")(command, info)
        except ValueError as error:
            reward, self.said, command = self.episode.wait(), f"refused: {error}", Command("")
        ended = command.verb == "stop" or self._turn >= self.turns or self.episode.remaining <= 1
        if ended:
            reward += self._end(info)
        self._reward = float(reward)
        return self._observation(), self._reward, ended, False, info

    def _apply(self, command: Command, info: dict[str, Any]) -> tuple[float, str]:
        """Take primitives until one is illegal. Return (reward, answer)."""
        reward, before = 0.0, self.episode.graph.latency(self.episode.schedule)
        for taken, number in enumerate(command.primitives):
            if self.episode.remaining <= 1:
                return reward, f"primitives taken: {taken}; no steps are left"
            legal = self.episode.action_masks()[number]
            reward += self.episode.step(number)[1]
            if not legal:
                known = {value: name for name, value in names_of(self.episode.graph.operator).items()}
                name = known.get(number, self.episode.meaning(number))
                return reward, f"primitives taken: {taken}; the next, {name}, is illegal there: the state lists legal ones"
        after = self.episode.graph.latency(self.episode.schedule)
        return reward, f"primitives taken: {len(command.primitives)}; {in_seconds(before)} -> {in_seconds(after)} by the model"

    def _schedule(self, command: Command, info: dict[str, Any]) -> tuple[float, str]:
        graph = self.episode.graph
        schedule = graph.parse(command.schedule)
        if not graph.is_legal(schedule):
            raise ValueError(f"the schedule is not legal for {graph.operator} on {graph.hardware.name} in space {graph.space!r}")
        reward = self.episode.leap(schedule)
        return reward, f"the schedule takes {in_seconds(graph.latency(schedule))} by the model"

    def _measure(self, command: Command, info: dict[str, Any]) -> tuple[float, str]:
        reward, found = self.episode.step(0)[1::3]
        text = f"schedule {self.episode.schedule}"
        return reward, self._evaluated(info, found["paid_s"], found["paid_status"], "schedule", text)

    def _source(self, command: Command, info: dict[str, Any]) -> tuple[float, str]:
        """Compile, verify and time a source. Return (reward, answer)."""
        if self._trials is None:
            raise ValueError(f"backend {self.episode.final.name} times no sources: make the environment with backend='auto'")
        graph = self.episode.graph
        kernel = kernel_of(graph.operator, graph.hardware, command.source, command.options)
        key = str(graph.operator), kernel.digest
        if key not in self._known:
            self._known[key] = self._trials.measure(kernel, secrets.randbits(31))
        found = self._known[key]
        reward, _ = self.episode.credit(found)
        report = f"\n{found.error}" if found.error else f", {len(found.samples)} samples"
        text = f"source {command.words}\n{command.source}"
        return reward, self._evaluated(info, found.seconds, found.status, "source", text) + report

    def _stop(self, command: Command, info: dict[str, Any]) -> tuple[float, str]:
        return 0.0, "the episode has ended"

    def _evaluated(self, info: dict[str, Any], seconds: float, status: str, kind: str, text: str) -> str:
        """Keep the program if it is the fastest so far. Return the answer about its time, and set `paid_s` and `paid_status`."""
        info |= {"paid_s": seconds, "paid_status": str(status)}
        before = self.best.seconds if self.best else math.inf
        if seconds < before:
            self.best = Best(kind, text, seconds)
        if status != Status.OK:
            return f"{status}: the {kind} is not rewarded"
        share = f"{self.episode.graph.floor / seconds:.2%} of the roofline"
        return f"OK: the {kind} takes {in_seconds(seconds)}, {share}; {'the best so far' if seconds < before else 'not the best'}"

    def _end(self, info: dict[str, Any]) -> float:
        """Evaluate the schedule, end the episode, and return the reward. `info` gets the facts of the fastest program."""
        reward, found = self.episode.finish()
        text = f"schedule {self.episode.schedule}"
        said = self._evaluated(info, found["paid_s"], found["paid_status"], "schedule", text)
        self.said += f"\nat the end, {said}"
        info |= {name: value for name, value in found.items() if name not in ("action_mask", "best")}
        info["best"] = "" if self.best is None else self.best.text
        return reward

    def task_text(self) -> str:
        """Return the description of the task."""
        return task_text(self.episode.graph, self.episode.final.name, self.turns, self.sources)

    def state_text(self) -> str:
        """Return the description of the state, with the answer to the last action."""
        turn = Turn(self.turns - self._turn, self.episode.remaining, self._reward)
        with at_once():
            state = state_text(self.episode.graph, self.episode.schedule, turn, self.best)
        return f"{state}\n\n# Answer\n{_plain(self.said)[:MOST_SAID] or 'none: the episode has begun'}"

    def render(self) -> str | None:
        """Return the state as text, with render mode `ansi`; else None."""
        return self.state_text() if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Stop the workers of the backend and of sources."""
        self.episode.close()
        if self._trials is not None:
            self._trials.close()

    def _observation(self) -> str:
        state = self.state_text()
        return f"{self.task_text()}\n\n{state}"[:MOST_OBSERVED] if len(state) < MOST_OBSERVED else state[-MOST_OBSERVED:]


def _plain(text: str) -> str:
    """Return a text with `?` for characters that observations do not have."""
    return "".join(letter if letter in CHARACTERS else "?" for letter in text)
