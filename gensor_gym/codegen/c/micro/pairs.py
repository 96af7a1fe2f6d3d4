"""bfloat16 products in pairs: one lane adds two products of adjacent elements of the reduction (`vdpbf16ps` on x86).

A pair has 32 bits in memory, the first element in the lower half; `pairs{w}` is a vector of pairs. Without the instruction, two
multiply-adds in float32 compute the same. An incomplete pair ends with a zero in both operands. `vdpbf16ps` treats elements
below 2^-126 as zeros.
"""

from __future__ import annotations

ENDING = "_bfloat"
"""Ending of the names of helpers for pairs."""
TYPE = "typedef uint32_t pairs{w} __attribute__((vector_size({bytes}), aligned(2), may_alias));\n"
TYPE_OF_ONE = "typedef uint32_t pairs1;\n"

_VECTORS = {
    "words": """/* {w} pairs, wherever they begin. */
static inline pairs{w} words_bfloat_{w}(const uint16_t *p) { return *(const pairs{w} *)p; }
""",
    "words_part": """/* Those of the first `count` elements, then zeros. */
static inline pairs{w} words_part_bfloat_{w}(const uint16_t *p, long count) {
    pairs{w} x = {0};
    memcpy(&x, p, (unsigned long)least(2 * most(count, 0), sizeof x));
    return x;
}
""",
    "spread": """/* The pair at p in every lane. */
static inline pairs{w} spread_bfloat_{w}(const uint16_t *p) { return (pairs{w}){0} + words_bfloat_1(p); }
""",
    "spread_part": """/* The element at p and a zero in every lane. */
static inline pairs{w} spread_part_bfloat_{w}(const uint16_t *p) { return (pairs{w}){0} + (uint32_t)*p; }
""",
    "dot": """/* sum and, lane by lane, the products of the pairs a and b. */
static inline vec{w} dot_bfloat_{w}(vec{w} sum, pairs{w} a, pairs{w} b) {
{processor}    typedef float number __attribute__((vector_size({bytes})));
    sum += (vec{w})((number)(a & 0xffff0000) * (number)(b & 0xffff0000));
    return sum + (vec{w})((number)(a << 16) * (number)(b << 16));
{end}}
""",
}
_NUMBERS = {
    "words": """/* The pair at p. */
static inline pairs1 words_bfloat_1(const uint16_t *p) {
    pairs1 x;
    memcpy(&x, p, sizeof x);
    return x;
}
""",
    "words_part": """/* That of the first `count` elements, then zeros. */
static inline pairs1 words_part_bfloat_1(const uint16_t *p, long count) {
    return count > 1 ? words_bfloat_1(p) : count > 0 ? *p : 0;
}
""",
    "spread": """static inline pairs1 spread_bfloat_1(const uint16_t *p) {
    pairs1 x;
    memcpy(&x, p, sizeof x);
    return x;
}
""",
    "spread_part": """static inline pairs1 spread_part_bfloat_1(const uint16_t *p) { return *p; }
""",
    "dot": """/* sum and the products of the pairs a and b. */
static inline float dot_bfloat_1(float sum, pairs1 a, pairs1 b) {
    sum += widened_bfloat_1((uint16_t)(a >> 16)) * widened_bfloat_1((uint16_t)(b >> 16));
    return sum + widened_bfloat_1((uint16_t)a) * widened_bfloat_1((uint16_t)b);
}
""",
}
_SETS = {
    16: ("_mm512", 512, "__AVX512BF16__"),
    8: ("_mm256", 256, "__AVX512BF16__ && defined __AVX512VL__"),
    4: ("_mm", 128, "__AVX512BF16__ && defined __AVX512VL__"),
}
"""Lanes -> (prefix of intrinsics, bits of a vector, macros of the instruction set)."""

PACK_PAIRS = """/* A panel of `width` columns in pairs of rows; rows and columns that the source lacks are zeros. */
static inline __attribute__((always_inline)) void pack_pairs(const uint16_t *source, long stride, long columns, long rows,
                                                             uint16_t *packed, long width) {
    for (long row = 0; row < rows; row += 2, source += 2 * stride, packed += 2 * width) {
        long i = 0;
        if (row + 2 <= rows) i = interleave(source, source + stride, packed, least(columns, width));
        for (; i < width; i++) {
            packed[2 * i] = i < columns ? source[i] : 0;
            packed[2 * i + 1] = i < columns && row + 1 < rows ? source[stride + i] : 0;
        }
    }
}
"""
INTERLEAVE = """typedef uint16_t eight __attribute__((vector_size(16), aligned(2), may_alias));

/* packed[2 * i] = even[i] and packed[2 * i + 1] = odd[i] for i < 8, 16, .. as far as `count` goes; how many these are. */
static inline long interleave(const uint16_t *even, const uint16_t *odd, uint16_t *packed, long count) {
    long i = 0;
    for (; i + 8 <= count; i += 8) {
        const eight a = *(const eight *)(even + i), b = *(const eight *)(odd + i);
        *(eight *)(packed + 2 * i) = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        *(eight *)(packed + 2 * i + 8) = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    return i;
}

"""
PIXELS = """/* A line of pixels: packed[2 * i + r] = line[r * stride + low + i] for i < count; zeros where low + i is not in
 * 0..size-1 or r not below rows. */
static inline void pack_pixels(const uint16_t *line, long stride, long rows, long low, long size, uint16_t *packed,
                               long count) {
    const long begin = least(most(-low, 0), count), end = least(most(size - low, begin), count);
    const uint16_t *const first = line + low, *const second = first + stride;
    for (long i = 0; i < 2 * begin; i++) packed[i] = 0;
    long i = begin;
    if (rows > 1) i += interleave(first + begin, second + begin, packed + 2 * begin, end - begin);
    for (; i < end; i++) {
        packed[2 * i] = first[i];
        packed[2 * i + 1] = rows > 1 ? second[i] : 0;
    }
    for (i = 2 * end; i < 2 * count; i++) packed[i] = 0;
}

"""
FILTERS = """\
/* A panel of `width` filters: the pairs of taps, `filter` and `channel` apart; zeros for filters and channels not there. */
static inline __attribute__((always_inline)) void pack_filters(const uint16_t *source, long filter, long columns, long channel,
                                                               long channels, long taps, uint16_t *packed, long width,
                                                               long pitch) {
    for (long c = 0; c < channels; c += 2, source += 2 * channel, packed += 2 * pitch)
        for (long lane = 0; lane < width; lane++)
            for (long tap = 0; tap < taps; tap++) {
                const uint16_t *const p = source + lane * filter + tap;
                uint16_t *const pair = packed + 2 * (tap * width + lane);
                pair[0] = lane < columns ? p[0] : 0;
                pair[1] = lane < columns && c + 1 < channels ? p[channel] : 0;
            }
}
"""


def text(name: str, width: int) -> str:
    """Return the C text of the helper `NAME_bfloat_WIDTH`; empty if there is no such helper."""
    template = (_NUMBERS if width == 1 else _VECTORS).get(name, "")
    values = {"w": str(width), "bytes": str(4 * width), "processor": "", "end": ""}
    if width in _SETS:
        prefix, bits, macro = _SETS[width]
        call = f"{prefix}_dpbf16_ps((__m{bits})sum, (__m{bits}bh)a, (__m{bits}bh)b)"
        values |= {"processor": f"#if defined {macro}\n    return (vec{width}){call};\n#else\n", "end": "#endif\n"}
    for key, value in values.items():
        template = template.replace("{" + key + "}", value)
    return template
