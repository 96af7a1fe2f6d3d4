"""C helpers for the tile registers of x86 (AMX): eight registers of up to 16 rows of 64 bytes.

Linux lets a process use them once it has asked for them. Where it is not allowed to, or where the compiler's target has no such
registers, `has_tiles` is 0, and kernels multiply in vectors. Numbers of registers are literals. Instructions are written in
assembly, because the header of the intrinsics adds a tenth to the compile time.
"""

from __future__ import annotations

_ASKING = """#if defined __AMX_TILE__ && defined __linux__ && defined __x86_64__
static int has_tiles;
long syscall(long number, ...);
/* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
__attribute__((constructor)) static void ask_for_tiles(void) { has_tiles = syscall(158L, 0x1023L, 18L) == 0; }
#define TILES(text, ...) __asm__ volatile(text : : __VA_ARGS__ : "memory")
#else
enum { has_tiles = 0 };
#define TILES(text, ...) ((void)0)
#endif
"""
_INSTRUCTIONS = """#define tile_shapes(shapes) TILES("ldtilecfg %0", "m"(shapes))
#define tile_release() TILES("tilerelease", "i"(0))
#define tile_zero(c) TILES("tilezero %%tmm" #c, "i"(0))
/* Rows from p on, `pitch` bytes apart. */
#define tile_load(a, p, pitch) TILES("tileloadd (%0,%1,1), %%tmm" #a, "r"(p), "r"((long)(pitch)))
#define tile_store(c, p, pitch) TILES("tilestored %%tmm" #c ", (%0,%1,1)", "r"(p), "r"((long)(pitch)))
/* Tile c and the products of a's rows with b's columns: pairs of bfloat16, or four bytes, unsigned ones of a. */
#define tile_dot_pairs(c, a, b) TILES("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c, "i"(0))
#define tile_dot_bytes(c, a, b) TILES("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c, "i"(0))
#define tile_dot_signed(c, a, b) TILES("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c, "i"(0))
struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));
"""
HELPERS = _ASKING + _INSTRUCTIONS
"""C text that a kernel needs before its first use of tiles."""
