"""C text that packs an image so that 64 bytes of a pixel's channels are adjacent, a row of a tile register."""

from __future__ import annotations

_STEPS = ((0, 8, 1, 9, 2, 10, 3, 11), (4, 12, 5, 13, 6, 14, 7, 15))
"""Lanes of two vectors of eight that follow one another in turn, from the lower halves and from the upper ones."""


def _turned() -> str:
    """Return C lines that turn eight vectors a0 .. a7 of eight into c0 .. c7, by three rounds of interleaving."""
    lines, names = list[str](), [f"a{i}" for i in range(8)]
    for letter in "xyc":
        made = list[str]()
        for i in range(4):
            for lanes in _STEPS:
                made.append(name := f"{letter}{len(made)}")
                shuffled = f"__builtin_shufflevector({names[i]}, {names[i + 4]}, {', '.join(map(str, lanes))})"
                lines.append(f"    const eight {name} = {shuffled};")
        names = made
    return "\n".join(lines)


PIXELS = """typedef uint16_t eight __attribute__((vector_size(16), aligned(2), may_alias));

/* packed[32 * i + r] = line[r * stride + i] for r and i < 8. */
static inline void turn_eight(const uint16_t *line, long stride, uint16_t *packed) {
{loads}
{turned}
{stores}
}

/* A line of pixels: packed[32 * i + r] = line[r * stride + low + i] for r < 32 and i < count; zeros where low + i is not in
 * 0..size-1. */
static inline void pack_pixels(const uint16_t *line, long stride, long rows, long low, long size, uint16_t *packed,
                               long count) {
    const long begin = least(most(-low, 0), count), end = least(most(size - low, begin), count);
    memset(packed, 0, (unsigned long)(64 * begin));
    memset(packed + 32 * end, 0, (unsigned long)(64 * (count - end)));
    for (long at = begin; at < end; at += 8) {
        const long i = end - begin < 8 ? at : least(at, end - 8);
        for (long r = 0; r < rows; r += 8) {
            const uint16_t *const first = line + r * stride + low + i;
            if (i + 8 <= end)
                turn_eight(first, stride, packed + 32 * i + r);
            else
                for (long x = 0; x < 8 * (end - i); x++) packed[32 * (i + x / 8) + r + x % 8] = first[x % 8 * stride + x / 8];
        }
    }
}

"""
for _key, _text in {
    "loads": "\n".join(f"    const eight a{i} = *(const eight *)(line + {i} * stride);" for i in range(8)),
    "turned": _turned(),
    "stores": "\n".join(f"    *(eight *)(packed + 32 * {i}) = c{i};" for i in range(8)),
}.items():
    PIXELS = PIXELS.replace("{" + _key + "}", _text)
BYTES = """typedef int32_t words4 __attribute__((vector_size(16), aligned(1), may_alias));

/* packed[64 * i + r] = line[r * stride + i] and 128 more for r < 16 and i < count: 4, 8 or 16. */
static inline __attribute__((always_inline)) void turn_bytes(const int8_t *line, long stride, unsigned long count,
                                                             int8_t *packed) {
    int8_t words[4][64];
    for (long g = 0; g < 4; g++, line += 4 * stride)
        interleave(line, line + stride, line + 2 * stride, line + 3 * stride, count, -128, words[g]);
    for (unsigned long i = 0; i < count; i += 4, packed += 256) {
        const words4 a = *(const words4 *)(words[0] + 4 * i), b = *(const words4 *)(words[1] + 4 * i);
        const words4 c = *(const words4 *)(words[2] + 4 * i), d = *(const words4 *)(words[3] + 4 * i);
        const words4 ac = __builtin_shufflevector(a, c, 0, 4, 1, 5), bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
        const words4 ca = __builtin_shufflevector(a, c, 2, 6, 3, 7), db = __builtin_shufflevector(b, d, 2, 6, 3, 7);
        *(words4 *)packed = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
        *(words4 *)(packed + 64) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
        *(words4 *)(packed + 128) = __builtin_shufflevector(ca, db, 0, 4, 1, 5);
        *(words4 *)(packed + 192) = __builtin_shufflevector(ca, db, 2, 6, 3, 7);
    }
}

/* A line of pixels: packed[64 * i + r] = line[r * stride + low + i] and 128 more for r < 64 and i < count; the pad value and 128
 * more where low + i is not in 0..size-1. */
static inline void pack_pixels(const int8_t *line, long stride, long rows, long low, long size, int8_t *packed, long count) {
    const long begin = least(most(-low, 0), count), end = least(most(size - low, begin), count), found = end - begin;
    const long block = found >= 16 ? 16 : found >= 8 ? 8 : 4;
    memset(packed, {pad}, (unsigned long)(64 * begin));
    memset(packed + 64 * end, {pad}, (unsigned long)(64 * (count - end)));
    for (long at = begin; at < end && found >= 4; at += block) {
        const long i = least(at, end - block);
        for (long r = 0; r < rows; r += 16) {
            const int8_t *const first = line + r * stride + low + i;
            int8_t *const target = packed + 64 * i + r;
            if (block == 16) turn_bytes(first, stride, 16, target);
            else if (block == 8) turn_bytes(first, stride, 8, target);
            else turn_bytes(first, stride, 4, target);
        }
    }
    for (long i = begin; i < end && found < 4; i++)
        for (long r = 0; r < rows; r++) packed[64 * i + r] = line[r * stride + low + i] ^ -128;
}

"""
