"""A generated kernel as plain data: source text and how to launch it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

PACKS = "gg_pack"
"""Entry of a prepacked kernel in C that packs its weights and does nothing else."""
WHOLE = "gg_kernel"
"""Entry of a C kernel that reads only its inputs; a prepacked kernel has it in addition to its launched entries."""
LAYOUT, FINISH = "_layout", "_finish"
"""How entries end that lay out operands before the main one, and that add up parts of a split reduction after it."""


@dataclass(frozen=True)
class Launch:
    """An entry of the source and its launch shape. A C kernel has grid and block of ones."""

    entry: str
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    cluster: int = field(default=1, repr=False)
    """Blocks that are resident together and reach into each other's shared memory. The source says it as well, so that the
    launch needs no attribute (and the digest no part)."""


@dataclass(frozen=True)
class Kernel:
    """Source of one schedule of one operator, with its launches in order.

    Every entry takes the same arguments: all inputs in the operator's order, the output, the workspace.
    C: `void entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)`, where `output`
    is an array of pointers if there are several outputs.
    CUDA: `extern "C" __global__ void entry(const T0 *in0, ..., T *output, float *workspace)`; each launch follows the
    other on one stream. The workspace is not cleared between calls (but see `cleared_bytes`). Where there are tensor maps
    they come first, each as `const __grid_constant__ TensorMap`, 128 bytes by value.
    """

    operator: Computation
    language: str
    """Name of the target whose language the source is in (`codegen.targets`)."""
    arch: str
    source: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    prepares: str = ""
    """Entry to call once before the others, with the same arguments: it packs a prepacked kernel's weights in the workspace.

    It reads only the weights and writes no output. Empty for a plain kernel.
    """
    task_rows: int = 0
    """Rows of a block, for a C kernel with one parallel loop whose tasks go from one block of rows to the next.

    Rows are a product's or those of a row nest; 0 for any other kernel.
    """
    tasks_of_block: int = 1
    """Consecutive tasks that share the columns of such a block."""
    cleared_bytes: int = 0
    """Bytes at the workspace's beginning that are zero before the first call, and again after each: whoever allocates clears
    them once."""
    maps: tuple[TensorMap, ...] = ()
    """Tensor maps that entries take before the plain arguments; whoever launches them encodes them for its arrays."""
    packed: str = ""
    """Digest of a precompiled kernel that this one represents without its source."""

    @property
    def loop_nest(self) -> Operator:
        """Its operator, for code that reads one loop nest; ValueError for a fused one."""
        if not isinstance(self.operator, Operator):
            raise ValueError(f"{self.operator} is a fused operator: expected an operator of one loop nest")
        return self.operator

    @property
    def prepacked(self) -> bool:
        """Whether its launches read weights that an earlier call packed; never to be compared with plain kernels."""
        return bool(self.prepares)

    @property
    def whole(self) -> str:
        """The entry of a C kernel that reads only its inputs."""
        return WHOLE if self.prepares else self.launches[0].entry

    def tasks_of(self, rows: int) -> int:
        """Number of consecutive tasks that compute `rows` rows, from any multiple of these on; 0 if there is none."""
        blocks, rest = divmod(rows, self.task_rows) if self.task_rows else (0, 0)
        return 0 if rest else blocks * self.tasks_of_block

    @property
    def main(self) -> Launch:
        """The launch that does the operator's work; others lay operands out before it or add parts up after it."""
        helpers = (LAYOUT, FINISH)
        return next(launch for launch in self.launches if not launch.entry.endswith(helpers))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that makes the machine code: two schedules of one digest are one trial.

        Found once: every call looks the loaded function up by it, and hashing the text takes longer than a small kernel.
        """
        if self.packed:
            return self.packed
        text = "\0".join([self.language, self.arch, self.source, repr(self.launches), str(self.workspace_bytes)])
        text += f"\0{self.prepares}" if self.prepares else ""
        text += f"\0{self.maps!r}" if self.maps else ""
        text += f"\0cleared {self.cleared_bytes}" if self.cleared_bytes else ""
        return hashlib.sha256(text.encode()).hexdigest()

    def in_language(self, language: str) -> Kernel:
        """Itself; ValueError if its source is in another language."""
        if self.language != language:
            raise ValueError(f"expected a kernel in language {language!r}, got one in {self.language!r}: {self.operator}")
        return self
