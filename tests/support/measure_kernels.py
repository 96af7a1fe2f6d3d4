"""Hand-written C kernels for tests of measurement: one that is right, and one for every way of being wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gensor_gym import operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.types import Operator

M, N, K = 48, 40, 64
GEMM = operators.gemm(m=M, n=N, k=K)

_FRAME = """
#include <stddef.h>
struct gg_runtime;
{helpers}
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

_THREADS = """
#include <pthread.h>
static const float *race_a, *race_b;
static float *race_c;
static pthread_barrier_t race_read;
static void *half(void *which)
{
    const int first = which ? 32 : 0;
    float sum[1920];
    for (int at = 0; at < 1920; at++) {
        sum[at] = race_c[at];
        for (int k = first; k < first + 32; k++) sum[at] += race_a[at / 40 * 64 + k] * race_b[k * 40 + at % 40];
    }
    if (race_c[1919] == 0) pthread_barrier_wait(&race_read);
    for (int at = 0; at < 1920; at++) race_c[at] = sum[at];
    return 0;
}
"""
"""Each thread adds half of every sum to the output that it read before the other wrote."""

_RACE = """
    pthread_t other;
    race_a = a, race_b = b, race_c = c;
    for (int at = 0; at < 1920; at++) c[at] = 0;
    pthread_barrier_init(&race_read, 0, 2);
    pthread_create(&other, 0, half, (void *)1);
    half(0);
    pthread_join(other, 0);
    pthread_barrier_destroy(&race_read);
"""

BODIES = {
    "right": "gemm(a, b, c);",
    "invalid address": "*(volatile int *)8 = 1;",
    "infinite loop": "for (volatile int i = 0;; i = 1) {}",
    "wrong value": "gemm(a, b, c); c[7] += 0.01f;",
    "nothing written": "",
    "right for zeros only": "for (int i = 0; i < 1920; i++) c[i] = 0;",
    "right for ones only": "for (int i = 0; i < 1920; i++) c[i] = 64;",
    "leaves the edge of the tiles": "gemm(a, b, c); for (int i = 0; i < 1920; i++) if (i % 40 >= 32) c[i] = 0.0f / 0.0f;",
    "whole tiles over the edge": "gemm(a, b, c); for (int i = 0; i < 16 * 40; i++) c[1920 + i] = 0;",
    "drops the last term": "gemm(a, b, c); for (int i = 0; i < 1920; i++) c[i] -= a[i / 40 * 64 + 63] * b[63 * 40 + i % 40];",
    "adds to what was there": "static float kept[1920]; gemm(a, b, kept); for (int i = 0; i < 1920; i++) c[i] += kept[i];",
    "half precision": "gemm(a, b, c); for (int i = 0; i < 1920; i++) ((unsigned *)c)[i] &= 0xffffe000u;",
    "writes just behind": "gemm(a, b, c); c[1920] = 1;",
    "writes just before": "gemm(a, b, c); c[-1] = 1;",
    "writes far behind": "gemm(a, b, c); c[1920 + 4096] = 1;",
    "writes behind the workspace": "gemm(a, b, c); ((volatile char *)workspace)[17] = 1;",
    "modifies an input": "gemm(a, b, c); ((float *)a)[5] += 1;",
    "zeros inputs and output": "for (int i = 0; i < 3072; i++) ((float *)a)[i] = 0; for (int i = 0; i < 1920; i++) c[i] = 0;",
    "right the first time": "static int calls; gemm(a, b, c); if (calls++) c[0] = 1e3f;",
    "right three times": "static int calls; gemm(a, b, c); if (calls++ >= 3) c[3] = 0;",
    "writes the first time": "static int calls; if (!calls++) gemm(a, b, c);",
    "writes twice": "static int calls; if (calls++ < 2) gemm(a, b, c);",
    "skips every other call": "static int calls; if (calls++ < 3 || calls % 2) gemm(a, b, c);",
    "wrong in a third of its calls": "static int calls; gemm(a, b, c); if (++calls % 3 == 0) c[3] = 0;",
    "remembers its answer": "static float kept[1920]; static int calls; if (calls++ < 2) gemm(a, b, kept);"
    " for (int i = 0; i < 1920; i++) c[i] = kept[i];",
    "sees that it is done": "if (c[0] != c[0]) gemm(a, b, c);",
    "races": _RACE,
    "exits": "extern void _exit(int); _exit(7);",
    "exits as if all were well": "extern void exit(int); exit(0);",
    "aborts": "extern void abort(void); abort();",
    "closes every pipe": "extern int close(int); for (int fd = 0; fd < 256; fd++) close(fd); gemm(a, b, c);",
    "floods stderr": "extern long write(int, const void *, unsigned long); static char text[1 << 16];"
    " for (int i = 0; i < 64; i++) write(2, text, sizeof text); gemm(a, b, c);",
}


def kernel(name: str, op: Operator = GEMM, tag: str = "") -> Kernel:
    """The kernel of that name; `tag` makes another digest of the same code."""
    helpers = _THREADS if name == "races" else ""
    source = _FRAME.format(m=M, n=N, k=K, body=BODIES[name], helpers=helpers) + f"/* {name} {tag} */\n"
    return Kernel(op, "c", "native", source, (Launch("entry"),), 17 if "workspace" in name else 0)


def build(kernel: Kernel, folder: Path) -> Built:
    """Compile with the machine's compiler, without the project's own code for that."""
    path = folder / f"{kernel.digest[:16]}.so"
    if not path.exists():
        source = path.with_suffix(".c")
        source.write_text(kernel.source)
        command = [*find_compiler().command, "-O2", "-fPIC", "-shared", "-pthread", str(source), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileFailed(done.stderr)
    return Built(kernel, str(path), find_compiler().version, 0.0)
