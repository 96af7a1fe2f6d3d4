"""Learning from kernels in the order in which their times arrive, while others are compiled and timed.

A window of kernels is under way: as soon as one has arrived others are asked for, so that neither compilers nor the device
wait for the policy, and no kernel that takes long is waited for. The learner does not look at the clock. What it asks for, and
what it learns, follow from its seed and from the order of what arrived, number for number: it can be killed at any moment and
brought back to where it was by the file of what arrived, from its last `state` on or from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.columns.choices import Choices
from experiments.commands.checks import check_whole
from experiments.fine_tuning.measured_columns import Judge, Line, MeasuredLearner
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import make_kernel

IDLE = 64
"""Tasks in a row that have no kernel to ask for after which none has."""


@dataclass(frozen=True)
class Asked:
    """A kernel to measure, or why there is none."""

    operator: str
    schedule: Schedule
    made: Kernel | Measurement

    @property
    def digest(self) -> str:
        """Names it: a kernel is asked for once."""
        return self.made.digest


class ArrivingLearner(MeasuredLearner):
    """See the module. Lines that arrive have `digest` beside what judges read."""

    def __init__(self, settings: Mapping[str, Any], graphs: Sequence[ConstructionGraph], window: int, seed: int) -> None:
        """Nothing has arrived. `window`: so many kernels at least are under way."""
        super().__init__(settings, graphs, (), seed)
        check_whole({"window": window}, 1, "window")
        self.window = window
        self.arrived: dict[str, Line] = {}
        """By digest, in order."""
        self.pending: dict[str, Asked] = {}
        """Under way, by digest, in the order in which they were asked for."""
        self._tasks = {str(choices.graph.operator): choices for choices in self.choices}

    def ask(self) -> list[Asked]:
        """Kernels to measure now, so that the window is full; fewer where the tasks have no more."""
        found: list[Asked] = []
        idle = 0
        while len(self.pending) < self.window and idle < IDLE:
            new = self._asked(self.next_task())
            idle = 0 if new else idle + 1
            found += new
        return found

    def _asked(self, choices: Choices) -> list[Asked]:
        """New kernels of a task. A program whose kernel is known under another schedule is answered at once."""
        judge, found = self.judges[choices], []
        for count, temperature in self.turns:
            for schedule in judge.wanted(self.drawn(choices, temperature), count):
                asked = self._made(judge, schedule)
                if (line := self.arrived.get(asked.digest)) is not None:
                    judge.keep(schedule, line)
                    continue
                judge.asked.add(schedule)
                if asked.digest not in self.pending:
                    self.pending[asked.digest] = asked
                    found.append(asked)
        return found

    def _made(self, judge: Judge, schedule: Schedule) -> Asked:
        """With the kernel of a schedule."""
        graph = judge.graph
        return Asked(str(graph.operator), schedule, make_kernel(graph.operator, schedule, graph.hardware))

    def arrive(self, line: Line) -> None:
        """Know a kernel that was measured; learn after every `kernels` of them."""
        digest = str(line["digest"])
        self.pending.pop(digest, None)
        if digest in self.arrived:
            return
        self.arrived[digest] = line
        if (choices := self._tasks.get(str(line["operator"]))) is not None:
            self.judges[choices].keep(Schedule.parse(line["schedule"]), line)
        if len(self.arrived) % self.settings["kernels"] == 0:
            self.learn()

    def state(self) -> dict[str, Any]:
        """As of `ColumnLearner`, with what judges know and what is under way, in order."""
        judges = {
            str(choices.graph.operator): {
                "known": [(str(schedule), seconds) for schedule, seconds in judge.known.items()],
                "asked": [str(schedule) for schedule in judge.asked],
            }
            for choices, judge in self.judges.items()
        }
        pending = [(asked.operator, str(asked.schedule)) for asked in self.pending.values()]
        return {**super().state(), "judges": judges, "pending": pending, "arrived": len(self.arrived)}

    def resume(self, state: Mapping[str, Any] | None, lines: Sequence[Line]) -> None:
        """From a fresh learner to where one was when all these lines had arrived, by a state on the way if there is one.

        ValueError for a state that was saved after more arrivals than there are lines.
        """
        before = 0 if state is None else int(state["arrived"])
        if before > len(lines):
            raise ValueError(f"the state was saved after {before} arrivals, and there are {len(lines)} lines")
        self.arrived = {str(line["digest"]): line for line in lines[:before]}
        if state is None:
            self.ask()
        else:
            self.restore(state)
        for line in lines[before:]:
            self.arrive(line)
            self.ask()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        super().restore(state)
        for operator, found in state["judges"].items():
            judge = self.judges[self._tasks[operator]]
            for text, seconds in found["known"]:
                judge.keep(Schedule.parse(text), {"seconds": seconds if math.isfinite(seconds) else None})
            judge.asked = {Schedule.parse(text) for text in found["asked"]}
        under_way = [self._made(self.judges[self._tasks[op]], Schedule.parse(text)) for op, text in state["pending"]]
        self.pending = {asked.digest: asked for asked in under_way}
