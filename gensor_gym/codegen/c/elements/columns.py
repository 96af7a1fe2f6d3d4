"""C helpers that load and store 16-bit floats whose lanes are strided in memory, four or eight neighbouring pixels at a time.

A lane is a channel. Within each block of eight lanes (128 bits), pixels are transposed in registers, so that a channel's pixels
are loaded or stored at once. Every stage interleaves pairs of vectors, for which compilers find one instruction each.
"""

from __future__ import annotations

from collections.abc import Iterator

from gensor_gym.codegen.c.micro.turn import joined, shuffled

COUNTS = {8: "eight", 4: "four"}
"""Number of pixels that a helper moves -> word for it in the helper's name."""
WIDTHS = (8, 16)
"""Numbers of lanes for which there are helpers."""
NAMES = tuple(f"{kind}_{word}" for kind in ("turn", "spread") for word in COUNTS.values())
_BLOCK = 8
"""Number of 16-bit lanes of a block of 128 bits."""


def cover(length: int, most: int = 8) -> list[tuple[int, int]]:
    """Cut a line of `length` pixels into runs of eight or four, at most `most`, as (first pixel, number of pixels).

    The last run may begin within the run before it. A line of less than four pixels has no runs.
    """
    found: list[tuple[int, int]] = []
    at = 0
    while at < length >= min(COUNTS) <= most:
        size = 8 if most >= 8 <= length and length - at > 4 else 4
        start = min(at, length - size)
        found.append((start, size))
        at = start + size
    return found


def text(name: str, ending: str, width: int) -> str:
    """Return the C text of the helper `NAME + ENDING + _WIDTH` for one of `NAMES`, a type's ending and one of `WIDTHS`."""
    kind, word = name.split("_")
    count = next(number for number, known in COUNTS.items() if known == word)
    return (_turn if kind == "turn" else _spread)(count, f"{name}{ending}_{width}", ending, width)


def _turn(count: int, name: str, ending: str, width: int) -> str:
    lines = [
        f"/* x[i][lane] = p[lane * stride + i] for i < {count}, widened. */",
        f"static inline __attribute__((always_inline)) void {name}(const uint16_t *p, long stride, vec{width} *x) {{",
    ]
    vectors = []
    for i in range(count):
        parts = [f"*(const halves{count} *)(p + {row} * stride)" for row, _ in _pieces(i, count, width)]
        lines.append(f"    const halves{width} c{i} = {joined(parts, count)};")
        vectors.append(f"c{i}")
    vectors = _interleaved(lines, vectors, _BLOCK, width)
    lines += [f"    x[{i}] = widened{ending}_{width}({vector});" for i, vector in enumerate(vectors)]
    return "\n".join([*lines, "}", ""])


def _spread(count: int, name: str, ending: str, width: int) -> str:
    lines = [
        f"/* p[lane * stride + i] = x[i][lane] for i < {count}, rounded. */",
        f"static inline __attribute__((always_inline)) void {name}(uint16_t *p, long stride, const vec{width} *x) {{",
        *(f"    const halves{width} c{i} = rounded{ending}_{width}(x[{i}]);" for i in range(count)),
    ]
    vectors = _interleaved(lines, [f"c{i}" for i in range(count)], count, width)
    for i, vector in enumerate(vectors):
        for row, lane in _pieces(i, count, width):
            part = vector if count == width else shuffled(vector, vector, range(lane, lane + count))
            lines.append(f"    *(halves{count} *)(p + {row} * stride) = {part};")
    return "\n".join([*lines, "}", ""])


def _pieces(i: int, count: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield (channel, first lane) of the channels whose `count` pixels vector number `i` holds before or after transposition."""
    each = _BLOCK // count
    for block in range(width // _BLOCK):
        for j in range(each):
            yield block * _BLOCK + i * each + j, block * _BLOCK + j * count


def _interleaved(lines: list[str], vectors: list[str], times: int, width: int) -> list[str]:
    """Interleave the vectors' lanes in log2(`times`) stages that join vector i with i + half; return their names.

    The bits of (vector, lane of its block) rotate left by one at each stage.
    """
    stage = 0
    while times > 1:
        half, made = len(vectors) // 2, list[str]()
        for a, b in zip(vectors[:half], vectors[half:], strict=True):
            for start in (0, _BLOCK // 2):
                blocks = range(0, width, _BLOCK)
                lanes = [block + start + lane // 2 + lane % 2 * width for block in blocks for lane in range(_BLOCK)]
                made.append(f"s{stage}_{len(made)}")
                lines.append(f"    const halves{width} {made[-1]} = {shuffled(a, b, lanes)};")
        vectors, times, stage = made, times // 2, stage + 1
    return vectors
