"""Elementwise functions of vectors, at every width and for every kind of machine that runs here, beside float64."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.c.micro import intrinsics as c_intrinsics
from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from tests.support.thorough import thorough_but

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
    """To 4e-7 from 2^-125 to the largest number; below it may be zero. Other NaNs stay NaNs, whatever bits they hold."""
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
    assert np.all(y[x < -104] == 0)


@pytest.mark.parametrize("arch", HERE)
@pytest.mark.parametrize("width", thorough_but([4, 8, 16], 8))
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_what_is_no_number_is_handed_on(name: str, width: int, arch: str, tmp_path: Path) -> None:
    x = np.array([1, -2, np.nan, 3, -np.inf, np.inf, -np.nan, 0.5] * 4, np.float32)
    for other in (0.75, np.nan, -np.inf):
        text = "NAN" if np.isnan(other) else "-INFINITY" if np.isinf(other) else f"{other}f"
        y = mapped(name, x, width, arch, tmp_path, f", splat_{width}({text})")
        np.testing.assert_array_equal(y, getattr(np, name)(x, np.float32(other)))
