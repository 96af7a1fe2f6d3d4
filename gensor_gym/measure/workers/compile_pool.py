"""Compilation by NVRTC in separate processes, so that a compilation that hangs or crashes costs one trial and not the search."""

from __future__ import annotations

import os
import queue
import threading

from gensor_gym.codegen.deadlines import COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import Built, CompileRequest

_PAUSE = 0.02
"""Seconds between two checks whether compilers that are about to end have ended."""


class CompilePool:
    """Several worker processes that compile CUDA kernels by NVRTC, each started at its first use. Several threads may call it."""

    def __init__(self, size: int | None = None, seconds: float = COMPILE_SECONDS["cuda"]) -> None:
        """Make a pool of at most `size` workers (default: one per core). A compilation may take `seconds`."""
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        self._workers = [
            WorkerProcess("nvrtc", stage_seconds={"load": seconds}) for _ in range(size or os.cpu_count() or 1)
        ]
        self._ending = threading.Event()
        for worker in self._workers:
            self._idle.put(worker)

    def __call__(self, kernel: Kernel) -> Built:
        """Compile one kernel to a cubin file. CompileFailed has the log, or says how the compiler's process failed."""
        worker = self._idle.get()
        try:
            if self._ending.is_set():
                raise CompileFailed("the compilers were ended")
            answer = worker.ask(CompileRequest(kernel))
        except (WorkerLost, RuntimeError) as error:
            raise CompileFailed(f"compiling: {error}") from error
        finally:
            self._idle.put(worker)
        if isinstance(answer, str):
            raise CompileFailed(answer)
        return answer

    def close(self) -> None:
        """End the workers at once. Compilations in progress fail. The next compilation starts a worker."""
        self._ending.set()
        held: list[WorkerProcess] = []
        while len(held) < len(self._workers):
            for worker in self._workers:
                worker.kill()
            try:
                held.append(self._idle.get(timeout=_PAUSE))
            except queue.Empty:
                continue  # the killed worker will be idle soon
        for worker in held:
            worker.close()
        self._ending.clear()
        for worker in held:
            self._idle.put(worker)
