"""Trials of sources that an agent wrote: compiled, verified and timed, each in a new process."""

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
from gensor_gym.measure.workers.start import SWITCH, wanted
from gensor_gym.measure.written.clocked import clocked
from gensor_gym.measure.written.compiling import SECONDS, build_written
from gensor_gym.measure.written.memory import AVAILABLE

MOST_MEMORY = 8 << 30
"""Largest number of bytes that the process of a source may allocate. Half of the machine's memory is the other limit."""


class WrittenTrials:
    """Verifies and times kernels that an agent wrote, for one machine.

    A kernel is loaded into a process that has run no other kernel and runs no other afterwards. A kernel in C is timed from
    outside that process (`clocked.py`). A kernel in CUDA C runs on a GPU and is timed by the protocol of all kernels; its inputs
    are drawn from a seed that the agent does not know, and `stats/unseen.py` looks for kept results.
    """

    def __init__(self, hw: Hardware) -> None:
        """Prepare trials for a machine. ValueError if this machine cannot run or isolate such kernels."""
        runner = runner_of(hw)
        if reason := runner.absence(hw):
            raise ValueError(f"{hw.name} cannot be timed here: {reason}")
        self.hardware = hw
        self._memory = min(MOST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        self._cuda: NativeBackend | None = None
        if target_of(hw).name != "c":
            worker, rules = WorkerProcess(runner.name, restart_after=1, memory=self._memory), TimingRules(warmup=GPU_WARMUP)
            self._cuda = NativeBackend(runner.name, CompilePool(1, SECONDS), str, rules, worker=worker)
            return
        if not AVAILABLE:
            raise ValueError("sources in C are timed on Linux only: this system does not copy between processes")
        if wanted() and not landlock.version():
            raise ValueError(f"this system cannot isolate sources (no Landlock); ${SWITCH}=off runs them with your rights")

    def measure(self, kernel: Kernel, seed: int) -> Measurement:
        """Compile, verify and time one kernel. `seed` determines its first inputs. Every failure is a status."""
        if self._cuda is not None:
            return self._on_gpu(self._cuda, kernel, seed)
        try:
            built = build_written(kernel)
        except CompileFailed as error:
            return Measurement(error.status, error=str(error), digest=kernel.digest)
        return clocked(built, self.hardware, seed, TimingRules(), self._memory)

    def close(self) -> None:
        """End the worker and the compilers of CUDA sources. C sources leave no process."""
        if self._cuda is not None:
            self._cuda.close()

    def _on_gpu(self, backend: NativeBackend, kernel: Kernel, seed: int) -> Measurement:
        try:
            return backend.trial(backend.compile([kernel])[0], self.hardware, seed=seed, unseen=True)
        except RuntimeError as error:  # the harness failed in the worker: memory that the kernel has taken, or damage
            return Measurement(Status.CRASHED, error=str(error).partition("\n")[0], digest=kernel.digest)
