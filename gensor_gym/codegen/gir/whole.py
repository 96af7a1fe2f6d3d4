"""C text of row nests that compute in int64 like `dataflow.whole`, in vector extensions that gcc, clang and zig share.

Sums, differences and products are computed on unsigned numbers, because those wrap around.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gensor_gym.codegen.c.micro.vectors import INDEX
from gensor_gym.dataflow.expressions import Constant, Expression, Operand
from gensor_gym.dataflow.whole import LEAST, whole_number

_NO_LOOPS = """#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-tree-vectorize") /* gcc 12.2 adds up three sums of one loop wrongly, and vectors are written out */
#endif
"""
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}
_BY_LANE = ("divide", "fmod")
NUMBERS = {
    **{
        name: f"static inline int64_t {name}_1(int64_t a, int64_t b) {{ return (int64_t)((uint64_t)a {sign} (uint64_t)b); }}\n"
        for name, sign in _SIGNS.items()
    },
    "negative": "static inline int64_t negative_1(int64_t x) { return subtract_1(0, x); }\n",
    "absolute": "static inline int64_t absolute_1(int64_t x) { return x < 0 ? negative_1(x) : x; }\n",
    "maximum": "static inline int64_t maximum_1(int64_t a, int64_t b) { return a < b ? b : a; }\n",
    "minimum": "static inline int64_t minimum_1(int64_t a, int64_t b) { return b < a ? b : a; }\n",
    "less": "static inline int64_t less_1(int64_t a, int64_t b) { return a < b; }\n",
    "at_most": "static inline int64_t at_most_1(int64_t a, int64_t b) { return a <= b; }\n",
    "bits_and": "static inline int64_t bits_and_1(int64_t a, int64_t b) { return a & b; }\n",
    "where": "static inline int64_t where_1(int64_t condition, int64_t a, int64_t b) { return condition ? a : b; }\n",
    "divide": """/* Rounded down; 0 for a division by 0. */
static inline int64_t divide_1(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return b ? negative_1(a) : 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
""",
    "fmod": "static inline int64_t fmod_1(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }\n",
    "from_float": """/* Cut towards 0, between the least and the largest number. */
static inline int64_t from_float_1(float x) {
    return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : x > 0.0f ? -(INT64_MIN + 1) : INT64_MIN;
}
""",
}
"""Function of integers -> C text for single numbers. A function may call functions before it."""
_OF_TWO = "static inline vec{w} NAME_{w}(vec{w} a, vec{w} b) { return TEXT; }\n"
_VECTOR = {
    **{name: _OF_TWO.replace("TEXT", f"(vec{{w}})((bits{{w}})a {sign} (bits{{w}})b)") for name, sign in _SIGNS.items()},
    "bits_and": _OF_TWO.replace("TEXT", "a & b"),
    "less": _OF_TWO.replace("TEXT", "(a < b) & 1"),
    "at_most": _OF_TWO.replace("TEXT", "(a <= b) & 1"),
    "negative": "static inline vec{w} negative_{w}(vec{w} x) { return subtract_{w}((vec{w}){0}, x); }\n",
    "where": """static inline vec{w} where_{w}(vec{w} condition, vec{w} a, vec{w} b) {
    const vec{w} chosen = condition != 0;
    return (chosen & a) | (~chosen & b);
}
""",
    "maximum": _OF_TWO.replace("TEXT", "where_{w}(a < b, b, a)"),
    "minimum": _OF_TWO.replace("TEXT", "where_{w}(b < a, b, a)"),
    "absolute": "static inline vec{w} absolute_{w}(vec{w} x) { return where_{w}(x < 0, negative_{w}(x), x); }\n",
    **dict.fromkeys(_BY_LANE, """static inline vec{w} NAME_{w}(vec{w} a, vec{w} b) {
    for (int lane = 0; lane < {w}; lane++) a[lane] = NAME_1(a[lane], b[lane]);
    return a;
}
"""),
    "splat": "static inline vec{w} splat_{w}(int64_t x) { return x - (vec{w}){0}; }\n",
    "keep": """/* The first `count` lanes of x, the others replaced. */
static inline vec{w} keep_{w}(vec{w} x, long count, int64_t other) {
    for (int lane = 0; lane < {w}; lane++) x[lane] = lane < count ? x[lane] : other;
    return x;
}
""",
    "load": "static inline vec{w} load_{w}(const int64_t *p) { return *(const vec{w} *)p; }\n",
    "gather": """static inline vec{w} gather_{w}(const int64_t *p, long stride) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = p[lane * stride];
    return x;
}
""",
    "load_masked": """static inline vec{w} load_masked_{w}(const int64_t *p, long index, long size, int64_t fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = inside(index + lane, size) ? p[lane] : fill;
    return x;
}
""",
    "gather_masked": """static inline vec{w} gather_masked_{w}(const int64_t *p, long stride, long index, long size,
    int64_t fill) {
    vec{w} x = {0};
    for (int lane = 0; lane < {w}; lane++) x[lane] = inside(index + lane * stride, size) ? p[lane * stride] : fill;
    return x;
}
""",
    "store": "static inline void store_{w}(int64_t *p, vec{w} x) { *(vec{w} *)p = x; }\n",
    "stream": "static inline void stream_{w}(int64_t *p, vec{w} x) { *(vec{w} *)p = x; }\n",
    "store_masked": """static inline void store_masked_{w}(int64_t *p, long index, long size, vec{w} x) {
    for (long lane = 0; lane < {w}; lane++)
        if (inside(index + lane, size)) p[lane] = x[lane];
}
""",
    "scatter": """static inline void scatter_{w}(int64_t *p, long stride, long count, vec{w} x) {
    for (long lane = 0; lane < count; lane++) p[lane * stride] = x[lane];
}
""",
    **{
        f"fold_{name}": f"""static inline int64_t fold_{name}_{{w}}(vec{{w}} x) {{
    int64_t made = x[0];
    for (int lane = 1; lane < {{w}}; lane++) made = {name}_1(made, x[lane]);
    return made;
}}
"""
        for name in ("add", "maximum")
    },
}  # fmt: skip
"""Function of integers -> C text for vectors of {w} lanes.

A function may call functions before it, and functions of single numbers.
"""
_CALLS = {"negative": ("subtract",), "maximum": ("where",), "minimum": ("where",), "absolute": ("where", "negative", "subtract")}
"""Vector function -> other vector functions that it calls."""
REDUCED = {"sum": "add", "max": "maximum", "prod": "multiply"}
"""Reduction or scatter -> name of the C function that joins two partial results."""


class Whole:
    """int64 as the type of a row nest's numbers (`elements.Element`)."""

    c, nbytes = "int64_t", 8

    def number(self, value: float) -> str:
        """Return the C constant of a number; an infinity becomes the end of the range of int64."""
        made = whole_number(value)
        return "INT64_MIN" if made == LEAST else f"INT64_C({made})" if made >= 0 else f"(-INT64_C({-made}))"

    def identity(self, reduction: object) -> float:
        """Return the neutral element of a reduction: 0 for a sum, else minus infinity."""
        return 0.0 if reduction == "sum" else float("-inf")

    def text(self, expression: Expression, names: Mapping[str, str], inverses: Mapping[str, str], width: int) -> str:
        """Return the C text of an expression on vectors of `width` lanes.

        `names` maps its operands to variables. `inverses` is not used, because integers have no inverses.
        """
        if isinstance(expression, Constant):
            return self.number(expression.value) if width == 1 else f"splat_{width}({self.number(expression.value)})"
        if isinstance(expression, Operand):
            return names[expression.name]
        parts = [self.text(part, names, inverses, width) for part in expression.arguments]
        return parts[0] if expression.function == "round" else f"{expression.function}_{width}({', '.join(parts)})"

    def joined(self, reduction: object, a: str, b: str, width: int) -> str:
        """Return the C text that joins two partial results, `a` and `b`, of a reduction."""
        return f"{REDUCED[str(reduction)]}_{width}({a}, {b})"

    def folded(self, reduction: object, x: str, width: int) -> str:
        """Return the C text that reduces the lanes of the vector `x` to one number."""
        return f"fold_{REDUCED[str(reduction)]}_{width}({x})"

    def prelude(self, body: str) -> str:
        """Return the C definitions of the types and functions that a kernel's text `body` uses."""
        widths = sorted({int(width) for width in re.findall(r"\bvec(\d+)\b", body)})
        found = [_NO_LOOPS, "typedef int64_t vec1;\n", *(_typedefs(width) for width in widths if width > 1)]
        called = set(re.findall(r"\b([a-z_]+)_(\d+)\(", body))
        vectors = ""
        for width in (width for width in widths if width > 1):
            used = {name for name, at in called if at == str(width)}
            used |= {inner for name in used for inner in _CALLS.get(name, ())}
            texts = (text.replace("NAME", name).replace("{w}", str(width)) for name, text in _VECTOR.items() if name in used)
            vectors += "".join(texts)
        numbers = "".join(NUMBERS[name] for name in needed_numbers(body + vectors))
        index = "".join(text for name, text in INDEX.items() if f"{name}(" in body + vectors)
        return "".join(found) + index + numbers + vectors


def needed_numbers(text: str) -> list[str]:
    """Return the names of the functions of single numbers that a text calls, directly or through others.

    They are in the order of their definitions.
    """
    needed = set(re.findall(r"\b([a-z_]+)_1\(", text))
    needed |= {"subtract", "negative"} if needed & {"negative", "absolute", "divide"} else set()
    return [name for name in NUMBERS if name in needed]


def _typedefs(width: int) -> str:
    """Return the C types of `width` lanes: int64, and uint64, which wraps around."""
    attributes = f"__attribute__((vector_size({8 * width}), aligned(8), may_alias))"
    return f"typedef int64_t vec{width} {attributes};\ntypedef uint64_t bits{width} {attributes};\n"
