"""Rules for modified Bessel functions of the first kind, of orders 0 and 1.

Abramowitz and Stegun, Handbook of Mathematical Functions, 9.8.1 to 9.8.4.
"""

from __future__ import annotations

from gensor_gym.frontends.aten.functions.polynomials import polynomial
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE, Rule

_NEAR = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
)
"""Order (0 or 1) -> coefficients of a polynomial in (x / 3.75)^2, for |x| up to 3.75."""
_FAR = (
    (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377),
    (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312, 0.01787654, -0.00420059),
)
"""Order (0 or 1) -> coefficients of a polynomial in 3.75 / |x| for larger |x|: sqrt(x) exp(-x) times the function."""


def _bessel(order: int, scaled: bool) -> Rule:
    def rule(b: Builder, x: str) -> str:
        size = b.call("absolute", x)
        square = b.call("multiply", of("divide", x, 3.75), of("divide", x, 3.75))
        near = polynomial(square, _NEAR[order])
        far = of("divide", polynomial(of("divide", 3.75, size), _FAR[order]), of("sqrt", size))
        if scaled:
            near = of("multiply", near, of("exp", of("negative", size)))
        else:
            far = of("multiply", of("exp", size), far)  # infinite where the exponential is, as in torch
        if order:
            near, far = of("multiply", x, near), of("where", of("less", x, 0.0), of("negative", far), far)
        return b.map(of("where", of("less", size, 3.75), near, far), f"i{order}")

    return rule


for _order in (0, 1):
    for _scaled in (False, True):
        TABLE[f"aten.special_i{_order}{'e' * _scaled}.default"] = _bessel(_order, _scaled)
TABLE["aten.i0.default"] = _bessel(0, scaled=False)
