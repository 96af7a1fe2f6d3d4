"""Trials of sources that an agent wrote: compiled, verified and timed by the protocol of all kernels, each in a new worker."""

from __future__ import annotations

import os

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import GPU_WARMUP, NativeBackend
from gensor_gym.measure.runners import runner_of
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.start import SWITCH, wanted
from gensor_gym.measure.written.clocked import clocked
from gensor_gym.measure.written.compiling import SECONDS, Refused, build_written

MOST_MEMORY = 8 << 30
"""Largest number of bytes that a worker with a source may allocate, inputs and expected outputs among them. Half of the machine's
memory is the other limit.
"""


class WrittenTrials:
    """Verifies and times kernels that an agent wrote, for one machine.

    A kernel is loaded into a worker that has run no other kernel and runs no other afterwards. Its inputs are drawn from a seed
    that the agent does not know, and `stats/unseen.py` looks for kept results.
    """

    def __init__(self, hw: Hardware) -> None:
        """Prepare trials for a machine. ValueError if this machine cannot run or isolate such kernels."""
        runner = runner_of(hw)
        if reason := runner.absence(hw):
            raise ValueError(f"{hw.name} cannot be timed here: {reason}")
        self.hardware, self.language = hw, target_of(hw).name
        if self.language == "c" and wanted() and not landlock.version():
            raise ValueError(f"this system cannot isolate sources (no Landlock); ${SWITCH}=off runs them with your rights")
        self._memory = min(MOST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        worker = WorkerProcess(runner.name, restart_after=1, memory=self._memory)
        self._rules = TimingRules(warmup=GPU_WARMUP) if hw.kind == "gpu" else TimingRules()
        compiler = build_written if self.language == "c" else CompilePool(1, SECONDS)
        self._backend = NativeBackend(runner.name, compiler, str, self._rules, worker=worker)

    def measure(self, kernel: Kernel, seed: int) -> Measurement:
        """Compile, verify and time one kernel. `seed` determines its inputs. Every failure is a status."""
        try:
            built = self._built(kernel)
            if self.language == "c" and isinstance(built, Built):
                return clocked(built, self.hardware, seed, self._rules, self._memory)
            return self._backend.trial(built, self.hardware, seed=seed, unseen=True)
        except RuntimeError as error:  # the harness failed in the worker: memory that the kernel has taken, or damage
            return Measurement(Status.CRASHED, error=str(error).partition("\n")[0], digest=kernel.digest)

    def _built(self, kernel: Kernel) -> Built | Measurement:
        if self.language != "c":
            return self._backend.compile([kernel])[0]
        try:
            return build_written(kernel)
        except CompileFailed as error:
            status = Status.ILLEGAL if isinstance(error, Refused) else Status.COMPILE_ERROR
            return Measurement(status, error=str(error), digest=kernel.digest)

    def close(self) -> None:
        """End the worker and the compilers."""
        self._backend.close()
