"""Backends that run kernels: this process generates kernels; a pool compiles them, and its workers verify and time them."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.targets import target_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.cpuinfo import WITHOUT_AVX512, usable_cpus
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import check_size
from gensor_gym.measure.legality import is_legal
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.apart import bytes_apart
from gensor_gym.measure.stats.floor import MARGIN, is_excused, warm_floor
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.pool import Compile, LocalPool, Pool
from gensor_gym.measure.workers.pool import timed as timed_by
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, Comparison, Trial
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

_REMEMBERED = 4096
GPU_WARMUP = 30e-3
"""Seconds of warm-up before timing. A GPU that idled during verification needs tens of milliseconds to raise its clock."""


class NativeBackend:
    """Backend that generates kernels in this process, and lets a pool of processes compile, verify and time them."""

    stored = True

    def __init__(
        self,
        name: str,
        compile_kernel: Compile,
        device: Callable[[Hardware], str],
        rules: TimingRules | None = None,
        seed: int = 0,
        worker: WorkerProcess | None = None,
        pool: Pool | None = None,
        overlap: bool = False,
    ) -> None:
        """Make a backend; its processes start at the first use.

        `compile_kernel` compiles to a file or raises CompileFailed. `device` returns the device's name for a Hardware.
        `rules` are the settings of timing, and `seed` determines the random inputs. One worker of this machine measures, unless a
        `pool` is given. With `overlap` the next kernels are compiled during timing, for devices whose timing leaves the host's
        cores idle.
        """
        self.name = name
        self.rules = rules or TimingRules()
        self.seed = seed
        self.local = LocalPool(compile_kernel, [worker or WorkerProcess(name)], overlap)
        self.pool: Pool = pool or self.local
        self.device = device
        self._kernels: OrderedDict[tuple[Operator | Dataflow, bytes, Hardware], Kernel | Measurement] = OrderedDict()

    def digest(self, op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
        """Return the digest of the generated kernel, or the program's digest if no kernel can be generated."""
        return self.generated(op, schedule, hw).digest

    def measure(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Measure schedules. Return one measurement for each, in order. Equal kernels are timed once."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure`, each when it is ready."""
        return self.together([(op, schedule) for schedule in schedules], hw)

    def together(
        self, asked: Sequence[tuple[Operator | Dataflow, Any]], hw: Hardware, patience: float = math.inf
    ) -> Iterator[Measurement]:
        """Yield one measurement for each (operator, schedule) of `asked`, in order.

        Kernels of all operators are compiled in parallel. With a finite `patience`, programs that are too slow are not sampled
        (see `backend.Together`). If the kernels then leave a core unused, others are compiled on it during timing.
        """
        made = [(op, self.generated(op, schedule, hw)) for op, schedule in asked]
        kernels = {(op, k.digest): k for op, k in made if isinstance(k, Kernel)}
        trials = (self._trial(kernel, hw, patience) for kernel in kernels.values())
        spare = target_of(hw).threads(hw) < len(usable_cpus())
        results = self.pool.stream(trials, overlap=patience < math.inf and spare)
        done = {(op, k.digest): k for op, k in made if isinstance(k, Measurement)}
        for op, item in made:
            key = op, item.digest
            if key not in done:
                done[key] = self._judged(next(results), op, hw)
            yield done[key]

    def compile(self, kernels: Sequence[Kernel]) -> list[Built | Measurement]:
        """Compile kernels in parallel on this machine. A kernel that fails gives a Measurement with the reason."""
        return self.local.compile(kernels)

    def trial(self, built: Built | Measurement, hw: Hardware, **fields: Any) -> Measurement:
        """Verify and time one compiled kernel on this machine. If the worker dies, the measurement's status says how.

        `fields` are fields of the `Trial` other than the default: with `timed=False` the kernel is verified on one set of inputs,
        and its time is the shorter of two calls (condition `UNTIMED`).
        """
        if isinstance(built, Measurement):
            return built
        trial = dataclasses.replace(self._trial(built.kernel, hw), **fields)
        return self._judged(timed_by(self.local.workers[0], trial, built), built.kernel.operator, hw)

    def _judged(self, result: Measurement, op: Computation, hw: Hardware) -> Measurement:
        """Return a measurement with status OK if it is IMPLAUSIBLE only because this machine's measured rates are outdated.

        Any other measurement is returned unchanged.
        """
        if result.status is Status.IMPLAUSIBLE and result.samples and self.pool is self.local:
            if is_excused(op, hw, float(np.median(result.samples))):
                return dataclasses.replace(result, status=Status.OK, error="")
        return result

    def _trial(self, kernel: Kernel, hw: Hardware, patience: float = math.inf) -> Trial:
        floor = warm_floor(kernel.operator, hw)
        slow, apart = max(patience * floor, self.rules.sample), bytes_apart(kernel.operator, hw)
        return Trial(kernel, target_of(hw).threads(hw), MARGIN * floor, self.seed, self.rules, slow, apart=apart)

    def compare(
        self,
        kernels: dict[str, Kernel],
        hw: Hardware,
        rounds: int = 20,
        torch: bool = False,
        seed: int = 0,
        torch_compile: bool = False,
        torch_threads: int | None = None,
        apart: bool = False,
    ) -> dict[str, list[float]]:
        """Time kernels of one operator in interleaved rounds. Return seconds per call by name, one value per round.

        `torch=True` adds torch's own kernel on the same device under the name `torch`. A CPU runs it with `torch_threads`, by
        default as many as our kernels use. For an operator with constant weights, `torch.prepacked` (oneDNN's kernel with packed
        weights) is timed instead. A GPU also times torch in the layout that its library prefers: `torch.nhwc` for convolutions,
        `torch.b_transposed` for products of 8-bit matrices. `torch_compile=True` adds torch.compile's kernel as `torch.compile`
        (GPUs only). With `apart`, calls read other copies of constant weights in turn, as in trials (`stats/apart.py`); torch's
        kernels read one.

        Raises:
            ValueError: a kernel does not compile, or has the name of a requested baseline.
            RuntimeError: a result is wrong; it names the kernel.
            WorkerLost: a kernel crashes or hangs.
        """
        taken = [name for name in kernels if name == "torch" or name.startswith("torch.")]
        if torch and taken:
            raise ValueError(f"the name {taken[0]!r} is taken by the baseline; give the kernel another name")
        threads = target_of(hw).threads(hw)
        theirs = (torch_threads or threads) if torch else None
        copies = max((bytes_apart(kernel.operator, hw) for kernel in kernels.values()), default=0) if apart else 0
        return self.pool.compare(
            Comparison(tuple(kernels.items()), threads, rounds, seed, theirs, torch_compile, self.rules, copies)
        )

    def close(self) -> None:
        """End the processes of the pool and the workers of this machine."""
        self.pool.close()
        self.local.close()

    def generated(self, op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> Kernel | Measurement:
        """Return a schedule's kernel, or a measurement with the reason why there is none. The last `_REMEMBERED` are cached."""
        key = (op, schedule.key, hw)
        if key not in self._kernels:
            self._kernels[key] = make_kernel(op, schedule, hw)
            if len(self._kernels) > _REMEMBERED:
                self._kernels.popitem(last=False)
        return self._kernels[key]


def make_kernel(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> Kernel | Measurement:
    """Generate a schedule's kernel. If that is impossible, return a measurement ILLEGAL or COMPILE_ERROR with the reason.

    COMPILE_ERROR is the status of legal programs that the generator does not support (a data type, a knob's value), and of
    programs of an operator whose values are too large to verify.
    """
    from gensor_gym.measure.analytic import program_digest

    if not is_legal(op, schedule, hw):
        digest = program_digest(op, schedule, hw)
        return Measurement(Status.ILLEGAL, error=f"outside the limits of {hw.name}: {schedule!r}", digest=digest)
    try:
        check_size(op)
        return generate(op, schedule, hw)
    except ValueError as error:
        digest = program_digest(op, schedule, hw)
        return Measurement(Status.COMPILE_ERROR, error=f"no code can be generated: {error}", digest=digest)


def cpu_backend(
    rules: TimingRules | None = None, worker: WorkerProcess | None = None, pool: Pool | None = None
) -> NativeBackend:
    """Make the `cpu` backend, which runs C kernels on this machine's processor, or on the processors of `pool`."""
    from gensor_gym.measure.devices.cpu import processor_name

    def device(hw: Hardware) -> str:
        return f"{processor_name()} x{hw.units}" + (f" as {hw.arch}" if hw.arch == WITHOUT_AVX512 else "")

    return NativeBackend("cpu", build_c, device, rules, worker=worker, pool=pool)


def cuda_backend(
    rules: TimingRules | None = None, worker: WorkerProcess | None = None, pool: Pool | None = None
) -> NativeBackend:
    """Make the `cuda` backend, which runs CUDA kernels on this machine's GPU, or on the GPUs of `pool`."""
    from gensor_gym.measure.devices.presence import device_name
    from gensor_gym.measure.workers.compile_pool import CompilePool

    rules = rules or TimingRules(warmup=GPU_WARMUP)
    return NativeBackend("cuda", CompilePool(), device_name, rules, worker=worker, pool=pool, overlap=True)
