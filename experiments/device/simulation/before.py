"""What the schedulers of commit 4394c3f got done, in virtual time: batches that waited for their slowest compilation.

Only what cost them their time is here: nothing was compiled ahead; an operator's share of the stage ran from before its first
batch was compiled, so that references were paid from it; constructions were made one after the other in one thread; the next
batch was prepared while one was timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

from experiments.device.simulation.simulation import CHECK_SECONDS, COMPILERS, Machine
from experiments.device.stages.correctness import PER_OPERATOR
from experiments.device.stages.families import FAMILIES
from experiments.device.table import Table
from gensor_gym import operators
from gensor_gym.operators.types import Operator

BATCH, CANDIDATES = 16, 16
LEAST_SECONDS, SHARES, SECOND = 4.0, 28, 0.25
"""An operator's seconds or part of the stage's time, and the part kept for torch.compile."""


@dataclass
class _Batches:
    """Trials of one list of work: a batch is prepared, by one thread, while the one before is timed."""

    machine: Machine
    until: float
    part: float = 1.0
    tried: int = 0

    def run(self, work: list[tuple[Operator, float]]) -> int:
        """Trials made until the time is up; `work` is each trial's operator with the seconds its kernel takes to make."""
        clock, ready = self.machine.clock, self.machine.clock.now
        for at in range(0, len(work), BATCH):
            batch = work[at : at + BATCH]
            ready += self._prepared(batch)
            clock.wait(max(0.0, ready - clock.now))
            ready = clock.now  # the next batch is begun as this one is timed
            for op, _ in batch:
                if clock.now >= self.until:
                    return self.tried
                self._trial(op)
        return self.tried

    def _prepared(self, batch: list[tuple[Operator, float]]) -> float:
        """Seconds until the slowest of a batch is compiled."""
        free = [0.0] * COMPILERS
        heapify(free)
        for _ in batch:
            heapreplace(free, free[0] + self.machine.delays.compiled(self.machine.rng))
        return sum(seconds for _, seconds in batch) + max(free)

    def _trial(self, op: Operator) -> None:
        """One on the device."""
        if op not in self.machine.known:
            self.machine.known.add(op)
            self.machine.clock.wait(self.machine.delays.reference(op))
        self.machine.clock.wait(self.part * self.machine.delays.trial_seconds(op))
        self.tried += 1


def correct(machine: Machine, seconds: float) -> int:
    """Kernels that stage `correctness` verified on a machine whose cache was empty.

    The first batch draws programs of as many operators, one after the other, behind the compilation of our own code.
    """
    costs = machine.delays.costs
    machine.clock.wait(costs.start + costs.numba)
    ops = [operators.parse(text) for text in FAMILIES]
    first = [(op, costs.draw) for op in ops]
    later = [(op, 0.0) for _ in range(PER_OPERATOR - 1) for op in ops]
    return _Batches(machine, seconds, CHECK_SECONDS).run(first + later)


def compete(machine: Machine, seconds: float, table: Table, is_fresh: bool) -> int:
    """Operators that stage `operators` came to; on a fresh machine the walks of constructions were compiled first."""
    costs, clock = machine.delays.costs, machine.clock
    clock.wait(costs.start)
    made, compared = clock.now + (costs.walks if is_fresh else 0.0), 0
    for op in table.operators.values():
        if clock.now >= seconds * (1.0 - SECOND):
            break
        made += costs.construct
        clock.wait(max(0.0, made - clock.now))
        until = min(seconds, clock.now + costs.text * CANDIDATES + max(LEAST_SECONDS, seconds / SHARES))
        _Batches(machine, until).run([(op, costs.text)] * CANDIDATES)
        clock.wait(machine.delays.comparison(op) + (0.0 if compared else costs.torch))
        compared += 1
    return compared
