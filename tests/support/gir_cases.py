"""Fused operators of awkward extents, random legal schedules of them, and many kernels in one library."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gensor_gym.codegen.c.codegen import headers
from gensor_gym.codegen.gir.elements import FLOAT
from gensor_gym.codegen.gir.elements import WHOLE as WHOLE_NUMBERS
from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.codegen.gir.inputs import conversions
from gensor_gym.codegen.kernel import WHOLE, Kernel
from gensor_gym.codegen.runtime import threads
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.threads import GgRuntime, pointers, runtime
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import FACTORIES, make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.placement import Level, levels_of
from gensor_gym.gir.schedule import FIELDS, HEADER, ROW, GirSchedule
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from gensor_gym.operators.types import ARRAY_DTYPE, ITEM_BYTES
from tests.support.c_cases import machine
from tests.support.guarded import guarded
from tests.support.kept import KEEPING

EXTENTS = (1, 2, 5, 7, 16, 33, 77, 101, 197)
SMALL = (1, 2, 3, 5, 8)
SUITE = tuple(FACTORIES)


def of_suite(name: str, rng: np.random.Generator) -> Dataflow:
    """A factory's graph of awkward extents: of m rows of n columns, or of smaller ones for each axis."""
    extents = [one.name for one in inspect.signature(FACTORIES[name]).parameters.values() if one.annotation == "int"]
    if extents == ["m", "n"]:
        return make(name, int(rng.choice((1, 2, 5, 7, 13, 19))), int(rng.choice(EXTENTS)))
    chosen = {one: int(rng.choice(SMALL)) for one in extents}
    longest = "d" if "d" in extents else extents[-1]
    even = 2 if name == "rope" else 1
    return make(name, **{**chosen, longest: even * int(rng.choice(EXTENTS[:6]))})


def random_rows(graph: GirGraph, rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows in the ranges of fields and levels, legal or not, int32 [count, ROW]."""
    rows = np.zeros((count, ROW), np.int32)
    for place, field in enumerate(FIELDS):
        rows[:, place] = rng.integers(len(field.values), size=count)
    for place, name in enumerate(graph.nest.crossing, HEADER):
        rows[:, place] = rng.choice(np.array(levels_of(graph.nest, name)), count)
    return rows


def random_schedule(graph: GirGraph, rng: np.random.Generator) -> GirSchedule:
    """A legal schedule: in half of the cases one whose cells are in registers or buffers, where there is one."""
    rows = np.concatenate([graph.initial().row[None], random_rows(graph, rng, 1024)])
    legal = rows[graph.fits(rows)]
    kept = legal[(legal[:, HEADER:] >= Level.SRAM).any(axis=1)]
    return GirSchedule(rng.choice(kept if len(kept) and rng.integers(2) else legal, axis=0))


def planted(kernel: Kernel, pattern: str, instead: str) -> Kernel:
    """A kernel with a fault in its text, which has to have the pattern."""
    source = re.sub(pattern, instead, kernel.source)
    assert source != kernel.source, f"{pattern} is nowhere in\n{kernel.source}"
    return dataclasses.replace(kernel, source=source)


def kernel_at(operator: Dataflow, schedule: str) -> Kernel:
    """The C kernel of a legal schedule in text."""
    graph = GirGraph(operator, machine())
    assert graph.is_legal(parsed := graph.parse(schedule)), f"{operator}: {schedule}"
    return generate_gir(GirProgram(graph.nest, parsed, graph.hardware))


def kernel_of(operator: Dataflow, rng: np.random.Generator) -> Kernel:
    """The C kernel of a random legal schedule for one of three widths of vectors."""
    graph = GirGraph(operator, machine(int(rng.choice((16, 16, 8, 4)))))
    return generate_gir(GirProgram(graph.nest, random_schedule(graph, rng), graph.hardware))


def graph_kernels(
    make: Callable[[int], Dataflow], seeds: range, of: Callable[[Dataflow, np.random.Generator], Kernel] = kernel_of
) -> list[Kernel]:
    """Random legal programs of those random graphs that rows and columns can say, in C where nothing else is said."""
    found = []
    for seed in seeds:
        try:
            found.append(of(make(seed), np.random.default_rng(seed)))
        except ValueError as error:
            assert str(error).startswith(make(seed).name) and "expected" in str(error) or "a kernel of its own" in str(error)
    return found


def together(kernels: Sequence[Kernel], entry: str = WHOLE) -> str:
    """One text with all kernels as `entry`_0, `entry`_1, ..: a compiler takes longer to start than for one of them."""
    bodies = []
    for number, kernel in enumerate(kernels):
        body = kernel.source[kernel.source.index("struct call {") :]
        body = re.sub(r"\bstruct call\b", f"struct call{number}_", body)
        for name in re.findall(r"^static void (\w+)\(", body, re.MULTILINE):
            body = re.sub(rf"\b{name}\b", f"of{number}_{name}", body)
        bodies.append(re.sub(rf"\b{WHOLE}\b", f"{entry}_{number}", body))
    text = "\n".join(bodies)
    element = WHOLE_NUMBERS if getattr(kernels[0].operator, "whole", ()) else FLOAT
    text = conversions(element.c, text) + text
    helpers = element.prelude(text)
    head = (Path(threads.__file__).parent / "runtime.h").read_text(encoding="utf-8")
    return "\n".join([headers(helpers + text) + head, helpers, text])


def entries_of(kernels: Sequence[Kernel], arch: str = "native") -> list[Any]:
    """The kernels' entries, compiled together and loaded."""
    return loaded(together(kernels), len(kernels), arch)


def loaded(text: str, count: int, arch: str = "native") -> list[Any]:
    """The entries of a text that `together` made."""
    library = ctypes.CDLL(str(compile_text(text, arch)))
    found = []
    for number in range(count):
        entry = getattr(library, f"{WHOLE}_{number}")
        entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(GgRuntime)]
        entry.restype = None
        found.append(entry)
    return found


def called(kernel: Kernel, entry: Any, inputs: Sequence[np.ndarray], at_end: bool = True) -> list[np.ndarray]:
    """The outputs, of arrays that begin or end at pages that nobody may touch."""
    given = [guarded(array, at_end) for array in inputs]
    fills = {"float32": np.nan, "float16": np.nan, "bfloat16": 0x7FC0, "int64": -1, "int8": -1}
    made = [np.full(one.shape, fills[one.dtype], ARRAY_DTYPE[one.dtype]) for one in kernel.operator.outputs]
    outputs = [guarded(array, at_end) for array in made]
    workspace = guarded(np.full(kernel.workspace_bytes, 0xFF, np.uint8), at_end)
    written = pointers(outputs) if len(outputs) > 1 else outputs[0].ctypes.data
    entry(pointers(given), written, workspace.ctypes.data, ctypes.byref(runtime(2)))
    for before, after in zip(inputs, given, strict=True):
        assert np.array_equal(before, after, equal_nan=True), f"{kernel.operator}: an input was written"
    return outputs


def fault_of(kernel: Kernel, entry: Any, draws: Sequence[FusedDraw]) -> str:
    """What is wrong with a kernel's answers, between pages that nobody may touch; empty where nothing is."""
    for at_end, draw in enumerate(draws):
        outputs = called(kernel, entry, draw.inputs, bool(at_end))
        if fault := draw.fault(outputs[0] if len(outputs) == 1 else outputs):
            return fault
    return ""


def faults_of(kernels: Sequence[Kernel], seed: int = 0) -> list[str]:
    """Of every wrong kernel its operator, its schedule and what is wrong."""
    found = []
    for kernel, entry in zip(kernels, entries_of(kernels), strict=True):
        assert isinstance(kernel.operator, Dataflow)
        if fault := fault_of(kernel, entry, fused_draws(kernel.operator, seed)[:2]):
            found.append(f"{kernel.source.partition(' */')[0]}: {fault}")
    return found


_MAIN = """
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
static void run(void (*kernel)(const void *const *, void *, void *, const struct gg_runtime *), int count, const long *sizes,
                int outputs, const long *written, long workspace) {
    const struct gg_runtime team = {2, serial};
    const void *inputs[16];
    void *given[16], *space = bytes(workspace);
    for (int i = 0; i < count; i++) inputs[i] = bytes(sizes[i]);
    for (int i = 0; i < outputs; i++) given[i] = bytes(written[i]);
    kernel(inputs, outputs > 1 ? (void *)given : given[0], space, &team);
    for (int i = 0; i < count; i++) free((void *)inputs[i]);
    for (int i = 0; i < outputs; i++) free(given[i]);
    free(space);
}
"""


def sanitized(folder: Path, kernels: Sequence[Kernel]) -> str:
    """What address and undefined-behaviour sanitizers say of kernels that run once each; empty where they find nothing.

    It is compiled for a processor without masked instructions, whose plain loops the sanitizers see through.
    """
    numbers = range(len(kernels))
    main = "int main(void) {\n" + "\n".join(map(_run, kernels, numbers)) + "\n    return 0;\n}\n"
    (folder / "main.c").write_text(together(kernels) + _MAIN + main, encoding="utf-8")
    return _sanitized_run(folder, ["main.c"])


def sanitized_apart(folder: Path, kernels: Sequence[Kernel]) -> str:
    """As `sanitized`, each kernel with helpers of its own in a file of its own; what packs weights runs before."""
    calls, names = "", []
    for number, kernel in enumerate(kernels):
        names.append(f"kernel{number}.c")
        entry = kernel.launches[0].entry
        packs = {kernel.prepares: f"pack_{number}", kernel.whole: f"whole_{number}"} if kernel.prepares else {}
        renamed = {entry: f"{WHOLE}_{number}"} | packs
        head = "".join(f"#define {old} {new}\n" for old, new in renamed.items())
        (folder / names[-1]).write_text(head + kernel.source, encoding="utf-8")
        arguments = "const void *const *, void *, void *, const struct gg_runtime *"
        calls += "".join(f"void {new}({arguments});\n" for new in renamed.values())
    pairs = [
        f"static void both_{n}(const void *const *i, void *o, void *w, const struct gg_runtime *r) "
        f"{{ {f'pack_{n}(i, o, w, r); ' if kernel.prepares else ''}{WHOLE}_{n}(i, o, w, r); }}\n"
        for n, kernel in enumerate(kernels)
    ]
    runs = (_run(kernel, number, "both") for number, kernel in enumerate(kernels))
    main = "int main(void) {\n" + "\n".join(runs) + "\n    return 0;\n}\n"
    head = (Path(threads.__file__).parent / "runtime.h").read_text(encoding="utf-8")
    (folder / "main.c").write_text(head + _MAIN + calls + "".join(pairs) + main, encoding="utf-8")
    return _sanitized_run(folder, ["main.c", *names])


def _run(kernel: Kernel, number: int, entry: str = WHOLE) -> str:
    """C that calls a kernel's entry once, with arrays that are as long as they have to be."""
    tensors = kernel.operator.inputs, kernel.operator.outputs
    sizes, written = (", ".join(str(t.size * ITEM_BYTES[t.dtype]) for t in some) for some in tensors)
    given = f"{len(kernel.operator.inputs)}, (const long[]){{{sizes}}}, {len(kernel.operator.outputs)}"
    return f"    run({entry}_{number}, {given}, (const long[]){{{written}}}, {kernel.workspace_bytes});"


def _sanitized_run(folder: Path, sources: list[str]) -> str:
    if find_compiler().name != "gcc":
        pytest.skip("the sanitizers are taken from gcc")
    options = ["-O1", "-g0", "-std=gnu11", "-Wno-psabi", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    line = [*KEEPING, "gcc", *options, *(str(folder / source) for source in sources)]
    subprocess.run([*line, "-o", str(folder / "main"), "-lm"], check=True)
    done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr
