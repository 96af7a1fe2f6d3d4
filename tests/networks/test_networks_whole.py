"""Networks of the field as one function: every kernel within its bound of float64, all together near torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from agents.networks import compile_network
from experiments.networks import attention, convolutional
from experiments.networks.suite import Ids, drawn, inputs_of, module_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.network_steps import outputs_step_by_step
from tests.support.networks import in_float64, kernels_of
from tests.support.thorough import thorough_but

BERT = Ids((9,), 40), Ids((9,), 2), Ids((9,), 2)
SMALL = {"bert": (attention.bert_of_ids, BERT), "gpt2": (attention.gpt2_of_ids, (Ids((9,), 40),))}


Tensors = tuple[torch.Tensor, ...]


def check(module: nn.Module, inputs: Tensors, plan: Plan, kernels: list[Kernel], apart: float) -> NetworkFunction:
    """One after another the kernels keep their bounds, give what the function gives, and torch in float64 is near."""
    function = NetworkFunction(plan, kernels, 2)
    found = function(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    steps = outputs_step_by_step(plan, kernels, [one.numpy() for one in inputs], 2)
    expected = in_float64(module, inputs)
    for one, alone, wanted in zip(found, steps, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(one.numpy(), alone)
        size = float(wanted.abs().max())
        assert size > 0.01 and float((one - wanted).abs().max()) <= apart * size
    return function


def small(name: str) -> tuple[nn.Module, Tensors, Plan]:
    """Two layers of 24 for nine tokens of forty, twice."""
    torch.manual_seed(0)
    build, kinds = SMALL[name]
    module, inputs = build(2, 24, 3, 40, 16).eval(), drawn(kinds, 2)
    return module, inputs, cut_all(folded(from_torch(module, inputs)))


@pytest.mark.parametrize("name", thorough_but(SMALL, "gpt2"))
def test_small_ones_from_ids(name: str) -> None:
    module, inputs, plan = small(name)
    function = check(module, inputs, plan, kernels_of(plan, 0, 0), 1e-5)
    for wrong in (40, -1):
        inputs[0][1, 2] = wrong
        with pytest.raises(ValueError, match=rf"ids has id {wrong}: expected 0 to 39"):
            function(*inputs)
        made = function.bind(*(one.numpy() for one in inputs))()
        assert np.isnan(made[0] if isinstance(made, tuple) else made).any()


def test_what_is_joined() -> None:
    x, y = torch.randn(2, 6, 4, 3), torch.randn(2, 5, 4, 3)
    for module, inputs in ((convolutional.Merging(3, goes_on=True), (x,)), (convolutional.Channels(), (x, y))):
        plan = cut_all(folded(from_torch(module.eval(), inputs)))
        check(module, inputs, plan, kernels_of(plan, 0, 0), 1e-5)
    alone = convolutional.Merging(3, goes_on=False)(x)
    assert alone.shape == (2, 3, 2, 12)
    assert torch.equal(alone[0, 1, 1], torch.cat([x[0, 2, 2], x[0, 3, 2], x[0, 2, 3], x[0, 3, 3]]))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["resnet34", "resnet50", "mobilenet_v2", "bert", "gpt2", "bert_of_ids", "gpt2_of_ids"])
def test_the_networks(name: str) -> None:
    """With the programs that the model ranks first, whatever is known of them: nothing is measured twice."""
    module, inputs = module_of(name), inputs_of(name)
    compiled = compile_network(from_torch(module, inputs), trials=1)
    check(module, inputs, compiled.plan, list(compiled.kernels), 1e-4)
