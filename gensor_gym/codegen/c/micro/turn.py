"""C helpers that load a matrix with contiguous columns and transpose it, so that every vector holds a row.

Element (row g, lane) is at `p[lane * stride + g]`. `turn` loads the elements of each lane, then exchanges halves, quarters and
so on between vectors. `apart`, for a stride equal to the number of rows, loads whole vectors, then separates even from odd
elements. Compilers find one or two instructions for each exchange. `spread` stores a matrix of such rows.
"""

from __future__ import annotations

COUNTS = {2: "two", 4: "four", 8: "eight"}
"""Number of rows that a helper transposes -> word for it in the helper's name."""
HELPERS = {f"{kind}_{word}": f"{{{kind}_{word}}}" for kind in ("turn", "apart", "spread") for word in COUNTS.values()}
"""Name of a helper -> its template, which is one placeholder that `texts` replaces."""

_BUTTERFLY = """    UNROLL({w})
    for (int i = 0; i < {w}; i++) {
        if (i & {h}) continue;
        const vec{w} low = x[i], high = x[i + {h}];
        x[i] = __builtin_shufflevector(low, high, {low});
        x[i + {h}] = __builtin_shufflevector(low, high, {high});
    }
"""


def texts(width: int) -> dict[str, str]:
    """Return the C text of each helper, by name, for vectors of `width` lanes and matrices of at most `width` rows."""
    found = {}
    for count, word in COUNTS.items():
        if count <= width:
            found[f"turn_{word}"] = _turn(count, word, width)
            found[f"apart_{word}"] = _apart(count, word, width)
            found[f"spread_{word}"] = _spread(count, word, width)
    return found


def butterflies(width: int) -> str:
    """Return C text that transposes `width` vectors.

    The stage of distance h swaps the off-diagonal blocks of size h.
    """
    text, distance = "", width // 2
    while distance >= 1:
        lanes = range(width)
        low = ", ".join(str(width + lane - distance if lane & distance else lane) for lane in lanes)
        high = ", ".join(str(width + lane if lane & distance else lane + distance) for lane in lanes)
        stage = _BUTTERFLY.replace("{low}", low).replace("{high}", high)
        text += stage.replace("{h}", str(distance))
        distance //= 2
    return text


def _turn(count: int, word: str, width: int) -> str:
    """Return the C text of the helper `turn_WORD`, which transposes `count` rows with any stride.

    Lanes past the last valid lane repeat it.
    """
    lines = [
        f"/* x[g][lane] = p[lane * stride + g] for g < {count}. */",
        f"static inline __attribute__((always_inline)) void turn_{word}_{width}(const {{acc}} *p, long stride, long lanes,",
        f"    vec{width} *x) {{",
        *(f"    const vec{count} c{i} = load_{count}(p + least({i}, lanes - 1) * stride);" for i in range(width)),
        f"    vec{width} t;",
    ]
    for i in range(count):
        lines.append(f"    x[{i}] = {joined([f'c{at}' for at in range(i, width, count)], count)};")
    distance = count // 2
    while distance:
        low = [width + lane - distance if lane & distance else lane for lane in range(width)]
        high = [width + lane if lane & distance else lane + distance for lane in range(width)]
        for i in range(count):
            if not i & distance:
                a, b = f"x[{i}]", f"x[{i + distance}]"
                lines.append(f"    t = {shuffled(a, b, low)}, {b} = {shuffled(a, b, high)}, {a} = t;")
        distance //= 2
    return "\n".join([*lines, "}", ""])


def _apart(count: int, word: str, width: int) -> str:
    """Return the C text of the helper `apart_WORD`, which transposes `count` rows with contiguous lanes.

    Lanes past the last valid lane are zeros.
    """
    lines = [
        f"/* x[g][lane] = p[lane * {count} + g] for g < {count}. */",
        f"static inline __attribute__((always_inline)) void apart_{word}_{width}(const {{acc}} *p, long lanes, vec{width} *x) {{",
    ]
    for i in range(count):
        masked = f"load_masked_{width}(p + {i * width}, {i * width}, lanes * {count}, 0)"
        lines.append(f"    const vec{width} a{i} = lanes == {width} ? load_{width}(p + {i * width}) : {masked};")
    parts = [(0, 1, [f"a{i}" for i in range(count)])]  # (first row, step between rows, vectors in which these rows alternate)
    number = 0
    while parts:
        first, step, names = parts.pop()
        if len(names) == 1:
            lines.append(f"    x[{first}] = {names[0]};")
            continue
        for odd in (0, 1):
            made = []
            for a, b in zip(names[::2], names[1::2], strict=True):
                made.append(f"s{number}")
                lines.append(f"    const vec{width} s{number} = {shuffled(a, b, range(odd, 2 * width, 2))};")
                number += 1
            parts.append((first + odd * step, 2 * step, made))
    return "\n".join([*lines, "}", ""])


def _spread(count: int, word: str, width: int) -> str:
    """Return the C text of the helper `spread_WORD`, for any stride.

    It interleaves rows until all elements of a lane are adjacent.
    """
    lines = [
        f"/* p[lane * stride + g] = x[g][lane] for g < {count}. */",
        f"static inline __attribute__((always_inline)) void spread_{word}_{width}({{acc}} *p, long stride,",
        f"    const vec{width} *x) {{",
    ]
    runs, number = [[f"x[{i}]"] for i in range(count)], 0  # vectors that contain each run of interleaved rows
    while half := runs[: len(runs) // 2]:
        made = []
        for first, second in zip(half, runs[len(half) :], strict=True):
            made.append(list[str]())
            for a, b in zip(first, second, strict=True):
                for low in (0, width // 2):
                    lanes = [low + lane // 2 + lane % 2 * width for lane in range(width)]
                    lines.append(f"    const vec{width} s{number} = {shuffled(a, b, lanes)};")
                    made[-1].append(f"s{number}")
                    number += 1
        runs = made
    for lane in range(width):
        at, start = divmod(lane * count, width)
        name = runs[0][at]
        part = name if count == width else shuffled(name, name, range(start, start + count))
        lines.append(f"    store_{count}(p + {lane} * stride, {part});")
    return "\n".join([*lines, "}", ""])


def joined(parts: list[str], size: int) -> str:
    """Return the C text of one vector of `parts`, which have `size` lanes each."""
    while len(parts) > 1:
        parts = [shuffled(a, b, range(2 * size)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        size *= 2
    return parts[0]


def shuffled(a: str, b: str, lanes: list[int] | range) -> str:
    """Return the C text of a vector of `lanes`, numbers of lanes of a and then of b."""
    return f"__builtin_shufflevector({a}, {b}, {', '.join(map(str, lanes))})"
