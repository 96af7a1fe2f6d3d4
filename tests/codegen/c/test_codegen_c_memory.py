"""C kernels stay in their memory, take every legal schedule, and have their own functions."""

from __future__ import annotations

import ctypes
import platform
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.micro import intrinsics as c_intrinsics
from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load_entry
from gensor_gym.codegen.runtime.threads import pointers, runtime
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.operators.types import ARRAY_DTYPE
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import check, compiled, inputs_of, legal_kernel, machine, random_operator, random_program, worst_error
from tests.support.gir_cases import sanitized_apart
from tests.support.guarded import guarded
from tests.support.thorough import thorough_but


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    # Without AVX-512 the masked helpers are plain loops, which the sanitizer sees through.
    assert sanitized_apart(tmp_path, [generate_c(random_program(seed)) for seed in range(300, 320)]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_sanitizers_find_nothing_in_many(tmp_path: Path, block: int) -> None:
    seeds = range(4000 + 30 * block, 4030 + 30 * block)
    assert sanitized_apart(tmp_path, [generate_c(random_program(seed)) for seed in seeds]) == ""


def run_between_guard_pages(seeds: range) -> None:
    """Run kernels on tensors at the edge of accessible memory, and compare."""
    for seed in seeds:
        run_kernel_between_guard_pages(generate_c(random_program(seed, machine())))


def run_kernel_between_guard_pages(kernel: Kernel) -> None:
    """Run a kernel on tensors at either edge of accessible memory, and compare."""
    op, entry, team = kernel.operator, load_entry(kernel), runtime(2)
    inputs = inputs_of(op)
    for at_end in (True, False):
        given = [guarded(array, at_end) for array in inputs]
        output = guarded(np.full(op.output.shape, 0, ARRAY_DTYPE[op.output.dtype]), at_end)
        workspace = guarded(np.full(kernel.workspace_bytes, 0xFF, np.uint8), at_end)
        entry(pointers(given), output.ctypes.data, workspace.ctypes.data, ctypes.byref(team))
        assert worst_error(op, inputs, output) <= 1.0, f"{op}\n{kernel.source}"


@pytest.mark.thorough
def test_tensors_between_guard_pages() -> None:
    seeds = range(500, 512)
    compiled(random_program(seed, machine()) for seed in seeds)
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({seeds!r})")


BATCHES, PER_BATCH = 6, 50


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_legal_schedules(batch: int) -> None:
    kernels = [legal_kernel(5000 + PER_BATCH * batch + i) for i in range(PER_BATCH)]
    check(kernels[::2], 1)
    check(kernels[1::2], 2)


def test_the_batches_cover_every_operator() -> None:
    seen = {random_operator(random.Random(5000 + i)).name for i in range(BATCHES * PER_BATCH)}
    assert len(seen) == 9


STACKED = re.compile(r"\bv?mov[ua]ps\s+%[xyz]mm\d+, -?\d*\(%r[bs]p\)")


@pytest.mark.as_shipped
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads assembly of x86-64")
@pytest.mark.parametrize("vector", [4, 8, 16])
@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_one_vector_of_sums_is_not_kept_in_memory(name: str, vector: int, tmp_path: Path) -> None:
    """gcc 12 kept it there when the helper that joins its lanes took its address: twice the time on an AMD EPYC (Zen 5)."""
    machine = hardware.get("cascade_lake")
    graph = GirGraph(make(name, m=64, n=1024), machine)
    placed = "dram" if name == "rmsnorm" else "dram,recompute"
    schedule = graph.parse(f"vector={vector} tile=1 rows=1 loop=4 streaming=0 place={placed}")
    source, text = tmp_path / "kernel.c", tmp_path / "kernel.s"
    source.write_text(generate_gir(GirProgram(graph.nest, schedule, machine)).source)
    compiler = find_compiler()
    flags = (*compiler.flags("cascadelake", machine.lanes, shared=False), "-fPIC", "-S")
    subprocess.run([*compiler.command, *flags, str(source), "-o", str(text)], check=True, timeout=60)
    assert STACKED.findall(text.read_text()) == []


ARCHES = {"x86-64": 1, "haswell": 8, "skylake-avx512": 16} if platform.machine() == "x86_64" else {}
HERE = [name for name, lanes in ARCHES.items() if lanes <= cpu_info().lanes] or ["native"]
MAP = """
void map_{w}(const float *x, float *y, long count) {{
    for (long at = 0; at < count; at += {w}) store_{w}(y + at, {function}_{w}(load_{w}(x + at){more}));
}}
"""


def mapped(function: str, x: np.ndarray, width: int, arch: str, folder: Path, more: str = "") -> np.ndarray:
    """float32 [N] of float32 [N], a multiple of the width; `more` are further arguments of the function in C."""
    body = MAP.format(w=width, function=function, more=more)
    text = prelude(body, "float", "float") + body
    name = f"map{len(list(folder.iterdir()))}"  # a library that is loaded once is not read again
    path, library = folder / f"{name}.c", folder / f"{name}.so"
    path.write_text(f"#include <math.h>\n#include <stdint.h>\n{c_intrinsics.intrinsics(text)}{text}")
    done = subprocess.run(find_compiler().line(path, library, arch, width), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    y = np.empty_like(x)
    addresses = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
    getattr(ctypes.CDLL(str(library)), f"map_{width}")(*addresses, ctypes.c_long(len(x)))
    return y


@pytest.mark.thorough
@pytest.mark.parametrize("arch", HERE)
@pytest.mark.parametrize("width", [4, 8, 16])
def test_exponentials(width: int, arch: str, tmp_path: Path) -> None:
    """To 4e-7 from 2^-125 to the largest number; below it may be zero, and never is denormal. NaNs of any bits stay NaNs."""
    edges = np.log([2.0**-149, 2.0**-126, 2.0**-125, np.finfo(np.float32).max])
    near = np.concatenate([np.linspace(edge - 1e-3, edge + 1e-3, 501) for edge in edges])
    odd = np.array([0x7FC00001, 0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    x = np.concatenate([np.linspace(-160, 100, 200_003), near, [0.0, -0.0, -np.inf, np.inf, -3e38, 3e38]]).astype(np.float32)
    x = np.concatenate([x, odd])
    x = np.resize(x, -(-len(x) // 16) * 16)
    y = mapped("exp", x, width, arch, tmp_path).astype(np.float64)
    with np.errstate(all="ignore"):
        right = np.exp(x.astype(np.float64))
        held = np.where(right > np.finfo(np.float32).max, np.inf, right)
    assert np.array_equal(np.isnan(y), np.isnan(x))
    far, plain = ~np.isfinite(held) & ~np.isnan(x), (right >= 2.0**-125) & np.isfinite(held)
    assert np.all(y[far] > 3.4028e38) and np.all(np.isinf(y[x > 88.8]))
    assert np.max(np.abs(y[plain] / held[plain] - 1.0)) < 4e-7
    small = right < 2.0**-125
    assert np.all((y[small] >= 0) & (np.abs(y[small] - right[small]) < 2.0**-125))
    assert np.all((y == 0) | (y >= 2.0**-126) | np.isnan(y)) and np.all(y[x < -87.4] == 0)


@pytest.mark.parametrize("arch", HERE)
@pytest.mark.parametrize("width", thorough_but([4, 8, 16], 8))
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_what_is_no_number_is_handed_on(name: str, width: int, arch: str, tmp_path: Path) -> None:
    x = np.array([1, -2, np.nan, 3, -np.inf, np.inf, -np.nan, 0.5] * 4, np.float32)
    for other in (0.75, np.nan, -np.inf):
        text = "NAN" if np.isnan(other) else "-INFINITY" if np.isinf(other) else f"{other}f"
        y = mapped(name, x, width, arch, tmp_path, f", splat_{width}({text})")
        np.testing.assert_array_equal(y, getattr(np, name)(x, np.float32(other)))
