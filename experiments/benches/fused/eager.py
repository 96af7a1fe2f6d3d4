"""Fused operators in eager torch: for each operator, torch's own fused function, or else as few torch functions as possible.

Intermediate results may be overwritten, because only the output is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from experiments.benches.fused.race import Ways
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import arguments_of

Function = Callable[..., Any]
Arguments = dict[str, Any]
_GELU: Function = F.gelu  # its type stub lacks the parameter `out`


def _add_normalised(a: Arguments) -> Function:
    def function(x: Any, r: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        s = x + r
        return s, F.layer_norm(s, (a["n"],), gamma, beta, a["eps"])

    return function


def _rope(a: Arguments) -> Function:
    def function(x: Any, cosines: Any, sines: Any, out: Any = None) -> Any:
        left, right = x.chunk(2, -1)
        return torch.cat((left * cosines - right * sines, right * cosines + left * sines), -1, out=out)

    return function


def _transposed(order: Sequence[int]) -> Function:
    def function(x: Any, out: Any = None) -> Any:
        turned = x.permute(*order)
        return turned.contiguous() if out is None else out.copy_(turned)

    return function


def _relu_then(name: str) -> Callable[[Arguments], Function]:
    return lambda a: lambda x, r: getattr(torch.relu(x), name)(r)


EAGER: dict[str, Callable[[Arguments], Function]] = {
    "softmax": lambda a: lambda x, out=None: torch.softmax(x, -1, out=out),
    "masked_softmax": lambda a: lambda x, mask, out=None: torch.softmax(torch.add(mask, x, alpha=a["scale"]), -1, out=out),
    "layernorm": lambda a: lambda x, gamma, beta: F.layer_norm(x, (a["n"],), gamma, beta, a["eps"]),
    "add_layernorm": _add_normalised,
    "rmsnorm": lambda a: lambda x, gamma: F.rms_norm(x, (a["n"],), gamma, a["eps"]),
    "norm": lambda a: lambda x, out=None: torch.linalg.vector_norm(x, 2, (0, 1), True, out=out),
    "gelu": lambda a: lambda x, out=None: _GELU(x, out=out),
    "bias_gelu": lambda a: lambda x, bias, out=None: _GELU(x + bias, out=out),
    "bias_tanh_gelu": lambda a: lambda x, bias, out=None: _GELU(x + bias, approximate="tanh", out=out),
    "swiglu": lambda a: lambda gate, up: F.silu(gate).mul_(up),
    "rope": _rope,
    "channel_shuffle": lambda a: lambda x: F.channel_shuffle(x, a["groups"]),
    "transpose_last": lambda a: _transposed((0, 2, 1)),
    "transpose_relu": lambda a: lambda x: torch.relu(x.permute(2, 0, 3, 1)).contiguous(),
    "relu_add": _relu_then("add_"), "relu_sub": _relu_then("sub_"),
    "bias": lambda a: lambda x, offset, out=None: torch.add(x, offset, out=out),
    "reduce_mean": lambda a: lambda x, out=None: torch.mean(x, -1, True, out=out),
    "kv_concat": lambda a: lambda before, now, out=None: torch.cat((before, now), 1, out=out),
}  # fmt: skip
"""Factory of fused operators -> function that makes torch's call from the factory's arguments.

A call with a parameter `out` can fill an existing output.
"""


def function_of(graph: Dataflow) -> Function:
    """Return the function of eager torch that computes a fused operator; ValueError if the table `EAGER` lacks its name."""
    if graph.name not in EAGER or not graph.label:
        raise ValueError(f"{graph}: torch's functions are known for {', '.join(EAGER)}")
    return EAGER[graph.name](arguments_of(graph))


def tensors(inputs: Sequence[np.ndarray], threads: int) -> list[Any]:
    """Return torch tensors that share the memory of the inputs.

    Also set torch's number of threads, and turn off gradients for the rest of this process.
    """
    torch.set_num_threads(threads)
    torch.inference_mode().__enter__()  # for the whole process, which does nothing else
    return [torch.from_numpy(array) for array in inputs]


def prepare(graph: Dataflow, inputs: Sequence[np.ndarray], asked: dict[str, Any]) -> Ways:
    """Return the ways to call torch's function on these inputs.

    `called` returns a new output; `into`, which exists if the function takes `out`, fills an existing one.
    """
    function, given = function_of(graph), tensors(inputs, asked["threads"])
    calls = {"called": lambda: function(*given)}
    if "out" in inspect.signature(function).parameters:
        (value,) = graph.outputs
        own = torch.empty(value.shape)
        calls["into"] = lambda: function(*given, out=own)
    return Ways(calls)
