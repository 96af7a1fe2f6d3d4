"""Tune a small C kernel with Kernel Tuner by brute force; leaves product_cache.json, product_t4.json and best.json."""

import json
import os

import numpy as np
from kernel_tuner import tune_kernel
from kernel_tuner.file_utils import store_output_file

SOURCE = """
#include <time.h>
#if TILE_I * TILE_K > 512
#error "uses too much shared data"
#endif
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}
float product(float *c, const float *a, const float *b) {
    double begin = now();
    for (int i = 0; i < N * N; i++) c[i] = 0.0f;
    for (int ii = 0; ii < N; ii += TILE_I)
        for (int kk = 0; kk < N; kk += TILE_K)
            for (int i = ii; i < ii + TILE_I; i++)
                for (int k = kk; k < kk + TILE_K; k++) {
                    const float x = a[i * N + k];
                    _Pragma(UNROLL)
                    for (int j = 0; j < N; j++) c[i * N + j] += x * b[k * N + j];
                }
    return (float)(now() - begin);
}
"""
N = 96
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
c = np.zeros_like(a)
parameters = {
    "TILE_I": [2, 8, 32],
    "TILE_K": [4, 8, 16, 32],
    "UNROLL": ['"GCC unroll 1"', '"GCC unroll 4"', '"GCC unroll 8"'],
    "N": [N],
}
for name in ("product_cache.json", "product_t4.json"):
    if os.path.exists(name):
        os.remove(name)
results, env = tune_kernel(
    "product",
    SOURCE,
    N * N,
    [c, a, b],
    parameters,
    lang="C",
    compiler="gcc",
    compiler_options=["-O2"],
    answer=[a @ b, None, None],
    atol=1e-3,
    restrictions=["TILE_I * TILE_K != 64"],
    iterations=9,
    cache="product_cache.json",
    metrics={"GFLOP/s": lambda p: 2e-6 * N**3 / p["time"]},
)
store_output_file("product_t4.json", results, parameters)
keys = [*parameters, "time"]
json.dump({key: env["best_config"][key] for key in keys}, open("best.json", "w"))
