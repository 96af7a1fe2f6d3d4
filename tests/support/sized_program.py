"""C that runs an exported network for smaller inputs, each in memory of exactly its size, for sanitizers (`sized.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_gym.codegen import runtime as rooms
from gensor_gym.networks.dynamic.function import Extents

CHECK = "int gg_check(void);\nint main(void) { return gg_check(); }\n"


def _bytes(name: str, array: np.ndarray) -> str:
    data = np.ascontiguousarray(array).tobytes()
    return f"static const unsigned char {name}[{len(data)}] __attribute__((aligned(64))) = {{{','.join(map(str, data))}}};"


def _fit(name: str, extents: Extents, nbytes: int) -> str:
    """The text of a `struct gg_fit`, with no axis left out, whose larger array has `nbytes` bytes."""
    if all(one == other for one, other in extents):
        return f"static struct gg_fit {name} = {{0, 0, 0, {nbytes}, 0}};"
    small, big = (", ".join(map(str, some)) for some in zip(*extents, strict=True))
    block = nbytes // int(np.prod([most for _, most in extents]))
    rows = f"static const long {name}_small[] = {{{small}}}, {name}_big[] = {{{big}}};"
    return f"{rows}\nstatic struct gg_fit {name} = {{{len(extents)}, {name}_small, {name}_big, {block}, 0}};"


def add_check(
    folder: Path, inputs: Sequence[tuple[np.ndarray, Extents, int]], given: Sequence[np.ndarray],
    outputs: Sequence[tuple[np.ndarray, Extents, int]], workspace: int,
) -> None:  # fmt: skip
    """Add to an exported network a program that ends with 0 if its outputs are `outputs`, up to rounding.

    An input or output is (array, extents, bytes of the larger array).
    """
    count, more, results = len(inputs), len(given), len(outputs)
    parts = [Path(rooms.__path__[0], "sized.c").read_text("utf-8"), "#include <math.h>", "#include <stdlib.h>"]
    parts += [f"{_bytes(f'in_{i}', one)}\n{_fit(f'fit_in_{i}', of, size)}" for i, (one, of, size) in enumerate(inputs)]
    parts += [_bytes(f"given_{i}", one) for i, one in enumerate(given)]
    parts += [f"{_bytes(f'out_{i}', one)}\n{_fit(f'fit_out_{i}', of, size)}" for i, (one, of, size) in enumerate(outputs)]
    lines = ["void gg_runtime_init(struct gg_runtime *runtime, int threads);", "int gg_check(void);", "int gg_check(void) {"]
    lines.append(f"    struct gg_fit ins[{count}], outs[{results}]; const void *read[{count}]; void *made[{results}];")
    for i, (one, _, size) in enumerate(inputs):
        lines.append(f"    ins[{i}] = fit_in_{i}; if (fit_in_{i}.axes) ins[{i}].room = memset(malloc({size}), 255, {size});")
        lines.append(f"    read[{i}] = memcpy(malloc({one.nbytes}), in_{i}, {one.nbytes});")
    for i, (one, _, size) in enumerate(outputs):
        lines.append(f"    outs[{i}] = fit_out_{i}; if (fit_out_{i}.axes) outs[{i}].room = memset(malloc({size}), 255, {size});")
        lines.append(f"    made[{i}] = malloc({one.nbytes});")
    room = (workspace + 127) // 64 * 64
    named = ", ".join(f"given_{i}" for i in range(more)) or "0"
    lines += [
        f"    const void *const given[] = {{{named}}};",
        f"    char *const workspace = memset(aligned_alloc(64, {room}), 255, {room});",
        f"    struct gg_sized sized = {{&network, &network, ins, outs, given, {count}, {more}, workspace}};",
        "    struct gg_sized_loaded loaded = {.sized = &sized};", "    gg_runtime_init(&loaded.runtime, 2);",
        f"    gg_sized_entry(read, {'made[0]' if results == 1 else 'made'}, 0, &loaded.runtime);", "    int wrong = 0;",
    ]  # fmt: skip
    for i, (one, _, _) in enumerate(outputs):
        lines.append(f"    for (long j = 0; j < {one.size}; j++) {{")
        lines.append(f"        const float right = ((const float *)out_{i})[j], found = ((float *)made[{i}])[j];")
        lines.append("        wrong |= !(fabsf(found - right) <= 1e-3f + 1e-3f * fabsf(right));")
        lines.append("    }")
    lines += [f"    free(ins[{i}].room); free((void *)read[{i}]);" for i in range(count)]
    lines += [f"    free(outs[{i}].room); free(made[{i}]);" for i in range(results)]
    lines += ["    free(workspace);", "    return wrong;", "}"]
    with (folder / "network.c").open("a") as network:
        network.write("\n".join([*parts, *lines, ""]))
    (folder / "threads.c").write_text(CHECK)
