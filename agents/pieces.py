"""Search all pieces of a network: each distinct computation once, optionally within one budget of seconds.

A piece is a part of the network that one kernel computes. With a budget every piece is first tried once, in descending order of
its roofline floor's share of the network's time. Each later batch goes to the piece with the highest expected gain in the
network's time by Ansor's scheduler, and doubles the piece's number of trials.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agents.ansor.task_scheduler import GradientScheduler, Progress, Scheduler, total_latency
from agents.core.compiled import accepted, is_compiled
from agents.core.playoff import BRIEF_ROUNDS
from agents.optimizer import Asked, NoKernel, Result, run
from agents.rounds import Rounds
from gensor_gym.codegen.build import generate
from gensor_gym.cycles import collected
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.measurement import UNTIMED
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records.store import FINAL
from gensor_gym.measure.session import Budget, Session
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.networks.tasks import by_rows, first_by_rows, rows_of_product
from gensor_gym.operators.types import Operator

ENDING = 0.25
"""Share of a budget in seconds that is reserved for the end, when the best programs are timed again and checked."""
AT_ONCE = 64
"""Maximum number of pieces that are searched side by side. Each holds its tables and waits in a thread."""
TRIES = 8
"""Maximum number of programs of a piece that are verified until one is correct, if programs are not timed."""
COMPILED = 32
"""Maximum number of kernels of a piece that are compiled until one is accepted, if a GPU's kernels are not tried on it.

NVRTC takes 0.1 s for most. Of ResNet-50's first convolution, bfloat16 at batch 8, the ninth is the first without spills on sm_80.
"""
OnTask = Callable[[int, int, str], None]


def search_pieces(
    asked: Mapping[Operator | Dataflow, Asked], counts: Mapping[Operator | Dataflow, int], trials: int, seconds: float, seed: int,
    on_task: OnTask, timed: bool = True, loss: float = 0.0,
) -> dict[Operator | Dataflow, Result]:  # fmt: skip
    """Search every computation of `asked` with at most `trials` trials; return a result for each.

    `counts` says how often each computation occurs in the network. With `timed=False` the first program of a search is verified
    and not timed, on CPUs and without a budget in seconds. A computation with an ended search in the store is not searched again,
    unless `seconds` is infinite and the stored search had fewer trials; that search is then continued. A killed search resumes.
    If the budget is too short to try every piece once, a RuntimeWarning states the excess.

    With a `loss` above 0, pieces searched side by side have one trial each. The others follow for those pieces without which the
    network could lose more than that share of its seconds (`promising`).
    """
    least = trials if math.isinf(seconds) else 0
    found = {computation: known for computation, one in asked.items() if (known := _ended(one, trials, least)) is not None}
    missing = [computation for computation in asked if computation not in found]
    if not missing:
        return found
    with collected():
        pieces = [Piece.of(asked[one], counts[one], seed, _timed_once(asked[one], trials, loss)) for one in missing]
        others = Others(sum(counts[one] * result.seconds for one, result in found.items()), loss)
        return found | _searched(pieces, trials, seconds, seed, on_task, timed, others)


@dataclass(frozen=True)
class Others:
    """What a search of pieces knows of the rest of the network: the seconds of stored pieces, and `loss` of `search_pieces`."""

    seconds: float
    loss: float


def _searched(
    pieces: list[Piece], trials: int, seconds: float, seed: int, on_task: OnTask, timed: bool, others: Others
) -> dict[Operator | Dataflow, Result]:
    backend = pieces[0].session.backend
    if math.isfinite(seconds):
        _share_out(pieces, trials, seconds, np.random.default_rng(seed), on_task)
    elif isinstance(backend, NativeBackend) and backend.name == "cpu" and backend.pool is backend.local:
        _side_by_side(pieces, trials, backend, on_task, timed, others)
    else:
        for number, piece in enumerate(pieces):
            on_task(number, len(pieces), piece.name)
            piece.advance(trials)
            piece.end()
    return {piece.asked.task.operator: piece.result for piece in pieces}


def start_worker(hw: Hardware, backend: str | Backend) -> None:
    """Start the process that verifies and times a CPU's kernels in the background, which takes a second of another core."""
    if hw.kind == "cpu" and isinstance(found := get_backend(backend, hw), NativeBackend) and found.pool is found.local:
        threading.Thread(target=found.local.workers[0].begin, daemon=True).start()


def _side_by_side(
    pieces: list[Piece], trials: int, backend: NativeBackend, on_task: OnTask, timed: bool, others: Others
) -> None:
    """Search pieces in parallel threads, which share compilers and timed cores (`agents.rounds`), and set their results.

    Without times, further programs are tried after a wrong program.
    """
    answers, brief = itertools.count(1), timed and others.loss > 0.0 and trials > 1
    on_task(0, len(pieces), pieces[0].name)

    def told(name: str) -> None:
        on_task(min(next(answers) // (1 if brief else trials), len(pieces) - 1), len(pieces), name)

    def advance(some: Sequence[Piece], goal: int) -> None:
        for begin in range(0, len(some), AT_ONCE):
            rounds = Rounds(backend, some[begin].session.task.hardware, timed, told)
            for piece in (batch := some[begin : begin + AT_ONCE]):
                piece.session.backend, piece.session.times = rounds, timed
            rounds.run([functools.partial(piece.advance, goal - piece.session.trials) for piece in batch])
            for piece in batch:
                piece.session.backend = backend

    later: Sequence[Piece] = pieces
    if brief:
        advance([piece for piece in pieces if piece.once is None], 1)
        later = promising(pieces, others)
    advance(later, trials)
    for piece in pieces:
        while not timed and piece.session.best is None and piece.session.trials < TRIES:
            before = piece.session.trials
            piece.advance(trials)
            if piece.session.trials == before:
                break
        piece.end(BRIEF_ROUNDS if timed else 0)


def promising(pieces: Sequence[Piece], others: Others) -> list[Piece]:
    """Return the pieces to search further, in descending order of their seconds beyond the roofline floor.

    The network would lose at most the share `others.loss` of its seconds if all other pieces could run at their floors. A piece
    without a correct program is always searched further.
    """
    order = sorted(pieces, key=lambda piece: piece.excess)
    left = others.loss * (others.seconds + sum(piece.share for piece in pieces if math.isfinite(piece.excess)))
    kept = sum(total <= left for total in itertools.accumulate(piece.excess for piece in order))
    return order[kept:][::-1]


def in_loop(asked: Asked, found: Schedule | GirSchedule, rows: int, trials: int) -> Schedule | GirSchedule:
    """Return a schedule whose tasks each compute `rows` rows of the result, for a loop over rows that several kernels share.

    It is `found` itself if it has such tasks, otherwise the fastest of `trials` measured schedules near it. ValueError if no
    schedule has such tasks, NoKernel if none of the schedules ran correctly.
    """
    task = asked.task
    if generate(task.operator, found, task.hardware).tasks_of(rows):
        return found
    session = asked.session(Budget(trials=trials))
    session.start()
    first = first_by_rows(task.operator, found, rows, task.hardware)
    some: list[Any] = list(itertools.islice(by_rows(task.operator, first, rows, task.hardware), trials))
    session.measure(some)
    if session.best is None:
        raise NoKernel(f"no kernel of {task.operator} with tasks of {rows} rows ran well: {session.first_error}")
    return session.best[0]


def _ended(asked: Asked, trials: int, least: int) -> Result | None:
    """Return the stored result of a search that has ended; None if none has, or if it had fewer than `least` trials.

    A result with newly measured imported programs counts as ended.
    """
    known = asked.known(trials, least)
    return known if known is not None and (known.trace or known.measurement.conditions.get(FINAL)) else None


def _timed_once(asked: Asked, trials: int, loss: float) -> Result | None:
    """Return the stored result of a search that ended after fewer trials, if its program was timed; None if there is none."""
    known = _ended(asked, trials, 1) if loss > 0.0 else None
    return None if known is None or known.measurement.conditions.get(UNTIMED) else known


@dataclass(frozen=True)
class _ByRows:
    """A strategy that measures programs near the session's best program whose tasks compute blocks of `rows` rows."""

    rows: int

    def search(self, session: Session, rng: np.random.Generator) -> None:
        assert session.best is not None
        found: Iterator[Any] = by_rows(session.task.operator, session.best[0], self.rows, session.task.hardware)
        for schedule in found:
            session.measure([schedule])


@dataclass
class Piece:
    """A computation of a network under search, its number of appearances in the network, and the progress of the search."""

    asked: Asked
    count: int
    seed: int
    session: Session
    progress: Progress
    once: Result | None = None
    """Stored result of a search of fewer trials, which stands unless this piece is searched."""

    @classmethod
    def of(cls, asked: Asked, count: int, seed: int, once: Result | None = None) -> Piece:
        """Make a piece from a checked search, with a new session and no trials."""
        op = asked.task.operator
        session = asked.session(Budget(trials=1))
        return cls(asked, count, seed, session, Progress(float(op.flops), getattr(op, "name", "")), once)

    @property
    def name(self) -> str:
        """The computation as text."""
        return str(self.asked.task.operator)

    @property
    def share(self) -> float:
        """Seconds of the piece in one call of the network: as measured, or by the roofline floor before any program ran."""
        return self.count * (self._floor if (seconds := self._seconds) is None else seconds)

    @property
    def excess(self) -> float:
        """Seconds of the piece beyond its roofline floor in one call of the network; infinite before a program ran correctly."""
        return math.inf if (seconds := self._seconds) is None else self.count * max(0.0, seconds - self._floor)

    @property
    def _floor(self) -> float:
        return warm_floor(self.asked.task.operator, self.asked.task.hardware)

    @property
    def _seconds(self) -> float | None:
        best = self.session.best
        return best[1].seconds if best else self.once.seconds if self.once else None

    def advance(self, trials: int, seconds: float = math.inf) -> None:
        """Continue the piece's search with `trials` more trials; the last one begins within `seconds`.

        The strategy starts again and repeats its earlier trials, which the session answers without measuring. On a CPU, the last
        trial of a product, unless it is the first, is a program with a plain block of rows (`networks.tasks`): the model ranks
        such programs high, but walks rarely end at them.
        """
        session, before = self.session, self.session.trials
        session.start()
        end = session.elapsed + seconds if math.isfinite(seconds) else None
        of_blocks = (trials > 1 or session.best is not None) and session.task.hardware.kind == "cpu"
        rows = rows_of_product(session.task.operator) if of_blocks else 0
        session.budget = Budget(before + trials - (rows > 0), None, end)
        run(self.asked.search, session, self.seed)
        session.budget = Budget(before + trials, None, end)
        if rows and session.best is not None:
            run(_ByRows(rows), session, self.seed)
        self.progress.record(math.inf if session.best is None else session.best[1].seconds, session.trials - before, None)

    def end(self, rounds: int = BRIEF_ROUNDS) -> None:
        """End the piece's search: set `result` to its fastest program. See `Asked.decided` for `rounds`.

        Where kernels of a GPU are not tried on one, it is the fastest by the model that `agents.core.compiled` accepts.
        """
        if self.once is not None and not self.session.trials:
            self.result = self.once
            return
        self.result = self.asked.decided(self.session, rounds)
        if is_compiled(self.session):
            schedule, measurement = accepted(self.session, lambda: self.advance(1), COMPILED)
            self.result = replace(self.result, schedule=schedule, measurement=measurement, trace=tuple(self.session.trace))


def _share_out(pieces: list[Piece], trials: int, seconds: float, rng: np.random.Generator, on_task: OnTask) -> None:
    begin = time.monotonic()
    pieces.sort(key=lambda piece: -piece.share)
    scheduler = GradientScheduler(total_latency(np.array([piece.count for piece in pieces])))
    spend(pieces, scheduler, trials, begin + (1.0 - ENDING) * seconds, rng, on_task)
    _try_untried([piece for piece in pieces if piece.session.best is None], seconds, on_task)
    for piece in sorted(pieces, key=lambda piece: -piece.share):
        piece.end(BRIEF_ROUNDS if time.monotonic() < begin + seconds else 0)


def spend(
    pieces: Sequence[Piece], scheduler: Scheduler, trials: int, until: float, rng: np.random.Generator, on_task: OnTask,
    batch: int | None = None,
) -> None:  # fmt: skip
    """Give batches of trials to the pieces that a scheduler chooses, until the time `until` of `time.monotonic`.

    A piece gets at most `trials` trials, `batch` at a time; without `batch`, each batch doubles the piece's number of trials.
    """
    while (left := until - time.monotonic()) > 0:
        if (chosen := scheduler.choose([piece.progress for piece in pieces], rng)) is None:
            return
        piece = pieces[chosen]
        on_task(sum(bool(one.progress.best) for one in pieces), len(pieces), piece.name)
        piece.advance(min(batch or max(1, piece.session.trials), trials - piece.session.trials), left)
        piece.progress.dead |= piece.session.trials >= trials


def _try_untried(pieces: list[Piece], seconds: float, on_task: OnTask) -> None:
    """Make one trial of each piece for which the budget was too short, and warn of the excess."""
    begin = time.monotonic()
    for number, piece in enumerate(pieces):
        on_task(number, len(pieces), piece.name)
        piece.advance(1)
    if pieces:
        took = time.monotonic() - begin
        text = f"{seconds:.3g} s were too short for {len(pieces)} pieces: one trial of each took {took:.3g} s more"
        warnings.warn(text, RuntimeWarning, stacklevel=6)
