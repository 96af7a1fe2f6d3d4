"""C helpers that move int8 elements as 32-bit words: a lane is a channel, its word has the bytes of four neighbouring pixels.

A run of up to 16 pixels is one, two or four vectors of words. Within each block of four lanes (128 bits), words are transposed
in registers, so that a channel's pixels are stored or loaded at once. Compilers find one instruction for each shuffle.
"""

from __future__ import annotations

COUNTS = {1: "", 2: "two_", 4: "four_"}
"""Number of words of a run -> part of the names of `scatter_words` and `gather_words`."""
_BLOCK = 4
"""Number of lanes of a block of 128 bits."""
_KINDS = {1: "int32_t", 2: "int64_t", 4: "vec4"}
"""Number of words -> C type of a channel's pixels."""
_LONGS = "    typedef int64_t longs __attribute__((vector_size(16)));"
_Lanes = tuple[tuple[int, int], ...]
_LOW, _HIGH = ((0, 0), (1, 0), (0, 1), (1, 1)), ((0, 2), (1, 2), (0, 3), (1, 3))
_LOW_HALF, _HIGH_HALF = ((0, 0), (0, 1), (1, 0), (1, 1)), ((0, 2), (0, 3), (1, 2), (1, 3))
_EVEN, _ODD = ((0, 0), (0, 2), (1, 0), (1, 2)), ((0, 1), (0, 3), (1, 1), (1, 3))
"""Lanes of a block after a shuffle of two vectors, as (vector, lane of its block)."""

_PACK = """/* Four integers in each lane, plus a whole zero point, as the bytes of a word, clipped to -128 .. 127. */
static inline vec{w} words_of_{w}(vec{w} a, vec{w} b, vec{w} c, vec{w} d, real{w} zero) {
    const vec{w} more = __builtin_convertvector(zero, vec{w});
#ifdef {macro}
    const {i} order = ({i})(vec{w}){{order}}, add = {p}_packs_epi32(({i})more, ({i})more);
    const {i} ab = {p}_adds_epi16({p}_packs_epi32(({i})a, ({i})b), add);
    const {i} cd = {p}_adds_epi16({p}_packs_epi32(({i})c, ({i})d), add);
    return (vec{w}){p}_shuffle_epi8({p}_packs_epi16(ab, cd), order);
#else
    typedef uint32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const bits last = (bits)(d + more) << 24, third = ((bits)(c + more) & 255) << 16;
    return (vec{w})(((bits)(a + more) & 255) | ((bits)(b + more) & 255) << 8 | third | last);
#endif
}
"""
_JOIN = """/* Four vectors of integers, each plus a whole zero point, as bytes one after another, clipped to -128 .. 127. */
static inline vec{w} joined_{w}(vec{w} a, vec{w} b, vec{w} c, vec{w} d, real{w} p, real{w} q, real{w} r, real{w} s) {
    typedef int32_t words __attribute__((vector_size({bytes})));
    const words m = __builtin_convertvector(p, words), n = __builtin_convertvector(q, words);
    const words u = __builtin_convertvector(r, words), v = __builtin_convertvector(s, words);
#ifdef {macro}
    const {i} ab = {p}_adds_epi16({p}_packs_epi32(({i})a, ({i})b), {p}_packs_epi32(({i})m, ({i})n));
    const {i} cd = {p}_adds_epi16({p}_packs_epi32(({i})c, ({i})d), {p}_packs_epi32(({i})u, ({i})v));
    const vec{w} all = (vec{w}){p}_packs_epi16(ab, cd);
    return __builtin_shufflevector(all, all, {turned});
#else
    const octets{w} parts[] = {narrowed_{w}(a + m), narrowed_{w}(b + n), narrowed_{w}(c + u), narrowed_{w}(d + v)};
    vec{w} all;
    memcpy(&all, parts, sizeof all);
    return all;
#endif
}
"""
PART = """/* The first `count` bytes, 1 to 8 (a constant), then zeros: in memory, a wide load after narrow stores would wait. */
static inline __attribute__((always_inline)) int64_t part_of(const int8_t *p, unsigned long count) {
    uint64_t all = 0;
    uint32_t low, high;
    if (count >= 8) {
        memcpy(&all, p, 8);
    } else if (count >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + count - 4, 4);
        all = low | (uint64_t)high << (8 * count - 32);
    } else {
        for (unsigned long i = 0; i < count; i++) all |= (uint64_t)(uint8_t)p[i] << 8 * i;
    }
    return (int64_t)all;
}
"""
REST = """/* Bytes 8 to count - 1 of 9 to 16 (a constant), then zeros. */
static inline __attribute__((always_inline)) int64_t rest_of(const int8_t *p, unsigned long count) {
    uint64_t last;
    memcpy(&last, p + count - 8, 8);
    return (int64_t)(last >> (128 - 8 * count));
}
"""
_ORDER = "0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703"
"""Bytes 0, 4, 8 and 12 of a block, then 1, 5, 9 and 13, and so on."""
X86 = {16: ("_mm512", "__AVX512BW__"), 8: ("_mm256", "__AVX2__"), 4: ("_mm", "__SSSE3__")}
"""Lanes -> (prefix of intrinsics, macro of their instruction set)."""
_BYTE = """/* Byte number i of every lane, signed. */
static inline vec{w} byte_of_{w}(vec{w} x, int i) {
    typedef uint32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    return (vec{w})((bits)x << (24 - 8 * i)) >> 24;
}
"""
_PARTS = {"whole": 1, "halves": 2, "quarters": 4}
"""Kind of a store of joined bytes -> number of places that it stores to."""
_MOVES = (f"{kind}_{count}words" for kind in ("scatter", "gather") for count in COUNTS.values())
_NAMES = ("words_of", "byte_of", "joined", *(f"store_{kind}" for kind in _PARTS), *_MOVES)
HELPERS = {name: f"{{{name}}}" for name in _NAMES}
"""Name of a helper -> its template, which is one placeholder that `texts` replaces."""


def texts(width: int) -> dict[str, str]:
    """Return the C text of each helper, by name, for vectors of `width` lanes; empty for widths below a block's four lanes."""
    if width not in X86:
        return {}
    prefix, macro = X86[width]
    values = {"order": ", ".join([_ORDER] * (width // _BLOCK)), "p": prefix, "macro": macro, "i": f"__m{32 * width}i"}
    values["turned"] = ", ".join(str(_BLOCK * block + i) for i in range(_BLOCK) for block in range(width // _BLOCK))
    pack, join = _PACK, _JOIN
    for key, value in values.items():
        pack, join = (text.replace("{" + key + "}", value) for text in (pack, join))
    found = {"words_of": pack, "byte_of": _BYTE, "joined": join}
    found |= {f"store_{kind}": _parted(kind, count, width) for kind, count in _PARTS.items()}
    for count, name in COUNTS.items():
        found[f"scatter_{name}words"] = _scatter(count, name, width)
        found[f"gather_{name}words"] = _gather(count, name, width)
    return found


def _parted(kind: str, count: int, width: int) -> str:
    """Return the C text of a helper that stores equal parts of a vector to `count` places."""
    size, names = width // count, [f"p{i}" for i in range(count)]
    places = ", ".join(f"int8_t *{name}" for name in names)
    lines = ["/* The parts of x in turn. */", f"static inline void store_{kind}_{width}({places}, vec{width} x) {{"]
    for i, name in enumerate(names):
        part = "x" if count == 1 else _shuffled("x", "x", range(size * i, size * i + size))
        lines += [f"    const vec{size} part_{i} = {part};", f"    memcpy({name}, &part_{i}, sizeof part_{i});"]
    return "\n".join([*lines, "}", ""])


def _scatter(count: int, name: str, width: int) -> str:
    """Return the C text of a helper that stores a run of pixels of each channel, from `count` vectors of words."""
    lines = [
        "/* The first `count` bytes of the words x[..][lane] to p + lane * stride; `count` is a constant. */",
        f"static inline __attribute__((always_inline)) void scatter_{name}words_{width}(int8_t *p, long stride,",
        f"    unsigned long count, const vec{width} *x) {{",
        *([_LONGS] if count == 2 else []),
    ]
    lines += [f"    const vec{width} t{i} = {text};" for i, text in enumerate(_turned("x[{}]", count, width))]
    for vector in range(count if count > 1 else 0):
        for block in range(width // _BLOCK):
            lanes = range(_BLOCK * block, _BLOCK * block + _BLOCK)
            lines.append(f"    const vec4 b{vector}_{block} = {_shuffled(f't{vector}', f't{vector}', lanes)};")
    for lane in range(width):
        block, place = divmod(lane, _BLOCK)
        vector, half = divmod(place * count, _BLOCK)
        part = {1: f"x[0][{lane}]", 2: f"((longs)b{vector}_{block})[{half // 2}]", 4: f"b{vector}_{block}"}[count]
        lines.append(f"    const {_KINDS[count]} c{lane} = {part};")
        lines.append(f"    memcpy(p + {lane} * stride, &c{lane}, count);")
    return "\n".join([*lines, "}", ""])


def _gather(count: int, name: str, width: int) -> str:
    """Return the C text of a helper that loads a run of pixels of each channel, into `count` vectors of words."""
    lines = [
        "/* The `count` bytes at p + lane * stride in the words x[..][lane], then zeros; `count` is a constant. */",
        f"static inline __attribute__((always_inline)) void gather_{name}words_{width}(const int8_t *p, long stride,",
        f"    unsigned long count, vec{width} *x) {{",
        *([_LONGS] if count > 1 else []),
    ]
    for lane in range(width):
        at = f"p + {lane} * stride"
        halves = f"(vec4)(longs){{part_of({at}, 8), rest_of({at}, count)}}"
        text = halves if count == _BLOCK else f"({_KINDS[count]})part_of({at}, count)"
        lines.append(f"    const {_KINDS[count]} c{lane} = {text};")
    if count == 1:
        return "\n".join([*lines, f"    x[0] = (vec{width}){{{', '.join(f'c{lane}' for lane in range(width))}}};", "}", ""])
    for vector in range(count):
        of_vector = [lane for lane in range(width) if lane % _BLOCK * count // _BLOCK == vector]
        parts, size = [f"c{lane}" for lane in of_vector], _BLOCK
        if count == 2:
            parts = [f"(vec4)(longs){{{a}, {b}}}" for a, b in zip(parts[::2], parts[1::2], strict=True)]
        while len(parts) > 1:
            parts = [_shuffled(a, b, range(2 * size)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            size *= 2
        lines.append(f"    const vec{width} t{vector} = {parts[0]};")
    if count == 2:
        made = [_of_blocks("t0", "t1", lanes, width) for lanes in (_EVEN, _ODD)]
    else:
        lines += [f"    const vec{width} u{i} = {text};" for i, text in enumerate(_turned("t{}", count, width))]
        made = [f"u{i}" for i in range(count)]
    return "\n".join([*lines, *(f"    x[{i}] = {text};" for i, text in enumerate(made)), "}", ""])


def _turned(of: str, count: int, width: int) -> list[str]:
    """Return C texts of vectors whose blocks hold the words of one channel after another, from `count` vectors of words.

    `of` is the text of a vector, with a placeholder for its number. Of four vectors, block b of vector j holds the four words of
    lane 4 b + j.
    """
    a, b, c, d = (of.format(i) for i in range(_BLOCK))
    if count == 1:
        return []
    low, high = (_of_blocks(a, b, lanes, width) for lanes in (_LOW, _HIGH))
    if count == 2:
        return [low, high]
    pairs = (low, _of_blocks(c, d, _LOW, width)), (high, _of_blocks(c, d, _HIGH, width))
    return [_of_blocks(*pair, lanes, width) for pair in pairs for lanes in (_LOW_HALF, _HIGH_HALF)]


def _of_blocks(a: str, b: str, lanes: _Lanes, width: int) -> str:
    """Return the C text of a shuffle of two vectors that does the same in each block."""
    return _shuffled(a, b, [width * which + block + lane for block in range(0, width, _BLOCK) for which, lane in lanes])


def _shuffled(a: str, b: str, lanes: list[int] | range) -> str:
    return f"__builtin_shufflevector({a}, {b}, {', '.join(map(str, lanes))})"
