"""Definitions of the x86 intrinsics that generated C uses, one line each, for gcc.

gcc 12 needs longer to read `immintrin.h` (0.1 s) than to compile most kernels. So a source defines the few intrinsics that it
uses, by the same built-in functions as gcc's header. The header is included for other compilers, for versions of gcc
that lack one of these functions, and for intrinsics without a definition here.
"""

from __future__ import annotations

import re

_WIDTHS = {"_mm512": 16, "_mm256": 8, "_mm": 4}
_NAME = re.compile(r"\b(_mm512|_mm256|_mm)_(\w+)\(")

_PLAIN = {
    "set1_ps": "(x)|((x) - ({f}){0})",
    "set1_epi32": "(x)|((x) - ({i}){0})",
    "set1_epi8": "(x)|(({i})((char)(x) - ({c}){0}))",
    "setr_epi32": "(...)|(({i}){__VA_ARGS__})",
    "add_epi32": "(a, b)|((a) + (b))",
    "and_si{bits}": "(a, b)|((a) & (b))",
    "cmpgt_epi32": "(a, b)|(({i})((a) > (b)))",
    "srai_epi16": "(a, n)|(({i})(({h})(a) >> n))",
    "slli_epi16": "(a, n)|(({i})(({h})(a) << n))",
    "srli_epi16": "(a, n)|(({i})(({u})(a) >> n))",
}
"""Intrinsic without its prefix -> `parameters|expansion` of a macro in plain vector arithmetic."""

_WIDE = {
    "cmplt_epu32_mask": ("ucmpd{bits}_mask", "(a, b)|{call}(a, b, 1, -1)"),
    "mask_loadu_ps": ("loadups{bits}_mask", "(other, keep, p)|{call}((const void *)(p), other, keep)"),
    "mask_storeu_ps": ("storeups{bits}_mask", "(p, keep, x)|{call}((void *)(p), x, keep)"),
    "mask_loadu_epi32": ("loaddqusi{bits}_mask", "(other, keep, p)|{call}((const void *)(p), other, keep)"),
    "maskz_scalef_ps": ("scalefps{bits}_mask", "(keep, a, b)|{call}(a, b, ({f}){0}, keep{rounding})"),
    "cmp_ps_mask": ("cmpps{bits}_mask", "(a, b, how)|{call}(a, b, how, -1{rounding})"),
    "mask_max_ps": ("maxps{bits}_mask", "(other, keep, a, b)|{call}(a, b, other, keep{rounding})"),
    "mask_min_ps": ("minps{bits}_mask", "(other, keep, a, b)|{call}(a, b, other, keep{rounding})"),
    "mask_storeu_epi32": ("storedqusi{bits}_mask", "(p, keep, x)|{call}((void *)(p), x, keep)"),
}
"""Intrinsic of AVX-512 (below 512 bits: of AVX-512VL) -> (built-in function, `parameters|expansion`)."""

_NARROW = {
    "maskload_ps": ("__AVX__", "maskloadps{n}", "(p, keep)|{call}((const {f} *)(p), keep)"),
    "maskstore_ps": ("__AVX__", "maskstoreps{n}", "(p, keep, x)|{call}(({f} *)(p), keep, x)"),
    "maskload_epi32": ("__AVX2__", "maskloadd{n}", "(p, keep)|{call}((const {i} *)(p), keep)"),
    "maskstore_epi32": ("__AVX2__", "maskstored{n}", "(p, keep, x)|{call}(({i} *)(p), keep, x)"),
    "blendv_ps": ("{avx}", "blendvps{n}", "(a, b, keep)|{call}(a, b, keep)"),
    "blendv_epi8": ("{avx2}", "pblendvb{bits}", "(a, b, keep)|(({i}){call}(({c})(a), ({c})(b), ({c})(keep)))"),
    "max_ps": ("{sse}", "maxps{n}", "(a, b)|{call}(a, b)"),
    "min_ps": ("{sse}", "minps{n}", "(a, b)|{call}(a, b)"),
    "madd_epi16": ("{sse2}", "pmaddwd{bits}", "(a, b)|(({i}){call}(({h})(a), ({h})(b)))"),
    "mask_loadu_epi16": (
        "__AVX512BW__", "loaddquhi{bits}_mask", "(other, keep, p)|(({i}){call}((const short *)(p), ({h})(other), keep))",
    ),
    "mask_storeu_epi16": ("__AVX512BW__", "storedquhi{bits}_mask", "(p, keep, x)|{call}((short *)(p), ({h})(x), keep)"),
    "mask_loadu_epi8": (
        "__AVX512BW__", "loaddquqi{bits}_mask", "(other, keep, p)|(({i}){call}((const char *)(p), ({c})(other), keep))",
    ),
    "cvtepi8_epi32": ("{avx2}", "pmovsxbd{bits}", "(x)|(({i}){call}((gg_char_4)(x)))"),
    "cvtph_ps": ("__F16C__", "vcvtph2ps{n}", "(x)|{call}((gg_short_4)(x))"),
    "cvtps_ph": ("__F16C__", "vcvtps2ph{n}", "(x, how)|{call}(x, how)"),
    "cvtneps_pbh": ("__AVX512BF16__", "cvtneps2bf16_v{w}sf", "(x)|{call}(x)"),
    "dpbf16_ps": ("__AVX512BF16__", "dpbf16ps_v{w}sf", "(sum, a, b)|{call}(sum, a, b)"),
    "cvtps_epi32": ("{sse2}", "cvtps2dq{n}", "(x)|(({i}){call}(x))"),
    "packs_epi32": ("{sse2}", "packssdw{bits}", "(a, b)|(({i}){call}(a, b))"),
    "packs_epi16": ("{sse2}", "packsswb{bits}", "(a, b)|(({i}){call}(({h})(a), ({h})(b)))"),
    "adds_epi16": ("{sse2}", "paddsw{bits}", "(a, b)|(({i}){call}(({h})(a), ({h})(b)))"),
    "shuffle_epi8": ("{avx2}", "pshufb{bits}", "(a, b)|(({i}){call}(({c})(a), ({c})(b)))"),
    "dpbusd_avx_epi32": ("__AVXVNNI__", "vpdpbusd_v{w}si", "(sum, a, b)|{call}(sum, a, b)"),
    "dpbusd_epi32": ("__AVX512VNNI__", "vpdpbusd_v{w}si", "(sum, a, b)|{call}(sum, a, b)"),
}  # fmt: skip
"""Intrinsic of 256 and 128 bits -> (macro of the instruction set, built-in function, `parameters|expansion`)."""

_LARGEST = {
    "max_ps": ("__AVX512F__", "maxps512_mask", "(a, b)|{call}(a, b, ({f}){0}, -1, 4)"),
    "min_ps": ("__AVX512F__", "minps512_mask", "(a, b)|{call}(a, b, ({f}){0}, -1, 4)"),
    "cvtph_ps": ("__AVX512F__", "vcvtph2ps512_mask", "(x)|{call}((gg_short_8)(x), ({f}){0}, -1, 4)"),
    "cvtps_ph": ("__AVX512F__", "vcvtps2ph512_mask", "(x, how)|{call}(x, how, (gg_short_8){0}, -1)"),
    "cvtneps_pbh": ("__AVX512BF16__", "cvtneps2bf16_v16sf", "(x)|{call}(x)"),
    "dpbf16_ps": ("__AVX512BF16__", "dpbf16ps_v16sf", "(sum, a, b)|{call}(sum, a, b)"),
    "madd_epi16": ("__AVX512BW__", "pmaddwd512_mask", "(a, b)|(({i}){call}(({h})(a), ({h})(b), ({i}){0}, -1))"),
    "cvtepi8_epi32": ("__AVX512F__", "pmovsxbd512_mask", "(x)|(({i}){call}((gg_char_4)(x), ({i}){0}, -1))"),
    "cvtps_epi32": ("__AVX512F__", "cvtps2dq512_mask", "(x)|(({i}){call}(x, ({i}){0}, -1, 4))"),
    "packs_epi32": ("__AVX512BW__", "packssdw512_mask", "(a, b)|(({i}){call}(a, b, ({h}){0}, -1))"),
    "packs_epi16": ("__AVX512BW__", "packsswb512_mask", "(a, b)|(({i}){call}(({h})(a), ({h})(b), ({c}){0}, -1))"),
    "adds_epi16": ("__AVX512BW__", "paddsw512_mask", "(a, b)|(({i}){call}(({h})(a), ({h})(b), ({h}){0}, -1))"),
    "shuffle_epi8": ("__AVX512BW__", "pshufb512_mask", "(a, b)|(({i}){call}(({c})(a), ({c})(b), ({c}){0}, -1))"),
    "dpbusd_epi32": ("__AVX512VNNI__", "vpdpbusd_v16si", "(sum, a, b)|{call}(sum, a, b)"),
}
"""Intrinsic of 512 bits -> (macro of the instruction set, built-in function, `parameters|expansion`)."""

_TYPES = """typedef float {f} __attribute__((vector_size({bytes}), may_alias));
typedef int {i} __attribute__((vector_size({bytes}), may_alias));
typedef short {h} __attribute__((vector_size({bytes})));
typedef unsigned short {u} __attribute__((vector_size({bytes})));
typedef char {c} __attribute__((vector_size({bytes})));
"""
_BFLOATS = "typedef short __m{bits}bh __attribute__((vector_size({bytes}), may_alias));\n"
"""The vector type of bfloat16 in gcc 12; later versions have a built-in type."""
_MASKS = "typedef unsigned char __mmask8;\ntypedef unsigned short __mmask16;\n"

_CHOICE = """#if defined(__GNUC__) && !defined(__clang__) && defined(__has_builtin)
#if {condition}
#define GG_BUILTINS
#endif
#endif
#ifdef GG_BUILTINS
{definitions}#elif defined(__SSE__)
#include <immintrin.h>
#endif
"""
_HEADER = """#ifdef __SSE__
#include <immintrin.h>
#endif
"""


def intrinsics(text: str) -> str:
    """Return C text that defines the intrinsics that the source `text` calls, or else includes the header that has them.

    The result is empty if the source calls no intrinsics.
    """
    names = sorted(set(_NAME.findall(text)))
    if not names:
        return ""
    found = [_definition(prefix, name) for prefix, name in names]
    if None in found:
        return _HEADER
    definitions = [item for item in found if item is not None]
    used = [_WIDTHS[prefix] for prefix, _ in names]
    defined = "".join(text for text, _ in definitions)
    shown = text + defined
    kinds = {w: (f"__m{32 * w}i)", f"gg_short_{w})", f"gg_char_{w})") for w in _WIDTHS.values()}
    used += [w for w, names in kinds.items() if any(name in shown for name in names)]
    types = [_TYPES.format(**_replacements(prefix)) for prefix, width in _WIDTHS.items() if width in used]
    types += [_BFLOATS.format(bits=32 * width, bytes=4 * width) for width in _WIDTHS.values() if f"__m{32 * width}bh" in text]
    conditions = sorted({condition for _, condition in definitions if condition})
    body = "".join([*types, _MASKS, defined])
    return _CHOICE.replace("{condition}", " && \\\n    ".join(conditions) or "1").replace("{definitions}", body)


def _replacements(prefix: str) -> dict[str, object]:
    width = _WIDTHS[prefix]
    bits, wide = 32 * width, width == 8
    kinds = {"f": f"__m{bits}", "i": f"__m{bits}i"}
    kinds |= {"h": f"gg_short_{width}", "u": f"gg_ushort_{width}", "c": f"gg_char_{width}"}
    sets = {"sse": "__SSE__", "sse2": "__SSE2__", "avx": "__SSE4_1__", "avx2": "__SSE4_1__"}
    if wide:
        sets = {"sse": "__AVX__", "sse2": "__AVX2__", "avx": "__AVX__", "avx2": "__AVX2__"}
    rounding = ", 4" if width == 16 else ""
    return {"bits": bits, "bytes": bits // 8, "w": width, "n": "256" if wide else "", "rounding": rounding, **kinds, **sets}


def _definition(prefix: str, name: str) -> tuple[str, str] | None:
    """Return (definition, preprocessor condition under which it is valid) of an intrinsic.

    The result is None if this module has no definition of it.
    """
    words = _replacements(prefix)
    plain = {key.format(**words): text for key, text in _PLAIN.items()}
    if name in plain:
        return _define(prefix, name, plain[name], words), ""
    if name in _WIDE:
        macro = "__AVX512F__" if prefix == "_mm512" else "__AVX512VL__"
        builtin, text = _WIDE[name]
    else:
        table = _LARGEST if prefix == "_mm512" else _NARROW
        if name not in table:
            return None
        macro, builtin, text = table[name]
    call = "__builtin_ia32_" + builtin.format(**words)
    macro = macro.format(**words)
    known = f"__has_builtin({call})" + (" && __GNUC__ < 13" if name == "dpbf16_ps" else "")
    return _define(prefix, name, text.replace("{call}", call), words), f"(!defined({macro}) || {known})"


def _define(prefix: str, name: str, text: str, words: dict[str, object]) -> str:
    """Return the C line that defines one intrinsic as a macro; `text` is `parameters|expansion`."""
    for key, value in words.items():
        text = text.replace("{" + key + "}", str(value))
    parameters, expansion = text.split("|", 1)
    return f"#define {prefix}_{name}{parameters} {expansion}\n"


_STREAMS = {16: ("__AVX512F__", "movntps512"), 8: ("__AVX__", "movntps256"), 4: ("__SSE__", "movntps")}


def streamed(width: int) -> str:
    """Return the C text of a non-temporal store, which bypasses the caches, for an aligned address."""
    macro, function = _STREAMS.get(width, ("GG_NONE", ""))
    bytes_ = 4 * width
    typed = f"typedef float wide __attribute__((vector_size({bytes_})));"
    return f"""#if defined __clang__ || defined {macro}
    if (((uintptr_t)p & {bytes_ - 1}) == 0) {{
        {typed}
#ifdef __clang__
        __builtin_nontemporal_store((wide)x, (wide *)p);
#else
        __builtin_ia32_{function}(p, (wide)x);
#endif
        return;
    }}
#endif
"""
