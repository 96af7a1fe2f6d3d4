"""Hand-written C kernels for tests of measurement: one that is right, and one for every way of being wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gensor_gym import operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.builders import CompileFailed
from gensor_gym.measure.requests import Built
from gensor_gym.operators.types import Operator

M, N, K = 48, 40, 64
GEMM = operators.gemm(m=M, n=N, k=K)

_FRAME = """
#include <stddef.h>
struct gg_runtime;
static void gemm(const float *a, const float *b, float *c)
{{
    for (int i = 0; i < {m}; i++)
        for (int j = 0; j < {n}; j++) {{
            float sum = 0;
            for (int k = 0; k < {k}; k++) sum += a[i * {k} + k] * b[k * {n} + j];
            c[i * {n} + j] = sum;
        }}
}}
void entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)
{{
    const float *a = inputs[0], *b = inputs[1];
    float *c = output;
    {body}
}}
"""

BODIES = {
    "right": "gemm(a, b, c);",
    "invalid address": "*(volatile int *)8 = 1;",
    "infinite loop": "for (volatile int i = 0;; i = 1) {}",
    "wrong value": "gemm(a, b, c); c[7] += 0.01f;",
    "nothing written": "",
    "writes just behind": "gemm(a, b, c); c[1920] = 1;",
    "writes just before": "gemm(a, b, c); c[-1] = 1;",
    "writes far behind": "gemm(a, b, c); c[1920 + 4096] = 1;",
    "writes behind the workspace": "gemm(a, b, c); ((volatile char *)workspace)[17] = 1;",
    "modifies an input": "gemm(a, b, c); ((float *)a)[5] += 1;",
    "right the first time": "static int calls; gemm(a, b, c); if (calls++) c[0] = 1e3f;",
    "right three times": "static int calls; gemm(a, b, c); if (calls++ >= 3) c[3] = 0;",
    "remembers its answer": "static float kept[1920]; static int calls; if (calls++ < 2) gemm(a, b, kept);"
    " for (int i = 0; i < 1920; i++) c[i] = kept[i];",
    "exits": "extern void _exit(int); _exit(7);",
    "aborts": "extern void abort(void); abort();",
}


def kernel(name: str, op: Operator = GEMM, tag: str = "") -> Kernel:
    """The kernel of that name; `tag` makes another digest of the same code."""
    source = _FRAME.format(m=M, n=N, k=K, body=BODIES[name]) + f"/* {name} {tag} */\n"
    return Kernel(op, "c", "native", source, (Launch("entry"),), 17 if "workspace" in name else 0)


def build(kernel: Kernel, folder: Path) -> Built:
    """Compile with the machine's compiler, without the project's own code for that."""
    path = folder / f"{kernel.digest[:16]}.so"
    if not path.exists():
        source = path.with_suffix(".c")
        source.write_text(kernel.source)
        command = [*find_compiler().command, "-O2", "-fPIC", "-shared", str(source), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileFailed(done.stderr)
    return Built(kernel, str(path), find_compiler().version, 0.0)
