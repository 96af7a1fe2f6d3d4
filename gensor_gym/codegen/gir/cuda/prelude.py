"""CUDA definitions of the scalar functions that `codegen.gir.expressions` names; a kernel contains the functions it calls.

The library's functions err by at most 6 units in the last place (CUDA C++ Programming Guide, mathematical functions), `lgammaf`
by more near its zeros below 0, within the bounds of `dataflow.scalars`. Maxima and minima propagate NaN like those of NumPy and
torch.
"""

from __future__ import annotations

import re

_HEAD = "__device__ __forceinline__ float"
_OF_ONE = {
    "exp": "expf(x)", "log": "logf(x)", "sqrt": "sqrtf(x)", "rsqrt": "rsqrtf(x)", "tanh": "tanhf(x)", "erf": "erff(x)",
    "expm1": "expm1f(x)", "log1p": "log1pf(x)", "absolute": "fabsf(x)", "sin": "sinf(x)", "cos": "cosf(x)", "atan": "atanf(x)",
    "round": "rintf(x)", "erfc": "erfcf(x)", "lgamma": "lgammaf(x)",
}  # fmt: skip
_OF_TWO = {
    **{name: "a > b || a != a ? a : b" for name in ("max", "maximum")},
    **{name: "a < b || a != a ? a : b" for name in ("min", "minimum")},
    "add": "a + b", "less": "a < b ? 1.0f : 0.0f", "at_most": "a <= b ? 1.0f : 0.0f", "fmod": "fmodf(a, b)",
    "bits_and": "(float)((int)a & (int)b)",
}  # fmt: skip
FUNCTIONS = {
    **{f"{name}_1": f"{_HEAD} {name}_1(float x) {{ return {text}; }}" for name, text in _OF_ONE.items()},
    **{f"{name}_1": f"{_HEAD} {name}_1(float a, float b) {{ return {text}; }}" for name, text in _OF_TWO.items()},
    "where_1": f"{_HEAD} where_1(float condition, float a, float b) {{ return condition != 0.0f ? a : b; }}",
}
_INFINITY = """\
#ifndef INFINITY  // no header is included
#define INFINITY __int_as_float(0x7f800000)
#endif
"""


def functions_for(text: str) -> str:
    """Return the CUDA definitions of the functions that a kernel's text calls.

    Include guards let the emulator join several texts.
    """
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    used = [f"#ifndef HAS_{name}\n#define HAS_{name}\n{body}\n#endif\n" for name, body in FUNCTIONS.items() if name in words]
    return (_INFINITY if "INFINITY" in words else "") + "".join(used) + "\n"
