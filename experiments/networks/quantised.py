"""Networks in int8, quantised by torch's export flow with torchao's quantiser for x86, and by ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

WANTED = "torchao is not installed: pip install -c constraints.txt -e '.[lab,peers]'"


def quantised(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    """Quantise a module and return it: activations to 8 bits per tensor, weights to int8 per channel, calibrated on `inputs`.

    Raise ValueError if torchao is not installed.
    """
    flow = _torchao("quantize_pt2e")
    quantizers = _torchao("quantizer.x86_inductor_quantizer")
    quantizer = quantizers.X86InductorQuantizer().set_global(quantizers.get_default_x86_inductor_quantization_config())
    prepared = flow.prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    prepared(*inputs)
    made: torch.nn.Module = flow.convert_pt2e(prepared)
    return made


def lowered(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    """Prepare a module that `quantised` returned for `torch.compile`, by torchao, so that products are computed in int8."""
    made: torch.nn.Module = _torchao("lowering").lower_pt2e_quantized_to_x86(module, inputs)
    return made


def quantised_onnx(model: bytes, given: dict[str, np.ndarray]) -> bytes:
    """Quantise an ONNX model by ONNX Runtime to data types of `quantised`, calibrated on the inputs `given`, and return it."""
    from onnxruntime import quantization

    class Given(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Reader that hands out the inputs once."""

        def __init__(self) -> None:
            self.waiting: Iterator[dict[str, np.ndarray]] = iter([given])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.waiting, None)

    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder) / "plain.onnx", Path(folder) / "quantised.onnx"
        plain.write_bytes(model)
        types = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
        quantization.quantize_static(plain, made, Given(), quant_format=quantization.QuantFormat.QDQ, per_channel=True, **types)
        return made.read_bytes()


def _torchao(name: str) -> Any:
    try:
        return import_module(f"torchao.quantization.pt2e.{name}")
    except ImportError as error:
        raise ValueError(f"networks in int8: {WANTED}") from error
