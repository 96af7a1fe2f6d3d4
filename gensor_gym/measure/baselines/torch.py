"""Torch's own kernels, timed in the worker beside generated ones. Only `torch_*` files here import torch."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gensor_gym.measure.answers.expectation import Expected
from gensor_gym.measure.baselines.torch_prepacked import prepacked_function
from gensor_gym.operators.inputs import decode, to_bfloat16
from gensor_gym.operators.types import Operator


def torch_function(op: Operator, tensors: list[Any]) -> Callable[[], Any]:
    """What a torch user would call for the operator with its epilogue, on tensors in the operator's order.

    Raises:
        ValueError: for an operator or a stage that this file does not know.
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
    """The operator without its epilogue."""
    import torch
    from torch.nn import functional

    if op.dtype == "int8":
        return _integer_body(op, x)
    sizes: dict[str, Any] = dict(op.arguments)
    window: dict[str, Any] = {"stride": sizes.get("stride", 1), "padding": sizes.get("padding", 0)}
    kernel = (sizes.get("r", 0), sizes.get("s", 0))
    table: dict[str, Callable[[], Any]] = {
        "gemm": lambda: torch.mm(x[0], x[1]),
        "batched_gemm": lambda: torch.bmm(x[0], x[1]),
        "gemv": lambda: torch.mv(x[0], x[1]),
        "reduce_sum": lambda: torch.sum(x[0], dim=1),
        "conv2d": lambda: functional.conv2d(
            x[0], x[1], dilation=sizes.get("dilation", 1), groups=sizes.get("groups", 1), **window
        ),
        "depthwise_conv2d": lambda: functional.conv2d(x[0], x[1], groups=sizes["c"], **window),
        "avg_pool2d": lambda: functional.avg_pool2d(x[0], kernel, **window),
        "max_pool2d": lambda: functional.max_pool2d(x[0], kernel, **window),
        "elementwise": lambda: _ELEMENTWISE[op.function](torch, functional)(*x),
    }
    if op.name not in table:
        raise ValueError(f"no torch baseline for {op.name!r}; there is one for {sorted(table)}")
    return table[op.name]


def _integer_body(op: Operator, x: list[Any]) -> Callable[[], Any]:
    """An int8 operator with int32 results, where torch has one call for that (a matrix at a time in a batch).

    Torch's other int8 operators give int8 (they overflow) or round to a scale, so nothing is compared with them.
    """
    import torch

    if op.name == "gemv":
        column = x[1].reshape(-1, 1)
        return lambda: torch._int_mm(x[0], column).reshape(-1)
    table: dict[str, Callable[[], Any]] = {
        "gemm": lambda: torch._int_mm(x[0], x[1]),
        "batched_gemm": lambda: _batched(x[0], x[1]),
        "reduce_sum": lambda: torch.sum(x[0], dim=1, dtype=torch.int32),
    }
    if op.name not in table:
        raise ValueError(f"no torch baseline for {op.name!r} of int8; there is one for {sorted([*table, 'gemv'])}")
    return table[op.name]


def _batched(a: Any, b: Any) -> Any:
    """int32 products [B, M, N] of int8 [B, M, K] and [B, K, N]."""
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
    """One stage of the epilogue."""
    from torch.nn import functional

    if name == "relu":
        return lambda out: out.relu_()
    if name == "gelu":
        return functional.gelu
    if name in ("bias", "scale") and len(op.output.shape) == 4 and op.name != "elementwise":
        operand = operand.reshape(-1, 1, 1)
    if name == "scale":
        return lambda out: out.mul_(operand)
    if name in ("bias", "residual"):
        return lambda out: out.add_(operand)
    raise ValueError(f"no torch baseline for epilogue stage {name!r}")


def tensors_of(op: Operator, inputs: tuple[np.ndarray, ...], device: str = "cpu") -> list[Any]:
    """Copies of the inputs as torch tensors on a device."""
    import torch

    tensors = []
    for tensor, array in zip(op.inputs, inputs, strict=True):
        value = torch.from_numpy(np.array(array)).to(device)
        tensors.append(value.view(torch.bfloat16) if tensor.dtype == "bfloat16" else value)
    return tensors


# Parameters of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TOP_PAD = 64 << 20


def keep_freed_memory() -> None:
    """Let malloc keep what is freed, where it can be told so (glibc): torch allocates its output in every call.

    By default, memory freed at the end of a call goes back to the system and the next call faults it in again, page by
    page, while a generated kernel writes to a buffer that is there. A depthwise convolution of torch took 2.5 ms of which
    2.3 were page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
        mallopt(_M_TOP_PAD, _TOP_PAD)


class TorchBaseline:
    """Torch's kernel for an operator on given inputs, with a set number of threads, on the CPU."""

    def __init__(self, op: Operator, inputs: tuple[np.ndarray, ...], threads: int, prepacked: bool = False) -> None:
        """Import torch, copy the inputs (bfloat16 travels as bits) and, where told so, prepack the weights."""
        import torch

        keep_freed_memory()
        torch.set_num_threads(threads)
        self._torch = torch
        self._dtype = op.output.dtype
        self._function = (prepacked_function if prepacked else torch_function)(op, tensors_of(op, inputs))

    def output(self) -> np.ndarray:
        """The result of one call, as kernels hold it."""
        with self._torch.inference_mode():
            result = self._function()
        if self._dtype == "bfloat16":
            return to_bfloat16(result.float().numpy())
        return result.numpy()

    def fault(self, draw: Expected) -> str:
        """What is wrong with the output for the draw; empty when nothing."""
        return draw.fault(decode(self.output(), self._dtype))

    def time(self, calls: int) -> float:
        """Seconds that `calls` calls take."""
        function = self._function
        with self._torch.inference_mode():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            return time.perf_counter() - start
