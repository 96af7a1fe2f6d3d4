"""A task in words: operator, tensors, reference, machine, the signature of a source, and the grammar of actions."""

from __future__ import annotations

from gensor_gym.codegen.kernel import WHOLE
from gensor_gym.codegen.targets import target_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.kernel.grammar import GRAMMAR
from gensor_gym.env.pictures.facts import in_bytes, in_seconds
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.written.compiling import SECONDS
from gensor_gym.measure.written.text import HEADERS, MOST_CHARACTERS
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.types import ARRAY_DTYPE, Access, Operator

_C_TYPES = {
    "float32": "float", "float16": "_Float16", "uint16": "unsigned short", "uint8": "unsigned char", "int8": "signed char",
    "int32": "int",
}  # fmt: skip
"""NumPy dtype of an array -> type of its elements in C."""

STAGE_WORDS = {
    "bias": "value + {}", "residual": "value + {}", "residual_int8": "value + {}", "scale": "value * {}",
    "dequantize": "value * {}", "quantize": "clip(round(value) + {}, -128, 127), ties to even", "relu": "max(value, 0)",
    "relu6": "clip(value, 0, 6)", "gelu": "value / 2 * (1 + erf(value / sqrt(2)))",
}  # fmt: skip
"""Name of an epilogue stage -> its formula, with a place for its operand (`operators/reference.py` computes them)."""


def task_text(graph: ConstructionGraph, backend: str, turns: int, sources: bool) -> str:
    """Return the description of a task. `backend` names the tier of rewards; `sources` says whether it accepts sources."""
    op, hw = graph.operator, graph.hardware
    verbs = [words for verb, words in GRAMMAR.items() if sources or verb != "source"]
    parts = [
        "# Task", f"Make a fast kernel of {op} on {hw.name}.", "",
        *(f"{'output' if t is op.output else 'input ':<7} {t.name} {list(t.shape)} {t.dtype}" for t in (*op.inputs, op.output)),
        f"{op.flops:.4g} operations; no kernel is faster than {in_seconds(graph.floor)}, the roofline floor.",
        "", "# Reference", reference_text(op), "", "# Machine", machine_text(hw), "",
        f"# Actions: one of these in each of {turns} turns", *verbs,
        *(signature_text(op, hw) if sources else ["Times are predicted by an analytic model; no source can be given."]), "",
        "# Reward", "Every step pays the gain in log(predicted speed) of the schedule and costs a little. An evaluated program",
        f"pays the gain in log(speed) over the best before it. Times of evaluated programs: backend {backend}.",
    ]  # fmt: skip
    return "\n".join(parts)


def reference_text(op: Operator) -> str:
    """Return an operator's definition as loops over its axes."""
    reads = [element(op, access) for access in op.reads]
    if op.body == "map":
        value = f"{op.function}({', '.join(reads)})"
    else:
        body = BODIES[op.body]
        word = "sum" if body.reduction.infix else body.reduction.name
        value = f"{word}({body.term.format(*reads)} for {', '.join(op.axes[a].name for a in op.reduce)})"
    value += f" / {op.divisor}" if op.divisor > 1 else ""
    spatial = [axis for axis in op.axes if axis.kind == "spatial"]
    lines = [f"for each {', '.join(f'{axis.name} < {axis.extent}' for axis in spatial)}:", f"  value = {value}"]
    for stage in op.epilogue:
        operand = "" if stage.access is None else element(op, stage.access)
        lines.append(f"  value = {STAGE_WORDS[stage.name].format(operand)}")
    lines.append(f"  {element(op, op.write)} = value")
    ranges = ", ".join(f"{axis.name} < {axis.extent}" for axis in op.axes if axis.kind != "spatial")
    pads = any(access.is_padded(op.extents) for access in op.reads)
    last = [f"reduced over {ranges}"] if ranges else []
    last += [f"elements outside a tensor are {op.pad_value:g}"] if pads else []
    last += [f"sums are in {op.accumulator}, and checked against float64"]
    return "\n".join([*lines, f"({'; '.join(last)}; arrays are dense and row-major)"])


def element(op: Operator, access: Access) -> str:
    """Return an element that an access reads or writes, such as `A[m, k]` or `x[n, c, p + r - 1, q + s - 1]`."""
    indices = []
    for row, offset in zip(access.coefficients, access.offset, strict=True):
        terms = [f"{c} * {axis.name}" if c > 1 else axis.name for c, axis in zip(row, op.axes, strict=True) if c]
        index = " + ".join(terms) or "0"
        indices.append(f"{index} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else index)
    viewed = "" if access.view == access.tensor.shape else f".reshape{tuple(access.view)}"
    return f"{access.tensor.name}{viewed}[{', '.join(indices)}]"


def machine_text(hw: Hardware) -> str:
    """Return the figures of a machine that matter to a kernel, in a few lines."""
    what = f"{hw.units} {'multiprocessors' if hw.kind == 'gpu' else 'cores'} at {hw.clock / 1e9:.3g} GHz"
    kinds = {"": hw.peak, f"; {'tensor cores' if hw.kind == 'gpu' else 'tile registers'} ": hw.tensor_peak}
    each = {words: ", ".join(f"{rate / 1e9:.4g} Gop/s {dtype}" for dtype, rate in peak) for words, peak in kinds.items() if peak}
    rates = "".join(f"{words}{text}" for words, text in each.items())
    levels = [f"{m.name} {in_bytes(m.capacity)}, {m.bandwidth / 1e9:.4g} GB/s" for m in hw.memory]
    lanes = f", vectors of {hw.lanes} float32, {hw.vector_registers} vector registers" if hw.kind == "cpu" else f", {hw.arch}"
    return "\n".join([f"{what}{lanes}; at most {rates}", *levels])


def signature_text(op: Operator, hw: Hardware) -> list[str]:
    """Return lines about the source that an agent may write: its signature, what it may use, and its limits."""
    bits = {"_Float16": "unsigned short"} if target_of(hw).name == "cuda" else {}
    kinds = [(t.name, _C_TYPES[ARRAY_DTYPE[t.dtype]]) for t in (*op.inputs, op.output)]
    kinds = [(name, bits.get(kind, kind)) for name, kind in kinds]
    limits = f"At most {MOST_CHARACTERS} characters of ASCII, and {SECONDS} s of compilation."
    if target_of(hw).name == "cuda":
        arguments = ", ".join(f"const {kind} *{name}" for name, kind in kinds[:-1])
        return [
            f'A source is CUDA C: extern "C" __global__ void NAME({arguments}, {kinds[-1][1]} *{kinds[-1][0]}, float *workspace)',
            "Floats of 16 and 8 bits are passed as their bits. No header can be included.",
            f"Options: grid=X,Y,Z block=X,Y,Z shared=BYTES workspace=BYTES. {limits}",
        ]
    casts = " ".join(f"const {kind} *{name} = inputs[{at}];" for at, (name, kind) in enumerate(kinds[:-1]))
    return [
        "A source is C11 with GNU's extensions, compiled by -O2 for this processor, with the function",
        f"  void {WHOLE}(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)",
        f"  {{ {casts} {kinds[-1][1]} *{kinds[-1][0]} = output; .. }}",
        "runtime->parallel(runtime, task, context, count) calls task(context, index, thread) for each index < count on",
        "runtime->threads threads. struct gg_runtime is declared already. It may call functions of <math.h> and memcpy, memset.",
        f"Headers: {' '.join(HEADERS['c'])}. Option: workspace=BYTES, memory for intermediate values. {limits}",
        "Inputs must not change. Results must not be kept from call to call.",
    ]
