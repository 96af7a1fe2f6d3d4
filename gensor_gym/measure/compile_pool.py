"""NVRTC in processes of its own, so that a compilation that hangs or crashes costs one trial and not the harness."""

from __future__ import annotations

import os
import queue

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.builders import CompileFailed
from gensor_gym.measure.process import WorkerLost, WorkerProcess
from gensor_gym.measure.requests import Built, CompileRequest

_SECONDS = 60.0
"""A kernel that takes longer to compile is given up: fully unrolled giants, slow for their code size anyway."""


class CompilePool:
    """A few `nvrtc` workers, each started when it is first needed. Callable from any number of threads."""

    def __init__(self, size: int | None = None, seconds: float = _SECONDS) -> None:
        """`size` workers at most (one per core), `seconds` for one compilation."""
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        self._workers = [
            WorkerProcess("nvrtc", stage_seconds={"load": seconds}) for _ in range(size or os.cpu_count() or 1)
        ]
        for worker in self._workers:
            self._idle.put(worker)

    def __call__(self, kernel: Kernel) -> Built:
        """Compile one kernel to a cubin file; CompileFailed carries the log, or how the compiler's process failed."""
        worker = self._idle.get()
        try:
            answer = worker.ask(CompileRequest(kernel))
        except (WorkerLost, RuntimeError) as error:
            raise CompileFailed(f"compiling: {error}") from error
        finally:
            self._idle.put(worker)
        if isinstance(answer, str):
            raise CompileFailed(answer)
        return answer

    def close(self) -> None:
        """End the workers; the next compilation starts one."""
        for worker in self._workers:
            worker.close()
