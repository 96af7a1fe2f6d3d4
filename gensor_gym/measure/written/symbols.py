"""What a shared library takes and gives: its dynamic symbols and its memory, read from the ELF file (64 bits)."""

from __future__ import annotations

import struct
from typing import NamedTuple

_DYNAMIC_SYMBOLS, _LOADED = 11, 1
"""Type of a section with dynamic symbols, and of a segment that is loaded: SHT_DYNSYM and PT_LOAD of elf.h."""
_SECTION, _SEGMENT, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IIQQQQQQ"), struct.Struct("<IBBHQQ")
_MATHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin "
    "fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter pow "
    "remainder rint round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc"
)
ACCEPTED = frozenset(
    [f"{name}{suffix}" for name in _MATHS.split() for suffix in ("", "f")]
    + ["memcpy", "memmove", "memset", "memcmp", "__tls_get_addr", "__stack_chk_fail"]
    + ["__cxa_finalize", "__gmon_start__", "_ITM_registerTMCloneTable", "_ITM_deregisterTMCloneTable"]
)
"""Functions that a kernel may take from other libraries: those of <math.h>, those that compilers call for copies, and names that
compilers and linkers add to every library."""


class Symbols(NamedTuple):
    """Names of the dynamic symbols of a library, `taken` from other libraries and `given` to others, and its bytes of memory."""

    taken: frozenset[str]
    given: frozenset[str]
    memory: int


def symbols_of(library: bytes) -> Symbols:
    """Read the dynamic symbols of a shared library. ValueError if it is not a complete ELF file of 64 bits."""
    try:
        if library[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not an ELF file of 64 bits")
        loads, first = struct.unpack_from("<QQ", library, 32)
        load_size, load_count, size, count = struct.unpack_from("<HHHH", library, 54)
        segments = [_SEGMENT.unpack_from(library, loads + load_size * number) for number in range(load_count)]
        sections = [_SECTION.unpack_from(library, first + size * number) for number in range(count)]
        taken: set[str] = set()
        given: set[str] = set()
        for section in sections:
            if section[1] != _DYNAMIC_SYMBOLS:
                continue
            names = library[sections[section[6]][4] :]
            for at in range(section[4] + _SYMBOL.size, section[4] + section[5], _SYMBOL.size):
                name, _, _, place, _, _ = _SYMBOL.unpack_from(library, at)
                (given if place else taken).add(names[name : names.index(b"\0", name)].decode("ascii", "replace"))
    except (struct.error, IndexError) as error:
        raise ValueError(f"the library is incomplete: {error}") from error
    return Symbols(frozenset(taken), frozenset(given), sum(segment[6] for segment in segments if segment[0] == _LOADED))
