"""Torch's own kernels, timed in the worker process for comparison with generated kernels.

`operators/kinds` names the torch function of a kind of operators; others are derived from the operator's accesses. Torch is
imported when used.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gensor_gym.measure.answers.draw import Expected
from gensor_gym.measure.baselines.torch_prepacked import prepacked_function
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.images import MATRICES, in_order, matrix_order
from gensor_gym.operators.inputs import decode, to_bfloat16
from gensor_gym.operators.registry import TORCH
from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Operator

TOLERANCE = {"float32": 5e-5, "tf32x3": 5e-5, "tf32": 1e-3, "float16": 5e-3, "bfloat16": 3e-2, "int8": 0.0, "float8_e4m3fn": 3e-2}
"""Operator's data type -> largest accepted ||out - reference|| / ||reference|| of torch's result. Winograd and FFT convolutions
are within 2e-5, but single elements would fail the bound for generated kernels. TF32 errs by 3e-4, which is too much for float32.
"""


def torch_function(op: Operator, tensors: list[Any]) -> Callable[[], Any]:
    """Return a function that calls torch for the operator with its epilogue. `tensors` are in the operator's order.

    ValueError for an unsupported operator or stage.
    """
    reads = len(op.reads)
    body = _body(op, tensors[:reads])
    if not op.epilogue:
        return body
    operands = iter(tensors[reads:])
    stages = [_stage(op, stage.name, next(operands) if stage.access is not None else None) for stage in op.epilogue]

    def run() -> Any:
        out = body()
        for stage in stages:
            out = stage(out)
        return out

    return run


def _body(op: Operator, x: list[Any]) -> Callable[[], Any]:
    import torch

    if op.dtype == "int8":
        return _integer_body(op, x)
    if op.dtype == "float8_e4m3fn":
        return _float8_body(op, x)
    call = TORCH[op.name](torch, op) if op.name in TORCH else _call_by_accesses(op)
    return lambda: call(*x)


def _call_by_accesses(op: Operator) -> Callable[..., Any]:
    """Derive the torch function from an operator's accesses: an elementwise function, einsum, sum or maximum.

    ValueError if an index of a tensor is not a single axis, as in windows, and in other cases that none of these functions
    computes.
    """
    import torch
    from torch.nn import functional

    if op.body == "map":
        return _ELEMENTWISE[op.function](torch, functional)
    *reads, written = ([[a for a, c in enumerate(row) if c] for row in access.coefficients] for access in (*op.reads, op.write))
    moved = [a for rows in reads for row in rows for a in row]
    plain = all(len(row) == 1 for rows in reads for row in rows) and set(moved) == set(range(len(op.axes)))
    in_order = len(reads) == 2 or [a for a in moved if a in op.spatial] == list(op.spatial)
    known = is_product(op) or BODIES[op.body].plain
    if not (plain and in_order) or written != [[a] for a in op.spatial] or op.divisor != 1 or not known:
        raise ValueError(f"no torch baseline for {op.name!r}: give register_operator one; there is one for {sorted(TORCH)}")
    if is_product(op):
        letters = ["".join(chr(ord("a") + a) for (a,) in rows) for rows in (*reads, written)]
        return partial(torch.einsum, f"{letters[0]},{letters[1]}->{letters[2]}")
    return partial(getattr(torch, op.reduction.torch), dim=[d for d, a in enumerate(moved) if a in op.reduce])


def _integer_body(op: Operator, x: list[Any]) -> Callable[[], Any]:
    """Return a function that calls torch for an int8 operator with int32 results, matrix by matrix.

    ValueError if torch has no such operator: its other int8 operators overflow int8 or round to a scale, so they are no
    baselines.
    """
    import torch

    if op.name == "gemv":
        column = x[1].reshape(-1, 1)
        return lambda: torch._int_mm(x[0], column).reshape(-1)
    table: dict[str, Callable[[], Any]] = {
        "gemm": lambda: torch._int_mm(x[0], in_order(x[1], MATRICES[0], matrix_order(op))),
        "batched_gemm": lambda: _batched(x[0], x[1]),
        "reduce_sum": lambda: torch.sum(x[0], dim=1, dtype=torch.int32),
    }
    if op.name not in table:
        raise ValueError(f"no torch baseline for {op.name!r} of int8; there is one for {sorted([*table, 'gemv'])}")
    return table[op.name]


def _float8_body(op: Operator, x: list[Any]) -> Callable[[], Any]:
    """Return a function that calls torch for a product of 8-bit floats with a bfloat16 result and scales of 1.

    Sums accumulate on tensor cores only, as in generated kernels, which is the fastest way. The library needs the second matrix
    in column-major order: a row-major matrix is transposed at every call.
    """
    import torch

    if op.name != "gemm":
        raise ValueError(f"no torch baseline for {op.name!r} of float8_e4m3fn; there is one for ['gemm']")
    one = torch.ones((), dtype=torch.float32, device=x[0].device)
    b = in_order(x[1], MATRICES[0], matrix_order(op))
    in_columns = b.stride(0) == 1
    return lambda: torch._scaled_mm(
        x[0], b if in_columns else b.t().contiguous().t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _batched(a: Any, b: Any) -> Any:
    """Multiply int8 matrices [B, M, K] and [B, K, N] by torch. Return the int32 products [B, M, N]."""
    import torch

    out = a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=torch.int32)
    for i in range(len(out)):
        torch._int_mm(a[i], b[i], out=out[i])
    return out


_ELEMENTWISE: dict[str, Callable[[Any, Any], Callable[..., Any]]] = {
    "relu": lambda torch, functional: torch.relu,
    "gelu": lambda torch, functional: functional.gelu,
    "sigmoid": lambda torch, functional: torch.sigmoid,
    "tanh": lambda torch, functional: torch.tanh,
    "exp": lambda torch, functional: torch.exp,
    "copy": lambda torch, functional: torch.clone,
    "add": lambda torch, functional: torch.add,
    "mul": lambda torch, functional: torch.mul,
}


def _stage(op: Operator, name: str, operand: Any) -> Callable[[Any], Any]:
    from torch.nn import functional

    if name == "relu":
        return lambda out: out.relu_()
    if name == "relu6":
        return lambda out: out.clamp_(0.0, 6.0)
    if name == "gelu":
        return functional.gelu
    if name in ("bias", "scale"):
        operand = operand.reshape(-1, *[1] * (len(op.write.view) - op.channel_dimension - 1))
    if name == "scale":
        return lambda out: out.mul_(operand)
    if name in ("bias", "residual"):
        return lambda out: out.add_(operand)
    raise ValueError(f"no torch baseline for epilogue stage {name!r}")


def tensors_of(op: Operator, inputs: tuple[np.ndarray, ...], device: str = "cpu") -> list[Any]:
    """Copy the inputs to torch tensors on a device."""
    import torch

    tensors = []
    for tensor, array in zip(op.inputs, inputs, strict=True):
        value = torch.from_numpy(np.array(array)).to(device)
        kind = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn}.get(tensor.dtype)
        tensors.append(value if kind is None else value.view(kind))
    return tensors


def distance_fault(output: Any, shape: tuple[int, ...], draw: Expected, tolerance: float) -> str:
    """Check an output by ||output - reference|| <= tolerance * ||reference||, over the elements with a known reference.

    Return a message if the shape or the distance is wrong; else an empty text.
    """
    if tuple(output.shape) != shape:
        return f"shape {tuple(output.shape)} instead of {shape}"
    error, scale = draw.distance(output)
    if error <= tolerance * scale:  # NaN fails
        return ""
    return f"relative distance from the reference is {error / max(scale, 1e-300):.3g}, accepted {tolerance:g}"


# Parameters of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TOP_PAD = 64 << 20


def keep_freed_memory() -> None:
    """Let malloc keep freed memory if it supports this (glibc), because torch allocates its output in every call.

    By default, memory that is freed at the end of a call goes back to the system, and the next call takes a page fault for each
    page. A generated kernel writes to an existing buffer. A depthwise convolution of torch took 2.5 ms, 2.3 of them page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
        mallopt(_M_TOP_PAD, _TOP_PAD)


class TorchBaseline:
    """Torch's kernel for an operator with given inputs, on the CPU with a fixed number of threads."""

    def __init__(self, op: Operator, inputs: tuple[np.ndarray, ...], threads: int, prepacked: bool = False) -> None:
        """Copy the inputs and choose torch's function; `prepacked` uses oneDNN with prepacked weights."""
        import torch

        keep_freed_memory()
        torch.set_num_threads(threads)
        self._torch = torch
        self._dtype, self._shape = op.output.dtype, op.output.shape
        self._function = (prepacked_function if prepacked else torch_function)(op, tensors_of(op, inputs))

    def output(self) -> np.ndarray:
        """Call torch once. Return the result in the kernel's storage format: bfloat16 as its bits."""
        with self._torch.inference_mode():
            result = self._function()
        if self._dtype == "bfloat16":
            return to_bfloat16(result.float().numpy())
        return result.numpy()

    def fault(self, draw: Expected) -> str:
        """Compare one call's result with the reference of `draw`. Return a message about a wrong output; empty if it is right.

        Torch rounds 16-bit floats after each stage, generated kernels round once. So for these types the 2-norm of the whole
        output is checked.
        """
        output = decode(self.output(), self._dtype)
        if self._dtype in ("bfloat16", "float16"):
            return distance_fault(output, self._shape, draw, TOLERANCE[self._dtype])
        return draw.fault(output)

    def time(self, calls: int) -> float:
        """Return the seconds that `calls` calls take."""
        function = self._function
        with self._torch.inference_mode():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            return time.perf_counter() - start
