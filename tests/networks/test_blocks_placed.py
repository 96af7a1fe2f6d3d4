"""Blocks that compute places at each call: torch's numbers by kernels for every piece, at batch 1 and 4."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.forms import put_together
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.load import NetworkFunction
from tests.support.blocks.placed import PLACED
from tests.support.networks import in_float64, kernels_of
from tests.support.thorough import thorough_but

CASES = [f"{name}, {batch}" for name in PLACED for batch in (1, 4)]


@pytest.mark.parametrize("case", thorough_but(CASES, "experts, 4"))
def test_against_torch(case: str) -> None:
    name, batch = case.split(", ")
    torch.manual_seed(int(batch))
    build, inputs_of = PLACED[name]
    module, inputs, other = build().eval(), inputs_of(int(batch)), inputs_of(int(batch))
    plan = fine(folded(from_torch(module, inputs)))
    function = NetworkFunction(plan, kernels_of(plan, 0, 0), 2)
    for given in (inputs, other):
        made = function(*given)
        found = put_together(plan.network.form, made if isinstance(made, tuple) else (made,)) if plan.network.form else made
        expected = in_float64(module, given)
        assert not isinstance(expected, dict) or list(found) == list(expected)
        for one, wanted in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            if wanted is not None:
                np.testing.assert_allclose(one.numpy(), wanted.numpy(), rtol=5e-4, atol=5e-5)
