"""Templates of vector helpers in C, and the definitions of those helpers that a kernel uses.

Helpers are written in the vector extensions that gcc, clang and zig share. Intrinsics are used only if the extensions lack an
operation (masked memory access, maximum), and always have a plain alternative. In templates, `{w}` is the number of lanes,
`{acc}` the type of lanes, `{item}` the type in memory. Helpers named `_narrow` convert between these types, helpers of
`c/elements` convert 16-bit floats.
"""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from gensor_gym.codegen.c.elements import halves as c_halves
from gensor_gym.codegen.c.elements import quantized as c_quantized
from gensor_gym.codegen.c.elements import words as c_words
from gensor_gym.codegen.c.micro import along as c_along
from gensor_gym.codegen.c.micro import dot as c_dot
from gensor_gym.codegen.c.micro import fold as c_fold
from gensor_gym.codegen.c.micro import pairs as c_pairs
from gensor_gym.codegen.c.micro import turn as c_turn
from gensor_gym.codegen.c.micro.functions import FUNCTIONS
from gensor_gym.codegen.c.micro.intrinsics import streamed
from gensor_gym.operators.bodies import REDUCTIONS, Reduction

_TYPE = "typedef {acc} vec{w} __attribute__((vector_size({bytes}), aligned(4), may_alias));\n"

INDEX = {
    "least": "static inline long least(long a, long b) { return a < b ? a : b; }\n",
    "most": "static inline long most(long a, long b) { return a > b ? a : b; }\n",
    "in_order": """/* Stores stay on their side of it, so that those of one line of the cache follow one another and join. */
static inline void in_order(void) { __asm__ volatile("" ::: "memory"); }
""",
    "part_of": c_words.PART, "rest_of": c_words.REST,
    "inside": """static inline int inside(long index, long size) { return (unsigned long)index < (unsigned long)size; }
""",
}

_MEMORY = {
    "load": """static inline vec{w} load{s}_{w}(const {item} *p) {
{convert}}
""",
    "gather": """static inline vec{w} gather{s}_{w}(const {item} *p, long stride) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = p[lane * stride];
    return x;
}
""",
    "load_masked": """/* Lanes whose index + lane lies in 0..size-1 from memory, the others filled. */
static inline vec{w} load_masked{s}_{w}(const {item} *p, long index, long size, {acc} fill) {
{masked_load}    if (index >= 0 && index + {w} <= size) return load{s}_{w}(p);
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = inside(index + lane, size) ? p[lane] : fill;
    return x;
{end}}
""",
    "gather_masked": """/* Lanes whose index + lane * stride lies in 0..size-1 from memory, the others filled. */
static inline vec{w} gather_masked{s}_{w}(const {item} *p, long stride, long index, long size, {acc} fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++)
        x[lane] = inside(index + lane * stride, size) ? p[lane * stride] : fill;
    return x;
}
""",
    "even": """/* p[0], p[2], ... of two loads that lie side by side. */
static inline vec{w} even_{w}(vec{w} a, vec{w} b) { return __builtin_shufflevector(a, b, {even}); }
""",
    "odd": """/* p[1], p[3], ... of two loads that lie side by side. */
static inline vec{w} odd_{w}(vec{w} a, vec{w} b) { return __builtin_shufflevector(a, b, {odd}); }
""",
    "even_joined": """/* p[0], p[2], ... of two loads that share an element, so that nothing past the last of them is touched. */
static inline vec{w} even_joined_{w}(vec{w} a, vec{w} b) { return __builtin_shufflevector(a, b, {joined}); }
""",
    "store": """static inline void store_{w}({acc} *p, vec{w} x) { *(vec{w} *)p = x; }
""",
    "stream": """/* Past the caches, where p lies at a multiple of the vector's size. */
static inline void stream_{w}({acc} *p, vec{w} x) {
{streamed}    store_{w}(p, x);
}
""",
    "scatter": """/* The first `count` lanes, `stride` elements apart. */
static inline void scatter_{w}({acc} *p, long stride, long count, vec{w} x) {
    for (long lane = 0; lane < count; lane++) p[lane * stride] = x[lane];
}
""",
    "transpose": """/* packed[i * step + lane] = source[lane * stride + i] for i, lane < {w}. */
static inline void transpose_{w}(const {acc} *source, long stride, {acc} *packed, long step) {
    vec{w} x[{w}];
    UNROLL({w})
    for (int i = 0; i < {w}; i++) x[i] = load_{w}(source + i * stride);
{butterflies}    UNROLL({w})
    for (int i = 0; i < {w}; i++) store_{w}(packed + i * step, x[i]);
}
""",
    "copy_columns": """/* packed[i * step + lane] = source[lane * stride + i] for i < count and lane < {w}. */
static inline void copy_columns_{w}(const {acc} *source, long stride, {acc} *packed, long count, long step) {
    long i = 0;
    for (; i + {w} <= count; i += {w}) transpose_{w}(source + i, stride, packed + i * step, step);
    for (; i < count; i++)
        for (long lane = 0; lane < {w}; lane++) packed[i * step + lane] = source[lane * stride + i];
}
""",
    "store_masked": """/* Lanes whose index + lane lies in 0..size-1 to memory. */
static inline void store_masked_{w}({acc} *p, long index, long size, vec{w} x) {
{masked_store}    for (long lane = 0; lane < {w}; lane++)
        if (inside(index + lane, size)) p[lane] = x[lane];
{end}}
""",
    "store_first": """/* The first `count` lanes, a constant. */
static inline __attribute__((always_inline)) void store_first_{w}({acc} *p, long count, vec{w} x) {
{pieces}}
""",
}


def _folds(reduction: Reduction) -> str:
    name, both = reduction.name, reduction.joined("low", "high", "{half}")
    return f"""static inline {{acc}} fold_{name}_{{w}}(vec{{w}} x) {{
{{halves}}    return fold_{name}_{{half}}({both});
}}
"""


def _chosen(choice: Reduction) -> str:
    return f"""/* The {choice.word} lanes; a where one is not a number. */
static inline vec{{w}} {choice.name}_{{w}}(vec{{w}} a, vec{{w}} b) {{
{{chosen}}    typedef int32_t bits __attribute__((vector_size({{bytes}}), aligned(4), may_alias));
    const bits {choice.word} = (bits)(b {choice.order} a);
    return (vec{{w}})(({choice.word} & (bits)b) | (~{choice.word} & (bits)a));
{{end}}}}
"""


def _sticky(choice: Reduction) -> str:
    return f"""/* The {choice.word} lanes; what is not a number where one is not. */
static inline vec{{w}} {choice.name}imum_{{w}}(vec{{w}} a, vec{{w}} b) {{
{{sticky}}    typedef int32_t bits __attribute__((vector_size({{bytes}}), aligned(4), may_alias));
    return (vec{{w}})((bits){choice.name}_{{w}}(a, b) | (bits)(b != b));
{{end}}}}
"""


_MIN = Reduction("min", np.minimum, "amin", math.inf, order="<", word="smaller")
_CHOICES = {"max": dataclasses.replace(REDUCTIONS["max"], name="max"), "min": _MIN}
_STICKY = {f"{name}imum": each for name, each in _CHOICES.items()}
"""Helpers `maximum` and `minimum`.

They propagate NaN of either argument; `max` and `min` only NaN of the first.
"""
_FOLDED = tuple(REDUCTIONS.values())

_VALUES = {
    "splat": """static inline vec{w} splat_{w}({acc} x) { return x - (vec{w}){0}; }
""",
    "hold": """/* x, kept in a register: else compilers load it from memory again at every use. */
static inline vec{w} hold_{w}(vec{w} x) {
{held}    return x;
}
""",
    "keep": """/* The first `count` lanes of x, the others replaced. */
static inline vec{w} keep_{w}(vec{w} x, long count, {acc} other) {
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane < count ? x[lane] : other;
    return x;
}
""",
    **{name: _chosen(each) for name, each in _CHOICES.items()},
    **{name: _sticky(each) for name, each in _STICKY.items()},
    **{f"fold_{each.name}": _folds(each) for each in _FOLDED},
}

_PAIRS = {
    f"fold_{each.name}": f"static inline {{acc}} fold_{each.name}_2(vec2 x) {{ return {each.joined('x[0]', 'x[1]', 1)}; }}\n"
    for each in _FOLDED
}

_SCALARS = {
    "load_masked": """static inline {acc} load_masked{s}_1(const {item} *p, long index, long size, {acc} fill) {
    return inside(index, size) ? *p : fill;
}
""",
    "gather_masked": """static inline {acc} gather_masked{s}_1(const {item} *p, long stride, long index, long size,
    {acc} fill) {
    (void)stride;
    return inside(index, size) ? *p : fill;
}
""",
    "store_masked": """static inline void store_masked_1({acc} *p, long index, long size, {acc} x) {
    if (inside(index, size)) *p = x;
}
""",
    "keep": """static inline {acc} keep_1({acc} x, long count, {acc} other) { return count > 0 ? x : other; }
""",
    **{
        name: f"static inline {{acc}} {name}_1({{acc}} a, {{acc}} b) {{ return b {each.order} a ? b : a; }}\n"
        for name, each in _CHOICES.items()
    },
    **{
        name: f"static inline {{acc}} {name}_1({{acc}} a, {{acc}} b) {{ return b {each.order} a || b != b ? b : a; }}\n"
        for name, each in _STICKY.items()
    },
}

_VECTOR = _MEMORY | _VALUES | c_fold.HELPERS | c_dot.HELPERS | c_along.HELPERS | c_turn.HELPERS
_VECTOR |= {name: text for name, (text, _) in FUNCTIONS.items()} | c_quantized.HELPERS | c_words.HELPERS
_SCALAR = _SCALARS | c_quantized.SCALARS | c_dot.SCALARS | c_along.SCALARS | {name: text for name, (_, text) in FUNCTIONS.items()}
_CALLED = ("absolute", "at_most", "less", "where", "log")
"""Functions that other C functions call, so that they must be defined first."""
_ORDER = (
    *c_halves.CONVERSIONS, "narrowed", "splat", "load", "load_masked", "store", "transpose", *_CHOICES, *_STICKY, "exp", "erf",
    *_CALLED, *_PAIRS,
)  # fmt: skip
_POWERS = "    const float lowest = -87.3f, one = 2.0f;\n"
"""C constants of `exp` without an instruction for powers of two. At `lowest` the bits of the power become zero."""
_MASKS = {16: "__AVX512F__", 8: "__AVX512VL__", 4: "__AVX512VL__"}
_CHOSEN = {16: ("__AVX512F__", "_mm512"), 8: ("__AVX__", "_mm256"), 4: ("__SSE__", "_mm")}
_CALL = re.compile(r"\b([a-z][a-z0-9]*(?:_[a-z]+)*)_(\d+)\(")


def prelude(body: str, accumulator: str, item: str) -> str:
    """Return C definitions of the types and helpers that `body` uses (`vec8`, `load_16`, ...).

    `accumulator` and `item` are the C types of accumulators and of elements in memory.
    """
    types, index, helpers = _definitions(body, accumulator, item)
    return "\n".join(["".join(types), "".join(index), *helpers])


def _definitions(body: str, accumulator: str, item: str) -> tuple[list[str], list[str], list[str]]:
    """Return the C definitions that `body` uses: (types, helpers for indices, other helpers)."""
    texts = _wanted(body, accumulator, item)
    used, reals = body + "".join(texts.values()), list[str]()
    if names := c_quantized.plain_names(used):
        own, _, helped = _definitions(names, "float", "float")
        reals = [c_quantized.named_real("".join(own)), *map(c_quantized.named_real, helped)]
        used += "".join(reals)
    widths = sorted({int(width) for width in re.findall(r"\bvec(\d+)\b", used)})
    types = [f"typedef {accumulator} vec1;\n"] if 1 in widths else []
    types += [_TYPE.format(acc=accumulator, w=w, bytes=4 * w) for w in widths if w > 1]
    bits = sorted({int(width) for width in re.findall(r"\boctets(\d+)\b", "".join(texts.values()))})
    types += [c_quantized.TYPE.format(w=w) for w in bits]
    bits = sorted({int(width) for width in re.findall(r"\bhalves(\d+)\b", used)})
    types += [c_halves.TYPE.format(w=w, bytes=2 * w) for w in bits]
    bits = sorted({int(width) for width in re.findall(r"\bpairs(\d+)\b", used)})
    types += [c_pairs.TYPE.format(w=w, bytes=4 * w) if w > 1 else c_pairs.TYPE_OF_ONE for w in bits]
    helpers = [*reals, *(texts[key] for key in sorted(texts, key=_rank))]
    return types, [text for name, text in INDEX.items() if f"{name}(" in used], helpers


def _rank(key: tuple[str, int]) -> tuple[int, int, str]:
    """Return a sort key that puts definitions before uses: the position of the helper's name in `_ORDER`, then its width."""
    name, width = key
    base, _ = _parts(name)
    size = -width if base in c_halves.CONVERSIONS else width
    return (_ORDER.index(base) if base in _ORDER else len(_ORDER), size, name)


def _parts(name: str) -> tuple[str, str]:
    """Split a helper's name into (base name, ending for a type in memory or empty)."""
    ending = next((ending for ending in ("_narrow", *c_halves.ENDINGS) if name.endswith(ending)), "")
    return name.removesuffix(ending), ending


def _wanted(body: str, accumulator: str, item: str) -> dict[tuple[str, int], str]:
    """Return, by (helper, width), the C text of all helpers that `body` calls directly or through other helpers."""
    texts: dict[tuple[str, int], str] = {}
    queue = _CALL.findall(body)
    while queue:
        name, width = queue.pop()
        key = (name, int(width))
        own = c_quantized.SCALARS if width == "1" else c_quantized.HELPERS
        base, ending = (name, "") if name in own else _parts(name)
        if key in texts:
            continue
        if ending in c_halves.ENDINGS:
            pair = c_pairs.text(base, int(width)) if ending == c_pairs.ENDING else ""
            text = pair or c_halves.text(base, ending, int(width))
        elif base in (_SCALAR if width == "1" else _VECTOR):
            text = _helper(base, int(width), accumulator, item if ending else "")
        else:
            continue
        texts[key] = text
        queue += _CALL.findall(texts[key])
    return texts


def _helper(name: str, width: int, accumulator: str, narrow: str) -> str:
    """Return the C text of the helper `name`; `narrow` is the C type in memory, empty if it equals the type of lanes."""
    text = (_SCALAR if width == 1 else _VECTOR)[name]
    if width == 2:
        text = _PAIRS.get(name, text)
    values: dict[str, object] = dict.fromkeys(("masked_load", "masked_store", "chosen", "sticky", "scaled", "end"), "")
    values |= {"powers": _POWERS, "halves": _halves(width), "held": _held(width), "streamed": streamed(width)}
    values |= _intrinsics(name, width, accumulator) if not narrow else {}
    values |= c_quantized.masked_load(width) if narrow and name == "load_masked" else {}
    values["convert"] = f"    return *(const vec{width} *)p;\n"
    if narrow:
        attributes = f"vector_size({width} * sizeof({narrow})), aligned(1), may_alias"
        load = f"    return __builtin_convertvector(*(const narrow *)p, vec{width});\n"
        own, end = c_quantized.widened(width) if narrow == "int8_t" else ("", "")
        values["convert"] = f"{own}    typedef {narrow} narrow __attribute__(({attributes}));\n{load}{end}"
    lanes = range(width)
    values |= {name: ", ".join(str(2 * lane + odd) for lane in lanes) for odd, name in enumerate(("even", "odd"))}
    values["joined"] = ", ".join(str(2 * lane if 2 * lane < width else 2 * lane + 1) for lane in lanes)
    values |= {"butterflies": c_turn.butterflies(width), "pieces": _pieces(width)}
    values |= c_fold.lane_lists(width) | c_dot.intrinsics(width)
    values |= c_turn.texts(width) if name in c_turn.HELPERS else {}
    values |= c_words.texts(width) if name in c_words.HELPERS else c_quantized.intrinsics(width)
    values |= {"w": width, "acc": accumulator, "item": narrow or accumulator, "s": "_narrow" if narrow else ""}
    values |= {"bytes": 4 * width, "half": width // 2}
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def _halves(width: int) -> str:
    """Return the C declaration of a vector's halves.

    With memcpy instead, gcc would keep accumulators in memory during the loop.
    """
    half = width // 2
    lanes = (", ".join(map(str, range(start, start + half))) for start in (0, half))
    low, high = (f"__builtin_shufflevector(x, x, {each})" for each in lanes)
    return f"    const vec{half} low = {low}, high = {high};\n"


def _held(width: int) -> str:
    """Return the C text of an empty assembly statement that makes the compiler keep x in a register."""
    macro = {16: "__AVX512F__", 8: "__AVX__", 4: "__SSE__"}.get(width)
    return f'#ifdef {macro}\n    __asm__("" : "+v"(x));\n#endif\n' if macro else ""


def _pieces(width: int) -> str:
    """Return the C text of `store_first`, which stores the first `count` lanes by one store for each 1 bit of `count`."""
    text, size = "", width // 2
    while size >= 1:
        lanes = [str((lane + size) % width) for lane in range(width)]
        low = f"__builtin_shufflevector(x, x, {', '.join(map(str, range(size)))})" if size > 1 else "x[0]"
        stored = f"store_{size}(p, {low})" if size > 1 else f"*p = {low}"
        rest = f" p += {size}, x = __builtin_shufflevector(x, x, {', '.join(lanes)});" if size > 1 else ""
        text += f"    if (count & {size}) {{ {stored};{rest} }}\n"
        size //= 2
    return text


def _intrinsics(name: str, width: int, accumulator: str) -> dict[str, object]:
    """Return, by placeholder, C text of x86 intrinsics that precedes the plain alternative; empty without intrinsics."""
    if name in _CHOICES and width in _CHOSEN and accumulator == "float":
        macro, prefix = _CHOSEN[width]
        return {"chosen": f"#ifdef {macro}\n    return (vec{width}){prefix}_{name}_ps(b, a);\n#else\n", "end": "#endif\n"}
    prefix = "_mm" if width == 4 else f"_mm{32 * width}"
    if name in _STICKY and width in _MASKS and accumulator == "float":
        chosen = f"    return (vec{width}){prefix}_mask_{_STICKY[name].name}_ps(b, {prefix}_cmp_ps_mask(b, b, 7), b, a);\n"
        return {"sticky": f"#ifdef {_MASKS[width]}\n{chosen}#else\n", "end": "#endif\n"}
    if name == "exp" and width in _MASKS:
        kept = f"{prefix}_cmp_ps_mask(n, splat_{width}(-126.0f), 22)"  # NaN, or above -126
        scaled = f"#ifdef {_MASKS[width]}\n    return (vec{width}){prefix}_maskz_scalef_ps({kept}, y, n);\n#else\n"
        powers = f"#ifdef {_MASKS[width]}\n    const float lowest = -104.0f, one = 1.0f;\n#else\n{_POWERS}#endif\n"
        return {"powers": powers, "scaled": scaled, "end": "#endif\n"}
    if name in ("load_masked", "store_masked") and width in _MASKS:
        return _masked(width, "ps" if accumulator == "float" else "epi32")
    return {}


def _masked(width: int, kind: str) -> dict[str, object]:
    """Return, by placeholder of a helper's template, C text of masked memory access.

    It uses a mask register of AVX-512, else a mask vector of AVX2.

    `kind` is the suffix of the intrinsics, `ps` or `epi32`. Integers need intrinsics too: gcc 12.2 compiled a plain loop to one
    load of all lanes, which read past the end of a tensor.
    """
    bits = 32 * width
    prefix = "_mm" if width == 4 else f"_mm{bits}"
    integer, lanes = f"__m{bits}i", ", ".join(map(str, range(width)))
    at = f"    const {integer} at = {prefix}_add_epi32({prefix}_setr_epi32({lanes}), {prefix}_set1_epi32((int)index));\n"
    wide = f"    const __mmask{max(width, 8)} keep = {prefix}_cmplt_epu32_mask(at, {prefix}_set1_epi32((int)size));\n"
    blend, vector, x = ("ps", f"(__m{bits})", "x") if kind == "ps" else ("epi8", "", f"({integer})x")
    load = f"    return (vec{width}){prefix}_mask_loadu_{kind}({prefix}_set1_{kind}(fill), keep, p);\n"
    store = f"    {prefix}_mask_storeu_{kind}(p, keep, {x});\n"
    first = f"#ifdef {_MASKS[width]}\n{at}{wide}"
    second, end = "", "#endif\n"
    if width < 16:
        whole = "si128" if width == 4 else "si256"
        above = f"{prefix}_cmpgt_epi32(at, {prefix}_set1_epi32(-1))"
        below = f"{prefix}_cmpgt_epi32({prefix}_set1_epi32((int)size), at)"
        second = f"#elif defined __AVX2__\n{at}    const {integer} keep = {prefix}_and_{whole}({above}, {below});\n"
    narrow_load = f"    const vec{width} x = (vec{width}){prefix}_maskload_{kind}(p, keep);\n"
    narrow_load += f"    return (vec{width}){prefix}_blendv_{blend}({prefix}_set1_{kind}(fill), {x}, {vector}keep);\n"
    known = f"__builtin_constant_p(index + size) && index == 0 && size < {width}"
    # AMD before Zen 4 takes tens of cycles for a masked store.
    pieces = f"    if ({known}) {{ store_first_{width}(p, size, x); return; }}\n"
    narrow_store = f"{pieces}    {prefix}_maskstore_{kind}(p, keep, {x});\n"
    return {
        "masked_load": first + load + (second + narrow_load if second else "") + "#else\n",
        "masked_store": first + store + (second + narrow_store if second else "") + "#else\n",
        "end": end,
    }
