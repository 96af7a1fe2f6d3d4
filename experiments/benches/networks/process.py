"""Process of one library (a side) in the comparison of networks: `python -m experiments.benches.networks.process SIDE`.

A side is a key of `SIDES`, or `ours/PLAN/ARENA` for our compiler with that plan and memory layout. The process answers the
requests that `experiments.benches.fused.race` defines.
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
"""Largest allowed error of an output, by data type, relative to the largest magnitude of the expected output.

The expected output is the network's in float64; for int8, it is the quantised network's in eager torch. Eager torch's error is
up to 5e-2 in bfloat16 (MobileNetV2).
"""
QUANTISED_OTHERWISE = {"onnxruntime": 0.5, "openvino": 0.5}
"""Largest allowed error in int8, relative as in FAR, of a library that quantises the network itself and so rounds otherwise.

OpenVINO reads the network that ONNX Runtime's tool quantised.
"""
_PRECISIONS = {"bfloat16": "bf16", "float16": "f16"}
"""16-bit type -> OpenVINO's name of it."""
_TOLD = ("layerType", "primitiveType")
"""What OpenVINO tells of each node of a compiled model: the operation, and the kernel with the type that it computes in."""
PART = 8
"""Number of samples of a batch for which the float64 reference is computed at a time."""
Sides = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]], Ways]


@torch.no_grad()
def prepare(name: str, asked: dict[str, Any]) -> tuple[Ways, dict[str, str]]:
    """Prepare a network in the library `name` and return (ways, faults).

    `ways` are the ways to call the network; `faults` says, by way, why its outputs are wrong, and leaves out correct ways.
    """
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
    """Return (network, inputs, expected): a random network, random inputs, and its outputs in float64.

    Weights and floating-point inputs are rounded to the data type first. For int8, the network is quantised, its inputs are
    float32, and the expected outputs are those of eager torch; raise ValueError if torchao is not installed.
    """
    if dtype == INT8:
        module, inputs = in_type(name, "float32", batch, seed)
        module = quantised(module, inputs)
        return module, inputs, arrays_of(module(*inputs))
    module, inputs = in_type(name, dtype, batch, seed)
    return module, inputs, expected_of(copy.deepcopy(module).double(), inputs)


def expected_of(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    """Compute a network's outputs in float64, `PART` samples of the batch at a time, because all may not fit in memory."""
    parts = zip(*(one.split(PART) for one in inputs), strict=True)
    made = [arrays_of(module(*(one.double() if one.is_floating_point() else one for one in part))) for part in parts]
    return [np.concatenate(pieces) for pieces in zip(*made, strict=True)]


def fault_of(outputs: Any, expected: list[np.ndarray], most: float = FAR["float32"]) -> str:
    """Describe the first output that differs from `expected` by more than `most` times its largest magnitude; empty if none."""
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
    """Compile the network by Inductor with frozen weights, as users do for inference, and return the way to call it.

    With frozen weights, Inductor packs weights and folds normalisations into them. Freezing is set for the whole process, because
    it has no effect as an option of torch.compile (torch 2.13).
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

    text, given = _onnx_of(asked, module, inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = asked["threads"]
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return Ways({"called": lambda: session.run(None, given)})


def _onnx_of(
    asked: dict[str, Any], module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return (ONNX model, inputs by name); in int8, ONNX Runtime's tool quantises the float32 network."""
    in_int8, model = asked.get("dtype") == INT8, io.BytesIO()
    if in_int8:
        module = in_type(asked["network"], "float32", asked["batch"], asked["seed"])[0]
    given = {f"x{place}": one.numpy() for place, one in enumerate(inputs)}
    try:
        torch.onnx.export(module, inputs, model, input_names=[*given], dynamo=False)  # type: ignore[arg-type]
    except torch.onnx.errors.UnsupportedOperatorError:  # the newer exporter has more operations and needs another package
        model = io.BytesIO()
        exported: Any = torch.onnx.export(module, inputs, input_names=[*given], dynamo=True, verbose=False)
        exported.save(model)
    return (quantised_onnx(model.getvalue(), given) if in_int8 else model.getvalue()), given


def _openvino(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> Ways:
    """Compile the network by OpenVINO. In 16 bits it gets a float32 network, and rounds as its precision hint says."""
    import openvino

    precision = _PRECISIONS.get(asked.get("dtype", "float32"), "f32")
    settings = {
        "INFERENCE_NUM_THREADS": asked["threads"], "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision,
    }  # fmt: skip
    if precision != "f32":
        module = copy.deepcopy(module).float()
        inputs = tuple(one.float() if one.is_floating_point() else one for one in inputs)
    try:
        model = None if asked.get("dtype") == INT8 else openvino.convert_model(module, example_input=inputs)
    except openvino.frontend.OpConversionFailure:
        model = None
    if model is None:
        model = openvino.Core().read_model(io.BytesIO(_onnx_of(asked, module, inputs)[0]))
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    request, given = compiled.create_infer_request(), [one.numpy() for one in inputs]
    facts = _products_in_int8(compiled) if asked.get("dtype") == INT8 else {}

    def call() -> list[np.ndarray]:
        found = request.infer(given)
        return [found[place] for place in range(len(found))]

    return Ways({"called": call}, facts)


def _products_in_int8(compiled: Any) -> dict[str, Any]:
    """Return the number of products of a model that OpenVINO compiled, and of those that it computes in int8."""
    told = [{key: node.get_rt_info()[key].astype(str) for key in _TOLD} for node in compiled.get_runtime_model().get_ops()]
    kinds = [one["primitiveType"] for one in told if one["layerType"] in ("Convolution", "FullyConnected", "MatMul")]
    return {"products": len(kinds), "products_in_int8": sum(kind.endswith("_I8") for kind in kinds)}


def _compiled(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], asked: dict[str, Any]) -> CompiledNetwork:
    """Compile the network with our compiler, at the quality asked for or else with a number of trials for each kernel.

    At a quality, the cache is empty; otherwise a second run reuses the trials of the first. Raise ValueError if a call would hold
    more than `most_bytes`.
    """
    from agents.modules import compile_module

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
    """Return a lower bound on the bytes that a call holds at once.

    Inputs, weights and outputs are held all the time, and in addition the other arrays of the kernel that has most of them.
    """
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
    """Compile the network with our compiler and time its kernels one by one.

    The way `called` returns the outputs of the last timed call.
    """
    from experiments.benches.networks.profile import profile

    found = profile(_compiled(module, inputs, asked), inputs, asked["calls"])
    outputs = found.pop("outputs")
    return Ways({"called": lambda: outputs}, {"steps": found["steps"], **found["whole"]})


SIDES: dict[str, Sides] = {
    OURS: _ours, "profiled": _profiled, "eager": _eager, "inductor": _inductor, "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}  # fmt: skip
"""Side -> function that prepares a network in the side's library and returns the ways to call it."""


if __name__ == "__main__":
    side = sys.argv[1]
    torch.set_grad_enabled(False)  # also for the timed calls
    serve(side, lambda asked: prepare(side, asked))
