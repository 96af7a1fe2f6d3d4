"""C text of the end of a register tile: the reduction of lanes, divisor and epilogue in registers, and the stores."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from gensor_gym.codegen.c.amx import stores as c_stores
from gensor_gym.codegen.c.elements import columns
from gensor_gym.codegen.c.elements.halves import ENDINGS
from gensor_gym.codegen.c.elements.quantized import finished, of_written, real
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro import along as c_along
from gensor_gym.codegen.c.micro import quads as c_quads
from gensor_gym.codegen.c.micro.fold import fold_lanes
from gensor_gym.codegen.c.micro.turn import COUNTS
from gensor_gym.codegen.c.operand import SCALAR, Reader, count, literal, stored, tile_start
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines, linear
from gensor_gym.operators.epilogue import ALONE, DEQUANTIZE, QUANTIZE, RESIDUAL_INT8, STAGES

_HELPERS = {"relu6": "relu_six"}
"""Epilogue stage -> name of its C helper, if the two differ; names of helpers contain no digits."""


def results(plan: LoopPlan) -> list[tuple[int, int, Chunk]]:
    """List the values that a register tile stores, as (index of the row, index of the vector in the row, vector).

    If the vector axis is reduced, they are one scalar per row.
    """
    chunks = [(0, SCALAR)] if plan.vector_is_reduced else list(enumerate(plan.chunks))
    return [(r, c, chunk) for r in range(len(plan.rows)) for c, chunk in chunks]


def result_name(plan: LoopPlan, row: int, chunk: int) -> str:
    """Return the name of the C variable of a finished sum, for a row of the register tile and the index of a vector."""
    return f"total_{row}" if plan.vector_is_reduced else f"sum_{row}_{chunk}"


def written_name(plan: LoopPlan, row: int, chunk: int) -> str:
    """Return the name of the C variable that is stored.

    It is a partial sum if the reduction is split, else the element after the epilogue.
    """
    return result_name(plan, row, chunk) if plan.splits > 1 else finished(plan, result_name(plan, row, chunk))


def accumulate(plan: LoopPlan, name: str, term: str, width: int) -> str:
    """Return the C statement that combines `term` with the accumulator `name` of `width` lanes by the operator's reduction."""
    return plan.op.reduction.taken(name, term, f"{plan.op.reduction.name}_{width}")


def finish(lines: Lines, reader: Reader) -> None:
    """Write the reduction of lanes and, for the last block of the reduction, the divisor and the epilogue."""
    plan = reader.plan
    if plan.groups_lanes and plan.groups_bytes:
        c_along.finish(lines, reader)
    if plan.vector_is_reduced:
        fold_lanes(lines, reader)
    body = Lines()
    if plan.splits == 1:
        _epilogue(body, reader)
    text = str(body).rstrip("\n").split("\n") if str(body).strip() else []
    if not text:
        return
    if plan.is_carried:
        with lines.block("if (last)"):
            lines.add(*text)
    else:
        lines.add(*text)


def _epilogue(lines: Lines, reader: Reader) -> None:
    plan = reader.plan
    operands = [operand for operand in plan.stages if operand is not None]
    for operand in operands:
        lines.add(*reader.prologue(operand))
    if c_stores.in_fours(reader):
        _stored_in_fours(lines, reader)
        return
    if runs := c_quads.runs(reader):
        for c, chunk in enumerate(plan.chunks):
            for run in runs:
                _stored_run(lines, reader, run, c, chunk)
        return
    if lines_of_pixels := _pixels(reader):
        for c, chunk in enumerate(plan.chunks):
            for line in lines_of_pixels:
                _stored_line(lines, reader, line, c, chunk)
        return
    for r, c, chunk in results(plan):
        lines.add(*_finished(reader, r, c, chunk, {}))


def _stored_in_fours(lines: Lines, reader: Reader) -> None:
    """Write the epilogue and the stores of four vectors after another, and then of those that are left."""
    plan, known = reader.plan, list[Mapping[str, str]]()
    for c in range(len(plan.chunks)):
        loads, names = c_stores.equal_in_rows(reader, c)
        lines.add(*loads)
        known.append(names)
    groups, left = c_stores.fours(plan)
    for group in groups:
        for r, c in group:
            lines.add(c_stores.loaded(plan, r, c), *_finished(reader, r, c, plan.chunks[c], known[c], "nearest"))
        lines.add(*c_stores.store(reader, group))
    for r, c in left:
        lines.add(c_stores.loaded(plan, r, c), *_finished(reader, r, c, plan.chunks[c], known[c]))
        lines.add(_stored(reader, plan.output, r, c, plan.chunks[c]))


def _stored_run(lines: Lines, reader: Reader, run: list[int], c: int, chunk: Chunk) -> None:
    """Write the epilogue and the stores of a run of pixels in one vector, so that its registers are free for the next run."""
    loads, words = c_quads.words(reader, run, c, chunk)
    lines.add(*loads)
    for number, r in enumerate(run):
        known = {name: c_quads.element(word, chunk, number) for name, word in words.items()}
        lines.add(*_finished(reader, r, c, chunk, known, "nearest" if c_quads.zero_of(reader, run, c) else "quantized"))
    lines.add(*c_quads.store(reader, run, c, chunk))


def _pixels(reader: Reader) -> list[list[int]]:
    """Group the rows of a register tile of 16-bit floats that are neighbouring pixels in memory, while lanes are strided.

    Return the row numbers of each line of pixels; empty if results are stored otherwise. Stored and read one by one, results of
    a 1x1 convolution from 64 to 256 channels with a residual take 1.4 times as long (ResNet-50 in bfloat16, Zen 4).
    """
    plan, axis = reader.plan, _axis_of_pixels(reader)
    if axis is None or plan.vector_is_reduced or plan.splits > 1 or plan.shift is not None or plan.is_carried:
        return []
    narrow = any(chunk.width not in columns.WIDTHS for chunk in plan.chunks)
    if narrow or not columns.cover(plan.tiles[0][axis]) or any(reader.sticks_out(a) for a in plan.op.spatial):
        return []
    found: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(plan.rows):
        found.setdefault((*row[:axis], *row[axis + 1 :]), []).append(number)
    return list(found.values())


def _axis_of_pixels(reader: Reader) -> int | None:
    """Return the axis along which neighbouring outputs are adjacent in memory; None if lanes are, or outputs have no 16 bits."""
    plan = reader.plan
    return next((a for a in plan.op.spatial if a != plan.vector and _is_turned(plan.output, a)), None)


def _is_turned(operand: Operand, axis: int) -> bool:
    """Return whether 16-bit floats are adjacent in memory along `axis`, while their lanes are strided."""
    is_plain = operand.ending in ENDINGS and not operand.tables and not operand.guarded
    return is_plain and operand.strides[axis] == 1 and operand.lane_stride not in (0, 1)


def _stored_line(lines: Lines, reader: Reader, line: list[int], c: int, chunk: Chunk) -> None:
    """Write the epilogue and the stores of a line of pixels in one vector, four or eight pixels at a time."""
    plan, width, done, axis = reader.plan, chunk.width, 0, _axis_of_pixels(reader)
    assert axis is not None, "a line of pixels has an axis"
    for start, size in columns.cover(len(line)):
        run, known = line[start : start + size], dict[str, str]()
        for operand in plan.stages:
            if operand is not None and _is_turned(operand, axis):
                known[operand.name] = name = f"{operand.name}_{run[0]}_{c}"
                lines.add(f"vec{width} {name}[{size}];", f"turn_{_moved(reader, operand, run, c, name)}")
        new = max(0, done - start)  # the pixels before are finished
        for number, r in enumerate(run[new:], new):
            lines.add(*_finished(reader, r, c, chunk, {name: f"{place}[{number}]" for name, place in known.items()}))
        values = ", ".join(written_name(plan, r, c) for r in run)
        lines.add(f"spread_{_moved(reader, plan.output, run, c, f'(const vec{width}[]){{{values}}}')}")
        done = start + size


def _moved(reader: Reader, operand: Operand, run: list[int], c: int, vectors: str) -> str:
    """Return the C text of a call of `turn_` or `spread_` after this prefix, for a run of rows and the vector number `c`."""
    plan, chunk = reader.plan, reader.plan.chunks[c]
    place = f"{operand.name} + {reader.index(operand, plan.rows[run[0]], chunk)}"
    return f"{columns.COUNTS[len(run)]}{operand.ending}_{chunk.width}({place}, {operand.lane_stride}, {vectors});"


def _finished(
    reader: Reader, r: int, c: int, chunk: Chunk, known: Mapping[str, str], rounds: str = "quantized"
) -> list[str]:
    """Return C statements of the epilogue for one row and vector of the register tile.

    `known` has the C texts of operands that are loaded already, by name. `rounds` is the helper of stage `quantize`: `nearest`
    leaves zero point and clipping to the stores.
    """
    plan = reader.plan
    loads = [None if o is None else known.get(o.name) or reader.value(o, plan.rows[r], chunk) for o in plan.stages]
    return epilogue_lines(plan, result_name(plan, r, c), chunk.width, loads, rounds)


def epilogue_lines(
    plan: LoopPlan, name: str, width: int, loads: list[str | None], rounds: str = "quantized"
) -> list[str]:
    """Return C statements that apply the divisor and the epilogue to the finished sum `name`, a variable of `width` lanes.

    `loads` holds the C text of each stage's operand, or None; `rounds` is the helper of stage `quantize`. The result is in the
    variable `finished(plan, name)`. An unknown stage raises a ValueError.
    """
    lines, value, prefix = [], name, ""
    if plan.op.divisor != 1:
        lines.append(f"{name} /= {literal(plan.op.divisor, plan.accumulator)};")
    for stage, load in zip(plan.op.epilogue, loads, strict=True):
        load = real(load) if load and (prefix or stage.name == DEQUANTIZE) else load
        if stage.name == DEQUANTIZE:
            value, prefix = f"{name}_real", "real_"
            lines.append(f"real{width} {value} = reals_{width}({name}) * {load};")
        elif stage.name == QUANTIZE:
            wide = f"{load} - (real{width}){{0}}" if width > 1 else load
            lines += [f"const real{width} {name}_zero = {wide};", f"{name} = {rounds}_{width}({value}, {name}_zero);"]
        elif stage.name in ALONE:
            lines.append(f"{value} = {prefix}{_HELPERS.get(stage.name, stage.name)}_{width}({value});")
        elif stage.name == RESIDUAL_INT8:
            assert load is not None
            lines.append(f"{value} += {f'reals_{width}({load})' if f'_{width}(' in load else f'(float)({load})'};")
        elif stage.name in ("bias", "residual"):
            lines.append(f"{value} += {load};")
        elif stage.name == "scale":
            lines.append(f"{value} *= {load};")
        else:
            raise ValueError(f"epilogue stage {stage.name!r}; C kernels know {', '.join(STAGES)}")
    return lines


def store(lines: Lines, reader: Reader) -> None:
    """Write the stores of a register tile's results, without those outside the output."""
    plan = reader.plan
    if c_stores.in_fours(reader) or c_quads.runs(reader) or _pixels(reader):  # stored with the epilogue
        return
    if not plan.vector_is_reduced and plan.output.lane_stride != 1 and plan.tiles[0][plan.vector] > 1:
        _scatter(lines, reader)
        return
    for r, c, chunk in results(plan):
        lines.add(row_guard(reader, plan.rows[r]) + _stored(reader, plan.output, r, c, chunk))


def row_guard(reader: Reader, row: tuple[int, ...]) -> str:
    """Return a C condition such as `if (m + 3 < count) ` for a row that may be past the end in an edge tile.

    For other rows the text is empty.
    """
    plan = reader.plan
    tests = [
        f"{linear([(1, tile_start(plan, a))], row[a])} < {count(plan, a)}"
        for a in plan.op.spatial
        if reader.edge and a != plan.vector and row[a] > 0 and plan.overhangs(a)
    ]
    return f"if ({' && '.join(tests)}) " if tests else ""


def _stored(reader: Reader, output: Operand, r: int, c: int, chunk: Chunk) -> str:
    plan = reader.plan
    name, index = written_name(plan, r, c), store_index(reader, output, plan.rows[r], chunk)
    limit = reader.end(chunk)
    inside = True if limit is None else limit.known(0, chunk.width - 1)
    if inside is False:
        return f"(void){name};"
    if limit is not None and not limit.terms and limit.size.isdigit() and not inside:
        known = int(limit.size) - limit.constant
        return f"{of_written(plan, 'store_first')}_{chunk.width}({output.name} + {index}, {known}, {name});"
    if limit is not None and not inside:
        return f"{of_written(plan, 'store_masked')}_{chunk.width}({output.name} + {index}, {limit.text(0)}, {name});"
    if chunk.width == 1:
        return stored(output, output.name, index, name)
    return f"{of_written(plan, 'store')}_{chunk.width}({output.name} + {index}, {name});"


def store_index(reader: Reader, output: Operand, row: tuple[int, ...], chunk: Chunk) -> str:
    """Return the C text of an output element's index, relative to the pointer that the micro-kernel's prologue declares."""
    return reader.index(output, row, chunk)


def _scatter(lines: Lines, reader: Reader) -> None:
    """Write the stores of lanes that are strided in the output: runs of rows turned in registers, else through a small buffer."""
    plan, output = reader.plan, reader.plan.output
    if runs := _runs(reader):
        _spread(lines, reader, runs)
        return
    width, rows = plan.tiles[0][plan.vector], len(plan.rows)
    lines.add(f"{output.c_type} lanes[{rows}][{width}];")
    for r, c, chunk in results(plan):
        value, place = written_name(plan, r, c), str(chunk.offset)
        if chunk.width == 1:
            lines.add(stored(output, f"lanes[{r}]", place, value))
        else:
            lines.add(f"{of_written(plan, 'store')}_{chunk.width}(&lanes[{r}][{place}], {value});")
    heads: list[str] = []
    terms, number = [(output.lane_stride, "lane")], list[tuple[int, str]]()
    axes = [a for a in plan.op.spatial if a != plan.vector and plan.tiles[0][a] > 1]
    for a in axes:
        step = f"{plan.axes[a]}_step"
        heads.append(_loop(reader, a, step))
        number = [(c * plan.tiles[0][a], name) for c, name in number] + [(1, step)]
        terms.append((output.strides[a], step))
    base = f"{output.name}"
    if reader.edge:  # rows are clamped in edge tiles: count from the first row, which is always valid
        terms.insert(0, (1, f"{output.name}_row_0"))
    with lines.blocks([_loop(reader, plan.vector, "lane"), *heads]):
        lines.add(f"{base}[{linear(terms)}] = lanes[{linear(number)}][lane];")


def _runs(reader: Reader) -> list[tuple[int, int]]:
    """Cut a line of adjacent float32 results into runs (`columns.cover`); empty if they are stored otherwise."""
    plan, last = reader.plan, reader.plan.op.spatial[-1]
    plain = plan.output.dtype == "float32" and plan.accumulator == "float" and plan.output.strides[last] == 1
    if not plain or last == plan.vector or any(reader.sticks_out(a) for a in plan.op.spatial):
        return []
    return columns.cover(plan.tiles[0][last], min(chunk.width for chunk in plan.chunks))


def _spread(lines: Lines, reader: Reader, runs: list[tuple[int, int]]) -> None:
    plan, output = reader.plan, reader.plan.output
    line = plan.tiles[0][plan.op.spatial[-1]]
    for r, (start, size) in itertools.product(range(0, len(plan.rows), line), runs):
        for c, chunk in enumerate(plan.chunks):
            place = f"{output.name} + {store_index(reader, output, plan.rows[r + start], chunk)}"
            values = ", ".join(written_name(plan, r + start + i, c) for i in range(size))
            vectors = f"(const vec{chunk.width}[]){{{values}}}"
            lines.add(f"spread_{COUNTS[size]}_{chunk.width}({place}, {output.lane_stride}, {vectors});")


def _loop(reader: Reader, axis: int, step: str) -> str:
    plan = reader.plan
    size = str(plan.tiles[0][axis])
    if reader.sticks_out(axis):
        start = tile_start(plan, axis)
        size = f"least({size}, {count(plan, axis)}{'' if start == '0' else f' - {start}'})"
    return f"for (long {step} = 0; {step} < {size}; {step}++)"
