"""The `emulated` backend: checks a CUDA kernel on a machine without a GPU. It measures no times.

A correct kernel has status OK and no samples, so its `seconds` are infinite and searches cannot rank it. Its `conditions` have
`timed: False`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.program import lower
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import ExpectationCache, decode
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import make_kernel
from gensor_gym.operators.types import Operator

POINTS_PER_SECOND = 1.5e8
STEPS_PER_SECOND = 1e6
"""Highest rates of the emulator, for a lower bound on its time: points of the iteration space per second, and steps per second (a
step is one iteration of the outer reduction by one thread).

Both were reached on one core of a Zen 5 server, over random kernels of gemm, gemv, conv2d, reduce_sum and elementwise: that of
points with large register tiles, that of steps with tiles of one element.
"""


class EmulatedBackend:
    """Backend that runs CUDA text on the processor, with sanitizers and with threads in random order.

    It is slow: use small operators.
    """

    name = "emulated"
    stored = False

    def __init__(self, seed: int = 0, timeout: float = 120.0) -> None:
        """Make a backend. `seed` determines inputs and the order of threads; `timeout` is in seconds per kernel."""
        self.seed = seed
        self.timeout = timeout
        self._cache = ExpectationCache()

    def device(self, hw: Hardware) -> str:
        """Return the name of the emulated device."""
        return f"emulated {hw.name}"

    def digest(self, op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
        """Return the digest of the generated kernel, or the program's digest if no kernel can be generated."""
        return make_kernel(op, schedule, hw).digest

    def measure(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Check the kernel of each schedule. Return one measurement for each, whose status says whether the kernel is correct.

        It has no samples.
        """
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure` one at a time.

        ValueError if no kernel of the operator can finish within the time limit. A single kernel that cannot finish gets the
        status TIMEOUT and is not run.
        """
        most, points = POINTS_PER_SECOND * self.timeout, points_of(op)
        if points > most:
            raise ValueError(
                f"{op} has {points:.1e} points: expected at most {most:.1e}, what the emulator can do in "
                f"{self.timeout:g} s; choose a smaller operator, or EmulatedBackend(timeout=seconds)"
            )
        for schedule in schedules:
            made = make_kernel(op, schedule, hw)
            if isinstance(made, Kernel):
                seconds = least_seconds(made, schedule, hw)
                made = self._run(made) if seconds <= self.timeout else self._too_long(made, seconds)
            yield made

    def close(self) -> None:
        """Do nothing, because no processes need to end."""

    def _too_long(self, kernel: Kernel, seconds: float) -> Measurement:
        error = (
            f"{kernel.operator}: not tried, the emulator takes {seconds:.0f} s or more for this schedule and has "
            f"{self.timeout:g} s; choose larger tiles, a smaller operator, or EmulatedBackend(timeout=seconds)"
        )
        return Measurement(Status.TIMEOUT, error=error, digest=kernel.digest)

    def _run(self, kernel: Kernel) -> Measurement:
        conditions: dict[str, object] = {"device": "emulator", "timed": False}
        try:
            program = EmulatedKernels([kernel])
        except EmulatorError as error:
            return Measurement(Status.COMPILE_ERROR, error=str(error), digest=kernel.digest)
        with program:
            for number, draw in enumerate(self._cache.get(kernel.operator, self.seed)[:2]):
                try:
                    output = program.run(0, draw.inputs, self.seed + number, self.timeout)
                except EmulatorError as error:
                    status = Status.TIMEOUT if "not done after" in str(error) else Status.CRASHED
                    return Measurement(status, error=str(error), digest=kernel.digest)
                several = isinstance(output, list)
                if fault := draw.fault(output if several else decode(output, kernel.operator.outputs[0].dtype)):
                    return Measurement(Status.WRONG_ANSWER, (), conditions, fault, kernel.digest)
        return Measurement(Status.OK, (), conditions, "", kernel.digest)


def points_of(op: Operator | Dataflow) -> int:
    """Return the number of points of an operator's iteration space.

    For a fused operator: the elements of all values, plus the points of the operators inside it, such as products.
    """
    if isinstance(op, Operator):
        return op.points
    return sum(value.size for value in op.values.values()) + sum(
        node.operator.points for _, node in op.nodes if isinstance(node, Contract)
    )


def least_seconds(kernel: Kernel, schedule: Schedule | GirSchedule, hw: Hardware) -> float:
    """Return a lower bound on the seconds that the emulator takes to run a kernel once."""
    op = kernel.operator
    if isinstance(op, Dataflow):
        return points_of(op) / POINTS_PER_SECOND + sum(_threads(launch) for launch in kernel.launches) / STEPS_PER_SECOND
    assert isinstance(schedule, Schedule) and isinstance(op, Operator)
    steps = math.prod(lower(op, schedule, hw).grid) * math.prod(kernel.main.block)
    return op.points / POINTS_PER_SECOND + steps / STEPS_PER_SECOND


def _threads(launch: Launch) -> int:
    return math.prod(launch.grid) * math.prod(launch.block)
