"""Intrinsics defined in a source itself: the same values as the compiler's header gives, and the header where needed."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest

from gensor_gym.codegen.c.micro import intrinsics as c_intrinsics
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from tests.support.thorough import thorough_but

TARGETS = {"x86-64": 1, "haswell": 8, "skylake-avx512": 16, "native": 1}
CALLS = """
typedef float vec __attribute__((vector_size({bytes}), aligned(4), may_alias));
static float seen(vec x) {{ float s = 0; for (int l = 0; l < {w}; l++) s = s * 3 + x[l]; return s; }}
float run_{w}(float *p, long index, long size) {{
    vec x = *(vec *)p;
    float s = seen((vec){p}_max_ps(x, -x)) + seen((vec){p}_min_ps(x, {p}_set1_ps(2)));
#if {mask}
    const __m{bits}i at = {p}_add_epi32({p}_setr_epi32({lanes}), {p}_set1_epi32((int)index));
    const __mmask{m} keep = {p}_cmplt_epu32_mask(at, {p}_set1_epi32((int)size));
    s += seen((vec){p}_mask_loadu_ps({p}_set1_ps(7), keep, p));
    s += seen((vec){p}_mask_loadu_epi32((__m{bits}i){p}_set1_ps(5), keep, p));
    s += seen((vec){p}_maskz_scalef_ps(5, x, {p}_set1_ps(-2.5f)));
    {p}_mask_storeu_ps(p + {w}, keep, x);
    {p}_mask_storeu_epi32(p + 2 * {w}, keep, (__m{bits}i)-x);
#endif
    return s + p[{w}] + p[2 * {w} - 1] + p[2 * {w}] + p[3 * {w} - 1];
}}
"""
NARROW = """
float narrow_{w}(float *p, long index, long size) {{
    float s = 0;
#ifdef __AVX2__
    const __m{bits}i at = {p}_add_epi32({p}_setr_epi32({lanes}), {p}_set1_epi32((int)index));
    const __m{bits}i above = {p}_cmpgt_epi32(at, {p}_set1_epi32(-1)), below = {p}_cmpgt_epi32({p}_set1_epi32((int)size), at);
    const __m{bits}i keep = {p}_and_si{bits}(above, below);
    __m{bits} x = {p}_blendv_ps({p}_set1_ps(7), {p}_maskload_ps(p, keep), (__m{bits})keep);
    for (int l = 0; l < {w}; l++) s = s * 3 + x[l];
    {p}_maskstore_ps(p + {w}, keep, x);
    {p}_maskstore_epi32((int *)p + 2 * {w}, keep, {p}_maskload_epi32((const int *)p, keep));
    s += p[{w}] + p[2 * {w}];
    x = (__m{bits}){p}_blendv_epi8((__m{bits}i){p}_set1_ps(3), (__m{bits}i)x, keep);
    for (int l = 0; l < {w}; l++) s = s * 3 + x[l];
#endif
    return s;
}}
"""
PREFIXES = {16: "_mm512", 8: "_mm256", 4: "_mm"}


def _source(width: int) -> str:
    mask = {16: "defined(__AVX512F__)", 8: "defined(__AVX512VL__)", 4: "defined(__AVX512VL__)"}[width]
    guard = {16: "__AVX512F__", 8: "__AVX__", 4: "__SSE__"}[width]
    words = {"w": width, "p": PREFIXES[width], "bytes": 4 * width, "bits": 32 * width, "m": max(width, 8), "mask": mask}
    words["lanes"] = ", ".join(map(str, range(width)))
    text = CALLS.format(**words) + (NARROW.format(**words) if width < 16 else "")
    empty = f"float run_{width}(float *p, long index, long size) {{ return 0; }}\n"
    return f"#ifdef {guard}\n{text}#else\n{empty}#endif\n"


def _values(library: Path, name: str, width: int) -> list[float]:
    """Results for places inside, across both ends and outside."""
    function = getattr(ctypes.CDLL(str(library)), name)
    function.restype = ctypes.c_float
    results = []
    for index in (-width - 3, -2, 0, 5, 40):
        data = (ctypes.c_float * (4 * width))(*(0.5 * i - 3 for i in range(4 * width)))
        results += [function(data, ctypes.c_long(index), ctypes.c_long(width)), *data]
    return results


ARCHES = [name for name, lanes in TARGETS.items() if lanes <= cpu_info().lanes]


@pytest.mark.thorough
@pytest.mark.skipif(platform.machine() != "x86_64" or find_compiler().name != "gcc", reason="gcc's names on x86")
@pytest.mark.parametrize("arch", thorough_but(ARCHES, ARCHES[0], ARCHES[-1]))
@pytest.mark.parametrize("width", thorough_but([16, 8, 4], 16, 4))
def test_values_are_those_of_the_header(width: int, arch: str, tmp_path: Path) -> None:
    source = _source(width)
    own = c_intrinsics.intrinsics(source)
    assert "#define GG_BUILTINS" in own
    check = "#if !defined(GG_BUILTINS) || defined(_IMMINTRIN_H_INCLUDED)\n#error header\n#endif\n"
    libraries = []
    for name, head in (("own", own + check), ("header", "#include <immintrin.h>\n")):
        path, library = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        path.write_text(head + source)
        line = find_compiler().line(path, library, arch, width)
        done = subprocess.run([*line, "-Wall", "-Werror", "-Wno-psabi"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        libraries.append(library)
    for name in [f"run_{width}", f"narrow_{width}"] if b"narrow" in libraries[0].read_bytes() else [f"run_{width}"]:
        assert _values(libraries[0], name, width) == _values(libraries[1], name, width)


def test_unknown_names_read_the_header() -> None:
    assert c_intrinsics.intrinsics("x = _mm512_max_ps(a, b);").startswith("#if defined(__GNUC__)")
    header = "#ifdef __SSE__\n#include <immintrin.h>\n#endif\n"
    assert c_intrinsics.intrinsics("x = _mm512_max_ps(_mm512_rcp14_ps(a), b);") == header
    assert c_intrinsics.intrinsics("x = max_16(a, b);") == ""


def test_int8_names_are_known() -> None:
    from gensor_gym.codegen.c.micro.dot import intrinsics as bodies

    for width in PREFIXES:
        assert "GG_BUILTINS" in c_intrinsics.intrinsics(str(bodies(width)["dot"]))
