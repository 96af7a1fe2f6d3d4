"""C helpers for int8 products: int32 sums become float32 and int8 in the epilogue, and int8 elements are loaded and stored.

In these kernels, names of helpers for floats begin with `real_`, and vectors of floats are called `real16` and so on.
"""

from __future__ import annotations

import re

from gensor_gym.codegen.c.elements.words import X86
from gensor_gym.codegen.c.layout.operands import ENDINGS
from gensor_gym.codegen.c.plan import LoopPlan

_LOADS = re.compile(r"\b((?:load|load_masked|gather|gather_masked|even_joined|splat)_\d+\()")
_REAL = re.compile(r"\breal_([a-z][a-z0-9]*(?:_[a-z]+)*_\d+\()")
HELPERS = {
    "reals": """static inline real{w} reals_{w}(vec{w} x) { return __builtin_convertvector(x, real{w}); }
""",
    "quantized": """/* x rounded to nearest, ties to even, plus a whole zero point; what is beyond -128 .. 127 is clipped. */
static inline vec{w} quantized_{w}(real{w} x, real{w} zero) {
    x = real_min_{w}(real_max_{w}(x, -128.0f - zero), 127.0f - zero);
{nearest}    return (vec{w})(x + 12582912.0f) - 0x4b400000 + __builtin_convertvector(zero, vec{w}); /* 1.5 * 2^23, and its bits */
{nearest_end}}
""",
    "nearest": """/* x rounded to nearest, ties to even, for words_of_{w}, which adds the zero point and clips; no overflow. */
static inline vec{w} nearest_{w}(real{w} x, real{w} zero) {
    x = real_min_{w}(x, 127.0f - zero);
{unclipped}    x = real_max_{w}(x, -128.0f - zero);
    return (vec{w})(x + 12582912.0f) - 0x4b400000; /* as in quantized_{w} */
{unclipped_end}}
""",
    "narrowed": """/* Of whole numbers from -128 to 127. */
static inline octets{w} narrowed_{w}(vec{w} x) {
    typedef int32_t words __attribute__((vector_size({bytes})));
    return __builtin_convertvector(__builtin_convertvector(x, words), octets{w});
}
""",
    "store_narrow": """static inline void store_narrow_{w}(int8_t *p, vec{w} x) { *(octets{w} *)p = narrowed_{w}(x); }
""",
    "store_masked_narrow": """/* Lanes whose index + lane lies in 0..size-1 to memory. */
static inline void store_masked_narrow_{w}(int8_t *p, long index, long size, vec{w} x) {
    const octets{w} all = narrowed_{w}(x);
    for (long lane = most(-index, 0), end = least(size - index, {w}); lane < end; lane++) p[lane] = all[lane];
}
""",
    "store_first_narrow": """/* The first `count` lanes, a constant. */
static inline __attribute__((always_inline)) void store_first_narrow_{w}(int8_t *p, long count, vec{w} x) {
    const octets{w} all = narrowed_{w}(x);
    memcpy(p, &all, (unsigned long)count);
}
""",
    "scatter_narrow": """/* The first `count` lanes, `stride` elements apart. */
static inline void scatter_narrow_{w}(int8_t *p, long stride, long count, vec{w} x) {
    const octets{w} all = narrowed_{w}(x);
    for (long lane = 0; lane < count; lane++) p[lane * stride] = all[lane];
}
""",
}
"""Helper -> template of its C text, as in `c/micro/vectors.py`. Numbers to store as int8 must be integers that fit."""
TYPE = "typedef int8_t octets{w} __attribute__((vector_size({w}), aligned(1), may_alias));\n"
SCALARS = {
    "reals": "static inline float reals_1(int32_t x) { return (float)x; }\n",
    "quantized": """static inline int32_t quantized_1(float x, float zero) {
    x = x > -128.0f - zero ? x : -128.0f - zero;
    return (int32_t)rintf(x < 127.0f - zero ? x : 127.0f - zero) + (int32_t)zero;
}
""",
    "load_narrow": "static inline {acc} load_narrow_1(const int8_t *p) { return *p; }\n",
    "store_narrow": "static inline void store_narrow_1(int8_t *p, {acc} x) { *p = (int8_t)x; }\n",
    "store_masked_narrow": """static inline void store_masked_narrow_1(int8_t *p, long index, long size, {acc} x) {
    if (inside(index, size)) *p = (int8_t)x;
}
""",
}


_NEAREST = {16: ("__AVX512F__", "_mm512"), 8: ("__AVX__", "_mm256"), 4: ("__SSE2__", "_mm")}
"""Lanes -> (macro, prefix) of the instruction that rounds floats to the nearest integers, ties to even."""

_WORDS = {16: ("__AVX512F__", "int64_t"), 8: ("__AVX2__", "int64_t"), 4: ("__SSE4_1__", "int32_t")}
"""Lanes -> (macro of the instruction that widens as many bytes of 128 bits, C type of up to 8 of these bytes)."""
_APART = '__asm__("" : "+v"(all));'
"""C text that keeps a load of 4 or 8 bytes apart from the widening: gcc 12 fails where it joins them under a mask."""


def intrinsics(width: int) -> dict[str, object]:
    """Return placeholders in the templates of `quantized` and `nearest` -> C text with x86 intrinsics around the plain one."""
    if width not in _NEAREST:
        return dict.fromkeys(("nearest", "nearest_end", "unclipped", "unclipped_end"), "")
    macro, prefix = _NEAREST[width]
    rounded = f"(vec{width}){prefix}_cvtps_epi32((__m{32 * width})x)"
    text = f"#ifdef {macro}\n    return {rounded} + __builtin_convertvector(zero, vec{width});\n#else\n"
    unclipped = f"#ifdef {X86[width][1]}\n    return {rounded};\n#else\n"
    return {"nearest": text, "nearest_end": "#endif\n", "unclipped": unclipped, "unclipped_end": "#endif\n"}


def widened(width: int) -> tuple[str, str]:
    """Return C texts before and after the plain alternative, which load int8 elements by an instruction of x86.

    gcc 12 often converts the vector extension's bytes one by one: max pooling took four times as long.
    """
    if width not in _WORDS:
        return "", ""
    macro, word = _WORDS[width]
    part = f"{word} word;\n    memcpy(&word, p, sizeof word);\n    words all = {{word}};\n    {_APART}"
    part = part if width < 16 else "words all;\n    memcpy(&all, p, sizeof all);"
    text = f"""#ifdef {macro}
    typedef {word} words __attribute__((vector_size(16)));
    typedef int32_t ints __attribute__((vector_size({4 * width})));
    {part}
    return __builtin_convertvector((ints){_NEAREST[width][1]}_cvtepi8_epi32((__m128i)all), vec{width});
#else
"""
    return text, "#endif\n"


def masked_load(width: int) -> dict[str, object]:
    """Return placeholders in the template of `load_masked` -> C text with masks of AVX-512 around the plain alternative."""
    if width not in _NEAREST:
        return {}
    prefix, integer = _NEAREST[width][1], f"__m{32 * width}i"
    lanes = ", ".join(map(str, range(width)))
    text = f"""#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const {integer} at = {prefix}_add_epi32({prefix}_setr_epi32({lanes}), {prefix}_set1_epi32((int)index));
    const __mmask16 keep = {prefix}_cmplt_epu32_mask(at, {prefix}_set1_epi32((int)size));
    typedef int32_t ints __attribute__((vector_size({4 * width})));
    const ints all = (ints){prefix}_cvtepi8_epi32(_mm_mask_loadu_epi8(_mm_set1_epi8(fill), keep, p));
    return __builtin_convertvector(all, vec{width});
#else
"""
    return {"masked_load": text, "end": "#endif\n"}


def finished(plan: LoopPlan, name: str) -> str:
    """Return the name of the C variable that holds an element after the epilogue.

    `name` is the variable of the element's sum.
    """
    return f"{name}_real" if plan.accumulator == "int32_t" and plan.op.output.dtype == "float32" else name


def of_written(plan: LoopPlan, helper: str, whole: bool = False) -> str:
    """Return the variant of a helper's name, such as that of `store`, for the data type that the kernel writes.

    If the reduction is split, micro-kernels write partial sums; with `whole`, the variant is for the final output.
    """
    dtype = plan.op.output.dtype if whole else plan.output.dtype
    return f"real_{helper}" if plan.accumulator == "int32_t" and dtype == "float32" else f"{helper}{ENDINGS.get(dtype, '')}"


def real(load: str) -> str:
    """Replace the helper's name in the C text `load` by that of the helper that loads floats in an integer kernel."""
    return _LOADS.sub(r"real_\1", load)


def plain_names(text: str) -> str:
    """Return the names, as in float32 kernels, of all helpers and vectors of floats that the text of an integer kernel uses."""
    return " ".join([*_REAL.findall(text), *(f"vec{width} " for width in re.findall(r"\breal(\d+)\b", text))])


def named_real(text: str) -> str:
    """Rename helpers and vectors in a C text of float32 kernels to the names that integer kernels use for floats."""
    text = re.sub(r"\bvec(\d+)\b", r"real\1", text)
    return re.sub(r"(?<![\w.])([a-z][a-z0-9]*(?:_[a-z]+)*_\d+\()", r"real_\1", text)
