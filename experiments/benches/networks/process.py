"""One library of a comparison (a side), in its own process: `python -m experiments.benches.networks.process SIDE`.

A side is one of SIDES, or `ours/PLAN/ARENA` for our compiler with that plan and memory layout. It answers the requests of
`experiments.benches.fused.race`.
"""

from __future__ import annotations

import copy
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from experiments.benches.fused.race import OURS, Ways, arrays_of, serve
from experiments.benches.networks.qualities import quality_of
from experiments.networks.quantised import lowered, quantised, quantised_onnx
from experiments.networks.suite import in_type
from gensor_gym.dataflow.expressions import INT8
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.networks.fusion.rules import plan_of

if TYPE_CHECKING:
    from agents.networks import CompiledNetwork
    from gensor_gym.networks.network import Network
    from gensor_gym.networks.plan import Plan

FAR = {"float32": 1e-4, "bfloat16": 1e-1, "float16": 1e-2, "int8": 1e-1}
"""Largest allowed deviation from the module's output in float64, relative to the output's largest magnitude, by data type.

Eager torch deviates by up to 5e-2 in bfloat16 (MobileNetV2). In int8 the deviation is from the quantised module in eager torch.
"""
QUANTISED_OTHERWISE = {"onnxruntime": 0.5}
"""The same limit in int8 for a library that quantises the network itself, and so rounds other values."""
PART = 8
"""Number of samples of a batch that the module computes at a time in float64."""
Sides = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]], Ways]


@torch.no_grad()
def prepare(name: str, asked: dict[str, Any]) -> tuple[Ways, dict[str, str]]:
    """(ways to call a network in the library `name`, way -> fault of its outputs)."""
    torch.set_num_threads(asked["threads"])
    side, _, way = name.partition("/")
    asked = {**asked, "quality": quality_of(name, asked)}
    plan, arena = way.split("/") if way and not asked["quality"] else (asked["plan"], asked["arena"])
    dtype = asked.get("dtype", "float32")
    module, inputs, expected = drawn(asked["network"], asked["batch"], asked["seed"], dtype)
    ways = SIDES[side](module, inputs, {**asked, "plan": plan, "arena": arena})
    most = QUANTISED_OTHERWISE.get(side, FAR[dtype]) if dtype == INT8 else FAR[dtype]
    return ways, {way: fault for way, call in ways.calls.items() if (fault := fault_of(call(), expected, most))}


@torch.no_grad()
def drawn(
    name: str, batch: int, seed: int, dtype: str = "float32"
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], list[np.ndarray]]:
    """(network, its inputs, its outputs in float64); weights and inputs of floats are rounded to the data type.

    In int8 the network is quantised, inputs are float32, and the outputs are those of eager torch. ValueError without torchao.
    """
    if dtype == INT8:
        module, inputs = in_type(name, "float32", batch, seed)
        module = quantised(module, inputs)
        return module, inputs, arrays_of(module(*inputs))
    module, inputs = in_type(name, dtype, batch, seed)
    return module, inputs, expected_of(copy.deepcopy(module).double(), inputs)


def expected_of(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    """Outputs of a module in float64, PART samples of the batch at a time, because all at once may not fit in memory."""
    parts = zip(*(one.split(PART) for one in inputs), strict=True)
    made = [arrays_of(module(*(one.double() if one.is_floating_point() else one for one in part))) for part in parts]
    return [np.concatenate(pieces) for pieces in zip(*made, strict=True)]


def fault_of(outputs: Any, expected: list[np.ndarray], most: float = FAR["float32"]) -> str:
    """Describe the first output that is farther than `most` from the module's output in float64; empty if all are near."""
    found = arrays_of(outputs)
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}"
    return next(filter(None, (_fault(*pair, most) for pair in zip(found, expected, strict=True))), "")


def _fault(found: np.ndarray, expected: np.ndarray, most: float) -> str:
    if found.shape != expected.shape:
        return f"an output of shape {list(found.shape)}, expected {list(expected.shape)}"
    far = float(np.abs(found - expected).max() / np.abs(expected).max())
    return "" if far <= most else f"{far:.2g} of the largest number away, expected at most {most:g}"


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    return Ways({"called": lambda: module(*inputs)})


def _inductor(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    """Inductor with frozen weights, as users set it for inference: it packs weights and folds normalisations into them.

    Freezing is set for the whole process, because it has no effect as an option of torch.compile (torch 2.13).
    """
    from torch._inductor import config

    config.freezing = True
    if asked["quality"]:
        config.compile_threads = usable_cores()
    begin = time.perf_counter()
    compiled = torch.compile(lowered(module, inputs) if asked.get("dtype") == INT8 else module)
    compiled(*inputs)
    return Ways({"called": lambda: compiled(*inputs)}, {"compiled_s": time.perf_counter() - begin})


def _onnxruntime(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    import onnxruntime

    in_int8 = asked.get("dtype") == INT8
    if in_int8:
        module = in_type(asked["network"], "float32", asked["batch"], asked["seed"])[0]
    model = io.BytesIO()
    names = [f"x{place}" for place in range(len(inputs))]
    # The newer exporter needs another package.
    torch.onnx.export(module, inputs, model, input_names=names, dynamo=False)  # type: ignore[arg-type]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = asked["threads"]
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    given = {name: one.numpy() for name, one in zip(names, inputs, strict=True)}
    text = quantised_onnx(model.getvalue(), given) if in_int8 else model.getvalue()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return Ways({"called": lambda: session.run(None, given)})


def _compiled(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> CompiledNetwork:
    """Compile a module at a quality, from nothing, or with a few trials for every piece, which a second run reuses."""
    from agents.networks import compile_module

    def planned(network: Network) -> Plan:
        plan, most = plan_of(network, asked["plan"]), asked.get("most_bytes")
        if most is not None and (size := held_bytes(plan)) > most:
            raise ValueError(f"a call holds {size / 1e9:.1f} GB, more than {most / 1e9:.1f}")
        return plan

    effort = {"quality": asked["quality"]} if asked["quality"] else {"trials": asked["trials"]}
    if asked["quality"]:
        os.environ["GENSOR_GYM_CACHE"] = str(Path(asked["folder"]) / asked["quality"])
    return compile_module(module, inputs, plan=planned, **effort, seed=asked["seed"], arena=asked["arena"])


def held_bytes(plan: Plan) -> int:
    """Lower bound on the bytes that a call holds at once: inputs, weights, outputs, and other values of the largest kernel."""
    network, sizes = plan.network, {value.name: value.nbytes for value in plan.network.graph.values.values()}
    always = {value.name for value in (*network.graph.inputs, *network.outputs)}
    moving = (sum(sizes[name] for name in {*step.reads, *step.writes} - always) for step in plan.steps)
    return sum(sizes[name] for name in always) + max(moving, default=0)


def _ours(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    begin = time.perf_counter()
    found = _compiled(module, inputs, asked)
    layout = found.function.layout
    facts = {
        "kernels": len(found.kernels), "distinct": len({id(result) for result in found.results}),
        "compiled_s": time.perf_counter() - begin, "searched": len({id(result) for result in found.results if result.trace}),
        "sum_of_isolated_s": sum(result.seconds for result in found.results),
        "arena_bytes": layout.arena.bytes, "least_arena_bytes": layout.needed, "fixed_bytes": layout.fixed_bytes,
    }  # fmt: skip
    return Ways({"called": lambda: found(*inputs)}, facts)


def _profiled(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    """Our compiled network with a profile. Its outputs are from the last call with a clock between kernels."""
    from experiments.benches.networks.profile import profile

    found = profile(_compiled(module, inputs, asked), [one.numpy() for one in inputs], asked["calls"])
    outputs = found.pop("outputs")
    return Ways({"called": lambda: outputs}, {"steps": found["steps"], **found["whole"]})


SIDES: dict[str, Sides] = {
    OURS: _ours, "profiled": _profiled, "eager": _eager, "inductor": _inductor, "onnxruntime": _onnxruntime,
}  # fmt: skip
"""Side -> function that prepares the ways to call the side's library."""


if __name__ == "__main__":
    side = sys.argv[1]
    torch.set_grad_enabled(False)  # also for the timed calls
    serve(side, lambda asked: prepare(side, asked))
