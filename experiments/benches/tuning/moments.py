"""Moments of a network's search, each with the network that could have been built at that moment."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agents.networks import CompiledNetwork
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.measure.session import TraceRow
from gensor_gym.networks.load import NetworkFunction


@dataclass(frozen=True)
class Trial:
    """A successful trial: seconds since the search began, computation, schedule, and the kernel's seconds."""

    at: float
    computation: str
    schedule: str
    seconds: float


@dataclass
class Recorder:
    """Records a search's trials; its clock starts at construction."""

    begin: float = field(default_factory=time.perf_counter)
    trials: list[Trial] = field(default_factory=list)
    computation: str = ""

    @property
    def elapsed(self) -> float:
        """Seconds since construction."""
        return time.perf_counter() - self.begin

    def on_task(self, number: int, of: int, computation: str) -> None:
        """Set the computation of the following trials."""
        self.computation = computation

    def on_trial(self, row: TraceRow) -> None:
        """Record a trial that has just ended."""
        self.trials.append(Trial(self.elapsed, self.computation, row.schedule, row.seconds))


@dataclass(frozen=True)
class Moment:
    """Seconds and trials of the search so far, and the network of the fastest kernels so far."""

    seconds: float
    trials: int
    function: NetworkFunction


def moments(found: CompiledNetwork, recorder: Recorder, count: int) -> list[Moment]:
    """At most `count` moments in order: the last is the search's end, and each is half as late as the next.

    Moments begin when every computation has a kernel. Among moments with the same kernels, only the earliest is kept.
    """
    wanted = {str(step.computation) for step in found.plan.steps}
    last = recorder.trials[-1].at if recorder.trials else 0.0
    first = min((trial.at for trial in recorder.trials if wanted <= known_at(recorder, trial.at).keys()), default=last)
    times = sorted({max(first, last / 2**power) for power in range(count)})
    made: dict[tuple[str, ...], Moment] = {}
    for at in times:
        known = known_at(recorder, at)
        best = tuple(known[str(step.computation)].schedule for step in found.plan.steps)
        if best not in made:
            number = sum(trial.at <= at for trial in recorder.trials)
            made[best] = Moment(at, number, NetworkFunction(found.plan, _kernels(found, best), found.hardware.units))
    return list(made.values())


def known_at(recorder: Recorder, at: float) -> dict[str, Trial]:
    """Computation -> its fastest program measured until `at`."""
    best: dict[str, Trial] = {}
    for trial in recorder.trials:
        if trial.at <= at and trial.seconds < getattr(best.get(trial.computation), "seconds", float("inf")):
            best[trial.computation] = trial
    return best


def _kernels(found: CompiledNetwork, schedules: tuple[str, ...]) -> list[Kernel]:
    """The kernel of each step, from its schedule text."""
    pairs = zip(found.plan.steps, found.results, schedules, strict=True)
    return [remembered(step.computation, type(result.schedule).parse(text), found.hardware) for step, result, text in pairs]
