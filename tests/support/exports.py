"""Exported kernels of random schedules, and programs of others made with them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_gym import ConstructionGraph, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.compiler import find_compiler
from tests.support.kept import KEEPING

OPERATORS = (
    "gemm(m=24, n=40, k=20)+bias+relu",
    "gemm(m=24, n=48, k=20)+bias+relu",
    "conv2d(n=1, c=4, h=9, w=8, k=8, r=3, s=3, stride=(2, 1), padding=1)",
    'gemm(m=16, n=32, k=24, dtype="int8")',
    "max_pool2d(n=1, c=3, h=9, w=9, r=3, s=3, stride=2)",
)
_SANITIZED = ["-std=gnu11", "-march=native", "-ffp-contract=fast", "-fno-sanitize-recover=all", "-pthread"]
NAMED = ("-O1", "-g")
"""Options of a compiler whose reports name lines; without them it is done in half the time."""
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def kernel_of(text: str, seed: int = 0) -> Kernel:
    """The C kernel of a random schedule for this machine."""
    op = operators.resolve_one(text)
    return generate(op, ConstructionGraph(op, "host", "extended").random_schedule(np.random.default_rng(seed)), "host")


def run(line: list[str], folder: Path) -> str:
    """What a command prints that ends well, in an environment that knows no Python."""
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=PATH)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sanitized(folder: Path, main: str, sanitizer: str, options: Sequence[str] = NAMED) -> str:
    """What the exported sources and one more with `main` print under a sanitizer when they run; empty where it found nothing."""
    sources = sorted(path.name for path in folder.glob("*.[cS]") if path.name not in ("example.c", "threads.c"))
    line = [*KEEPING, *find_compiler().command, *options, *_SANITIZED, sanitizer]
    line += [str(folder / name) for name in (main, *sources)]
    subprocess.run([*line, "-o", str(folder / "sanitized"), "-lm"], cwd=folder, check=True, timeout=120)
    env = {**PATH, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(["./sanitized"], cwd=folder, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def threads_program(kernel: Kernel, library: str, threads: int = 4, calls: int = 100) -> str:
    """C that calls a kernel from several threads at once, each with an output of its own, and compares what they get.

    Half of the calls bring their own workspace.
    """
    one = Exports(kernel)
    *inputs, (output, written) = one.tensors
    arrays = "\n".join(f"static char {name}[{tensor.nbytes}] __attribute__((aligned(64)));" for name, tensor in inputs)
    filled = "\n".join(f"    for (long i = 0; i < {t.nbytes}; i++) {name}[i] = (char)(i % 5 + 60);" for name, t in inputs)
    given = ", ".join(f"(const void *){name}" for name, _ in inputs)
    return f"""#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "{library}.h"
{arrays}
static char expected[{written.nbytes}];
static void *caller(void *wrong) {{
    void *{output} = malloc({written.nbytes});
    void *workspace = aligned_alloc(64, ({one.name.upper()}_WORKSPACE + 127) / 64 * 64);
    for (int i = 0; i < {calls}; i++) {{
        int status = i % 2 ? {one.name}({given}, {output}) : {one.name}_with({given}, {output}, workspace);
        if (status != 0 || memcmp({output}, expected, sizeof expected) != 0) *(int *)wrong = 1;
    }}
    free({output});
    free(workspace);
    return 0;
}}
int main(void) {{
    pthread_t threads[{threads}];
    int wrong[{threads}] = {{0}}, all = 0;
{filled}
    if ({one.name}({given}, (void *)expected) != 0) return 2;
    for (int i = 0; i < {threads}; i++) pthread_create(&threads[i], 0, caller, &wrong[i]);
    for (int i = 0; i < {threads}; i++) {{ pthread_join(threads[i], 0); all |= wrong[i]; }}
    return all;
}}
"""
