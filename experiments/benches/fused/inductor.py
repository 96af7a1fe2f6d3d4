"""Fused operators in torch.compile's default mode: the compiled function, and its compiled graph called without overhead.

To fill an existing output, the compiled function ends in a copy, which Inductor fuses with the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._functorch import config as functorch
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from experiments.benches.fused.eager import function_of, tensors
from experiments.benches.fused.race import Ways
from gensor_gym.dataflow.graph import Dataflow


def prepare(graph: Dataflow, inputs: Sequence[np.ndarray], asked: dict[str, Any]) -> Ways:
    """Compile torch's function for a new output and for an existing output; return the ways to call both."""
    function, given = function_of(graph), tensors(inputs, asked["threads"])
    outputs = [torch.empty(value.shape) for value in graph.outputs]

    def into(*arrays: Any) -> None:
        found = function(*arrays[: len(given)])
        for own, made in zip(arrays[len(given) :], found if isinstance(found, tuple) else (found,), strict=True):
            own.copy_(made)

    whole, inner = _compiled(function, given)
    filling, filling_inner = _compiled(into, [*given, *outputs])

    def filled(call: Callable[[], Any]) -> Callable[[], Any]:
        def filled_in() -> Any:
            call()
            return outputs

        return filled_in

    calls = {"called": lambda: whole(*given), "into": filled(lambda: filling(*given, *outputs))}
    if inner is not None and filling_inner is not None:
        calls |= {"called_inner": inner, "into_inner": filled(filling_inner)}
    return Ways(calls, {} if "called_inner" in calls else {"inner": "more than one compiled graph, or other inputs than given"})


def _compiled(function: Callable[..., Any], given: list[Any]) -> tuple[Callable[..., Any], Callable[[], Any] | None]:
    """Compile a function for the arguments `given`; return (compiled function, direct call of Inductor's code).

    The direct call is None if there are several graphs, or if the graph reads other inputs than `given`. Inductor is passed to
    torch.compile as a function, so that its result can be kept. Dynamo orders inputs by their first use.
    """
    kept: list[tuple[Any, list[int]]] = []

    def backend(module: Any, examples: Any) -> Any:
        addresses = [array.data_ptr() for array in given]
        order = [addresses.index(one.data_ptr()) for one in examples if one.data_ptr() in addresses]

        def inner(graph: Any, inner_inputs: Any, **options: Any) -> Any:
            made = compile_fx_inner(graph, inner_inputs, **options)
            kept.append((made, order if len(order) == len(inner_inputs) else []))
            return made

        return compile_fx(module, examples, inner_compile=inner)

    whole = torch.compile(function, backend=backend)
    with functorch.patch(enable_autograd_cache=False):  # a hit in this cache would skip `inner`
        whole(*given)
    if len(kept) != 1 or not kept[0][1]:
        return whole, None
    code, order = kept[0][0].current_callable, kept[0][1]
    arrays = [given[place] for place in order]
    return whole, lambda: code(list(arrays))
