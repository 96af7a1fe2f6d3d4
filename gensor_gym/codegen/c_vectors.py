"""Vector helpers in C, written out for the widths that a kernel uses.

Everything is compiler vector extensions, which gcc, clang and zig share; intrinsics stand only where the extensions
have no word (masked memory access, maximum) and always have a plain alternative. `{w}` is the width, `{acc}` the type
of lanes, `{item}` the type in memory; helpers named `_narrow` convert on the way.
"""

from __future__ import annotations

import re

from gensor_gym.codegen import c_dot, c_fold
from gensor_gym.codegen.c_functions import FUNCTIONS

_TYPE = "typedef {acc} vec{w} __attribute__((vector_size({bytes}), aligned(4), may_alias));\n"

_INDEX = {
    "least": "static inline long least(long a, long b) { return a < b ? a : b; }\n",
    "most": "static inline long most(long a, long b) { return a > b ? a : b; }\n",
    "inside": """static inline int inside(long index, long size) { return (unsigned long)index < (unsigned long)size; }
""",
    "first_lane": """/* First lane whose index, place + step * lane, is not negative. */
static inline long first_lane(long place, long step) { return place >= 0 ? 0 : (step - 1 - place) / step; }
""",
    "last_lane": """/* Last lane whose index, place + step * lane, is below size; -1 if there is none. */
static inline long last_lane(long place, long step, long size) {
    return place >= size ? -1 : (size - 1 - place) / step;
}
""",
    "lane_mask": """/* Bits first..last, of which only 0..width-1 count. */
static inline unsigned lane_mask(long first, long last, long width) {
    first = most(first, 0);
    last = least(last, width - 1);
    return first > last ? 0u : (2u << last) - (1u << first);
}
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
    "load_masked": """/* Lanes first..last from memory, the others filled. */
static inline vec{w} load_masked{s}_{w}(const {item} *p, long index, long first, long last, {acc} fill) {
{masked_load}    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane >= first && lane <= last ? p[index + lane] : fill;
    return x;
{end}}
""",
    "gather_masked": """/* Lanes first..last from memory, the others filled. */
static inline vec{w} gather_masked{s}_{w}(const {item} *p, long index, long stride, long first, long last,
    {acc} fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++)
        x[lane] = lane >= first && lane <= last ? p[index + lane * stride] : fill;
    return x;
}
""",
    "even": """/* p[0], p[2], ...: the even ones of two loads that touch nothing past the last of them. */
static inline vec{w} even_{w}(const {acc} *p) {
    return __builtin_shufflevector(load_{w}(p), load_{w}(p + {w} - 1), {even});
}
""",
    "even_masked": """/* The same with lanes first..last from memory, the others filled. */
static inline vec{w} even_masked_{w}(const {acc} *p, long index, long first, long last, {acc} fill) {
    const long low = 2 * most(first, 0), high = 2 * last, step = {w} - 1;
    return __builtin_shufflevector(load_masked_{w}(p, index, low, high, fill),
                                   load_masked_{w}(p, index + step, low - step, high - step, fill), {even});
}
""",
    "store": """static inline void store_{w}({acc} *p, vec{w} x) { *(vec{w} *)p = x; }
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
    "store_masked": """/* Lanes up to `last` to memory. */
static inline void store_masked_{w}({acc} *p, long index, long last, vec{w} x) {
{masked_store}    for (long lane = 0; lane < {w} && lane <= last; lane++) p[index + lane] = x[lane];
{end}}
""",
}

_VALUES = {
    "splat": """static inline vec{w} splat_{w}({acc} x) { return x - (vec{w}){0}; }
""",
    "keep": """/* The first `count` lanes of x, the others replaced. */
static inline vec{w} keep_{w}(vec{w} x, long count, {acc} other) {
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane < count ? x[lane] : other;
    return x;
}
""",
    "max": """/* The larger lanes; a where one is not a number. */
static inline vec{w} max_{w}(vec{w} a, vec{w} b) {
{maximum}    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const bits larger = (bits)(b > a);
    return (vec{w})((larger & (bits)b) | (~larger & (bits)a));
{end}}
""",
    "fold_add": """static inline {acc} fold_add_{w}(vec{w} x) {
{halves}    return fold_add_{half}(low + high);
}
""",
    "fold_max": """static inline {acc} fold_max_{w}(vec{w} x) {
{halves}    return fold_max_{half}(max_{half}(low, high));
}
""",
}

_HALVES = """    vec{half} low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (const char *)&x + sizeof low, sizeof high);
"""

_BUTTERFLY = """    UNROLL({w})
    for (int i = 0; i < {w}; i++) {
        if (i & {h}) continue;
        const vec{w} low = x[i], high = x[i + {h}];
        x[i] = __builtin_shufflevector(low, high, {low});
        x[i + {h}] = __builtin_shufflevector(low, high, {high});
    }
"""

_PAIRS = {
    "fold_add": "static inline {acc} fold_add_2(vec2 x) { return x[0] + x[1]; }\n",
    "fold_max": "static inline {acc} fold_max_2(vec2 x) { return max_1(x[0], x[1]); }\n",
}

_SCALARS = {
    "load_masked": """static inline {acc} load_masked{s}_1(const {item} *p, long index, long first, long last,
    {acc} fill) {
    return first <= 0 && last >= 0 ? p[index] : fill;
}
""",
    "gather_masked": """static inline {acc} gather_masked{s}_1(const {item} *p, long index, long stride, long first,
    long last, {acc} fill) {
    (void)stride;
    return first <= 0 && last >= 0 ? p[index] : fill;
}
""",
    "store_masked": """static inline void store_masked_1({acc} *p, long index, long last, {acc} x) {
    if (last >= 0) p[index] = x;
}
""",
    "keep": """static inline {acc} keep_1({acc} x, long count, {acc} other) { return count > 0 ? x : other; }
""",
    "max": """static inline {acc} max_1({acc} a, {acc} b) { return b > a ? b : a; }
""",
}

_VECTOR = _MEMORY | _VALUES | c_fold.HELPERS | c_dot.HELPERS | {name: text for name, (text, _) in FUNCTIONS.items()}
_SCALAR = _SCALARS | c_dot.SCALARS | {name: text for name, (_, text) in FUNCTIONS.items()}
_ORDER = ("splat", "load", "load_masked", "store", "transpose", "max", "exp", "erf", "fold_add", "fold_max")
_X86 = {16: ("__AVX512F__", "_mm512"), 8: ("__AVX512VL__", "_mm256"), 4: ("__AVX512VL__", "_mm")}
_MAXIMUM = {16: ("__AVX512F__", "_mm512"), 8: ("__AVX__", "_mm256"), 4: ("__SSE__", "_mm")}
_CALL = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_(\d+)\(")


def prelude(body: str, accumulator: str, item: str) -> str:
    """Type and helper definitions for the names that `body` uses (`load_16`, `vec8`, ...)."""
    texts = _wanted(body, accumulator, item)
    used = body + "".join(texts.values())
    widths = sorted({int(width) for width in re.findall(r"\bvec(\d+)\b", used)})
    types = [f"typedef {accumulator} vec1;\n"] if 1 in widths else []
    types += [_TYPE.format(acc=accumulator, w=w, bytes=4 * w) for w in widths if w > 1]
    helpers = [texts[key] for key in sorted(texts, key=_rank)]
    used += _INDEX["lane_mask"] if "lane_mask(" in used else ""
    index = [text for name, text in _INDEX.items() if f"{name}(" in used]
    return "\n".join(["".join(types), "".join(index), *helpers])


def _rank(key: tuple[str, int]) -> tuple[int, int, str]:
    """Definitions before their uses: scalars first, then by name in `_ORDER`, narrower ones first."""
    name, width = key
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), width, name)


def _wanted(body: str, accumulator: str, item: str) -> dict[tuple[str, int], str]:
    """(helper, width) -> text, for those that the body calls and those that these call in turn."""
    texts: dict[tuple[str, int], str] = {}
    queue = _CALL.findall(body)
    while queue:
        name, width = queue.pop()
        key = (name, int(width))
        base = name.removesuffix("_narrow")
        if key in texts or base not in (_SCALAR if width == "1" else _VECTOR):
            continue
        texts[key] = _helper(base, int(width), accumulator, item if name != base else "")
        queue += _CALL.findall(texts[key])
    return texts


def _helper(name: str, width: int, accumulator: str, narrow: str) -> str:
    """Text of one helper; `narrow` is the type in memory where it is not the lanes' own."""
    text = (_SCALAR if width == 1 else _VECTOR)[name]
    if width == 2:
        text = _PAIRS.get(name, text)
    values: dict[str, object] = {"halves": _HALVES, "masked_load": "", "masked_store": "", "maximum": "", "end": ""}
    if accumulator == "float":
        values |= _intrinsics(name, width)
    values["convert"] = f"    return *(const vec{width} *)p;\n"
    if narrow:
        attributes = f"vector_size({width} * sizeof({narrow})), aligned(1), may_alias"
        load = f"    return __builtin_convertvector(*(const narrow *)p, vec{width});\n"
        values["convert"] = f"    typedef {narrow} narrow __attribute__(({attributes}));\n{load}"
    lanes = range(width)
    values["even"] = ", ".join(str(2 * lane if 2 * lane < width else 2 * lane + 1) for lane in lanes)
    values["butterflies"] = _butterflies(width)
    values |= c_fold.lane_lists(width) | c_dot.intrinsics(width)
    values |= {"w": width, "acc": accumulator, "item": narrow or accumulator, "s": "_narrow" if narrow else ""}
    values |= {"bytes": 4 * width, "half": width // 2}
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def _butterflies(width: int) -> str:
    """The stages of a transposition: distance h exchanges the blocks of size h off the diagonal."""
    text, distance = "", width // 2
    while distance >= 1:
        lanes = range(width)
        low = ", ".join(str(width + lane - distance if lane & distance else lane) for lane in lanes)
        high = ", ".join(str(width + lane if lane & distance else lane + distance) for lane in lanes)
        stage = _BUTTERFLY.replace("{low}", low).replace("{high}", high)
        text += stage.replace("{h}", str(distance))
        distance //= 2
    return text


def _intrinsics(name: str, width: int) -> dict[str, object]:
    """Bodies with x86 intrinsics, up to the plain alternative."""
    if name == "max" and width in _MAXIMUM:
        macro, prefix = _MAXIMUM[width]
        return {"maximum": f"#ifdef {macro}\n    return (vec{width}){prefix}_max_ps(b, a);\n#else\n", "end": "#endif\n"}
    if name not in ("load_masked", "store_masked") or width not in _X86:
        return {}
    macro, prefix = _X86[width]
    load = f"{prefix}_mask_loadu_ps({prefix}_set1_ps(fill), lane_mask(first, last, {width}), p + index)"
    store = f"{prefix}_mask_storeu_ps(p + index, lane_mask(0, last, {width}), x)"
    return {
        "masked_load": f"#ifdef {macro}\n    return (vec{width}){load};\n#else\n",
        "masked_store": f"#ifdef {macro}\n    {store};\n#else\n",
        "end": "#endif\n",
    }
