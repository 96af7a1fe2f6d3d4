"""Comparison of networks in 16 bits: a stand-in for OpenVINO records its inputs and settings."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.benches.networks.process import prepare


class StandIn(ModuleType):
    """OpenVINO, which computes by eager torch what it is given, and notes its precision."""

    def __init__(self) -> None:
        super().__init__("openvino")
        self.frontend = SimpleNamespace(OpConversionFailure=RuntimeError)
        self.module: Any = None
        self.settings: dict[str, Any] = {}

    def convert_model(self, module: torch.nn.Module, example_input: tuple[torch.Tensor, ...]) -> torch.nn.Module:
        assert all(one.dtype == torch.float32 for one in (*module.parameters(), *example_input))
        return module

    def Core(self) -> StandIn:  # noqa: N802 (OpenVINO's name)
        return self

    def compile_model(self, model: torch.nn.Module, device: str, settings: dict[str, Any]) -> StandIn:
        self.module, self.settings = model, settings
        return self

    def create_infer_request(self) -> StandIn:
        return self

    def infer(self, given: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            return [self.module(*map(torch.from_numpy, given)).numpy()]


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "bf16"), ("float16", "f16"), ("float32", "f32")])
def test_openvino_gets_a_float32_network_and_the_precision(dtype: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()
    monkeypatch.setitem(sys.modules, "openvino", library)
    asked = {"network": "mlp_1", "batch": 4, "seed": 0, "dtype": dtype, "threads": 1, "trials": 1, "plan": "fine", "arena": "hot"}
    ways, faults = prepare("openvino", asked)
    assert not faults and len(ways.calls) == 1 and library.settings["INFERENCE_PRECISION_HINT"] == precision
    assert {one.dtype for one in library.module.parameters()} == {torch.float32}
