"""C generator for a chain of two products with a row nest between them, such as attention.

A task computes some rows of one batch element, block by block. The first product of a block (its scores) stays in the thread's
scratch memory, where the row nest and then the second product read it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.chains.room import Room, ceil_to, is_copied, lowered, pitch_of
from gensor_gym.codegen.c.codegen import LINE, headers
from gensor_gym.codegen.c.layout.operands import ENDINGS
from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.c.text import Lines, add, linear
from gensor_gym.codegen.chains.diagonal import CausalRows
from gensor_gym.codegen.chains.product import Ends, Operand, ProductPrinter, fetched
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.gir.inputs import C_TYPES, helpers
from gensor_gym.codegen.gir.rows import RowPrinter, c_name
from gensor_gym.codegen.gir.shapes import RowShape
from gensor_gym.codegen.kernel import WHOLE, Kernel, Launch

_FLOAT = 4


class Tasks(ChainProgram):
    """A schedule of a chain of two products, divided into tasks for a CPU's threads."""

    @cached_property
    def room(self) -> Room:
        """Layout of a thread's scratch memory."""
        value, width = self.schedule.value, self.schedule.value("vector")
        copied = [is_copied(matrix, bool(value("copy"))) for matrix in (self.chain.first, self.chain.second)]
        widths = value("first") * width, value("second") * width
        return Room(self.chain, self.block, widths, (copied[0], copied[1]), value("rows"))

    @property
    def block(self) -> int:
        """Number of rows whose scores a thread keeps in its scratch memory at the same time."""
        return min(self.schedule.value("block"), self.chain.rows)

    @property
    def rows_of_task(self) -> int:
        """Number of rows that one task computes."""
        return self.block * self.schedule.value("loop")

    @property
    def parts(self) -> int:
        """Number of tasks for one batch element."""
        return -(-self.chain.rows // self.rows_of_task)

    @property
    def blocks(self) -> set[int]:
        """Different numbers of rows that blocks have: of whole blocks, and of the last block if it is smaller."""
        rest = self.chain.rows % self.block
        return {self.block, rest} if rest else {self.block}

    @cached_property
    def products(self) -> tuple[ProductPrinter, ProductPrinter]:
        """Writers of the C text of the chain's two products."""
        chain, value, pitch = self.chain, self.schedule.value, pitch_of(self.chain)
        scores, ending = Operand(pitch, 1, padded=True), ENDINGS.get(chain.dtype, "")

        def printer(name: str, place: int, a: Operand, b: Matrix, c: Operand) -> ProductPrinter:
            shape = chain.products[place]
            depth = shape.inner if c.ending else min(value("depth") or shape.inner, shape.inner)  # partial sums need 32 bits
            return ProductPrinter(
                name, shape, value("height"), value(name), value("vector"), depth, self.room.copied[place],
                a, Operand(b.row, b.column, ending=ending), c,
            )  # fmt: skip

        left, out = chain.left, chain.out
        return (
            printer("first", 0, Operand(left.row, left.column, ending=ending), chain.first, scores),
            printer("second", 1, scores, chain.second, Operand(out.row, out.column, ending=ending)),
        )

    @property
    def nbytes(self) -> int:
        """Size of the workspace in bytes, with padding for alignment."""
        return _FLOAT * self.hardware.units * self.unit + LINE

    @property
    def unit(self) -> int:
        """Number of elements of a thread's scratch memory."""
        return ceil_to(self.room.unit, LINE)


def generate_chain(given: ChainProgram) -> Kernel:
    """Generate the C kernel for a schedule of a chain of two products, such as attention."""
    program = Tasks(given.chain, given.schedule, given.hardware)
    graph = program.chain.graph
    parts = [_struct(program)]
    for product, copied in zip(program.products, program.room.copied, strict=True):
        parts += product.functions(program.blocks)
        parts += [product.copy_function()] if copied else []
    parts += _nest(program)
    parts += [_block(program, rows) for rows in sorted(program.blocks)]
    parts += [_task(program), _entry(program)]
    body = "\n".join(parts)
    body = body if program.chain.middle is None else helpers(program.chain.middle, body) + body
    head = (Path(__file__).parents[1] / "runtime" / "runtime.h").read_text()
    text = prelude(body, "float", "float") + "\n" + body
    title = f"/* {graph} on {program.hardware.name}: {program.schedule}. */\n"
    source = "\n".join([title + headers(text) + head, text])
    return Kernel(graph, "c", program.hardware.arch, source, (Launch(WHOLE),), program.nbytes)


def _struct(program: Tasks) -> str:
    chain, lines = program.chain, Lines()
    with lines.block("struct call"):
        lines.add(*(f"const {C_TYPES[value.dtype]} *{c_name(value.name)};" for value in chain.graph.inputs))
        lines.add(*(f"{C_TYPES[value.dtype]} *{c_name(value.name)};" for value in chain.graph.outputs))
        lines.add(*(f"float *{c_name(name)};" for name in _panels(chain)))
        lines.add("float *scratch;")
    return str(lines).rstrip("\n") + ";\n"


def _panels(chain: Chain) -> list[str]:
    """Return the names of the scores and weights in the row nest. Only one block of their rows is stored at a time.

    The list is empty if nothing is computed between the products.
    """
    return list(dict.fromkeys([chain.scores, chain.weights])) if chain.middle is not None else []


def _nest(program: Tasks) -> list[str]:
    chain = program.chain
    if chain.middle is None:
        return []
    nest = chain.nest_of_pitch(pitch_of(chain))
    (kernel,) = lowered(chain, nest).kernels
    value, texts = program.schedule.value, []
    for rows in sorted(_interleaved(program)):
        given = nest, kernel, RowShape(rows, value("tile"), value("vector"), streaming=False), program.room.buffers
        printer = RowPrinter(*given) if chain.diagonal is None else CausalRows(*given, chain=chain)
        texts.append(printer.function(f"nest_rows{rows}"))
    return texts


def _interleaved(program: Tasks) -> set[int]:
    """Return the numbers of rows that a step of the row nest computes together; there is one C function for each number.

    They are the number in the schedule, and 1 if a block has fewer rows or is not a multiple of it.
    """
    rows = program.schedule.value("rows")
    wanted = {rows if size >= rows else 1 for size in program.blocks}
    return wanted | ({1} if any(size % rows for size in program.blocks) else set())


def _block(program: Tasks, rows: int) -> str:
    chain, room, lines = program.chain, program.room, Lines()
    causal = chain.diagonal is not None
    seen = "seen" if causal else ""
    first, second = program.products
    types = first.a.c_type, first.right.c_type, second.right.c_type
    given = (f"const {kind} *const {name}" for kind, name in zip(types, "abv", strict=True))
    arguments = f"const struct call *const call, float *const scratch, {', '.join(given)}"
    arguments += f", {second.c.c_type} *const out, const long row"
    with lines.block(f"static void block_{rows}({arguments})"):
        lines.add(f"float *const scores = {add('scratch', str(room.scores))};")
        if causal:
            lines.add(f"const long seen = {_seen(program, rows)};")
        first.block(lines, rows, "a", "b", "scores", Ends(columns=seen))
        _fetch(lines, program, rows)
        if chain.middle is None:
            lines.add("(void)call, (void)row;")
        else:
            lines.add("struct call own = *call;")
            away = f"(uintptr_t)row * {_FLOAT * pitch_of(chain)}"
            for name in _panels(chain):
                lines.add(f"own.{c_name(name)} = (float *)((uintptr_t)scores - {away});")
            together, kept = program.schedule.value("rows"), add("scratch", str(room.kept))
            whole = rows // together * together
            for start, end, step in ((0, whole, together), (whole, rows, 1)):
                if start < end:
                    call = f"nest_rows{step}(&own, {kept}, row + r{', seen' if causal else ''});"
                    lines.add(f"for (long r = {start}; r < {end}; r += {step}) {call}")
        second.block(lines, rows, "scores", "v", "out", Ends(inner=seen))
    return str(lines)


def _seen(program: Tasks, rows: int) -> str:
    """Return the C text of the number of columns that a block of `rows` rows computes: whole steps of the nest, or all."""
    chain, step = program.chain, program.schedule.value("tile") * program.schedule.value("vector")
    last = f"row % {chain.rows} + {rows + (chain.diagonal or 0) + step - 1}"
    return f"least({chain.columns}, ({last}) / {step} * {step})"


def _fetch(lines: Lines, program: Tasks, rows: int) -> None:
    """Write prefetches before the row nest of a block.

    They fetch the left operand's rows for the next block, and this block's output rows.
    """
    chain = program.chain
    for name, matrix, size, ahead in (
        ("a", chain.left, chain.products[0].inner, rows), ("out", chain.out, chain.products[1].columns, 0),
    ):  # fmt: skip
        if matrix.column == 1:
            place = linear([(matrix.row, "r"), (1, "x")])
            lines.add(f"for (long r = 0; r < {rows}; r++)")
            text = fetched(name, ahead * matrix.row, place, writes=name == "out")
            lines.add(f"    for (long x = 0; x < {size}; x += 16) {text}")


def _task(program: Tasks) -> str:
    chain, lines, parts = program.chain, Lines(), program.parts
    with lines.block("static void run_task(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;")
        lines.add(f"float *const scratch = call->scratch + (long)thread * {program.unit};")
        lines.add(f"const long element = {f'index / {parts}' if parts > 1 else 'index'};")
        lines.add(f"const long begin = {f'index % {parts} * {program.rows_of_task}' if parts > 1 else '0'};")
        lines.add(f"const long end = least(begin + {program.rows_of_task}, {chain.rows});")
        digits = _digits(lines, chain)
        first, second = program.products
        lines.add(f"const {first.a.c_type} *a = {_start(chain.left, c_name(chain.left.tensor), digits)};")
        places = 0, program.room.copies[0]
        for name, product, matrix, start in zip("bv", program.products, (chain.first, chain.second), places, strict=True):
            there, place = _start(matrix, c_name(matrix.tensor), digits), add("scratch", str(start))
            lines.add(*([f"copy_{product.name}({there}, {place});"] if product.copied else []))
            lines.add(f"const {product.right.c_type} *{name} = {place if product.copied else there};")
        lines.add(f"{second.c.c_type} *const out = {_start(chain.out, c_name(chain.graph.returns[0]), digits)};")
        _blocks(lines, program)
    return str(lines)


def _blocks(lines: Lines, program: Tasks) -> None:
    chain, block = program.chain, program.block
    a, out = linear([(chain.left.row, "row")]), linear([(chain.out.row, "row")])
    given = f"call, scratch, {add('a', a)}, b, v, {add('out', out)}, element * {chain.rows} + row"
    lines.add("long row = begin;")
    lines.add(f"for (; row + {block} <= end; row += {block}) block_{block}({given});")
    if rest := chain.rows % block:
        lines.add(f"if (row < end) block_{rest}({given});")


def _digits(lines: Lines, chain: Chain) -> list[str]:
    found: list[str] = []
    below = 1
    for axis in reversed(range(len(chain.batch))):
        digit = "element" if below == 1 else f"element / {below}"
        found.insert(0, f"({digit}) % {chain.batch[axis]}" if axis else digit)
        below *= chain.batch[axis]
    for axis, text in enumerate(found):
        lines.add(f"const long digit{axis} = {text};")
    return [f"digit{axis}" for axis in range(len(found))]


def _start(matrix: Matrix, name: str, digits: list[str]) -> str:
    place = linear(zip(matrix.batch, digits, strict=True), matrix.offset)
    return add(f"call->{name}", place)


def _entry(program: Tasks) -> str:
    chain, lines = program.chain, Lines()
    arguments = "const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime"
    with lines.block(f"void {WHOLE}({arguments})"):
        fields = [f".{c_name(value.name)} = inputs[{place}]" for place, value in enumerate(chain.graph.inputs)]
        fields.append(f".{c_name(chain.graph.returns[0])} = output")
        lines.add(f"struct call call = {{{', '.join(fields)}}};")
        lines.add(f"call.scratch = (float *)(((uintptr_t)workspace + {LINE - 1}) & ~(uintptr_t){LINE - 1});")
        lines.add("struct gg_runtime team = *runtime;")
        lines.add(f"team.threads = (int)least(team.threads, {program.hardware.units});")
        lines.add(f"team.parallel(&team, run_task, &call, {chain.elements * program.parts});")
    return str(lines)
