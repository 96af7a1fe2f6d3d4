"""Networks in int8 beside peers: quantised by torchao, where it is installed, and by ONNX Runtime."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from experiments.benches.networks.process import FAR, QUANTISED_OTHERWISE, _products_in_int8, fault_of, prepare
from experiments.networks.quantised import quantised


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ValueError, match="networks in int8: torchao is not installed: pip install"):
        quantised(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))


def test_each_side_multiplies_in_int8() -> None:
    pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    asked = {"network": "mlp_1", "batch": 4, "seed": 0, "dtype": "int8", "threads": 1, "trials": 1}
    asked |= {"plan": "fine", "arena": "hot"}
    for side in ("ours", "eager"):
        ways, faults = prepare(side, asked)
        assert not faults and len(ways.calls) == 1
    pytest.importorskip("onnxruntime.quantization")
    assert not prepare("onnxruntime", asked)[1]
    pytest.importorskip("openvino")
    ways, faults = prepare("openvino", asked)
    assert not faults and ways.facts == {"products": 3, "products_in_int8": 3}


class Any(str):
    """A text that OpenVINO tells."""

    def astype(self, kind: type) -> str:
        return kind(self)


class Told:
    """A model that OpenVINO compiled, with the given kernels."""

    def __init__(self, *kernels: str) -> None:
        self.kernels = kernels

    def get_runtime_model(self) -> Told:
        return self

    def get_ops(self) -> list[Told]:
        return [Told(kernel) for kernel in self.kernels]

    def get_rt_info(self) -> dict[str, Any]:
        return {"layerType": Any("MatMul"), "primitiveType": Any(self.kernels[0])}


def test_products_that_openvino_computes_in_int8_are_counted() -> None:
    assert _products_in_int8(Told("brgemm_avx512_I8", "brgemm_avx512_f32")) == {"products": 2, "products_in_int8": 1}
    assert _products_in_int8(Told("brgemm_avx512_f32")) == {"products": 1, "products_in_int8": 0}


def test_another_quantisation_has_a_wider_bound_than_rounding() -> None:
    wanted = [np.array([1.0, -0.5])]
    assert not fault_of([wanted[0] + 0.2], wanted, QUANTISED_OTHERWISE["onnxruntime"])
    assert "0.2 of the largest number away" in fault_of([wanted[0] + 0.2], wanted, FAR["int8"])
