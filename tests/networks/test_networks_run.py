"""Networks as one function: random modules with random schedules give torch's numbers; memory, threads and constants hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.nodes import Map
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.arena import MODES, Arena
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.called_kernel import in_threads
from tests.support.networks import check, kernels_of
from tests.support.random_modules import Draw
from tests.support.thorough import thorough_but


def check_random(seed: int, mode: str, walk: int = 6) -> None:
    drawn = Draw(seed)
    plan = cut_all(folded(from_torch(drawn.module, drawn.inputs)))
    check(NetworkFunction(plan, kernels_of(plan, seed, walk), 1 + seed % 2, mode), drawn.module, drawn.inputs)


@pytest.mark.as_shipped
@pytest.mark.parametrize(("seed", "mode"), thorough_but([(0, "hot"), (1, "whole"), (2, "none"), (3, "hot")], (1, "whole")))
def test_random_modules(seed: int, mode: str) -> None:
    check_random(seed, mode, walk=0 if seed % 2 else 6)


class Scaled(nn.Module):
    """A product whose channels have a bias, then a factor, then an addend."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 6)
        self.factor, self.addend = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.factor + self.addend


def test_a_factor_after_a_bias_goes_into_the_weights() -> None:
    """Folding scales the bias too, and leaves one addition."""
    torch.manual_seed(0)
    module, x = Scaled().eval(), torch.randn(5, 9)
    plan = cut_all(folded(from_torch(module, [x])))
    maps = [node for _, node in plan.network.graph.nodes if isinstance(node, Map)]
    assert [str(node.expression).count("multiply") for node in maps] == [0]
    check(NetworkFunction(plan, kernels_of(plan, 0, 0), 1, "hot"), module, [x], rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4, 44))
def test_more_random_modules(seed: int) -> None:
    check_random(seed, ("hot", "whole", "none")[seed % 3])


class Small(nn.Module):
    """Two products with a branch around the second, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.relu(self.first(x))
        return torch.softmax(self.second(a) + a, -1), a * y


@pytest.fixture(scope="module")
def small() -> tuple[nn.Module, Plan, list[Kernel]]:
    """A module, its plan, and kernels."""
    torch.manual_seed(0)
    module = Small().eval()
    plan = cut_all(folded(from_torch(module, [torch.randn(8, 16), torch.randn(8, 32)])))
    return module, plan, kernels_of(plan, 0, 0)


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 16, generator=generator), torch.randn(8, 32, generator=generator)


def assert_right(module: nn.Module, given: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for one, expected in zip(found, module(*given), strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)


def test_several_outputs_own_memory_and_arrays_of_torch(small: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    module, plan, kernels = small
    function = NetworkFunction(plan, kernels, 1)
    first, kept = function(*inputs(0)), function(*inputs(1))
    assert isinstance(first, tuple) and all(type(one) is torch.Tensor for one in first)
    assert_right(module, inputs(0), first)
    assert_right(module, inputs(1), kept)
    own = tuple(torch.empty(8, 32) for _ in range(2))
    assert function(*inputs(2), out=own) is own
    assert_right(module, inputs(2), own)


def test_threads_call_one_function(small: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    module, plan, kernels = small
    function = NetworkFunction(plan, kernels, 2)

    def calls(seed: int) -> None:
        for number in range(100):
            given = inputs(1000 * seed + number)
            assert_right(module, given, function(*given))

    in_threads(calls, 4)


def test_what_a_plan_says_is_checked(small: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    _, plan, _ = small
    assert Plan.parse(plan.network, str(plan)) == plan
    lines = str(plan).splitlines()
    for changed, said in (
        ("\n".join(lines[1:]), "in 0 pieces, expected 1"),
        ("\n".join([*lines, lines[-1]]), "in 2 pieces, expected 1"),
        ("\n".join(lines[::-1]), "not made before it"),
        (str(plan).replace("\n", " "), "no post-op|in another"),
    ):
        assert not Plan.parse(plan.network, changed).fault == ""
        with pytest.raises(ValueError, match=said):
            _ = Plan.parse(plan.network, changed).steps
    with pytest.raises(ValueError, match="'nothing': expected names of its nodes"):
        Plan.parse(plan.network, "nothing")


def test_planted_faults_are_seen(small: tuple[nn.Module, Plan, list[Kernel]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that lie on one another, and other constants, give other numbers: the tests above would fail for them."""
    module, plan, kernels = small
    assert_right(module, inputs(0), NetworkFunction(plan, kernels, 1)(*inputs(0)))
    largest = max(value.nbytes for value in plan.network.graph.values.values())
    monkeypatch.setitem(MODES, "all at 0", lambda lives: Arena({life.name: 0 for life in lives}, largest))
    constants = {name: np.ascontiguousarray(array + 1) for name, array in plan.network.constants.items()}
    moved = Plan(dataclasses.replace(plan.network, constants=constants), plan.pieces)
    for wrong in (NetworkFunction(plan, kernels, 1, "all at 0"), NetworkFunction(moved, kernels, 1)):
        with pytest.raises(AssertionError):
            assert_right(module, inputs(0), wrong(*inputs(0)))
