"""Templates of C helpers that load 16-bit floats as float32 and store float32 as 16-bit floats.

A `uint16_t` holds the bits of a bfloat16 in helpers named `_bfloat`, of a float16 in helpers named `_half`. Loads are exact.
Stores round to nearest, ties to even, and keep NaN. Helpers use the processor's conversions if it has them, else vector
extensions. The instruction `vcvtneps2bf16` stores zeros for float32 numbers below 2^-126.

In templates, `{w}` is the number of lanes, `{s}` the ending of the helper's name, and `halves{w}` a vector of bits. Fill values
are bits too.
"""

from __future__ import annotations

from gensor_gym.codegen.c.elements import columns
from gensor_gym.codegen.c.micro.turn import butterflies

ENDINGS = ("_bfloat", "_half")
"""Endings of the names of helpers for bfloat16 and for float16."""
CONVERSIONS = ("widened", "rounded")
"""Names of the helpers that convert from and to 16 bits, which other helpers call.

Some helpers of one lane call the conversion of four lanes.
"""
TYPE = "typedef uint16_t halves{w} __attribute__((vector_size({bytes}), aligned(2), may_alias));\n"

_WORDS = "    typedef uint32_t words __attribute__((vector_size({bytes})));\n"
_CONVERSIONS = {
    "widened_bfloat": f"""static inline vec{{w}} widened_bfloat_{{w}}(halves{{w}} bits) {{
{_WORDS}    return (vec{{w}})(__builtin_convertvector(bits, words) << 16);
}}
""",
    "rounded_bfloat": f"""static inline halves{{w}} rounded_bfloat_{{w}}(vec{{w}} x) {{
{{processor}}{_WORDS}    const words bits = (words)x, none = (words)(x != x);
    const words near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector((near & ~none) | ((bits >> 16 | 64) & none), halves{{w}});
{{end}}}}
""",
    "widened_half": f"""static inline vec{{w}} widened_half_{{w}}(halves{{w}} bits) {{
{{processor}}{_WORDS}    typedef int32_t whole __attribute__((vector_size({{bytes}})));
    const words all = __builtin_convertvector(bits, words), size = all & 0x7fff;
    const words tiny = (words)(size < 0x400), far = (words)(size >= 0x7c00);
    const words small = (words)(__builtin_convertvector((whole)size, vec{{w}}) * 0x1p-24f);
    const words near = (size << 13) + (112 << 23) + (far & (112 << 23));
    return (vec{{w}})((tiny & small) | (near & ~tiny) | (all & 0x8000) << 16);
{{end}}}}
""",
    "rounded_half": f"""static inline halves{{w}} rounded_half_{{w}}(vec{{w}} x) {{
{{processor}}{_WORDS}    const words all = (words)x, size = all & 0x7fffffff;
    const words tiny = (words)(size < 0x38800000), far = (words)(size >= 0x47800000), none = (words)(x != x);
    const words small = (words)((vec{{w}})size + 0.5f) - 0x3f000000; /* the sum rounds to whole steps of 2^-24 */
    const words near = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const words most = (none & 0x200) + 0x7c00;
    return __builtin_convertvector((tiny & small) | (far & most) | (near & ~(tiny | far)) | (all >> 31 << 15), halves{{w}});
{{end}}}}
""",
}
_ONE = {
    "widened_bfloat": """static inline float widened_bfloat_1(uint16_t bits) {
    const union { uint32_t bits; float value; } x = {(uint32_t)bits << 16};
    return x.value;
}
""",
    "rounded_bfloat": """static inline uint16_t rounded_bfloat_1(float x) { return rounded_bfloat_4((vec4){x})[0]; }
""",
    "widened_half": """static inline float widened_half_1(uint16_t bits) { return widened_half_4((halves4){bits})[0]; }
""",
    "rounded_half": """static inline uint16_t rounded_half_1(float x) { return rounded_half_4((vec4){x})[0]; }
""",
}

_VECTORS = {
    "load": """static inline vec{w} load{s}_{w}(const uint16_t *p) { return widened{s}_{w}(*(const halves{w} *)p); }
""",
    "gather": """static inline vec{w} gather{s}_{w}(const uint16_t *p, long stride) {
    halves{w} bits = {0};
    for (int lane = 0; lane < {w}; lane++) bits[lane] = p[lane * stride];
    return widened{s}_{w}(bits);
}
""",
    "load_masked": """/* Lanes whose index + lane lies in 0..size-1 from memory, the others filled. */
static inline vec{w} load_masked{s}_{w}(const uint16_t *p, long index, long size, uint16_t fill) {
    halves{w} bits = (halves{w}){0} + fill;
{masked_load}    if (index >= 0 && index + {w} <= size) return load{s}_{w}(p);
    for (long lane = most(-index, 0), end = least(size - index, {w}); lane < end; lane++) bits[lane] = p[lane];
{masked_end}    return widened{s}_{w}(bits);
}
""",
    "gather_masked": """/* Lanes whose index + lane * stride lies in 0..size-1 from memory, the others filled. */
static inline vec{w} gather_masked{s}_{w}(const uint16_t *p, long stride, long index, long size, uint16_t fill) {
    halves{w} bits = {0};
    for (int lane = 0; lane < {w}; lane++)
        bits[lane] = inside(index + lane * stride, size) ? p[lane * stride] : fill;
    return widened{s}_{w}(bits);
}
""",
    "transpose": """/* packed[i * step + lane] = source[lane * stride + i] for i, lane < {w}, widened. */
static inline void transpose{s}_{w}(const uint16_t *source, long stride, float *packed, long step) {
    vec{w} x[{w}];
    UNROLL({w})
    for (int i = 0; i < {w}; i++) x[i] = load{s}_{w}(source + i * stride);
{butterflies}    UNROLL({w})
    for (int i = 0; i < {w}; i++) store_{w}(packed + i * step, x[i]);
}
""",
    "copy_columns": """/* packed[i * step + lane] = source[lane * stride + i] for i < count and lane < {w}, widened. */
static inline void copy_columns{s}_{w}(const uint16_t *source, long stride, float *packed, long count, long step) {
    long i = 0;
    for (; i + {w} <= count; i += {w}) transpose{s}_{w}(source + i, stride, packed + i * step, step);
    for (; i < count; i++)
        for (long lane = 0; lane < {w}; lane++) packed[i * step + lane] = widened{s}_1(source[lane * stride + i]);
}
""",
    "store": """static inline void store{s}_{w}(uint16_t *p, vec{w} x) { *(halves{w} *)p = rounded{s}_{w}(x); }
""",
    "store_masked": """/* Lanes whose index + lane lies in 0..size-1 to memory. */
static inline void store_masked{s}_{w}(uint16_t *p, long index, long size, vec{w} x) {
    const halves{w} bits = rounded{s}_{w}(x);
{masked_store}    for (long lane = most(-index, 0), end = least(size - index, {w}); lane < end; lane++) p[lane] = bits[lane];
{masked_end}}
""",
    "store_first": """/* The first `count` lanes, a constant. */
static inline __attribute__((always_inline)) void store_first{s}_{w}(uint16_t *p, long count, vec{w} x) {
    halves{w} bits = rounded{s}_{w}(x);
{pieces}}
""",
    "scatter": """/* The first `count` lanes, `stride` elements apart. */
static inline void scatter{s}_{w}(uint16_t *p, long stride, long count, vec{w} x) {
    const halves{w} bits = rounded{s}_{w}(x);
    for (long lane = 0; lane < count; lane++) p[lane * stride] = bits[lane];
}
""",
}
_NUMBERS = {
    "load": """static inline float load{s}_1(const uint16_t *p) { return widened{s}_1(*p); }
""",
    "load_masked": """static inline float load_masked{s}_1(const uint16_t *p, long index, long size, uint16_t fill) {
    return widened{s}_1(inside(index, size) ? *p : fill);
}
""",
    "gather_masked": """static inline float gather_masked{s}_1(const uint16_t *p, long stride, long index, long size,
    uint16_t fill) {
    (void)stride;
    return widened{s}_1(inside(index, size) ? *p : fill);
}
""",
    "store": """static inline void store{s}_1(uint16_t *p, float x) { *p = rounded{s}_1(x); }
""",
    "store_masked": """static inline void store_masked{s}_1(uint16_t *p, long index, long size, float x) {
    if (inside(index, size)) *p = rounded{s}_1(x);
}
""",
}

_TWICE = "__builtin_shufflevector(bits, bits, 0, 1, 2, 3, 0, 1, 2, 3)"
_PROCESSOR = {
    ("rounded_bfloat", 16): ("__AVX512BF16__", "(halves16)_mm512_cvtneps_pbh((__m512)x)"),
    ("rounded_bfloat", 8): ("__AVX512BF16__ && defined __AVX512VL__", "(halves8)_mm256_cvtneps_pbh((__m256)x)"),
    ("rounded_bfloat", 4): ("__AVX512BF16__ && defined __AVX512VL__", "(halves8)_mm_cvtneps_pbh((__m128)x)"),
    ("widened_half", 16): ("__AVX512F__", "(vec16)_mm512_cvtph_ps((__m256i)bits)"),
    ("widened_half", 8): ("__F16C__", "(vec8)_mm256_cvtph_ps((__m128i)bits)"),
    ("widened_half", 4): ("__F16C__", f"(vec4)_mm_cvtph_ps((__m128i){_TWICE})"),
    ("rounded_half", 16): ("__AVX512F__", "(halves16)_mm512_cvtps_ph((__m512)x, 0)"),
    ("rounded_half", 8): ("__F16C__", "(halves8)_mm256_cvtps_ph((__m256)x, 0)"),
    ("rounded_half", 4): ("__F16C__", "(halves8)_mm_cvtps_ph((__m128)x, 0)"),
}
"""(conversion, lanes) -> (macro of the instruction set, C text of the result).

Helpers that round four lanes get eight, because the instruction returns eight.
"""


def text(name: str, ending: str, width: int) -> str:
    """Return the C text of the helper `NAME + ENDING + _WIDTH` for 16-bit floats; empty if there is no such helper."""
    if name in columns.NAMES:
        return columns.text(name, ending, width)
    if name in CONVERSIONS:
        template = (_ONE if width == 1 else _CONVERSIONS)[name + ending]
    else:
        template = (_NUMBERS if width == 1 else _VECTORS).get(name, "")
    values = {"butterflies": butterflies(width)}
    values |= {"s": ending, "w": str(width), "bytes": str(4 * width), **_processor(name + ending, width), **_masked(width)}
    values["pieces"] = _pieces(width)
    for key, value in values.items():
        template = template.replace("{" + key + "}", value)
    return template


def _processor(name: str, width: int) -> dict[str, str]:
    """Return C texts that use the processor's conversion instruction before plain vector code, by placeholder of a template.

    The texts are empty if the processor has no instruction for this helper and width.
    """
    if (name, width) not in _PROCESSOR:
        return {"processor": "", "end": ""}
    macro, value = _PROCESSOR[name, width]
    if width == 4 and name.startswith("rounded"):
        shortened = f"    const halves8 all = {value};\n    return __builtin_shufflevector(all, all, 0, 1, 2, 3);\n"
    else:
        shortened = f"    return {value};\n"
    return {"processor": f"#if defined {macro}\n{shortened}#else\n", "end": "#endif\n"}


def _masked(width: int) -> dict[str, str]:
    """Return, by placeholder of a template, C text of AVX-512's masked loads and stores, which precede a plain loop."""
    if width not in (4, 8, 16):
        return dict.fromkeys(("masked_load", "masked_store", "masked_end"), "")
    prefix, words = ("_mm" if width == 4 else f"_mm{32 * width}"), f"__m{32 * width}i"
    memory, vector = ("_mm256", "__m256i") if width == 16 else ("_mm", "__m128i")
    lanes = ", ".join(map(str, range(width)))
    head = f"""#if defined __AVX512BW__ && defined __AVX512VL__
    const {words} at = {prefix}_add_epi32({prefix}_setr_epi32({lanes}), {prefix}_set1_epi32((int)index));
    const __mmask{max(width, 8)} keep = {prefix}_cmplt_epu32_mask(at, {prefix}_set1_epi32((int)size));
"""
    twice = "bits" if width > 4 else _TWICE
    loaded = f"{memory}_mask_loadu_epi16(({vector}){twice}, keep, p)"
    if width == 4:
        load = f"    const halves8 all = (halves8){loaded};\n    bits = __builtin_shufflevector(all, all, 0, 1, 2, 3);\n"
    else:
        load = f"    bits = (halves{width}){loaded};\n"
    store = f"    {memory}_mask_storeu_epi16(p, keep, ({vector}){twice});\n"
    return {"masked_load": f"{head}{load}#else\n", "masked_store": f"{head}{store}#else\n", "masked_end": "#endif\n"}


def _pieces(width: int) -> str:
    """Return the C text of `store_first`, which stores the first `count` lanes.

    For each bit of `count` that is 1, from the highest, it stores as many lanes as the bit is worth.
    """
    lines, size = "", width // 2
    while size >= 1:
        lanes = [str((lane + size) % width) for lane in range(width)]
        low = ", ".join(map(str, range(size)))
        stored = f"*(halves{size} *)p = __builtin_shufflevector(bits, bits, {low})" if size > 1 else "*p = bits[0]"
        rest = f" p += {size}, bits = __builtin_shufflevector(bits, bits, {', '.join(lanes)});" if size > 1 else ""
        lines += f"    if (count & {size}) {{ {stored};{rest} }}\n"
        size //= 2
    return lines
