"""A generated kernel as plain data: source text and how to launch it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

PACKS = "gg_pack"
"""Name of the entry of a prepacked C kernel (one that reads weights packed earlier) that only packs the weights."""
WHOLE = "gg_kernel"
"""Name of the entry of a C kernel that needs no packed weights; a prepacked kernel has it in addition to its launched entries."""
LAYOUT, FINISH = "_layout", "_finish"
"""Suffixes of entry names: of launches that lay out operands before the main launch, and that add up partial results after it."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: an entry of the source, and the shape of its grid and blocks.

    For a C kernel, grid and block are (1, 1, 1).
    """

    entry: str
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    cluster: int = field(default=1, repr=False)
    """Number of blocks in a thread block cluster, which can access each other's shared memory. The source also contains it, so
    the launch needs no attribute and the digest leaves it out."""


@dataclass(frozen=True)
class Kernel:
    """Source code of one schedule of one operator, and its launches in order.

    Every entry takes the same arguments: all inputs in the operator's order, the output, the workspace.
    C: `void entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)`. If there are
    several outputs, `output` is an array of pointers.
    CUDA: `extern "C" __global__ void entry(const T0 *in0, ..., T *output, float *workspace)`. The launches run one after
    another on one stream. Tensor maps, if any, are the first arguments, each a `const __grid_constant__ TensorMap` of 128
    bytes by value. The workspace is not cleared between calls (except `cleared_bytes`).
    """

    operator: Computation
    language: str
    """Language of the source: the name of a target in `codegen.targets`."""
    arch: str
    source: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    prepares: str = ""
    """Name of the entry that packs a prepacked kernel's weights into the workspace; empty for a plain kernel.

    Call it once before the launches, with the same arguments. It reads only the weights and writes no output.
    """
    task_rows: int = 0
    """Number of rows in a block, for a C kernel with one parallel loop whose tasks compute blocks of rows in order.

    The rows are those of a product or of a row nest. 0 for any other kernel.
    """
    tasks_of_block: int = 1
    """Number of consecutive tasks that together compute one block of rows; each computes some of its columns."""
    cleared_bytes: int = 0
    """Number of bytes at the workspace's start that must be zero before the first call. Every call leaves them zero, so they
    are cleared once, after allocation."""
    maps: tuple[TensorMap, ...] = ()
    """Tensor maps that the kernel's entries take before the plain arguments.

    The code that launches a kernel encodes them for its arrays.
    """
    dependent: bool = False
    """Whether the entries wait for earlier kernels, so that they may be launched before these are done (`cuda.dependent`)."""
    packed: str = ""
    """Digest of the precompiled kernel that this object stands for, if its source is not available; else empty."""

    @property
    def loop_nest(self) -> Operator:
        """The kernel's operator, if it is one loop nest; ValueError for a fused operator."""
        if not isinstance(self.operator, Operator):
            raise ValueError(f"{self.operator} is a fused operator: expected an operator of one loop nest")
        return self.operator

    @property
    def prepacked(self) -> bool:
        """Whether launches read weights packed by an earlier call. Never compare their times with times of plain kernels."""
        return bool(self.prepares)

    @property
    def whole(self) -> str:
        """Name of the C kernel's entry that needs no packed weights."""
        return WHOLE if self.prepares else self.launches[0].entry

    def tasks_of(self, rows: int) -> int:
        """Return the number of consecutive tasks that compute `rows` rows, starting at a multiple of `rows`.

        It is 0 if these rows are not whole blocks.
        """
        blocks, rest = divmod(rows, self.task_rows) if self.task_rows else (0, 0)
        return 0 if rest else blocks * self.tasks_of_block

    @property
    def main(self) -> Launch:
        """The launch that computes the operator. Earlier launches lay out operands, later launches add up partial results."""
        helpers = (LAYOUT, FINISH)
        return next(launch for launch in self.launches if not launch.entry.endswith(helpers))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that determines the machine code: schedules with equal digests count as one trial.

        It is computed once, because hashing the source takes longer than a small kernel.
        """
        if self.packed:
            return self.packed
        text = "\0".join([self.language, self.arch, self.source, repr(self.launches), str(self.workspace_bytes)])
        text += f"\0{self.prepares}" if self.prepares else ""
        text += f"\0{self.maps!r}" if self.maps else ""
        text += f"\0cleared {self.cleared_bytes}" if self.cleared_bytes else ""
        return hashlib.sha256(text.encode()).hexdigest()

    def in_language(self, language: str) -> Kernel:
        """Return this kernel; ValueError if its source is in another language."""
        if self.language != language:
            raise ValueError(f"expected a kernel in language {language!r}, got one in {self.language!r}: {self.operator}")
        return self
