"""One library's side, in a process of its own: `python -m experiments.benches.networks.process SIDE`.

It answers to the requests that a side of fused operators answers to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from experiments.benches.fused.process import OURS, Ways, serve
from experiments.networks.suite import inputs_of, module_of

FAR = 1e-4
"""Of the largest number of an output how far another may be from the module's in float64."""
Sides = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]], Ways]


def prepare(name: str, asked: dict[str, Any]) -> tuple[Ways, dict[str, str]]:
    """The ways to call a network in a library, and what is wrong with their outputs."""
    torch.set_num_threads(asked["threads"])
    torch.set_grad_enabled(False)
    module, inputs = module_of(asked["network"], asked["seed"]), inputs_of(asked["network"], asked["batch"], asked["seed"])
    ways = SIDES[name](module, inputs, asked)
    expected = module.double()(*(one.double() for one in inputs)).numpy()
    return ways, {way: fault for way, call in ways.calls.items() if (fault := _fault(np.asarray(call()), expected))}


def _fault(found: np.ndarray, expected: np.ndarray) -> str:
    if found.shape != expected.shape:
        return f"an output of shape {list(found.shape)}, expected {list(expected.shape)}"
    far = float(np.abs(found - expected).max() / np.abs(expected).max())
    return "" if far <= FAR else f"{far:.2g} of the largest number away, expected at most {FAR:g}"


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    given = _own(module)
    return Ways({"called": lambda: given(*inputs)})


def _inductor(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    """With weights frozen, so that they are packed and normalisations folded, as its users for inference set it.

    By the setting of the process: as an option of torch.compile it is taken and does nothing (torch 2.13).
    """
    from torch._inductor import config

    config.freezing = True
    compiled = torch.compile(_own(module))
    compiled(*inputs)
    return Ways({"called": lambda: compiled(*inputs)})


def _onnxruntime(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    import io

    import onnxruntime

    model = io.BytesIO()
    names = [f"x{place}" for place in range(len(inputs))]
    # The other exporter wants one package more.
    torch.onnx.export(_own(module), inputs, model, input_names=names, dynamo=False)  # type: ignore[arg-type]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = asked["threads"]
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.getvalue(), options, providers=["CPUExecutionProvider"])
    given = {name: one.numpy() for name, one in zip(names, inputs, strict=True)}
    return Ways({"called": lambda: session.run(None, given)[0]})


def _ours(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    """Every piece searched with a few trials; a second run finds them again."""
    import time

    from agents.networks import compile_module

    begin = time.perf_counter()
    found = compile_module(_own(module), inputs, trials=asked["trials"], seed=asked["seed"], arena=asked["arena"])
    layout = found.function.layout
    facts = {
        "kernels": len(found.kernels), "distinct": len({id(result) for result in found.results}),
        "compiled_s": time.perf_counter() - begin, "searched": len({id(result) for result in found.results if result.trace}),
        "sum_of_isolated_s": sum(result.seconds for result in found.results),
        "arena_bytes": layout.arena.bytes, "least_arena_bytes": layout.needed, "fixed_bytes": layout.fixed_bytes,
    }  # fmt: skip
    return Ways({"called": lambda: found(*inputs)}, facts)


def _own(module: torch.nn.Module) -> torch.nn.Module:
    """A copy: the module itself becomes float64 for verification."""
    import copy

    return copy.deepcopy(module)


SIDES: dict[str, Sides] = {OURS: _ours, "eager": _eager, "inductor": _inductor, "onnxruntime": _onnxruntime}
"""Name -> what prepares its ways."""


if __name__ == "__main__":
    side = sys.argv[1]
    serve(side, lambda asked: prepare(side, asked))
