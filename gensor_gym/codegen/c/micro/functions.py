"""Templates of elementwise functions (exp, tanh, erf and others) in C, for vectors and for scalars.

The coefficients were fitted for this project by reweighted least squares on Chebyshev points against double precision. In float32
arithmetic the error is below 4e-7: absolute for erf and tanh, relative for exp, expm1, log and log1p.
"""

from __future__ import annotations

_EXP = """/* exp(x) = 2^n exp(r), |r| <= ln(2) / 2, or 0 for n from -126 down: denormal weights of masked keys would make
   products many times slower. Without an instruction for powers twice exp(r) is multiplied by half of 2^n, which fits for every n
   up to 128 and is zero at -126. */
static inline vec{w} exp_{w}(vec{w} x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
{powers}    x = min_{w}(max_{w}(x, splat_{w}(lowest)), splat_{w}(89.0f));
    const vec{w} shifted = x * 1.44269504f + magic, n = shifted - magic;
    const vec{w} r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec{w} y = one * 0.0083687119f + r * (one * 0.0013814608f);
    y = one * 0.041668389f + r * y;
    y = one * 0.16666521f + r * y;
    y = one * 0.49999994f + r * y;
    y = one + r * (one + r * y);
{scaled}    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    return y * (vec{w})(((bits)shifted << 23) + (126 << 23));
{end}}
"""

_TANH = """/* x P(x^2) / Q(x^2) up to 8.49, the sign of x beyond: 1 + tanh(x), which GELU multiplies by x, is 0 there. */
static inline vec{w} tanh_{w}(vec{w} x) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const vec{w} z = x * x;
    vec{w} p = -1.2780048e-8f + z * 1.8254181e-11f;
    p = 2.9207503e-3f + z * (9.2673017e-6f + z * p);
    p = 0.99999994f + z * (0.12919219f + z * p);
    const vec{w} q = 1.0f + z * (0.46252504f + z * (0.023763123f + z * 2.2809849e-4f));
    const bits far = z > 72.0f, sign = (bits)x & INT32_MIN;
    return (vec{w})((~far & (bits)(x * p / q)) | (far & (sign | 0x3F800000)));
}
"""

_ERF = """/* x P(x^2) / Q(x^2) up to 3.92, the sign of x beyond. */
static inline vec{w} erf_{w}(vec{w} x) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const vec{w} z = x * x;
    vec{w} p = 2.8486486e-4f + z * 2.0500588e-6f;
    p = 0.052747291f + z * (3.7651639e-3f + z * p);
    p = 1.1283791f + z * (0.19039701f + z * p);
    vec{w} q = 1.1624115e-3f + z * 3.8090486e-5f;
    q = 0.11410504f + z * (0.014968312f + z * q);
    q = 1.0f + z * (0.50206769f + z * q);
    const bits far = z > 15.3664f, sign = (bits)x & INT32_MIN;
    return (vec{w})((~far & (bits)(x * p / q)) | (far & (sign | 0x3F800000)));
}
"""

_EXPM1 = """/* 2^n (exp(r) - 1) + 2^n - 1 with n and r as for exp(x): what is near 0 is not lost beside a 1. */
static inline vec{w} expm1_{w}(vec{w} x) {
    const float magic = 12582912.0f;
    x = min_{w}(max_{w}(x, splat_{w}(-30.0f)), splat_{w}(89.0f));
    const vec{w} shifted = x * 1.44269504f + magic, n = shifted - magic;
    const vec{w} r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec{w} y = 0.0083687119f + r * 0.0013814608f;
    y = 0.041668389f + r * y;
    y = 0.16666521f + r * y;
    y = 0.49999994f + r * y;
    y = r + r * r * y;
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const vec{w} half = (vec{w})(((bits)shifted << 23) + (126 << 23)); /* 2^(n-1), which fits for every n up to 128 */
    return 2.0f * (half * y + (half - 0.5f));
}
"""

_LOG = """/* log(x) = e ln(2) + log(1 + f) for x = 2^e (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1. */
static inline vec{w} log_{w}(vec{w} x) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const bits below = x < 1.17549435e-38f; /* not a whole power of its own: two parts */
    const vec{w} grown = (vec{w})((below & (bits)(x * 8388608.0f)) | (~below & (bits)x));
    const bits from = (bits)grown - 0x3f3504f3, whole = from >> 23;
    const vec{w} f = (vec{w})((from & 0x007fffff) + 0x3f3504f3) - 1.0f;
    const vec{w} e = __builtin_convertvector(whole - (below & 23), vec{w});
    vec{w} y = -0.11675663f + f * 0.067466497f;
    y = -0.12405587f + f * (0.11888164f + f * y);
    y = -0.16667996f + f * (0.14219552f + f * y);
    y = -0.25000009f + f * (0.20002119f + f * y);
    y = f * f * (f * (0.33333313f + f * y));
    y = y - e * 2.12194440e-4f - 0.5f * (f * f) + f + e * 0.693359375f;
    const bits none = (x < 0.0f) | (x != x), zero = x == 0.0f, far = x == INFINITY;
    y = (vec{w})((far & 0x7f800000) | (~far & (bits)y));
    y = (vec{w})((zero & (bits)splat_{w}(-INFINITY)) | (~zero & (bits)y));
    return (vec{w})((none & 0x7fc00000) | (~none & (bits)y));
}
"""

_LOG1P = """/* log(u) x / (u - 1) for u = 1 + x as it is rounded (Kahan): what is near 0 is not lost beside a 1. */
static inline vec{w} log1p_{w}(vec{w} x) {
    const vec{w} u = 1.0f + x, there = u - 1.0f;
    return where_{w}(at_most_{w}(absolute_{w}(there), splat_{w}(0.0f)), x,
        where_{w}(less_{w}(u, splat_{w}(INFINITY)), log_{w}(u) * (x / there), u));
}
"""

_COMPARED = """/* 1 where a SIGN b, else 0. */
static inline vec{w} NAME_{w}(vec{w} a, vec{w} b) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    return (vec{w})((bits)(a SIGN b) & 0x3F800000);
}
"""

_WHERE = """/* a where the condition is not 0, else b. */
static inline vec{w} where_{w}(vec{w} condition, vec{w} a, vec{w} b) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const bits chosen = (bits)(condition != 0.0f);
    return (vec{w})((chosen & (bits)a) | (~chosen & (bits)b));
}
"""

_TRIANGLE = """/* `below` in the first `count` lanes, `above` in the others. */
static inline vec{w} triangle_{w}(long count, float below, float above) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    bits lanes;
    for (int lane = 0; lane < {w}; lane++) lanes[lane] = lane;
    const bits seen = (bits)(lanes < (bits){0} + (int32_t)count);
    return (vec{w})((seen & (bits)splat_{w}(below)) | (~seen & (bits)splat_{w}(above)));
}
"""

_BITS_AND = """/* Of whole numbers, in two's complement. */
static inline vec{w} bits_and_{w}(vec{w} a, vec{w} b) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    return __builtin_convertvector(__builtin_convertvector(a, bits) & __builtin_convertvector(b, bits), vec{w});
}
"""

_FMOD = """/* Of sizes x - n y for n = x / y, cut, which is exact in one rounding: below 2^24, where n is one too large at most.
   What is farther is left to the library. */
static inline vec{w} fmod_{w}(vec{w} a, vec{w} b) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    const vec{w} x = absolute_{w}(a), y = absolute_{w}(b), q = x / y;
    const bits near = (bits)(q < 16777216.0f) & (bits)(y < INFINITY);
    const vec{w} n = __builtin_convertvector(__builtin_convertvector((vec{w})(near & (bits)q), bits), vec{w});
    vec{w} left = x;
    for (int lane = 0; lane < {w}; lane++) left[lane] = __builtin_fmaf(-n[lane], y[lane], x[lane]);
    left = (vec{w})((bits)where_{w}(less_{w}(left, (vec{w}){0}), left + y, left) | ((bits)a & INT32_MIN));
    if (fold_maximum_{w}((vec{w})(~near & 0x3F800000)) > 0.0f)
        for (int lane = 0; lane < {w}; lane++) left[lane] = near[lane] ? left[lane] : fmodf(a[lane], b[lane]);
    return left;
}
"""

_ABSOLUTE = """static inline vec{w} absolute_{w}(vec{w} x) {
    typedef int32_t bits __attribute__((vector_size({bytes}), aligned(4), may_alias));
    return (vec{w})((bits)x & INT32_MAX);
}
"""


def _compared(name: str, sign: str) -> tuple[str, str]:
    number = f"static inline float {name}_1(float a, float b) {{ return a {sign} b ? 1.0f : 0.0f; }}\n"
    return _COMPARED.replace("NAME", name).replace("SIGN", sign), number


def _by_lane(name: str, number: str) -> tuple[str, str]:
    """Return the (vector, scalar) templates of a function that a loop applies to each lane.

    `number` is the C expression for one lane. Compilers vectorise the loop for roots and rounding.
    """
    return (
        f"static inline vec{{w}} {name}_{{w}}(vec{{w}} x) {{\n"
        f"    for (int lane = 0; lane < {{w}}; lane++) x[lane] = {number.format('x[lane]')};\n    return x;\n}}\n",
        f"static inline float {name}_1(float x) {{ return {number.format('x')}; }}\n",
    )


FUNCTIONS: dict[str, tuple[str, str]] = {
    "relu": (
        "static inline vec{w} relu_{w}(vec{w} x) { return max_{w}(x, (vec{w}){0}); }\n",
        "static inline {acc} relu_1({acc} x) { return max_1(x, 0); }\n",
    ),
    "relu_six": (
        "static inline vec{w} relu_six_{w}(vec{w} x) { return min_{w}(max_{w}(x, (vec{w}){0}), (vec{w}){0} + 6); }\n",
        "static inline {acc} relu_six_1({acc} x) { return min_1(max_1(x, 0), 6); }\n",
    ),
    "exp": (
        _EXP,
        "static inline float exp_1(float x) {\n    const float y = expf(x);\n    return y < 1.17549435e-38f ? 0.0f : y;\n}\n",
    ),
    "expm1": (_EXPM1, "static inline float expm1_1(float x) { return expm1f(x); }\n"),
    "tanh": (_TANH, "static inline float tanh_1(float x) { return tanhf(x); }\n"),
    "erf": (_ERF, "static inline float erf_1(float x) { return erff(x); }\n"),
    "gelu": (
        "static inline vec{w} gelu_{w}(vec{w} x) { return 0.5f * x * (1.0f + erf_{w}(x * 0.70710678f)); }\n",
        "static inline float gelu_1(float x) { return 0.5f * x * (1.0f + erf_1(x * 0.70710678f)); }\n",
    ),
    "sigmoid": (
        "static inline vec{w} sigmoid_{w}(vec{w} x) { return 1.0f / (1.0f + exp_{w}(-x)); }\n",
        "static inline float sigmoid_1(float x) { return 1.0f / (1.0f + exp_1(-x)); }\n",
    ),
    "sqrt": _by_lane("sqrt", "__builtin_sqrtf({})"),
    "rsqrt": _by_lane("rsqrt", "1.0f / __builtin_sqrtf({})"),
    "log": (_LOG, "static inline float log_1(float x) { return logf(x); }\n"),
    "sin": _by_lane("sin", "sinf({})"),
    "cos": _by_lane("cos", "cosf({})"),
    "atan": _by_lane("atan", "atanf({})"),
    "round": _by_lane("round", "rintf({})"),
    "less": _compared("less", "<"),
    "at_most": _compared("at_most", "<="),
    "where": (_WHERE, "static inline float where_1(float c, float a, float b) { return c != 0.0f ? a : b; }\n"),
    "triangle": (
        _TRIANGLE,
        "static inline float triangle_1(long count, float below, float above) { return count > 0 ? below : above; }\n",
    ),
    "absolute": (_ABSOLUTE, "static inline float absolute_1(float x) { return __builtin_fabsf(x); }\n"),
    "log1p": (_LOG1P, "static inline float log1p_1(float x) { return log1pf(x); }\n"),
    "erfc": _by_lane("erfc", "erfcf({})"),
    "lgamma": _by_lane("lgamma", "lgammaf({})"),
    "fmod": (_FMOD, "static inline float fmod_1(float a, float b) { return fmodf(a, b); }\n"),
    "bits_and": (
        _BITS_AND,
        "static inline float bits_and_1(float a, float b) { return (float)((int32_t)a & (int32_t)b); }\n",
    ),
}
"""Name of a function -> (vector, scalar template); `{w}` is the number of lanes, `{bytes}` the vector's size in bytes."""
