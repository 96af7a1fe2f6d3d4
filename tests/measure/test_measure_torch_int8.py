"""Torch's int8 baselines give int32 sums, or there is none."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.baselines.torch import TorchBaseline


@pytest.mark.parametrize("text", [
    'gemm(m=40, n=50, k=33, dtype="int8")', 'gemm(m=40, n=50, k=33, dtype="int8")+bias+relu+residual',
    'batched_gemm(b=3, m=9, n=20, k=37, dtype="int8")', 'gemv(m=45, k=67, dtype="int8")+bias',
    'reduce_sum(m=45, k=67, dtype="int8")',
])  # fmt: skip
def test_int32_results(text: str) -> None:
    op = operators.parse(text)
    draw = make_draws(op, 0)[0]
    baseline = TorchBaseline(op, draw.inputs, 1)
    assert baseline.output().dtype == np.int32 and baseline.fault(draw) == ""


@pytest.mark.parametrize("text", [
    'conv2d(n=1, c=4, h=8, w=8, k=8, r=3, s=3, dtype="int8")', 'max_pool2d(n=1, c=4, h=8, w=8, r=2, s=2, stride=2, dtype="int8")',
    'elementwise(name="add", shape=(4, 4), dtype="int8")',
])  # fmt: skip
def test_none_where_torch_has_no_int32_result(text: str) -> None:
    op = operators.parse(text)
    with pytest.raises(ValueError, match="of int8"):
        TorchBaseline(op, make_draws(op, 0)[0].inputs, 1)
