"""The `emulated` backend: whether a CUDA kernel is right, found out on a machine without a GPU. It gives no times.

A kernel that is right has status OK and no samples, so its `seconds` are infinite: a search cannot rank by it, and
`conditions` says `timed: False`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.emulator import EmulatedKernels, EmulatorError
from gensor_gym.measure.expectation import ExpectationCache, decode
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import make_kernel
from gensor_gym.operators.types import Operator


class EmulatedBackend:
    """Runs the CUDA text on the processor with sanitizers, threads in random order; slow, for small operators."""

    name = "emulated"
    stored = False

    def __init__(self, seed: int = 0, timeout: float = 120.0) -> None:
        """`seed` draws inputs and the order of threads; `timeout` in seconds per kernel."""
        self.seed = seed
        self.timeout = timeout
        self._cache = ExpectationCache()

    def device(self, hw: Hardware) -> str:
        """The emulator, for a GPU's kernels."""
        return f"emulated {hw.name}"

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """Digest of the generated kernel."""
        return make_kernel(op, schedule, hw).digest

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        """Correctness of every schedule's kernel."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        """As `measure`, one after the other."""
        for schedule in schedules:
            made = make_kernel(op, schedule, hw)
            yield self._run(made) if isinstance(made, Kernel) else made

    def close(self) -> None:
        """Nothing to end."""

    def _run(self, kernel: Kernel) -> Measurement:
        """Compile, run on two draws, compare."""
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
                if fault := draw.fault(decode(output, kernel.operator.output.dtype)):
                    return Measurement(Status.WRONG_ANSWER, (), conditions, fault, kernel.digest)
        return Measurement(Status.OK, (), conditions, "", kernel.digest)
