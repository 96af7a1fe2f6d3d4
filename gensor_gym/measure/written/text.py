"""The source that an agent wrote, as a kernel: its language, its entry, and what a text may contain.

The compiler of C and the worker have few rights, so the checks here need not be complete. They give an agent a clear answer, and
they keep files of the machine out of CUDA texts, whose compiler runs with the user's rights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gensor_gym.codegen.kernel import WHOLE, Kernel, Launch
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

MOST_CHARACTERS = 64 << 10
"""Largest number of characters of a source. The longest that the generators write for operators of Roller's suite has half."""
MOST_WORKSPACE = 1 << 30
"""Largest workspace of a kernel in bytes."""
HEADERS = {
    "c": ("arm_neon.h", "float.h", "immintrin.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"),
    "cuda": (),
}
"""Headers that a source may include, by its language."""
_INCLUDED = re.compile(r"\s*#\s*include\s*<([\w.]+)>\s*(//.*|/\*.*\*/\s*)?")
_OF_FILES = re.compile(r"\b(include|include_next|import|embed|__has_include\w*|__has_embed|incbin|pragma\s+GCC\s+dependency)\b")
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_VECTOR = re.compile(r"\s*(?:(?:volatile|__volatile__)\s*)?\(\s*\"(?:v[a-z0-9]+ [\w\s%,(){}$]*)?\"\s*[:)]")
"""What may follow the word `asm` in C: an empty text, or one vector instruction. Generated sources have both."""
_ENTRY = re.compile(r"__global__\s[^;{]*?\b(?!__)(\w+)\s*\(")


@dataclass(frozen=True)
class Options:
    """How a source is launched: bytes of its workspace and, for CUDA C, grid, block and bytes of dynamic shared memory."""

    workspace: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0


def kernel_of(op: Operator, hw: Hardware, source: str, options: Options) -> Kernel:
    """Return a source as a kernel of the operator. ValueError for an invalid text or option."""
    language = target_of(hw).name
    if language not in HEADERS:
        raise ValueError(f"{hw.name} has kernels in {language}: sources are accepted in {' and '.join(HEADERS)}")
    if apart := [tensor.name for tensor in (*op.inputs, op.output) if tensor.pitch]:
        raise ValueError(f"{op}: rows of {apart[0]} are apart in memory, expected none in a task of a written kernel")
    check_text(source, language)
    if not 0 <= options.workspace <= MOST_WORKSPACE:
        raise ValueError(f"workspace={options.workspace}: expected 0 to {MOST_WORKSPACE} bytes")
    if language == "c":
        return Kernel(op, language, hw.arch, source, (Launch(WHOLE),), options.workspace)
    if (entry := _ENTRY.search(source)) is None or 'extern "C"' not in source:
        raise ValueError('no entry: expected a kernel extern "C" __global__ void NAME(..)')
    _check_launch(options, hw)
    launch = Launch(entry[1], options.grid, options.block, options.shared)
    return Kernel(op, language, hw.arch, source, (launch,), options.workspace)


def check_text(source: str, language: str) -> None:
    """Raise ValueError if a source is too long, has other characters than ASCII, or a directive or word that is not accepted."""
    if len(source) > MOST_CHARACTERS:
        raise ValueError(f"the source has {len(source)} characters: at most {MOST_CHARACTERS} are accepted")
    if strange := re.search(r"[^\t\n\r\x20-\x7e]", source):
        raise ValueError(f"the source has the character {strange[0]!r}: only printable ASCII is accepted")
    for line in re.sub(r"\\[ \t\r]*\n", "", source).splitlines():
        found = _OF_FILES.search(line)
        if not found or not re.search(r"#|%:|\?\?=|__has", line):
            continue
        header = _INCLUDED.fullmatch(line)
        if not header or header[1] not in HEADERS[language]:
            accepted = ", ".join(f"<{name}>" for name in HEADERS[language]) or "none"
            raise ValueError(f"{line.strip()[:100]!r} is not accepted; headers that a source may include: {accepted}")
    if language == "c" and (word := next((w for w in _ASSEMBLY.finditer(source) if not _VECTOR.match(source, w.end())), None)):
        raise ValueError(f"{word[0]!r} is accepted in C for single vector instructions only: use the intrinsics of <immintrin.h>")


def _check_launch(options: Options, hw: Hardware) -> None:
    """Raise ValueError if no GPU of this kind can launch a kernel with these options."""
    threads = options.block[0] * options.block[1] * options.block[2]
    if min(options.grid + options.block) < 1 or options.grid[0] >= 1 << 31 or max(options.grid[1:]) >= 1 << 16:
        raise ValueError(f"grid={options.grid} block={options.block}: expected positive numbers within CUDA's limits")
    if threads > 1024 or options.block[2] > 64:
        raise ValueError(f"block={options.block} has {threads} threads: at most 1024 are accepted, 64 along the last axis")
    if not 0 <= options.shared <= 227 << 10:
        raise ValueError(f"shared={options.shared}: expected 0 to {227 << 10} bytes, what {hw.name} or a larger GPU has")
