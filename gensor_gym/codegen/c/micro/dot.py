"""Products in groups: a lane adds four products of unsigned and signed bytes (`vpdpbusd` on x86) or two of bfloat16 (`pairs.py`).

For int8, the scalar operand, which is equal in all lanes, is made unsigned when it is packed or loaded: adding 128 flips the
top bit of each byte. The excess is 128 times the sums of the other operand's columns, and is computed when that operand is
packed. Its negative is stored after each panel as the initial value of the accumulators: in every block of the reduction or, if
tasks share panels over the whole reduction, in the first block only. 32-bit sums wrap, so the result is exact.
"""

from __future__ import annotations

from gensor_gym.codegen.c.amx.stores import in_fours
from gensor_gym.codegen.c.group import BIAS, GROUP, splat
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.pairs import INTERLEAVE as INTERLEAVE_PAIRS
from gensor_gym.codegen.c.micro.pairs import PACK_PAIRS
from gensor_gym.codegen.c.operand import Reader, bounds, is_split
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines, add, linear

_PART = """/* The first `count` of four bytes, then zeros. */
static inline int32_t word_part(const int8_t *p, unsigned long count) {
    int32_t x = 0;
    memcpy(&x, p, count);
    return x;
}

"""

INTERLEAVE = """typedef int8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

/* The first `count` bytes, 4, 8 or 16. */
static inline __attribute__((always_inline)) bytes16 bytes_of(const int8_t *p, unsigned long count) {
    typedef int64_t longs __attribute__((vector_size(16)));
    int64_t eight = 0;
    int32_t four = 0;
    if (count == 16) return *(const bytes16 *)p;
    if (count == 8) memcpy(&eight, p, 8);
    else memcpy(&four, p, 4);
    const longs all = {count == 8 ? eight : four, 0};
    return (bytes16)all;
}

/* packed[4 * i] to packed[4 * i + 3] are a[i] to d[i], with the bits of `flip` turned over, for i < count: 4, 8 or 16. */
static inline __attribute__((always_inline)) void interleave(const int8_t *a, const int8_t *b, const int8_t *c, const int8_t *d,
                                                             unsigned long count, int8_t flip, int8_t *packed) {
    const bytes16 x[] = {bytes_of(a, count), bytes_of(b, count), bytes_of(c, count), bytes_of(d, count)};
    const bytes16 ab_low = __builtin_shufflevector(x[0], x[1], {byte_low}) ^ flip;
    const bytes16 cd_low = __builtin_shufflevector(x[2], x[3], {byte_low}) ^ flip;
    *(bytes16 *)packed = __builtin_shufflevector(ab_low, cd_low, {pair_low});
    if (count > 4) *(bytes16 *)(packed + 16) = __builtin_shufflevector(ab_low, cd_low, {pair_high});
    if (count <= 8) return;
    const bytes16 ab_high = __builtin_shufflevector(x[0], x[1], {byte_high}) ^ flip;
    const bytes16 cd_high = __builtin_shufflevector(x[2], x[3], {byte_high}) ^ flip;
    *(bytes16 *)(packed + 32) = __builtin_shufflevector(ab_high, cd_high, {pair_low});
    *(bytes16 *)(packed + 48) = __builtin_shufflevector(ab_high, cd_high, {pair_high});
}

"""

_GROUPS = f"""/* A panel of `width` columns in groups of four rows; rows and columns that the source lacks are zeros. */
static inline __attribute__((always_inline)) void pack_groups(const int8_t *source, long stride, long columns,
                                                              long rows, int8_t *packed, long width) {{
    for (long row = 0; row < rows; row += {GROUP}, source += {GROUP} * stride, packed += {GROUP} * width) {{
        long i = 0;
        if (row + {GROUP} <= rows)
            for (; i + 16 <= columns; i += 16) {{
                const int8_t *const p = source + i;
                interleave(p, p + stride, p + 2 * stride, p + 3 * stride, 16, 0, packed + {GROUP} * i);
            }}
        for (; i < width; i++)
            for (long r = 0; r < {GROUP}; r++)
                packed[{GROUP} * i + r] = i < columns && row + r < rows ? source[r * stride + i] : 0;
    }}
}}

"""

UNSIGNED = """/* 128 more of each of `count` bytes, taken as unsigned. */
static inline void make_unsigned(int8_t *p, long count) {
    long i = 0;
    for (; i + 16 <= count; i += 16) *(bytes16 *)(p + i) ^= (int8_t)-128;
    for (; i < count; i++) p[i] = (int8_t)(p[i] ^ -128);
}
"""

_MULTIPLY_ADD = """    const {m} low = {p}_set1_epi32(0x00ff00ff), x = ({m})a, y = ({m})b;
    const {m} even = {p}_madd_epi16({p}_and_si{bits}(x, low), {p}_srai_epi16({p}_slli_epi16(y, 8), 8));
    const {m} odd = {p}_madd_epi16({p}_srli_epi16(x, 8), {p}_srai_epi16(y, 8));
    return sum + (vec{w})even + (vec{w})odd;
"""

HELPERS = {
    "spread": """/* The four bytes at p in every lane. */
static inline vec{w} spread_{w}(const int8_t *p) {
{spread}    int32_t x;
    memcpy(&x, p, sizeof x);
    return splat_{w}(x);
{spread_end}}
""",
    "dot": """/* sum and, lane by lane, the products of four unsigned bytes of a and four signed ones of b. */
static inline vec{w} dot_{w}(vec{w} sum, vec{w} a, vec{w} b) {
{dot}    typedef uint32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    for (int shift = 0; shift < 32; shift += 8)
        sum += (vec{w})((bits)a >> shift & 255) * ((vec{w})((bits)b << (24 - shift)) >> 24);
    return sum;
{dot_end}}
""",
}
"""Name of a C helper -> template of its text, as in `c/micro/vectors.py`."""

SCALARS = {
    "spread": """/* The four bytes at p. */
static inline int32_t spread_1(const int8_t *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
""",
    "dot": """/* sum and the products of four unsigned bytes of a and four signed ones of b. */
static inline int32_t dot_1(int32_t sum, int32_t a, int32_t b) {
    for (int shift = 0; shift < 32; shift += 8)
        sum += (int32_t)((uint32_t)a >> shift & 255) * ((int32_t)((uint32_t)b << (24 - shift)) >> 24);
    return sum;
}
""",
}

_X86 = {
    16: ("_mm512", "__m512i", "__AVX512BW__", (("defined(__AVX512VNNI__)", "_epi32"),)),
    8: ("_mm256", "__m256i", "__AVX2__", (("defined(__AVX512VNNI__) && defined(__AVX512VL__)", "_epi32"),
                                          ("defined(__AVXVNNI__)", "_avx_epi32"))),
    4: ("_mm", "__m128i", "__SSE2__", (("defined(__AVX512VNNI__) && defined(__AVX512VL__)", "_epi32"),
                                       ("defined(__AVXVNNI__)", "_avx_epi32"))),
}  # fmt: skip
"""Lanes -> (prefix of intrinsics, vector type, macro for 16-bit multiply-add, (condition, suffix) of dot products)."""


_SPREAD = """#ifdef {macro}
    /* An instruction of its own: gcc 12 loads and turns over all of them first, and runs out of registers. */
    vec{w} all;
    __asm__ volatile("vpbroadcastd %1, %0" : "={letter}"(all) : "m"(*(const int32_t *)p));
    return all;
#else
"""


def intrinsics(width: int) -> dict[str, object]:
    """Return, by placeholder in the templates of `dot` and `spread`, x86 code that precedes the plain alternative.

    The texts are empty for widths without intrinsics.
    """
    if width not in _X86:
        return dict.fromkeys(("dot", "dot_end", "spread", "spread_end"), "")
    prefix, kind, fallback, choices = _X86[width]
    text, word = "", "if"
    for condition, suffix in choices:
        call = f"{prefix}_dpbusd{suffix}(({kind})sum, ({kind})a, ({kind})b)"
        text += f"#{word} {condition}\n    return (vec{width}){call};\n"
        word = "elif"
    body = _MULTIPLY_ADD.replace("{bits}", str(32 * width))
    for key, value in {"m": kind, "p": prefix, "w": str(width)}.items():
        body = body.replace("{" + key + "}", value)
    spread = _SPREAD.replace("{w}", str(width)).replace("{letter}", "v" if width == 16 else "x")
    return {
        "dot": f"{text}#elif defined({fallback})\n{body}#else\n",
        "spread": spread.replace("{macro}", "__AVX512F__" if width == 16 else "__AVX2__"),
        "dot_end": "#endif\n",
        "spread_end": "#endif\n",
    }


def helper_text(plan: LoopPlan) -> str:
    """Return the text of C helpers that pack panels in groups and, for int8, make bytes unsigned."""
    if not plan.groups_bytes:
        return INTERLEAVE_PAIRS + PACK_PAIRS
    return _PART + interleave_text() + _GROUPS + UNSIGNED


def interleave_text() -> str:
    """Return the C text of the helper `INTERLEAVE`, with the shuffle orders of bytes and of pairs filled in."""
    byte = [n // 2 + 16 * (n % 2) for n in range(32)]
    pair = [n // 4 * 2 + 16 * (n // 2 % 2) + n % 2 for n in range(32)]
    orders = {"byte_low": byte[:16], "byte_high": byte[16:], "pair_low": pair[:16], "pair_high": pair[16:]}
    text = INTERLEAVE
    for name, order in orders.items():
        text = text.replace("{" + name + "}", ", ".join(map(str, order)))
    return text


def panel_lines(plan: LoopPlan, operand: Operand, source: str, columns: str, rows: tuple[str, int], target: str) -> list[str]:
    """Return C statements that pack one panel and, for int8, store the accumulators' initial values after it.

    `source` and `target` are addresses, `columns` is the source's number of columns, `rows` its (number of rows, row stride).
    """
    width, count = plan.tiles[0][plan.vector], rows[0]
    if not plan.groups_bytes:
        return [f"pack_pairs({source}, {rows[1]}, {columns}, {count}, {target}, {width});"]
    lines = [f"const long count = {count};", f"int8_t *const panel_at = {target};"]
    lines += [f"pack_groups({source}, {rows[1]}, {columns}, count, panel_at, {width});"]
    return lines + sums_lines(plan, operand, [f"for (long k = 0; k < count; k += {GROUP})"], [(width, "k")])


def sums_lines(plan: LoopPlan, operand: Operand, heads: list[str], place: list[tuple[int, str]]) -> list[str]:
    """Return C statements that sum the bytes of a packed panel and store accumulators' initial values after the panel.

    The C variable `panel_at` is the panel's address. `heads` are C loop heads over the panel's words of four bytes; `place` are
    the (stride, loop variable) terms of a word's offset.
    """
    assert operand.packing is not None
    dimension, lines = plan.group_dimension(operand), Lines()
    vectors, sums = plan.chunks, [f"sum_{c}" for c in range(len(plan.chunks))]
    lines.add(*(f"vec{v.width} {name} = {splat('0', v.width)};" for v, name in zip(vectors, sums, strict=True)))
    with lines.blocks(heads):
        for vector, name in zip(vectors, sums, strict=True):
            at = f"panel_at + {linear(place, GROUP * vector.offset)}"
            lines.add(f"{name} = dot_{vector.width}({name}, {splat(BIAS, vector.width)}, {_words(at, vector.width)});")
    end = start_row(plan, operand) * operand.packing.pitch[dimension]
    for vector, name in zip(vectors, sums, strict=True):
        at = f"(int32_t *)(panel_at + {end + GROUP * vector.offset})"
        lines.add(f"*{at} = -{name};" if vector.width == 1 else f"store_{vector.width}({at}, -{name});")
    return str(lines).rstrip("\n").split("\n")


def start_row(plan: LoopPlan, operand: Operand) -> int:
    """Return the index of the row after a panel's data, which contains the accumulators' initial values."""
    assert operand.packing is not None
    return operand.packing.shape[plan.group_dimension(operand)]


def start_axes(plan: LoopPlan) -> list[int]:
    """Return the axes along which a task must know its block of the reduction.

    Only the first block starts from the initial values that are stored after the panels.
    """
    packing = plan.reads[1].packing if plan.has_starts else None
    return [a for a in plan.op.reduce if packing is not None and packing.shared and plan.grid[a] > 1]


def start_field(plan: LoopPlan, axis: int) -> str:
    """Return the name of the field of `struct task` with the start of the reduction block along an axis."""
    return f"{plan.axes[axis]}_start"


def _words(address: str, width: int) -> str:
    return f"spread_1({address})" if width == 1 else f"load_{width}((const int32_t *)({address}))"


def start(lines: Lines, reader: Reader) -> None:
    """Write the declarations of int8 accumulators, which start from the values stored after the panels.

    If tasks share panels over the whole reduction, later blocks of the reduction start from 0.
    """
    plan = reader.plan
    lanes, axis = plan.reads[1], plan.group
    tests = [f"t->{start_field(plan, a)} == 0" for a in start_axes(plan)]
    tests += [f"{bounds(plan, a)[0]} == 0" for a in plan.op.reduce if is_split(plan, a)]
    for place, key in enumerate(reader.distinct(lanes)):
        offset = start_row(plan, lanes) * lanes.strides[axis] + sum(lanes.strides[a] * i for a, i in enumerate(key))
        for c, chunk in enumerate(plan.chunks):
            value = _words(f"{lanes.name} + {offset + GROUP * chunk.offset}", chunk.width)
            if tests:
                value = f"{' && '.join(tests)} ? {value} : {splat('0', chunk.width)}"
            lines.add(f"const vec{chunk.width} start_{place}_{c} = {value};")
    for c, chunk in enumerate(() if in_fours(reader) else plan.chunks):
        places = [reader.distinct(lanes).index(reader.key(lanes, row)) for row in plan.rows]
        words = [f"sum_{r}_{c} = start_{place}_{c}" for r, place in enumerate(places)]
        lines.add(f"vec{chunk.width} {', '.join(words)};")


def step(lines: Lines, reader: Reader, tail: bool) -> None:
    """Write C that loads one group of elements along the reduction (four int8 or two bfloat16) and adds its products.

    The register tile is computed row by row.
    """
    plan = reader.plan
    scalar, lanes = plan.reads
    kind, dot = ("vec", "dot") if plan.groups_bytes else ("pairs", "dot_bfloat")
    declared = set()
    for r, row in enumerate(plan.rows):
        for c, chunk in enumerate(plan.chunks):
            a = f"{scalar.name}_{reader.distinct(scalar).index(reader.key(scalar, row))}_{chunk.width}"
            b = f"{lanes.name}_{reader.distinct(lanes).index(reader.key(lanes, row))}_{c}"
            values = {a: _scalar(reader, scalar, row, chunk, tail)}
            address = f"{lanes.name} + {reader.index(lanes, row, chunk)}"
            values[b] = _words(address, chunk.width) if plan.groups_bytes else f"words_bfloat_{chunk.width}({address})"
            lines.add(*(f"const {kind}{chunk.width} {n} = {v};" for n, v in values.items() if n not in declared))
            declared |= set(values)
            lines.add(f"sum_{r}_{c} = {dot}_{chunk.width}(sum_{r}_{c}, {a}, {b});")


def _scalar(reader: Reader, scalar: Operand, row: tuple[int, ...], chunk: Chunk, tail: bool) -> str:
    """Return the C text of a vector that has a group of the scalar operand (equal in all lanes) in every lane.

    An int8 operand is made unsigned.
    """
    address = add(scalar.name, reader.index(scalar, row, Chunk(0, 1)))
    if not reader.plan.groups_bytes:
        lone = tail and not reader.plan.groups_channels  # packed channels end with zeros
        return f"spread{'_part' if lone else ''}_bfloat_{chunk.width}({address})"
    if scalar.packing is not None:
        return f"spread_{chunk.width}({address})"
    rest = reader.plan.op.extents[reader.plan.group] % GROUP
    word = splat(f"word_part({address}, {rest})", chunk.width) if tail else f"spread_{chunk.width}({address})"
    return f"{word} ^ {BIAS}"
