"""Elementwise functions in C, as templates for vectors and for scalars."""

from __future__ import annotations


def _lanes(name: str, call: str) -> tuple[str, str]:
    """A function of libm applied lane by lane."""
    vector = f"""static inline vec{{w}} {name}_{{w}}(vec{{w}} x) {{
    for (int lane = 0; lane < {{w}}; lane++) x[lane] = {call.format(x='x[lane]')};
    return x;
}}
"""
    scalar = f"static inline float {name}_1(float x) {{ return {call.format(x='x')}; }}\n"
    return vector, scalar


FUNCTIONS: dict[str, tuple[str, str]] = {
    "relu": (
        "static inline vec{w} relu_{w}(vec{w} x) { return max_{w}(x, (vec{w}){0}); }\n",
        "static inline {acc} relu_1({acc} x) { return max_1(x, 0); }\n",
    ),
    "gelu": _lanes("gelu", "0.5f * {x} * (1.0f + erff({x} * 0.70710678f))"),
    "exp": _lanes("exp", "expf({x})"),
    "tanh": _lanes("tanh", "tanhf({x})"),
    "sigmoid": _lanes("sigmoid", "1.0f / (1.0f + expf(-({x})))"),
}
"""Name -> (vector template, scalar template); `{w}` is the width."""
