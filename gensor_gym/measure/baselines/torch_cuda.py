"""Torch on an NVIDIA GPU (cuBLAS, cuDNN, torch's own kernels, torch.compile), timed by the protocol of `devices/cuda.py`.

Torch and generated kernels use graphs with the same number of calls, one pair of events around them, and warm caches. Operators
of dtype tf32 may use TF32, in matrix products and convolutions; all others may not, although torch's default for convolutions
allows it. cuDNN may try all its algorithms and take the fastest.

Generated kernels work on row-major matrices, and on NCHW unless the operator names another order. The libraries have fast kernels
for other layouts too, so the layouts in `LAYOUTS` are also timed. `torch.nhwc` gets images, weights and residuals as NHWC in
memory and returns its result in that layout. `torch.b_transposed` gets the second matrix of an 8-bit product transposed, as
cuBLAS prefers. The layout change is not timed. For 8-bit floats cuBLAS accepts no other layout, so `torch` transposes at every
call, as a generated kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym.measure.answers.draw import Expected
from gensor_gym.measure.baselines.torch import TOLERANCE, distance_fault, tensors_of, torch_function
from gensor_gym.measure.workers.trial import BaselineKind
from gensor_gym.operators.images import names_orders
from gensor_gym.operators.types import Operator

GRAPH_CALLS = 128
"""Number of calls that one CUDA graph contains, as in `devices/cuda.py`."""
_WARM_CALLS = 3
LAYOUTS: dict[tuple[str, bool], tuple[BaselineKind, ...]] = {
    ("conv2d", False): ("torch.nhwc",),
    ("depthwise_conv2d", False): ("torch.nhwc",),
    ("gemm", True): ("torch.b_transposed",),
}
"""(operator's name, whether its type has 8 bits) -> additional baselines, which call torch with another memory layout."""
_INTEGER_STEP, _FLOAT8_STEP = 8, 16


class Replayed:
    """A torch function on GPU 0, captured in CUDA graphs of many calls, which are replayed on one stream to time it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        """Call the function a few times, so that torch chooses and compiles its kernels."""
        import torch

        self._torch = torch
        self._function = function
        self._stream = torch.cuda.Stream()
        self._graphs: dict[int, Any] = {}
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for _ in range(_WARM_CALLS):
                self._function()
        torch.cuda.synchronize()

    def time(self, calls: int) -> float:
        """Return the seconds between events around `calls` calls on one stream."""
        torch = self._torch
        whole, rest = divmod(calls, GRAPH_CALLS)
        graphs = [self._graph(part) for part in [GRAPH_CALLS] * whole + [rest] * (rest > 0)]
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            start.record(self._stream)
            for graph in graphs:
                graph.replay()
            end.record(self._stream)
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    def _graph(self, calls: int) -> Any:
        if calls not in self._graphs:
            torch = self._torch
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, stream=self._stream):
                for _ in range(calls):
                    self._function()
            torch.cuda.synchronize()
            self._graphs[calls] = graph
        return self._graphs[calls]


class TorchCudaBaseline(Replayed):
    """Torch's kernel for an operator with given inputs, on GPU 0."""

    def __init__(
        self, op: Operator, inputs: Sequence[Any], kind: BaselineKind = "torch", wrap: Callable[[Any], Any] | None = None
    ) -> None:
        """Copy the inputs from host or device, and call torch a few times, so that torch chooses its kernels.

        The kind `torch.compile` uses Triton. `wrap` converts a tensor to the kind of array that draws compare; the default is
        NumPy's. ValueError if torch has no such kernel.
        """
        import torch

        torch.backends.cuda.matmul.allow_tf32 = op.dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = op.dtype == "tf32"
        torch.backends.cudnn.benchmark = True
        check_bytes(op)
        self._shape = op.output.shape
        self._tolerance = TOLERANCE[op.dtype]
        self._wrap = wrap or _on_host
        function: Any = torch_function(op, laid_out(_tensors(op, inputs), kind))
        if kind == "torch.compile":
            function = torch.compile(function, dynamic=False, options=_inductor_options(op))
        super().__init__(function)

    def output(self) -> Any:
        """Call torch once.

        Return the result in the kernel's storage format: bfloat16 as its bits, elements in the output's order.
        """
        torch = self._torch
        with torch.no_grad():
            result = self._function().contiguous()
            bits = result.view(torch.int16) if result.dtype == torch.bfloat16 else result
        torch.cuda.synchronize()
        return self._wrap(bits)

    def fault(self, draw: Expected) -> str:
        """Compare one call's result with the reference in the 2-norm. Return a message if it is too far; empty if it is right."""
        return distance_fault(self.output(), self._shape, draw, self._tolerance)


def laid_out(tensors: list[Any], kind: BaselineKind) -> list[Any]:
    """Return the tensors copied to the memory layout of the baseline `kind`, such as NHWC. Shapes and values are unchanged."""
    import torch

    if kind == "torch.nhwc":
        return [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in tensors]
    if kind == "torch.b_transposed":
        return [tensors[0], tensors[1].t().contiguous().t(), *tensors[2:]]
    return tensors


def _tensors(op: Operator, inputs: Sequence[Any]) -> list[Any]:
    import torch

    if any(isinstance(array, np.ndarray) for array in inputs):
        return tensors_of(op, tuple(inputs), "cuda")
    tensors = []
    for tensor, array in zip(op.inputs, inputs, strict=True):
        if tensor.dtype == "bfloat16":
            tensors.append(torch.as_tensor(array.view(np.int16), device="cuda").clone().view(torch.bfloat16))
        elif tensor.dtype == "float8_e4m3fn":
            tensors.append(torch.as_tensor(array, device="cuda").clone().view(torch.float8_e4m3fn))
        else:
            tensors.append(torch.as_tensor(array, device="cuda").clone())
    return tensors


def _on_host(tensor: Any) -> np.ndarray:
    """Copy a tensor to a NumPy array. bfloat16 becomes its bits, as unsigned integers."""
    array = tensor.cpu().numpy()
    return array.view(np.uint16) if array.dtype == np.int16 else array


def layouts(op: Operator) -> tuple[BaselineKind, ...]:
    """Return the baselines of `LAYOUTS` that apply to an operator. There are none if the operator names an order in memory."""
    return () if names_orders(op) else LAYOUTS.get((op.name, op.dtype in ("int8", "float8_e4m3fn")), ())


def check_bytes(op: Operator) -> None:
    """Raise ValueError if torch refuses the sizes of an 8-bit product on a GPU. Without the check cuBLAS would fail later."""
    if op.dtype not in ("int8", "float8_e4m3fn") or op.name not in ("gemm", "batched_gemm", "gemv"):
        return
    sizes: dict[str, Any] = dict(op.arguments)
    n = sizes.get("n", 1)
    if op.dtype == "float8_e4m3fn":
        if n % _FLOAT8_STEP or sizes["k"] % _FLOAT8_STEP:
            raise ValueError(f"no torch baseline for {op} on a GPU: torch._scaled_mm takes n and k in multiples of 16")
        return
    if sizes["m"] <= 16 or n % _INTEGER_STEP or sizes["k"] % _INTEGER_STEP:
        raise ValueError(f"no torch baseline for {op} on a GPU: torch._int_mm takes m above 16, n and k in multiples of 8")


def _inductor_options(op: Operator) -> dict[str, Any]:
    """Return the options of torch.compile for an operator.

    Matrix products use tuned Triton templates, since the default calls the eager libraries.
    """
    if op.name in ("gemm", "batched_gemm"):
        return {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    return {"max_autotune_pointwise": True}
