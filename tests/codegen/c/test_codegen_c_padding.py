"""Padding in C: loops that gcc 12 compiles wrongly with other flags, and kernels that contain such loops."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from tests.support.c_cases import check, machine, random_program

TARGETS = {"haswell": ("avx2", 8), "skylake-avx512": ("avx512bw", 16)}
"""What code is compiled for -> the flag that this machine must have to run it, lanes."""

CHANNELS_LAST = """
void pad(const float *restrict x, float *restrict y) {
    for (long a = 0; a < 15; a++) for (long b = 0; b < 15; b++) for (long c = 0; c < 2; c++) {
        const long u = a - 1, v = b - 1;
        y[(a * 16 + b) * 2 + c] = (unsigned long)u < 13 && (unsigned long)v < 13 ? x[(u * 13 + v) * 2 + c] : 0;
    }
}
"""
CHANNELS_FIRST = """
void pad(const float *restrict x, float *restrict y) {
    for (int a = 0; a < 14; a++) for (int b = 0; b < 16; b++) for (int c = 0; c < 2; c++) {
        const int u = a - 1, v = b - 1;
        y[(c * 14 + a) * 16 + b] = !(u < 0 || u >= 12 || v < 0 || v >= 12) ? x[(c * 12 + u) * 12 + v] : 0;
    }
}
"""
UNWRITTEN = -7.0


def _last(x: np.ndarray) -> np.ndarray:
    y = np.full((15, 16, 2), UNWRITTEN, np.float32)
    y[:, :15] = np.pad(x[: 13 * 13 * 2].reshape(13, 13, 2), ((1, 1), (1, 1), (0, 0)))
    return y


def _first(x: np.ndarray) -> np.ndarray:
    return np.pad(x[: 2 * 12 * 12].reshape(2, 12, 12), ((0, 0), (1, 1), (1, 3)))


LOOPS = {"channels last": (CHANNELS_LAST, _last), "channels first": (CHANNELS_FIRST, _first)}


def _arches() -> list[str]:
    """The targets that this machine can run."""
    return [arch for arch, (flag, _) in TARGETS.items() if flag in cpu_info().flags]


def _wrong(name: str, arch: str, folder: Path, optimize: str = "") -> int:
    """Values that the compiled loop gets wrong, with the flags in use or with another level of optimization."""
    text, padded = LOOPS[name]
    # A name of its own: a library once loaded is found again by its path.
    label = name.replace(" ", "_") + optimize
    source, library = folder / "pad.c", folder / f"{label}.so"
    source.write_text(text)
    line = find_compiler().line(source, library, arch, TARGETS[arch][1], libraries=False)
    line = [optimize if optimize and re.fullmatch("-O.", word) else word for word in line]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    x = np.arange(1, 1001, dtype=np.float32)
    expected = padded(x)
    y = np.full(expected.shape, UNWRITTEN, np.float32)
    ctypes.CDLL(str(library)).pad(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    return int((y != expected).sum())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiled for AVX2 and AVX-512")
@pytest.mark.parametrize("arch", _arches())
@pytest.mark.parametrize("name", list(LOOPS))
def test_plain_padding_loops_are_right_with_the_flags_in_use(name: str, arch: str, tmp_path: Path) -> None:
    assert _wrong(name, arch, tmp_path) == 0


@pytest.mark.skipif("haswell" not in _arches(), reason="compiled for AVX2")
@pytest.mark.skipif(not re.search(r"\b12\.2\.", find_compiler().version), reason="the fault is known of gcc 12.2")
@pytest.mark.skipif(find_compiler().name != "gcc", reason="the fault is gcc's")
def test_these_loops_show_the_fault_of_gcc_12(tmp_path: Path) -> None:
    for name in LOOPS:
        assert _wrong(name, "haswell", tmp_path, "-O3") > 0, f"{name}: the test above would not see the fault"
        assert _wrong(name, "haswell", tmp_path, "-O2") == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiled for AVX2 and AVX-512")
@pytest.mark.parametrize("arch", _arches())
def test_padded_kernels_are_right(arch: str) -> None:
    hw = machine(TARGETS[arch][1], arch)
    programs = [random_program(seed, hw) for seed in range(200)]
    padded = [p for p in programs if re.search(r"padding=\(?[1-9]", str(p.operator))]
    packed = [p for p in padded if p.knob("pack_a") or p.knob("pack_b")]
    assert len(padded) > 20 and len(packed) > 8
    check([*packed[:12], *padded[:12]], 2)
