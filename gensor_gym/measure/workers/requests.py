"""Requests that a search's process sends to a worker process, as picklable values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from gensor_gym.cache.owned import read_own
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.stats.timing import TimingRules


@dataclass(frozen=True)
class Built:
    """A compiled kernel: the kernel and the path of its file, a shared library or a cubin."""

    kernel: Kernel
    path: str
    compiler: str = ""
    compile_seconds: float = 0.0
    library: bytes = field(default=b"", repr=False)
    """Content of the file, for a worker that may not open it, and of a library without a file."""
    refused: str = ""
    """Reason why the file's content is missing. A worker then loads no kernel."""

    def enclosed(self) -> Built:
        """Return a copy with the content of the kernel's file, for a worker that may not open the file.

        If the file is missing, or if other users can write to it, the copy has the reason instead (`refused`).
        """
        if self.library:
            return self
        try:
            return replace(self, library=read_own(Path(self.path)))
        except ValueError as error:
            return replace(self, refused=str(error))


@dataclass(frozen=True)
class TrialRequest:
    """Request to a worker to verify and time one kernel. `floor` is the shortest plausible time in seconds.

    If both of the first two calls take `slow` seconds or longer, the kernel is not sampled: the shorter call is its time. Without
    `timed`, two calls on one set of inputs verify the kernel, and the shorter is its time. With `unseen`, `stats/unseen.py`
    checks after timing that the kernel keeps no results. `apart` is the size in bytes of all copies of constant weights that the
    timed calls read in turn (`stats/apart.py`); with 0 they read one copy.
    """

    built: Built
    threads: int
    floor: float
    seed: int = 0
    rules: TimingRules = field(default_factory=TimingRules)
    slow: float = math.inf
    timed: bool = True
    unseen: bool = False
    apart: int = 0

    def enclosed(self) -> TrialRequest:
        """Return a copy with the content of the kernel's file; see `Built.enclosed`."""
        return replace(self, built=self.built.enclosed())


@dataclass(frozen=True)
class CompareRequest:
    """Request to a worker to time several kernels of one operator, and optionally torch, in interleaved rounds of random order.

    The answer maps names to samples. Unless `torch_threads` is None, torch's samples are under `torch` (on GPUs also under
    `torch.nhwc` for convolutions and `torch.b_transposed` for 8-bit products, see `measure/baselines/torch_cuda.py`), or under
    `torch.prepacked` for an operator with constant weights. `torch_compile` adds `torch.compile`, and `anchor` adds the drift
    anchor (a fixed kernel) as `anchor`. `apart` is that of a `TrialRequest`; torch's kernels read one copy of their weights.
    """

    built: tuple[tuple[str, Built], ...]
    threads: int
    rounds: int
    seed: int = 0
    torch_threads: int | None = None
    torch_compile: bool = False
    anchor: bool = False
    rules: TimingRules = field(default_factory=TimingRules)
    apart: int = 0

    def enclosed(self) -> CompareRequest:
        """Return a copy with the contents of the kernels' files; see `Built.enclosed`."""
        return replace(self, built=tuple((name, built.enclosed()) for name, built in self.built))


@dataclass(frozen=True)
class Trial:
    """A kernel that a pool compiles, verifies and times. After compilation `request` makes the message for the worker.

    The fields are those of `TrialRequest`.
    """

    kernel: Kernel
    threads: int
    floor: float
    seed: int = 0
    rules: TimingRules = field(default_factory=TimingRules)
    slow: float = math.inf
    timed: bool = True
    unseen: bool = False
    apart: int = 0

    def request(self, built: Built) -> TrialRequest:
        """Return the message that asks a worker to run this trial with the compiled kernel."""
        shared = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "kernel"}
        return TrialRequest(built, **shared)


@dataclass(frozen=True)
class Comparison:
    """Kernels of one operator, by name, that a pool compiles and times together. `request` makes the message for the worker."""

    kernels: tuple[tuple[str, Kernel], ...]
    threads: int
    rounds: int
    seed: int = 0
    torch_threads: int | None = None
    torch_compile: bool = False
    rules: TimingRules = field(default_factory=TimingRules)
    apart: int = 0

    def request(self, built: tuple[tuple[str, Built], ...]) -> CompareRequest:
        """Return the message that asks a worker to compare the compiled kernels."""
        theirs, compile_it = self.torch_threads, self.torch_compile
        return CompareRequest(built, self.threads, self.rounds, self.seed, theirs, compile_it, rules=self.rules, apart=self.apart)


@dataclass(frozen=True)
class CompileRequest:
    """Request to a worker to compile a CUDA kernel. The answer is a Built, or the compiler's log as text."""

    kernel: Kernel
