"""Main entry point: find a fast kernel for one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from agents.core.kept import kept
from agents.core.playoff import ROUNDS, playoff
from agents.strategy import CONSTRUCTIONS, DEFAULTS, Search, Searched, Strategy, default_for, resolve, searched_of
from gensor_gym import codegen
from gensor_gym import hardware as machines
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.export import Exported
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tuned import tuned_path
from gensor_gym.measure.records.verified import note_verified, verified
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task, TraceRow
from gensor_gym.measure.stats.others import warned_of_others
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Result:
    """Result of a search: the fastest verified schedule, its measurement, and all trials in `trace`."""

    schedule: Schedule | GirSchedule
    measurement: Measurement
    trace: tuple[TraceRow, ...]
    task: Task

    def __repr__(self) -> str:
        op, trials = self.task.operator, f"{len(self.trace)} trials"
        rate = f"{op.flops / self.seconds / 1e9:.4g} GFLOP/s, " if op.flops else ""
        return f"<Result of {op} on {self.task.hardware.name}: {self.seconds * 1e6:.4g} us, {rate}{trials}>"

    @property
    def seconds(self) -> float:
        """Median latency of the kernel in seconds, as measured in the search.

        It is optimistic, because it is the smallest of several medians.
        """
        return self.measurement.seconds

    @cached_property
    def kernel(self) -> BuiltKernel:
        """The kernel as a callable, built for the task's hardware at first use."""
        return codegen.build(self.task.operator, self.schedule, self.task.hardware)

    def export(self, folder: str | Path, library: str = "gensor_kernels") -> Exported:
        """Export the kernel to a folder that needs no Python: compiled, with C or C++ header, source, example and manifest.

        A C kernel becomes a shared library. A CUDA kernel becomes a cubin, which needs NVRTC but no GPU. ValueError for other
        languages and for a folder with other contents; CompileError and NvrtcError carry the compiler's message.
        """
        return export_all([self], folder, library)

    @property
    def known(self) -> dict[str, object]:
        """Facts about the kernel for the manifest of an export: schedule, machine, measurement with its conditions."""
        measured = {
            "status": self.measurement.status.value, "seconds": self.measurement.seconds,
            "samples": list(self.measurement.samples), "conditions": self.measurement.conditions,
        }  # fmt: skip
        return {"schedule": str(self.schedule), "hardware": self.task.hardware.name, "measurement": measured}


def export_all(results: Sequence[Result], folder: str | Path, library: str = "gensor_kernels") -> Exported:
    """Export the kernels of several results for one machine to one folder, like `Result.export`."""
    from gensor_gym.codegen.export import export

    threads = max((result.task.hardware.units for result in results), default=1)
    return export([result.kernel for result in results], folder, threads, [result.known for result in results], library)


def optimize(
    operator: Operator | Dataflow | str,
    hardware: Hardware | str = "host",
    strategy: str | Strategy | None = None,
    trials: int = 10,
    seed: int = 0,
    backend: str | Backend = "auto",
    store: str | None = None,
    reuse: bool = False,
    on_trial: Callable[[TraceRow], None] | None = None,
    **hyperparameters: object,
) -> Result:
    """Search for a fast kernel with a budget of measured trials and return the best program.

    `operator` is an operator, a fused operator such as `softmax(m=128, n=768)`, or the text of a user's graph. The default
    strategy is `markov`. Without hyperparameters it is `in_turn` for float32 on a machine that `gensor adapt` has measured, and
    `markov_ext` for 16 and 8 bits. For fused operators it is `exhaustive`, which ranks their whole space by the model, or
    `gir_descent` if the space is too large. The best few programs are timed again, alternately (`agents.core.playoff`).

    With `reuse`, a stored search with at least `trials` trials replaces a new search, and a stored search with fewer trials is
    continued. The result is then the fastest stored program of the same operator, device, protocol and compiler, with an empty
    trace. The default store is this user's, see `gensor_gym.tuned`. Up to `trials` imported programs that claim to be faster are
    measured first. `on_trial` is called with every trial when it ends.

    ValueError names an unknown argument. RuntimeError, with the statuses of all trials, if no trial succeeded. RuntimeWarning if
    other processes used the cores that kernels were timed on.
    """
    if trials is None:
        raise ValueError("trials is None: a search takes a positive number of trials")
    asked = Asked.of(operator, hardware, strategy, backend, store, reuse, on_trial, **hyperparameters)
    if found := asked.known(trials, trials):
        return found
    session = asked.session(Budget(trials=trials))
    with watched([asked.task]):
        run(asked.search, session, seed)
        return asked.decided(session)


def watched(tasks: Iterable[Task]) -> AbstractContextManager[None]:
    """Return a context that warns at its end if other processes used the cores on which kernels were timed.

    The tasks must share one backend; only backend `cpu` is watched.
    """
    task = next(iter(tasks), None)  # a network of views has no tasks
    timed = task and get_backend(task.backend, task.hardware).name == "cpu"
    return warned_of_others(task.hardware.units) if task and timed else nullcontext()


class NoKernel(RuntimeError):
    """Raised when no program of a search ran correctly. The text names the computation and the statuses."""


@dataclass(frozen=True)
class Asked:
    """The arguments of one call of `optimize`, checked and resolved, before anything is searched."""

    task: Task
    search: Strategy
    store: Store | str | None
    reuse: bool
    on_trial: Callable[[TraceRow], None] | None

    @classmethod
    def of(
        cls, operator: Operator | Dataflow | str, hardware: Hardware | str = "host", strategy: str | Strategy | None = None,
        backend: str | Backend = "auto", store: Store | str | None = None, reuse: bool = False,
        on_trial: Callable[[TraceRow], None] | None = None, **hyperparameters: object,
    ) -> Asked:  # fmt: skip
        """Check and resolve the arguments of `optimize`. Several searches may share an open store.

        ValueError names an unknown argument.
        """
        computation = resolve_computation(operator)
        searched = searched_of(computation)
        if strategy is None:  # hyperparameters without a strategy's name are those of the traverser
            fixed = searched == CONSTRUCTIONS and hyperparameters
            strategy = DEFAULTS[searched] if fixed else default_for(computation, machines.get(hardware))
        search: Strategy = resolve(strategy, searched, hyperparameters)
        task = Task.of(computation, hardware, backend, search.space)
        kept_in = str(tuned_path()) if reuse and store is None else store  # `is None`: an empty store may be falsy
        return cls(task, search, kept_in, reuse, on_trial)

    def known(self, trials: int, least: int = 0) -> Result | None:
        """Return the stored result of an earlier search; None without `reuse`, or if none is stored.

        `trials` and `least` are those of `agents.core.kept.kept`.
        """
        if not self.reuse or self.store is None:
            return None
        found = kept(self.task, self.store, trials, self.on_trial, least)
        return Result(*found, self.task) if found else None

    def session(self, budget: Budget) -> Session:
        """Begin a session, which measures and counts programs of the task, with this budget."""
        return Session(self.task, budget, self.store, self.on_trial)

    def decided(self, session: Session, rounds: int = ROUNDS) -> Result:
        """Store and return the fastest program of a search that has ended.

        Unless `rounds` is 0, the best few programs are first timed again (`agents.core.playoff`). NoKernel if none ran correctly.
        RuntimeError if a stored time belongs to a program whose kernel is wrong here.
        """
        task, best = self.task, playoff(session, rounds) if rounds else session.best
        if best is None:
            statuses = [row.status for row in session.trace]
            why = f"; the first: {session.first_error}" if session.first_error else ""
            raise NoKernel(f"no kernel of {task.operator} ran well in {len(statuses)} trials: {statuses}{why}")
        if self.reuse and session.backend.stored:
            if best[1].digest in session.verified_here:
                backend, own = session.backend, (task.operator, best[0], task.hardware)
                made = backend.generated(*own) if isinstance(backend, NativeBackend) else None
                note_verified(*own, made if isinstance(made, Kernel) else None)
            elif not verified(task.operator, best[0], task.hardware):
                raise RuntimeError(f"{task.operator}: the store has times of {best[0]}, whose kernel is wrong here: prune them")
        session.keep(*best)
        return Result(*best, tuple(session.trace), task)


def check_seed(seed: object) -> None:
    """Check that `seed` is a whole number, 0 or more. ValueError if not."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed {seed!r}: expected a whole number, 0 or more")


def run(strategy: Search[Searched], session: Searched, seed: int) -> None:
    """Run a strategy in a session until it ends or the budget is spent. The session's clock starts now.

    ValueError for an invalid seed.
    """
    check_seed(seed)
    session.start()
    try:
        strategy.search(session, np.random.default_rng(seed))
    except BudgetSpent:
        return
