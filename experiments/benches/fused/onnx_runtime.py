"""Fused operators as ONNX models for ONNX Runtime: ONNX's own operator, or else as few operators as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper

from experiments.benches.fused.race import Ways
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import arguments_of

OPSET, IR = 23, 11
"""Versions of ONNX's operator set and file format; RMSNormalization needs operator set 23."""
Arguments = dict[str, Any]


class Model:
    """Nodes and constants collected while an ONNX model is built."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *sources: str, to: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name: `to`, or a new name."""
        to = to or f"made_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(sources), [to], **attributes))
        return to

    def constant(self, value: float | list[int]) -> str:
        """Add a constant, a float32 number or a list of int64 numbers, and return its name."""
        name = f"constant_{len(self.constants)}"
        array = np.array(value, np.int64 if isinstance(value, list) else np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def _masked(m: Model, a: Arguments) -> None:
    m.add("Softmax", m.add("Add", m.add("Mul", "x", m.constant(a["scale"])), "mask"), to="y", axis=1)


def _layernorm(m: Model, a: Arguments, x: str) -> None:
    m.add("LayerNormalization", x, "gamma", "beta", to="y", axis=1, epsilon=a["eps"])


def _rope(m: Model, a: Arguments) -> None:
    half, axis = a["d"] // 2, m.constant([2])
    left = m.add("Slice", "x", m.constant([0]), m.constant([half]), axis)
    right = m.add("Slice", "x", m.constant([half]), m.constant([2 * half]), axis)
    first = m.add("Sub", m.add("Mul", left, "cosines"), m.add("Mul", right, "sines"))
    second = m.add("Add", m.add("Mul", right, "cosines"), m.add("Mul", left, "sines"))
    m.add("Concat", first, second, to="y", axis=2)


def _shuffled(m: Model, a: Arguments) -> None:
    apart = m.add("Reshape", "x", m.constant([a["n"], a["groups"], a["c"], a["h"] * a["w"]]))
    turned = m.add("Transpose", apart, perm=[0, 2, 1, 3])
    m.add("Reshape", turned, m.constant([a["n"], a["groups"] * a["c"], a["h"], a["w"]]), to="y")


def _gelu(sign: str) -> Callable[[Model, Arguments], object]:
    return lambda m, a: m.add("Gelu", m.add("Add", "x", "bias"), to="y", approximate=sign)


MODELS: dict[str, Callable[[Model, Arguments], object]] = {
    "softmax": lambda m, a: m.add("Softmax", "x", to="y", axis=1),
    "masked_softmax": _masked,
    "layernorm": lambda m, a: _layernorm(m, a, "x"),
    "add_layernorm": lambda m, a: _layernorm(m, a, m.add("Add", "x", "r", to="s")),
    "rmsnorm": lambda m, a: m.add("RMSNormalization", "x", "gamma", to="y", axis=1, epsilon=a["eps"]),
    "norm": lambda m, a: m.add("ReduceL2", "x", m.constant([0, 1]), to="y", keepdims=1),
    "gelu": lambda m, a: m.add("Gelu", "x", to="y"),
    "bias_gelu": _gelu("none"), "bias_tanh_gelu": _gelu("tanh"), "rope": _rope,
    "swiglu": lambda m, a: m.add("Mul", m.add("Mul", "gate", m.add("Sigmoid", "gate")), "up", to="y"),
    "channel_shuffle": _shuffled,
    "transpose_last": lambda m, a: m.add("Transpose", "x", to="y", perm=[0, 2, 1]),
    "transpose_relu": lambda m, a: m.add("Relu", m.add("Transpose", "x", perm=[2, 0, 3, 1]), to="y"),
    "relu_add": lambda m, a: m.add("Add", m.add("Relu", "x"), "r", to="y"),
    "relu_sub": lambda m, a: m.add("Sub", m.add("Relu", "x"), "r", to="y"),
    "bias": lambda m, a: m.add("Add", "x", "offset", to="y"),
    "reduce_mean": lambda m, a: m.add("ReduceMean", "x", m.constant([2]), to="y", keepdims=1),
    "kv_concat": lambda m, a: m.add("Concat", "before", "now", to="y", axis=1),
}  # fmt: skip
"""Factory of fused operators -> function that adds the factory's ONNX nodes to a model.

Inputs and outputs have the names that they have in the operator's graph.
"""


def model_of(graph: Dataflow) -> Any:
    """Return the ONNX model of a fused operator; ValueError if `MODELS` lacks the operator's factory."""
    if graph.name not in MODELS or not graph.label:
        raise ValueError(f"{graph}: ONNX models are known for {', '.join(MODELS)}")
    made = Model()
    MODELS[graph.name](made, arguments_of(graph))
    inputs, outputs = (
        [helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.shape) for value in values]
        for values in (graph.inputs, graph.outputs)
    )
    whole = helper.make_graph(made.nodes, graph.name, inputs, outputs, made.constants)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    checker.check_model(model, full_check=True)
    return model


def prepare(graph: Dataflow, inputs: Sequence[np.ndarray], asked: dict[str, Any]) -> Ways:
    """Return the ways to call an ONNX Runtime session on these inputs: with arrays, and bound to existing inputs and outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = asked["threads"], 1
    session = onnxruntime.InferenceSession(model_of(graph).SerializeToString(), options, ["CPUExecutionProvider"])
    given = {value.name: array for value, array in zip(graph.inputs, inputs, strict=True)}
    own = [aligned(value.shape, np.dtype(np.float32)) for value in graph.outputs]
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    for value, array in zip(graph.outputs, own, strict=True):
        binding.bind_output(value.name, "cpu", 0, np.float32, array.shape, array.ctypes.data)

    def bound() -> Any:
        session.run_with_iobinding(binding)
        return own

    return Ways({"called": lambda: session.run(None, given), "into": bound})
