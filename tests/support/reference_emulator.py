"""`reference.cu` as it is, run on this processor by the emulator of generated kernels: each entry a function of a library."""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from gensor_gym.measure.answers.reference_kernels import SOURCE
from gensor_gym.measure.emulator import emulator

SHARED = 1 << 15
_SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\(THREADS\) (\w+)\(([^)]*)\)', re.DOTALL)


def library_text(text: str) -> str:
    """The text with a function for each entry that takes addresses of the arguments, as a driver does."""
    (parameters,) = re.findall(r"#define PRODUCT_PARAMETERS((?:.*\\\n)*.*)", text)
    lines = ['#include "emulator.h"', text, f"alignas(16) unsigned char shared_memory[{SHARED}];"]
    for name, given in _SIGNATURE.findall(text):
        given = given.replace("PRODUCT_PARAMETERS", parameters.replace("\\", " "))
        kinds = [re.sub(r"\w+\s*$", "", part).strip() for part in given.split(",")]
        values = ", ".join(f"*static_cast<{kind} *>(a[{i}])" for i, kind in enumerate(kinds))
        lines.append(f"static void call_{name}(void **a) {{ {name}({values}); }}")
        lines.append(f'extern "C" void run_{name}(void **a, dim3 grid, dim3 block, size_t shared) {{')
        lines.append(f"  emulator::launch(call_{name}, a, grid, block, shared_memory, shared);\n}}")
    return "\n".join(lines)


@functools.cache
def library(text: str) -> ctypes.CDLL:
    """The text compiled; once in a test run."""
    folder = tempfile.mkdtemp(prefix="gensor-gym-reference-")
    source, made = Path(folder) / "reference.cpp", Path(folder) / "reference.so"
    source.write_text(library_text(text))
    options = ("-std=c++17", "-O2", "-fno-strict-aliasing", "-w", "-shared", "-fPIC", f"-I{emulator.HEADER.parent}")
    subprocess.run([*emulator.find_cxx(), *options, str(source), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


def run(entry: str, grid: tuple, block: tuple, arguments: tuple, shared: int) -> None:
    """A launch. Arguments are arrays, which a kernel gets the address of, and NumPy's scalars."""
    held = [np.array([a.ctypes.data], np.uint64) if isinstance(a, np.ndarray) else np.array([a], a.dtype) for a in arguments]
    pointers = (ctypes.c_void_p * len(held))(*(h.ctypes.data for h in held))
    shapes = [Dim3(*shape, *(1,) * (3 - len(shape))) for shape in (grid, block)]
    assert shared <= SHARED
    getattr(library(text()), f"run_{entry}")(pointers, *shapes, ctypes.c_size_t(shared))


def text() -> str:
    """What runs; tests plant mistakes in it."""
    return SOURCE.read_text("utf-8")
