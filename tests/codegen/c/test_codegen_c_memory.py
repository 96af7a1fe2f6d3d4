"""Generated C touches nothing outside its tensors: under the sanitizers, and next to pages that may not be touched."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load_entry
from gensor_gym.codegen.runtime.threads import pointers, runtime
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.operators.types import ARRAY_DTYPE, ITEM_BYTES
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import compiled, inputs_of, machine, random_program, worst_error
from tests.support.guarded import guarded
from tests.support.kept import KEEPING

MAIN = """
#include <stdio.h>
#include <stdlib.h>
static void serial(const struct gg_runtime *r, void (*task)(void *, long, int), void *context, long count) {
    for (long i = 0; i < count; i++) task(context, i, (int)(i % r->threads));
}
static void *bytes(long size) { /* exactly as many as asked for; small numbers, whatever type they are read as */
    unsigned char *p = malloc(size ? size : 1);
    for (long i = 0; i < size; i++) p[i] = (unsigned char)(i % 4 == 0 ? i % 61 : 0);
    return p;
}
static void run(void (*kernel)(const void *const *, void *, void *, const struct gg_runtime *), int count,
                const long *sizes, long output, long workspace) {
    const struct gg_runtime team = {2, serial};
    const void *inputs[8];
    for (int i = 0; i < count; i++) inputs[i] = bytes(sizes[i]);
    void *y = bytes(output), *space = bytes(workspace);
    kernel(inputs, y, space, &team);
    for (int i = 0; i < count; i++) free((void *)inputs[i]);
    free(y);
    free(space);
}
"""


def driver(kernels: Sequence[Kernel]) -> str:
    """A C program that runs kernels `gg_kernel_0`, `gg_kernel_1`, ... once each."""
    header = Path(__file__).parents[3].joinpath("gensor_gym/codegen/runtime/runtime.h").read_text()
    declarations, calls = [], []
    for i, kernel in enumerate(kernels):
        op = kernel.operator
        arguments = "const void *const *, void *, void *, const struct gg_runtime *"
        declarations.append(f"void gg_kernel_{i}({arguments});")
        sizes = ", ".join(str(t.size * ITEM_BYTES[t.dtype]) for t in op.inputs)
        tensors = f"{len(op.inputs)}, (const long[]){{{sizes}}}, {op.output.nbytes}"
        run = f"run(gg_kernel_{i}, {tensors}, {kernel.workspace_bytes});"
        calls.append(f'    fputs("{i} ", stderr);')
        calls.append(f"    {run}")
    return header + MAIN + "\n".join(declarations) + "\nint main(void) {\n" + "\n".join(calls) + "\n    return 0;\n}\n"


def sanitized(folder: Path, kernels: Sequence[Kernel]) -> None:
    """Compile and run the driver with address and undefined-behaviour sanitizers; any finding fails."""
    command = [*KEEPING, "gcc", "-O1", "-g0", "-std=gnu11", "-c", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

    def compile_one(item: tuple[str, str]) -> str:
        source = folder / item[0] / f"{item[0]}.c"
        source.parent.mkdir()  # what is kept is found by all that lies beside the source
        source.write_text(item[1])
        subprocess.run([*command, str(source), "-o", str(source.with_suffix(".o"))], check=True)
        return str(source.with_suffix(".o"))

    texts = [(f"k{i}", f"#define gg_kernel gg_kernel_{i}\n{kernel.source}") for i, kernel in enumerate(kernels)]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [("main", driver(kernels)), *texts]))
    binary = str(folder / "driver")
    subprocess.run(["gcc", "-fsanitize=address,undefined", *objects, "-o", binary, "-lm"], check=True)
    done = subprocess.run([binary], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.thorough
@pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    # Without AVX-512 the masked helpers are plain loops, which the sanitizer sees through.
    sanitized(tmp_path, [generate_c(random_program(seed)) for seed in range(300, 320)])


@pytest.mark.slow
@pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")
@pytest.mark.parametrize("block", range(10))
def test_sanitizers_find_nothing_in_many(tmp_path: Path, block: int) -> None:
    sanitized(tmp_path, [generate_c(random_program(seed)) for seed in range(4000 + 30 * block, 4030 + 30 * block)])


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
@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made with Linux's mmap")
def test_tensors_between_guard_pages() -> None:
    seeds = range(500, 512)
    compiled(random_program(seed, machine()) for seed in seeds)
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({seeds!r})")
