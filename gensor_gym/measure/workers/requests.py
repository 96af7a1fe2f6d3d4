"""Requests to a worker: plain picklable values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from gensor_gym.cache.owned import read_own
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.stats.timing import TimingRules


@dataclass(frozen=True)
class Built:
    """A kernel and its compiled file (a shared library or a cubin)."""

    kernel: Kernel
    path: str
    compiler: str = ""
    compile_seconds: float = 0.0
    library: bytes = field(default=b"", repr=False)
    """The file itself, for a worker that may not open it."""
    refused: str = ""
    """Why it is not enclosed: no kernel is loaded then."""

    def enclosed(self) -> Built:
        """With the file itself, if it exists and only this user can write it."""
        try:
            return replace(self, library=read_own(Path(self.path)))
        except ValueError as error:
            return replace(self, refused=str(error))


@dataclass(frozen=True)
class TrialRequest:
    """Verify and time one kernel. `floor` is the least believable time in seconds."""

    built: Built
    threads: int
    floor: float
    seed: int = 0
    rules: TimingRules = field(default_factory=TimingRules)

    def enclosed(self) -> TrialRequest:
        """See `Built.enclosed`."""
        return replace(self, built=self.built.enclosed())


@dataclass(frozen=True)
class CompareRequest:
    """Time several kernels of one operator, and optionally torch, in interleaved rounds of random order.

    `torch_threads` of None leaves torch out; `torch_compile` adds torch.compile's kernel. `name -> samples` comes back,
    torch under `torch` (on GPUs also under `torch.nhwc` for convolutions, `torch.b_transposed` for int8 products: see
    `measure/baselines/torch_cuda.py`), torch.compile under `torch.compile`, and the device's anchor under `anchor` where
    that is asked for.
    """

    built: tuple[tuple[str, Built], ...]
    threads: int
    rounds: int
    seed: int = 0
    torch_threads: int | None = None
    torch_compile: bool = False
    anchor: bool = False
    rules: TimingRules = field(default_factory=TimingRules)

    def enclosed(self) -> CompareRequest:
        """See `Built.enclosed`."""
        return replace(self, built=tuple((name, built.enclosed()) for name, built in self.built))


@dataclass(frozen=True)
class Trial:
    """A kernel to be compiled, verified and timed; see `TrialRequest`, which it becomes."""

    kernel: Kernel
    threads: int
    floor: float
    seed: int = 0
    rules: TimingRules = field(default_factory=TimingRules)

    def request(self, built: Built) -> TrialRequest:
        """Request to a worker once the kernel is compiled."""
        return TrialRequest(built, self.threads, self.floor, self.seed, self.rules)


@dataclass(frozen=True)
class Comparison:
    """Kernels of one operator by name, to be compiled and timed together; see `CompareRequest`, which it becomes."""

    kernels: tuple[tuple[str, Kernel], ...]
    threads: int
    rounds: int
    seed: int = 0
    torch_threads: int | None = None
    torch_compile: bool = False
    rules: TimingRules = field(default_factory=TimingRules)

    def request(self, built: tuple[tuple[str, Built], ...]) -> CompareRequest:
        """Request to a worker once the kernels are compiled."""
        theirs, compile_it = self.torch_threads, self.torch_compile
        return CompareRequest(built, self.threads, self.rounds, self.seed, theirs, compile_it, rules=self.rules)


@dataclass(frozen=True)
class CompileRequest:
    """Compile a CUDA kernel; the answer is Built, or the compiler's words."""

    kernel: Kernel
