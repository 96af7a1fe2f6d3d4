"""C helpers for the tile registers of x86 (AMX): eight registers of up to 16 rows of 64 bytes.

Linux lets a process use them once it has asked for them. Where it may not, or where the compiler's target has no such registers,
`has_tiles` is 0, and plain C computes the same in memory, slowly. Numbers of registers are literals. Instructions are written in
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
struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));
"""
_PLAIN = """/* What stands in for the registers. */
static _Thread_local struct {
    const struct tile_shapes *shapes;
    unsigned char tiles[8][16][64] __attribute__((aligned(64)));
} plain;

static void plain_load(int a, const void *p, long pitch) {
    for (long row = 0; row < plain.shapes->rows[a]; row++)
        memcpy(plain.tiles[a][row], (const char *)p + row * pitch, plain.shapes->row_bytes[a]);
}

static void plain_store(int c, void *p, long pitch) {
    for (long row = 0; row < plain.shapes->rows[c]; row++)
        memcpy((char *)p + row * pitch, plain.tiles[c][row], plain.shapes->row_bytes[c]);
}

/* The products of group number `row` of the rows of b. */
static void plain_dot(int c, int a, int b, int is_signed) {
    for (long m = 0; m < plain.shapes->rows[c]; m++)
        for (long k = 0; k < plain.shapes->rows[b]; k++)
            for (long n = 0; n < plain.shapes->row_bytes[c] / 4; n++) {
                {sum} sum;
                unsigned char *const at = &plain.tiles[c][m][4 * n];
                const unsigned char *const x = &plain.tiles[a][m][4 * k], *const y = &plain.tiles[b][k][4 * n];
                memcpy(&sum, at, sizeof sum);
{products}                memcpy(at, &sum, sizeof sum);
            }
    (void)is_signed;
}
"""
_SUMS = {
    "bfloat16": ("float", """                for (long i = 0; i < 4; i += 2) {
                    const uint32_t bits = (uint32_t)(x[i] | x[i + 1] << 8) << 16, others = (uint32_t)(y[i] | y[i + 1] << 8) << 16;
                    float u, v;
                    memcpy(&u, &bits, sizeof u);
                    memcpy(&v, &others, sizeof v);
                    sum += u * v;
                }
"""),
    "int8": ("int32_t", """                for (long i = 0; i < 4; i++) sum += (is_signed ? (int8_t)x[i] : x[i]) * (int8_t)y[i];
"""),
}  # fmt: skip
"""Data type -> (C type of sums, C text that adds the products of a group of elements)."""
_INSTRUCTIONS = """#define IN_TILES(text, plainly, ...) do { if (has_tiles) TILES(text, __VA_ARGS__); else plainly; } while (0)
#define tile_shape(of) IN_TILES("ldtilecfg %0", plain.shapes = &of, "m"(of))
#define tile_release() IN_TILES("tilerelease", (void)0, "i"(0))
#define tile_zero(c) IN_TILES("tilezero %%tmm" #c, memset(plain.tiles[c], 0, sizeof plain.tiles[c]), "i"(0))
/* Rows from p on, `pitch` bytes apart. */
#define tile_load(a, p, pitch) \\
    IN_TILES("tileloadd (%0,%1,1), %%tmm" #a, plain_load(a, p, pitch), "r"(p), "r"((long)(pitch)))
#define tile_store(c, p, pitch) \\
    IN_TILES("tilestored %%tmm" #c ", (%0,%1,1)", plain_store(c, p, pitch), "r"(p), "r"((long)(pitch)))
/* Tile c and the products of a's rows with b's columns, in groups: pairs of bfloat16, or four bytes. */
#define tile_dot(name, c, a, b, is_signed) \\
    IN_TILES(name " %%tmm" #b ", %%tmm" #a ", %%tmm" #c, plain_dot(c, a, b, is_signed), "i"(0))
"""


def helper_text(dtype: str) -> str:
    """Return the C text that a kernel needs before its first use of tiles, for products of bfloat16 or int8."""
    kind, products = _SUMS[dtype]
    return _ASKING + _PLAIN.replace("{sum}", kind).replace("{products}", products) + _INSTRUCTIONS
