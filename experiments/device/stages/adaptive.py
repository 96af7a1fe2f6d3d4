"""Stage that compares searches which learn from their trials, with equal numbers of trials; winners are timed again with torch.

conf/experiment/gpu_adaptive.yaml lists strategies and operators; kernels are compiled during the stage. Every strategy searches
the operators in its own threads, so that no strategy waits for another strategy's construction: kernels compile in parallel and
the worker times one at a time. Strategies are therefore compared by trials; `elapsed_s` includes waiting for other strategies.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from agents import get_strategy
from agents.optimizer import run as search
from agents.policies.learned import Learned
from agents.strategy import Strategy
from experiments.device.context import Context, StageJournal
from experiments.device.stages.operators import standings
from experiments.device.table import CONF, Contest, read_experiment
from experiments.device.work.prebuilt import FINAL, SEARCH, or_without_torch
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import device_backends
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.session import Budget, Session, Task, TraceRow
from gensor_gym.operators.types import Operator

EXPERIMENT = CONF / "experiment" / "gpu_adaptive.yaml"
FILE = "adaptive.jsonl"
EACH = 3
"""Number of searches of one strategy that run in parallel."""
TOGETHER = 2
"""Number of seeds with which all operators are searched before the next seeds."""
ROUNDS = 15
RESERVED = 0.2
"""Share of the stage's time that is kept for timing the winners again."""


def run(context: Context) -> dict[str, object]:
    """Run all searches, then time the winners of each operator together; write rows of kinds trial, search and together.

    Two seeds of every operator are searched before the next two. Return the results.
    """
    contest, hw = read_experiment(EXPERIMENT), hardware.get(context.hardware)
    trials, final = device_backends(SEARCH, FINAL)
    wanted = [(op, name, seed) for op, seed in in_order(contest) for name in contest.strategies]
    with closing(trials), closing(context.journal(FILE)) as journal:
        arena = _Arena(context, contest, hw, trials, journal)
        with ExitStack() as stack:
            pools = {name: stack.enter_context(ThreadPoolExecutor(EACH)) for name in contest.strategies}
            for job in [pools[name].submit(arena.search, op, name, seed) for op, name, seed in wanted]:
                job.result()
        for op in contest.operators:
            if context.left > 0:
                journal.once(f"{op} together", _together, op, arena, final)
    return digest(context)


def digest(context: Context) -> dict[str, object]:
    """Return the results that the rows written so far give (see `operators.standings`)."""
    return standings(context.rows(FILE), list(read_experiment(EXPERIMENT).strategies))


def in_order(contest: Contest) -> list[tuple[Operator, int]]:
    """Return (operator, seed) pairs in the order of searching: the first `TOGETHER` seeds of every operator, then the next."""
    parts = [contest.seeds[at : at + TOGETHER] for at in range(0, len(contest.seeds), TOGETHER)]
    return [(op, seed) for seeds in parts for op in contest.operators for seed in seeds]


@dataclass(frozen=True)
class _Arena:
    """What the parallel searches of the comparison share: settings, backend and journal."""

    context: Context
    contest: Contest
    hardware: Hardware
    backend: NativeBackend
    journal: StageJournal
    asking: threading.Lock = field(default_factory=threading.Lock)
    """Lock that searches with a learned policy hold, except while they measure, because they share the loaded model.

    The models of stable-baselines3 keep the distribution of the last query as their state.
    """

    @property
    def left(self) -> float:
        return self.context.left - RESERVED * self.context.seconds

    def label(self, name: str, seed: int) -> str:
        """Return a search's name among those of its operator: the strategy, with the seed if there are several seeds."""
        return f"{name}/{seed}" if len(self.contest.seeds) > 1 else name

    def search(self, op: Operator, name: str, seed: int) -> None:
        """Run one search if time is left; write a row for each trial, then a row for the search."""
        label = self.label(name, seed)
        if self.left <= 0 or not self.journal.pending(f"{op} {label}"):
            return
        about: dict[str, object] = {
            "operator": str(op), "hardware": self.hardware.name, "backend": "cuda", "strategy": name, "label": label,
            "seed": self.context.seed + seed,
        }  # fmt: skip

        def put(key: str, row: dict[str, object]) -> None:
            self.journal.put(key, {**about, **row})

        def on_trial(row: TraceRow) -> None:
            values = {**vars(row), "seconds": row.seconds if math.isfinite(row.seconds) else None}
            put(f"{op} {label} {row.trial}", {"kind": "trial", **values})

        try:
            registered, parameters = self.contest.strategies[name]
            strategy = get_strategy(registered, **parameters)
            thinking = self.asking if isinstance(strategy, Learned) else threading.Lock()
            with thinking:
                if self.left <= 0:
                    return
                task = Task(op, self.hardware, self.backend, strategy.space)
                about["fingerprint"] = fingerprint(task.graph())
                budget = Budget(trials=self.contest.trials, seconds=self.left)
                session = _TakingTurns(task, budget, on_trial, thinking)
                search(strategy, session, self.context.seed + seed)
        except Exception as error:  # other strategies may still run, so a missing checkpoint or library does not end the stage
            tail = traceback.format_exc()[-800:]
            put(f"{op} {label}", {"kind": "search", "error": f"{type(error).__name__}: {error}", "trace": tail})
            return
        put(f"{op} {label}", {"kind": "search", **_end(strategy, session)})


class _TakingTurns(Session):
    """Session of a search that holds a lock except while it measures."""

    def __init__(self, task: Task, budget: Budget, on_trial: Callable[[TraceRow], None], held: threading.Lock) -> None:
        super().__init__(task, budget, on_trial=on_trial)
        self._held = held

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        self._held.release()
        try:
            return super().measure(schedules)
        finally:
            self._held.acquire()


def _end(strategy: Strategy, session: Session) -> dict[str, object]:
    """Return fields about a finished search; `cut` says that time ran out before its trials were used up."""
    best, budget = session.best, session.budget
    short = budget.trials is not None and session.trials < budget.trials
    return {
        "space": strategy.space, "trials": session.trials, "elapsed_s": session.elapsed, "evaluations": session.evaluations,
        "cut": short and budget.seconds is not None and session.elapsed >= budget.seconds,
        "schedule": str(best[0]) if best else "", "seconds": best[1].seconds if best else None,
    }  # fmt: skip


def _together(op: Operator, arena: _Arena, final: NativeBackend) -> dict[str, object]:
    """Time the winners of all searches on one operator, and torch, in interleaved rounds; return a row with the samples.

    Several searches may have found the same kernel, which is timed once.
    """
    contest, hw = arena.contest, arena.hardware
    labels: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}
    for label in (arena.label(name, seed) for name in contest.strategies for seed in contest.seeds):
        schedule = arena.journal.done.get(f"{op} {label}", {}).get("schedule")
        made = make_kernel(op, Schedule.parse(schedule), hw) if schedule else None
        if isinstance(made, Kernel):
            labels[label] = made.digest
            kernels[made.digest] = made
    row: dict[str, object] = {"kind": "together", "operator": str(op), "hardware": hw.name}
    if not kernels:
        return {**row, "error": "no strategy found a kernel that runs"}
    samples, errors = or_without_torch(lambda torch: final.compare(kernels, hw, ROUNDS, torch=torch))
    named = {label: samples[found] for label, found in labels.items() if samples}
    torch = {name: samples[name] for name in ("torch",) if name in samples}
    return {**row, **errors, **({"samples": named | torch} if samples else {})}
