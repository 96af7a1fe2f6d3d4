"""Vector helpers in C, written out for the widths that a kernel uses.

Everything is compiler vector extensions, which gcc, clang and zig share; intrinsics stand only where the extensions have
no word (masked memory access, maximum) and always have a plain alternative.
"""

from __future__ import annotations

import re

from gensor_gym.codegen.c_functions import FUNCTIONS

_TYPE = """typedef {acc} vec{w} __attribute__((vector_size({bytes}), aligned(4), may_alias));
"""

_INDEX = """static inline long least(long a, long b) { return a < b ? a : b; }
static inline long most(long a, long b) { return a > b ? a : b; }
static inline int inside(long index, long size) { return (unsigned long)index < (unsigned long)size; }

/* First lane whose index, place + step * lane, is not negative; last lane whose index is below size. */
static inline long first_lane(long place, long step) { return place >= 0 ? 0 : (step - 1 - place) / step; }
static inline long last_lane(long place, long step, long size) {
    return place >= size ? -1 : (size - 1 - place) / step;
}
"""

_MASK = """/* Bits first..last, of which only 0..width-1 count. */
static inline unsigned lane_mask(long first, long last, long width) {
    first = most(first, 0);
    last = least(last, width - 1);
    return first > last ? 0u : (2u << last) - (1u << first);
}
"""

_TEMPLATES = {
    "splat": """static inline vec{w} splat_{w}({acc} x) { return x - (vec{w}){0}; }
""",
    "load": """static inline vec{w} load_{w}(const {acc} *p) { return *(const vec{w} *)p; }
""",
    "store": """static inline void store_{w}({acc} *p, vec{w} x) { *(vec{w} *)p = x; }
""",
    "load_narrow": """static inline vec{w} load_narrow_{w}(const {item} *p) {
    typedef {item} narrow __attribute__((vector_size({w} * sizeof({item})), aligned(1), may_alias));
    return __builtin_convertvector(*(const narrow *)p, vec{w});
}
""",
    "gather": """static inline vec{w} gather_{w}(const {acc} *p, long stride) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = p[lane * stride];
    return x;
}
""",
    "gather_narrow": """static inline vec{w} gather_narrow_{w}(const {item} *p, long stride) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = p[lane * stride];
    return x;
}
""",
    "gather_masked": """static inline vec{w} gather_masked_{w}(const {acc} *p, long index, long stride, long first, long last, {acc} fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane >= first && lane <= last ? p[index + lane * stride] : fill;
    return x;
}
""",
    "gather_masked_narrow": """static inline vec{w} gather_masked_narrow_{w}(const {item} *p, long index, long stride, long first, long last,
                                             {acc} fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane >= first && lane <= last ? p[index + lane * stride] : fill;
    return x;
}
""",
    "load_masked": """static inline vec{w} load_masked_{w}(const {acc} *p, long index, long first, long last, {acc} fill) {
{masked_load}    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane >= first && lane <= last ? p[index + lane] : fill;
    return x;
{end}}
""",
    "load_masked_narrow": """static inline vec{w} load_masked_narrow_{w}(const {item} *p, long index, long first, long last, {acc} fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane >= first && lane <= last ? p[index + lane] : fill;
    return x;
}
""",
    "store_masked": """static inline void store_masked_{w}({acc} *p, long index, long last, vec{w} x) {
{masked_store}    for (long lane = 0; lane < {w} && lane <= last; lane++) p[index + lane] = x[lane];
{end}}
""",
    "keep": """/* The first `count` lanes of x, the others replaced. */
static inline vec{w} keep_{w}(vec{w} x, long count, {acc} other) {
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane < count ? x[lane] : other;
    return x;
}
""",
    "max": """static inline vec{w} max_{w}(vec{w} a, vec{w} b) {
{maximum}    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const bits larger = (bits)(b > a);
    return (vec{w})((larger & (bits)b) | (~larger & (bits)a));
{end}}
""",
    "fold_add": """static inline {acc} fold_add_{w}(vec{w} x) {
    vec{half} low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (const char *)&x + sizeof low, sizeof high);
    return {fold_half};
}
""",
    "fold_max": """static inline {acc} fold_max_{w}(vec{w} x) {
    vec{half} low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (const char *)&x + sizeof low, sizeof high);
    return {fold_half};
}
""",
} | {name: text for name, (text, _) in FUNCTIONS.items()}

_SCALAR = {
    "load_masked": """static inline {acc} load_masked_1(const {acc} *p, long index, long first, long last, {acc} fill) {
    return first <= 0 && last >= 0 ? p[index] : fill;
}
""",
    "load_masked_narrow": """static inline {acc} load_masked_narrow_1(const {item} *p, long index, long first, long last, {acc} fill) {
    return first <= 0 && last >= 0 ? p[index] : fill;
}
""",
    "gather_masked": """static inline {acc} gather_masked_1(const {acc} *p, long index, long stride, long first, long last, {acc} fill) {
    (void)stride;
    return first <= 0 && last >= 0 ? p[index] : fill;
}
""",
    "gather_masked_narrow": """static inline {acc} gather_masked_narrow_1(const {item} *p, long index, long stride, long first, long last,
                                            {acc} fill) {
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
} | {name: text for name, (_, text) in FUNCTIONS.items()}

_NEEDS = {"fold_add": ("fold_add",), "fold_max": ("fold_max", "max"), "relu": ("max",)}
_ORDER = ("splat", "load", "store", "max", "exp", "erf")
_X86 = {16: ("__AVX512F__", "_mm512", 512), 8: ("__AVX512VL__", "_mm256", 256), 4: ("__AVX512VL__", "_mm", 128)}
_MAXIMUM = {16: ("__AVX512F__", "_mm512"), 8: ("__AVX__", "_mm256"), 4: ("__SSE__", "_mm")}


def prelude(body: str, accumulator: str, item: str) -> str:
    """Type and helper definitions for the names that `body` uses (`load_16`, `vec8`, ...)."""
    wanted = _wanted(body)
    widths = {w for _, w in wanted} | {int(w) for w in re.findall(r"\bvec(\d+)\b", body)}
    widths |= {w // 2 for name, w in wanted if name.startswith("fold")}
    parts = [f"typedef {accumulator} vec1;\n" if 1 in widths else ""]
    parts += [_TYPE.format(acc=accumulator, w=w, bytes=4 * w) for w in sorted(widths) if w > 1]
    helpers = [_helper(name, w, accumulator, item) for name, w in sorted(wanted, key=_rank)]
    masks = _MASK if any("lane_mask" in helper for helper in helpers) else ""
    return "\n".join(part for part in ["".join(parts), _INDEX, masks, *helpers] if part)


def _rank(key: tuple[str, int]) -> tuple[int, str, int]:
    """Definitions before their uses."""
    name, width = key
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name, width)


def _wanted(body: str) -> set[tuple[str, int]]:
    """(helper, width) pairs that the text calls, and those that these call in turn."""
    wanted: set[tuple[str, int]] = set()
    queue = [(name, int(width)) for name, width in re.findall(r"\b([a-z]+(?:_[a-z]+)*)_(\d+)\(", body)]
    while queue:
        name, width = queue.pop()
        table = _SCALAR if width == 1 else _TEMPLATES
        if name not in table or (name, width) in wanted:
            continue
        wanted.add((name, width))
        if name.startswith("fold"):
            queue += [(needed, width // 2) for needed in _NEEDS[name] if width > 2 or needed == "max"]
        queue += [(found, width) for found in re.findall(r"\b([a-z]+(?:_[a-z]+)*)_\{w\}\(", table[name])]
        queue += [(found, 1) for found in re.findall(r"\b([a-z]+(?:_[a-z]+)*)_1\(", table[name])]
    return wanted


def _helper(name: str, width: int, accumulator: str, item: str) -> str:
    """Text of one helper."""
    text = (_SCALAR if width == 1 else _TEMPLATES)[name]
    floats = accumulator == "float"
    values = {"w": width, "acc": accumulator, "item": item, "bytes": 4 * width, "half": width // 2, "0": "{0}"}
    values |= {"masked_load": "", "masked_store": "", "maximum": "", "end": ""}
    if floats and name in ("load_masked", "store_masked") and width in _X86:
        values |= _masked(*_X86[width], width)
    if floats and name == "max" and width in _MAXIMUM:
        macro, prefix = _MAXIMUM[width]
        values |= {"maximum": f"#ifdef {macro}\n    return (vec{width}){prefix}_max_ps(b, a);\n#else\n", "end": "#endif\n"}
    if name == "fold_add":
        values["fold_half"] = f"fold_add_{width // 2}(low + high)" if width > 2 else "x[0] + x[1]"
    if name == "fold_max":
        half = width // 2
        values["fold_half"] = f"fold_max_{half}(max_{half}(low, high))" if width > 2 else "max_1(x[0], x[1])"
    if name.startswith("fold") and width == 2:
        text = "static inline {acc} " + name + "_{w}(vec{w} x) { return {fold_half}; }\n"
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def _masked(macro: str, prefix: str, bits: int, width: int) -> dict[str, str]:
    """Bodies of masked load and store with AVX-512 intrinsics, up to the plain alternative."""
    load = f"{prefix}_mask_loadu_ps({prefix}_set1_ps(fill), lane_mask(first, last, {width}), p + index)"
    store = f"{prefix}_mask_storeu_ps(p + index, lane_mask(0, last, {width}), x)"
    return {
        "masked_load": f"#ifdef {macro}\n    return (vec{width}){load};\n#else\n",
        "masked_store": f"#ifdef {macro}\n    {store};\n#else\n",
        "end": "#endif\n",
    }
