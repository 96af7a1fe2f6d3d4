"""Backends that run real kernels: parallel compilation here, loading, verification and timing in one worker process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.builders import CompileFailed, build_c
from gensor_gym.measure.floor import MARGIN, warm_floor
from gensor_gym.measure.legality import is_legal
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.process import WorkerLost, WorkerProcess
from gensor_gym.measure.requests import Built, CompareRequest, TrialRequest
from gensor_gym.measure.timing import TimingRules
from gensor_gym.operators.types import Operator

Compile = Callable[[Kernel], Built]


@runtime_checkable
class Closing(Protocol):
    """A compiler that has something to end."""

    def close(self) -> None:
        """End it."""


_REMEMBERED = 4096
GPU_WARMUP = 30e-3
"""Seconds: a GPU that idled during verification needs tens of milliseconds to raise its clock."""


class NativeBackend:
    """Generates, compiles, verifies and times kernels. One worker, started at the first trial, replaced when lost."""

    stored = True

    def __init__(
        self,
        name: str,
        compile_kernel: Compile,
        device: Callable[[Hardware], str],
        rules: TimingRules | None = None,
        seed: int = 0,
        worker: WorkerProcess | None = None,
    ) -> None:
        """`compile_kernel` makes a file or raises CompileFailed; `device` names what a Hardware runs on here."""
        self.name = name
        self.rules = rules or TimingRules()
        self.seed = seed
        self.worker = worker or WorkerProcess(name)
        self.device = device
        self._compile = compile_kernel
        self._kernels: OrderedDict[tuple[Operator, bytes, Hardware], Kernel | Measurement] = OrderedDict()

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """Digest of the generated kernel, or of the schedule when there is none."""
        return self._generate(op, schedule, hw).digest

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        """One measurement for each schedule, in order; equal kernels are timed once."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        """As `measure`, each result as soon as it is there. All kernels are compiled before the first is timed."""
        made = [self._generate(op, schedule, hw) for schedule in schedules]
        kernels = {k.digest: k for k in made if isinstance(k, Kernel)}
        done: dict[str, Measurement] = {k.digest: k for k in made if isinstance(k, Measurement)}
        built = dict(zip(kernels, self.compile(list(kernels.values())), strict=True))
        for item in made:
            if item.digest not in done:
                done[item.digest] = self.trial(built[item.digest], hw)
            yield done[item.digest]

    def compile(self, kernels: Sequence[Kernel]) -> list[Built | Measurement]:
        """Compile in parallel; a failure is its measurement."""
        if not kernels:
            return []
        with ThreadPoolExecutor(max_workers=min(len(kernels), os.cpu_count() or 1)) as pool:
            return list(pool.map(self._compile_one, kernels))

    def trial(self, built: Built | Measurement, hw: Hardware) -> Measurement:
        """Verify and time one compiled kernel; the worker's death is the trial's status."""
        if isinstance(built, Measurement):
            return built
        floor = MARGIN * warm_floor(built.kernel.operator, hw)
        request = TrialRequest(built, _threads(hw), floor, self.seed, self.rules)
        try:
            return self.worker.ask(request)
        except WorkerLost as loss:
            return Measurement(loss.status, error=str(loss), digest=built.kernel.digest)

    def compare(
        self,
        kernels: dict[str, Kernel],
        hw: Hardware,
        rounds: int = 20,
        torch: bool = False,
        seed: int = 0,
        torch_compile: bool = False,
        torch_threads: int | None = None,
    ) -> dict[str, list[float]]:
        """Time kernels of one operator together in interleaved rounds; name -> seconds per call, one a round.

        `torch=True` adds torch's own kernel on the same device (on a CPU with `torch_threads`, by default as many as
        ours), under `torch` (for prepacked kernels that of oneDNN with prepacked weights, under `torch.prepacked`), and
        `torch_compile=True` that of torch.compile, under `torch.compile` (GPUs only).

        Raises:
            ValueError: when a kernel does not compile, or one is called `torch` beside the baseline.
            RuntimeError: when a result is wrong; it names the kernel.
            WorkerLost: when one of them crashes or hangs.
        """
        if torch and "torch" in kernels:
            raise ValueError("the name 'torch' is taken by the baseline; give the kernel another name")
        pairs: list[tuple[str, Built]] = []
        for name, item in zip(kernels, self.compile(list(kernels.values())), strict=True):
            if isinstance(item, Measurement):
                raise ValueError(f"{name} cannot be compared: {item.status.value}: {item.error}")
            pairs.append((name, item))
        threads = _threads(hw)
        theirs = (torch_threads or threads) if torch else None
        request = CompareRequest(tuple(pairs), threads, rounds, seed, theirs, torch_compile, self.rules)
        return self.worker.ask(request)

    def close(self) -> None:
        """End the worker, and the compiler's where there are some."""
        self.worker.close()
        if isinstance(self._compile, Closing):
            self._compile.close()

    def _compile_one(self, kernel: Kernel) -> Built | Measurement:
        """One kernel."""
        try:
            return self._compile(kernel)
        except CompileFailed as error:
            return Measurement(Status.COMPILE_ERROR, error=str(error), digest=kernel.digest)

    def _generate(self, op: Operator, schedule: Schedule, hw: Hardware) -> Kernel | Measurement:
        """The kernel of a schedule, or why there is none; the last few thousand are remembered."""
        key = (op, schedule.key, hw)
        if key not in self._kernels:
            self._kernels[key] = make_kernel(op, schedule, hw)
            if len(self._kernels) > _REMEMBERED:
                self._kernels.popitem(last=False)
        return self._kernels[key]


def make_kernel(op: Operator, schedule: Schedule, hw: Hardware) -> Kernel | Measurement:
    """The generated kernel, or the measurement that says why there is none: ILLEGAL, or COMPILE_ERROR.

    The generator refuses what is legal and not written yet (a data type, a knob's value) with a ValueError.
    """
    from gensor_gym.measure.analytic import program_digest

    if not is_legal(op, schedule, hw):
        digest = program_digest(op, schedule, hw)
        return Measurement(Status.ILLEGAL, error=f"outside the limits of {hw.name}: {schedule!r}", digest=digest)
    try:
        return generate(op, schedule, hw)
    except ValueError as error:
        digest = program_digest(op, schedule, hw)
        return Measurement(Status.COMPILE_ERROR, error=f"no code can be generated: {error}", digest=digest)


def _threads(hw: Hardware) -> int:
    """Threads that a kernel is run with: one per core of a CPU."""
    return hw.units if hw.kind == "cpu" else 1


def cpu_backend(rules: TimingRules | None = None, worker: WorkerProcess | None = None) -> NativeBackend:
    """The `cpu` backend: C kernels on the processor this runs on."""
    from gensor_gym.measure.cpu_device import processor_name

    return NativeBackend("cpu", build_c, lambda hw: f"{processor_name()} x{hw.units}", rules, worker=worker)


def cuda_backend(rules: TimingRules | None = None, worker: WorkerProcess | None = None) -> NativeBackend:
    """The `cuda` backend: CUDA kernels on the GPU of this machine."""
    from gensor_gym.measure.compile_pool import CompilePool
    from gensor_gym.measure.cuda_presence import device_name

    return NativeBackend("cuda", CompilePool(), device_name, rules or TimingRules(warmup=GPU_WARMUP), worker=worker)
