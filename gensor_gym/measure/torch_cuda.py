"""Torch on an NVIDIA GPU (cuBLAS, cuDNN, torch's own kernels, or torch.compile), timed as `cuda_device` times cubins.

The same protocol on both sides: graphs of as many calls, one event pair around them, warm caches. TF32 is on for
operators of dtype tf32 and off for all others, in matrix products and in convolutions, whose default is on; cuDNN may try
all its algorithms and take the fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_gym.measure.expectation import Draw, decode
from gensor_gym.measure.torch_baseline import tensors_of, torch_function
from gensor_gym.operators.inputs import to_bfloat16
from gensor_gym.operators.types import Operator

GRAPH_CALLS = 128
"""Calls in one graph, as in `cuda_device`."""
_WARM_CALLS = 3
TOLERANCE = {"float32": 5e-5, "tf32x3": 5e-5, "tf32": 1e-3, "float16": 5e-3, "bfloat16": 3e-2, "int8": 0.0}
"""Accepted ||out - reference|| / ||reference||, by the operator's data type. Winograd and FFT convolutions are within
2e-5 and would fail the bound of single elements that generated kernels must meet; TF32 errs by 3e-4, which is too much
for float32."""


class TorchCudaBaseline:
    """Torch's kernel for an operator on given inputs, on GPU 0."""

    def __init__(self, op: Operator, inputs: tuple[np.ndarray, ...], compiled: bool = False) -> None:
        """Copy the inputs; `compiled` goes through torch.compile (Triton). Calls a few times, so that all is chosen."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = op.dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = op.dtype == "tf32"
        torch.backends.cudnn.benchmark = True
        self._torch = torch
        self._dtype = op.output.dtype
        self._tolerance = TOLERANCE[op.dtype]
        self._function: Any = torch_function(op, tensors_of(op, inputs, "cuda"))
        if compiled:
            self._function = torch.compile(self._function, dynamic=False, options=_inductor_options(op))
        self._stream = torch.cuda.Stream()
        self._graphs: dict[int, Any] = {}
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for _ in range(_WARM_CALLS):
                self._function()
        torch.cuda.synchronize()

    def output(self) -> np.ndarray:
        """The result of one call, as kernels hold it."""
        with self._torch.no_grad():
            result = self._function()
        self._torch.cuda.synchronize()
        return to_bfloat16(result.float().cpu().numpy()) if self._dtype == "bfloat16" else result.cpu().numpy()

    def fault(self, draw: Draw) -> str:
        """What is wrong with the output: its distance from the reference as a whole. Empty when nothing."""
        return distance_fault(decode(self.output(), self._dtype), draw, self._tolerance)

    def time(self, calls: int) -> float:
        """Seconds between events around `calls` calls on one stream."""
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
        """A CUDA graph of that many calls."""
        if calls not in self._graphs:
            torch = self._torch
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, stream=self._stream):
                for _ in range(calls):
                    self._function()
            torch.cuda.synchronize()
            self._graphs[calls] = graph
        return self._graphs[calls]


def distance_fault(output: np.ndarray, draw: Draw, tolerance: float) -> str:
    """Empty when ||output - reference|| <= tolerance * ||reference||, where the draw knows the reference."""
    if draw.index is None and output.shape != draw.reference.shape:
        return f"shape {output.shape} instead of {draw.reference.shape}"
    values = output.reshape(-1)[draw.index] if draw.index is not None else output
    error = float(np.linalg.norm((values.astype(np.float64) - draw.reference).ravel()))
    scale = float(np.linalg.norm(draw.reference.ravel()))
    if error <= tolerance * scale:  # NaN fails
        return ""
    return f"relative distance from the reference is {error / max(scale, 1e-300):.3g}, accepted {tolerance:g}"


def _inductor_options(op: Operator) -> dict[str, Any]:
    """Matrix products and convolutions by Triton templates, tuned: else torch.compile calls the eager libraries."""
    if op.name in ("gemm", "batched_gemm"):
        return {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    return {"max_autotune_pointwise": True}
