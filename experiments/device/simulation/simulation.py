"""What a run on a device would get done: its own pipeline, turns and lists in virtual time, with the delays of a machine."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from experiments.device.context import Context
from experiments.device.simulation.delays import Delays
from experiments.device.simulation.virtual import Clock, VirtualCrew, VirtualJob
from experiments.device.stages import correctness, tables
from experiments.device.stages.contests import EACH, RESERVED, in_order
from experiments.device.stages.families import FAMILIES
from experiments.device.stages.operators import RESERVED as COMPARED
from experiments.device.table import Contest, Table
from experiments.device.work.makers import Programs
from experiments.device.work.pipeline import Pipeline
from experiments.device.work.trials import WINDOW
from experiments.device.work.turns import ROUND, Entry, Turns
from gensor_gym import operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.types import Operator

CORES = 16
COMPILERS, MAKERS = CORES - 2, 12
CANDIDATES = 48
"""Of an operator."""
CHECK_SECONDS = 0.5
"""Part of a trial that only checks the answer, over one that is timed."""
PLANNED = 2.5
"""Constructions that a plan of programs to record takes."""


@dataclass
class Machine:
    """A machine in virtual time: its clock, compilers, makers and one device that remembers the last operator's references."""

    delays: Delays
    seed: int = 0
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        """Everybody idle."""
        self.rng = np.random.default_rng(self.seed)
        self.crew = VirtualCrew(self.clock, COMPILERS, lambda kernel: self.delays.compiled(self.rng))
        self._schedule = ConstructionGraph("gemm(m=4, n=4, k=4)", "h100").initial()
        self._free = [0.0] * MAKERS
        self._made = 0
        self.known: set[Operator] = set()

    def programs(self, op: Operator, count: int) -> Programs:
        """Kernels that all differ."""
        begin, self._made = self._made, self._made + count
        launches = (Launch("kernel"),)
        return [
            (self._schedule, Kernel(op, "cuda", "sm_90", f"// {number}", launches, 0)) for number in range(begin, begin + count)
        ]

    def job(self, seconds: float, value: Any) -> VirtualJob[Any]:
        """The work of a maker, behind what was asked for before."""
        end = max(self.clock.now, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        return VirtualJob(self.clock, end, value)

    def time(self, built: Built | Measurement, part: float = 1.0) -> Measurement:
        """A trial; the first of an operator makes its references."""
        if isinstance(built, Measurement):
            return built
        op = built.kernel.loop_nest
        if op not in self.known:
            self.known.add(op)
            self.clock.wait(self.delays.reference(op))
        self.clock.wait(part * self.delays.trial_seconds(op))
        return Measurement(Status.OK, (1.0,), digest=built.kernel.digest)


def correct(machine: Machine, seconds: float, folder: Path) -> dict[str, int]:
    """Kernels that stage `correctness` verifies."""
    machine.clock.wait(machine.delays.costs.start)
    journal = _context(folder).journal("none")
    programs = {text: machine.programs(operators.parse(text), correctness.PER_OPERATOR) for text in FAMILIES}
    jobs = {text: machine.job(machine.delays.costs.draw, made) for text, made in programs.items()}
    pipeline: Pipeline[correctness.Case] = Pipeline(
        machine.crew, lambda built: machine.time(built, CHECK_SECONDS), WINDOW, lambda case: case[0]
    )
    work = correctness.cases(jobs, journal)
    return {"verified": sum(1 for _ in pipeline.run(work, lambda: machine.clock.now < seconds))}


def compete(machine: Machine, seconds: float, table: Table) -> dict[str, int]:
    """Operators of which stage `operators` tries a whole round, and those compared with their library."""
    costs, clock = machine.delays.costs, machine.clock
    clock.wait(costs.start)
    jobs = [machine.job(costs.construct, machine.programs(op, CANDIDATES)) for op in table.operators.values()]
    entries = [Entry(name, op, job) for (name, op), job in zip(table.operators.items(), jobs, strict=True)]
    end = seconds * (1.0 - COMPARED)
    turns = Turns(entries, lambda: end - clock.now)
    pipeline = Pipeline(machine.crew, machine.time, WINDOW, lambda ticket: ticket[0], turns.admit)
    compared: set[str] = set()

    def compare(entry: Entry) -> None:
        if clock.now < seconds:
            clock.wait(machine.delays.comparison(entry.op) + (0.0 if compared else costs.torch))
            entry.ahead = machine.rng.uniform(0.5, 1.5)
            compared.add(entry.name)

    for ticket, measurement in pipeline.run(turns.work(), lambda: clock.now < end):
        turns.take(ticket, measurement, pipeline.busy)
        for entry in turns.settled():
            compare(entry)
        turns.next_round()
    for entry in (*turns.settled(), *turns.unsettled()):
        compare(entry)
    tried = sorted(len(entry.tried) for entry in entries)
    return {
        "operators": len(entries), "compared": len(compared), "fewest_candidates": tried[0],
        "with_a_round": sum(count >= ROUND for count in tried), "candidates": sum(tried),
    }  # fmt: skip


def record(machine: Machine, seconds: float, table: Table, folder: Path) -> dict[str, int]:
    """Trials that stage `tables` records where nothing was recorded before; of whole tables 1,000 programs each."""
    costs, clock = machine.delays.costs, machine.clock
    clock.wait(costs.start)

    def target(op: Operator, file: str, count: int) -> tables.Target:
        made = machine.programs(op, count)
        plan = ([schedule for schedule, _ in made], made[: tables.FIRST])
        return tables.Target(op, file, machine.job(PLANNED * costs.construct, plan))

    lists = (
        (tables.FILE, table.tables, 1000), (tables.TENSOR_FILE, table.tensor, table.tensor_programs),
        (tables.TEST_FILE, table.test, table.test_programs),
    )  # fmt: skip
    found = [target(op, file, count) for file, ops, count in lists for op in ops]
    context = _context(folder)
    journals = {file: context.journal(file) for file in tables.FILES}
    work = tables.work_of(found, cast(Executor, _Makers(machine)), "h100", journals)
    pipeline: Pipeline[tables.Trial] = Pipeline(machine.crew, machine.time, WINDOW, lambda trial: trial[2])
    counts = Counter(trial[2] for trial, _ in pipeline.run(work, lambda: clock.now < seconds))
    return {"recorded": counts.total(), "operators": len(counts), "of": len(found)}


@dataclass
class _Makers:
    """Makes kernels of schedules, in virtual time."""

    machine: Machine

    def submit(self, function: object, op: Operator, name: str, schedules: list) -> VirtualJob[Programs]:
        """As an Executor's."""
        return self.machine.job(self.machine.delays.costs.text * len(schedules), self.machine.programs(op, len(schedules)))


def contest(machine: Machine, seconds: float, given: Contest) -> dict[str, int]:
    """Operators and seeds of which every strategy's search ends before the time kept for the winners, and trials.

    A trial of a search is compiled when it is asked for, on any compiler, and timed when the device is free.
    """
    costs, end = machine.delays.costs, (1.0 - RESERVED) * seconds
    lanes = _Lanes(machine, given)
    for name in given.strategies:
        for _ in range(EACH):
            lanes.begin(costs.start, name)
    while lanes.due and lanes.due[0][0] < end:
        lanes.advance()
    whole = [search for search, number in lanes.ended.items() if number == len(given.strategies)]
    seeds = Counter(op for op, _ in whole)
    two = sum(number >= 2 for number in seeds.values())
    return {"trials": lanes.trials, "pairs": len(whole), "operators_with_two_seeds": two}


class _Lanes:
    """Searches side by side, each at one trial at a time."""

    def __init__(self, machine: Machine, given: Contest) -> None:
        """Nothing begun."""
        self.machine, self.given = machine, given
        self.left = {name: in_order(given) for name in given.strategies}
        self.due: list[tuple[float, int, str, tuple[Operator, int], int, bool]] = []
        """When, a number, strategy, seed and operator, trials still to make, and whether the next is compiled."""
        self.ended: Counter[tuple[Operator, int]] = Counter()
        self.trials = 0
        self._compilers, self._device, self._count = [0.0] * COMPILERS, 0.0, 0

    def begin(self, at: float, name: str) -> None:
        """The next search of a strategy constructs."""
        if self.left[name]:
            self._later(at + self.machine.delays.costs.construct, name, self.left[name].pop(0), self.given.trials, False)

    def advance(self) -> None:
        """What is due next: a kernel is compiled, or timed, or a search has ended."""
        at, _, name, search, more, is_compiled = heapq.heappop(self.due)
        if is_compiled:
            self._device = max(at, self._device) + self._trial(search[0])
            self.trials += 1
            self._later(self._device, name, search, more - 1, False)
        elif more:
            asked = max(at + self.machine.delays.costs.text, heapq.heappop(self._compilers))
            made = asked + self.machine.delays.compiled(self.machine.rng)
            heapq.heappush(self._compilers, made)
            self._later(made, name, search, more, True)
        else:
            self.ended[search] += 1
            self.begin(at, name)

    def _trial(self, op: Operator) -> float:
        """Seconds of the device."""
        known = op in self.machine.known
        self.machine.known.add(op)
        return self.machine.delays.trial_seconds(op) + (0.0 if known else self.machine.delays.reference(op))

    def _later(self, at: float, name: str, search: tuple[Operator, int], more: int, is_compiled: bool) -> None:
        """Due at an instant."""
        self._count += 1
        heapq.heappush(self.due, (at, self._count, name, search, more, is_compiled))


def on(delays: Delays, seed: int) -> Callable[[], Machine]:
    """Fresh machines: every stage starts its own processes, and its worker has no references yet."""
    return lambda: Machine(replace(delays), seed)


def _context(folder: Path) -> Context:
    """Journals that are empty."""
    return Context(str(folder), str(folder / "scratch"), "simulated", 0.0)
