"""Statistics of a cubin's machine code: the loops of a kernel, with the number of instructions by operation.

The disassembler is optional: `pip install nvidia-cuda-nvdisasm`, or `nvdisasm` of a CUDA toolkit on the PATH. It needs no GPU.

    python -m gensor_gym.codegen.cuda.sass OPERATOR SCHEDULE HARDWARE

compiles a program and lists the operations of its main loop.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nvidia-cuda-nvdisasm"
MULTIPLY_ADDS = ("FFMA", "HMMA", "HGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA")
"""Multiply-add operations: FFMA on CUDA cores, the others of mma.sync and wgmma for floats, integers and 8-bit floats."""

_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)((?:\.\w+)*)([^;]*);")
_TARGET = re.compile(r"`\((\.L_\w+)\)")


class SassError(RuntimeError):
    """The disassembler is missing or rejected a cubin, or a cubin has no loop."""


@dataclass(frozen=True)
class Loop:
    """A loop of machine code: the instructions from a label to the last branch back to it, including inner loops.

    `operations` are in the order of the text, with their suffixes (`LDG.E.128`). `entry` is the kernel's name. `lines` are the
    loop's line numbers in the kernel, where labels count as lines.
    """

    entry: str
    operations: tuple[str, ...]
    lines: range

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-add instructions in the loop."""
        return sum(self.counts[name] for name in MULTIPLY_ADDS)

    def holds(self, other: Loop) -> bool:
        """Return whether `other` is an inner loop of this loop."""
        within = self.entry == other.entry and self.lines.start <= other.lines.start and other.lines.stop <= self.lines.stop
        return within and self.lines != other.lines

    @property
    def counts(self) -> Counter[str]:
        """Number of instructions by operation, without suffixes."""
        return Counter(name.partition(".")[0] for name in self.operations)

    def share(self, *names: str) -> float:
        """Return the fraction of the loop's instructions whose operation is in `names`, by default in `MULTIPLY_ADDS`."""
        counts = self.counts
        return sum(counts[name] for name in names or MULTIPLY_ADDS) / max(1, len(self.operations))


def is_available() -> bool:
    """Return whether a disassembler is installed."""
    try:
        find_nvdisasm()
    except SassError:
        return False
    return True


def find_nvdisasm() -> Path:
    """Find the disassembler in the Python package, else on the PATH, and return its path.

    SassError names the package to install.
    """
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm"), reverse=True):
            return path
    if found := shutil.which("nvdisasm"):
        return Path(found)
    raise SassError(f"no disassembler: pip install {PACKAGE}, or put nvdisasm of a CUDA toolkit on the PATH")


def disassemble(cubin: bytes) -> str:
    """Disassemble a cubin. Return the assembly text of all its kernels; SassError has the disassembler's message if it fails."""
    tool = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([str(tool), "-c", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SassError(f"{tool.name}: {done.stderr.strip()}")
    return done.stdout


def instructions(text: str) -> dict[str, list[str]]:
    """Read `disassemble`'s text. Return the instructions and labels of every kernel, in order, by the kernel's name.

    Labels begin with a dot. Predicates, operands, addresses and encodings are omitted, but targets of branches stay: `BRA
    .L_x_0`.
    """
    kernels: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if section := re.match(r"^\.text\.(\w+):", line):
            lines = kernels.setdefault(section[1], [])
        elif label := _LABEL.match(line):
            lines.append(label[1])
        elif found := _INSTRUCTION.match(line):
            target = _TARGET.search(found[3])
            lines.append(found[1] + found[2] + (f" {target[1]}" if target and found[1] == "BRA" else ""))
    return kernels


def loops(cubin: bytes) -> list[Loop]:
    """Return all loops of a cubin's kernels, in the order of the text."""
    found = []
    for entry, lines in instructions(disassemble(cubin)).items():
        places = {line: i for i, line in enumerate(lines) if line.startswith(".")}
        ends: dict[int, int] = {}
        for at, line in enumerate(lines):
            target = line.partition(" ")[2]
            if target in places and places[target] < at - 1:  # a branch to itself ends every kernel
                ends[places[target]] = at
        for start, end in sorted(ends.items()):
            body = [line.partition(" ")[0] for line in lines[start : end + 1] if not line.startswith(".")]
            found.append(Loop(entry, tuple(body), range(start, end + 1)))
    return found


def main_loop(cubin: bytes) -> Loop:
    """Return the loop with the most multiply-adds that contains no other loop with multiply-adds; else the longest loop.

    For a loop over tiles around a loop over steps, the result is the loop over steps. SassError if no kernel of the cubin has a
    loop.
    """
    every = loops(cubin)
    if not every:
        raise SassError("no loop: the kernel is straight code")
    busy = [loop for loop in every if loop.multiply_adds]
    inner = [loop for loop in busy if not any(loop.holds(other) for other in busy)]
    return max(inner or every, key=lambda loop: (loop.multiply_adds, -len(loop.operations) if inner else len(loop.operations)))


def report(op: str, schedule: str, hardware: str) -> str:
    """Compile a program for `hardware`. Return a text with its registers, spills, and the operations of its main loop."""
    from gensor_gym.codegen.build import generate
    from gensor_gym.codegen.cuda.nvrtc import compile_cubin
    from gensor_gym.graph.schedule import Schedule

    compiled = compile_cubin(generate(op, Schedule.parse(schedule), hardware))
    loop = main_loop(compiled.cubin)
    size = len(loop.operations)
    lines = [
        f"{loop.entry}: {compiled.registers} registers, {compiled.spill_bytes} bytes spilled",
        f"main loop: {size} instructions, {100 * loop.share():.1f} % multiply-adds",
    ]
    lines += [f"  {name:<10}{count:>6}{100 * count / size:>7.1f} %" for name, count in loop.counts.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m gensor_gym.codegen.cuda.sass OPERATOR SCHEDULE HARDWARE")
    print(report(*sys.argv[1:]))
