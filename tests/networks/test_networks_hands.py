"""A network in the hands of whoever calls it: memory that is held once, forks, inputs that nothing reads, clear errors."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.networks import packed_kernels


@pytest.fixture(scope="module")
def packed() -> tuple[nn.Module, Plan, list[Kernel]]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 192), nn.Softmax(-1)).eval()
    plan = cut_all(folded(from_torch(module, [torch.randn(64, 192)])))
    return module, plan, packed_kernels(plan)


@pytest.mark.thorough
def test_a_fork_while_another_thread_runs_the_network(packed: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    """Whoever holds the lock of its packed weights lives in the parent alone."""
    module, plan, kernels = packed
    function, x, stop = NetworkFunction(plan, kernels, 1), torch.randn(64, 192), threading.Event()
    expected = function(x).numpy().copy()

    def calls() -> None:
        while not stop.is_set():
            function(x)

    running = threading.Thread(target=calls)
    running.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(5)
                code = 1
                try:
                    code = 0 if np.array_equal(function(x.numpy()), expected) else 2
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        running.join()
    with torch.no_grad():
        torch.testing.assert_close(function(x), module(x), rtol=1e-4, atol=1e-5)


def test_packed_weights_are_held_once(packed: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    _, plan, kernels = packed
    function, weights = NetworkFunction(plan, kernels, 1), 2 * 192 * 256 * 4
    biases = sum(array.nbytes for array in plan.network.constants.values()) - weights
    scratch = sum(kernel.workspace_bytes for kernel in kernels if kernel.prepacked) - weights
    assert function.layout.fixed_bytes <= weights + biases + scratch + 64 * len(plan.network.constants)
    assert {plan.network.constants[name].ndim for name in function.layout.constants} == {1}


class Unread(nn.Module):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return torch.relu(x) + z


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Always(nn.Module):
    """Nothing of the input is in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(self.weight)


@pytest.mark.parametrize(("module", "shapes"), [(Unread(), [(4, 8), (3,), (4, 8)]), (Same(), [(2, 5)]), (Always(), [(7,)])])
def test_inputs_that_nothing_reads_and_modules_without_operations(module: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    given = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
    plan, hw = cut_all(folded(from_torch(module.eval(), given))), hardware.get("host")
    kernels = [generate(step.computation, graph_of(step.computation, hw).initial(), hw) for step in plan.steps]
    function = NetworkFunction(plan, kernels, 1)
    with torch.no_grad():
        torch.testing.assert_close(function(*given), module(*given))
    (expected,) = plan.network.reference(*(one.numpy() for one in given))
    np.testing.assert_allclose(function(*given).numpy(), expected.value, rtol=1e-6)
    with pytest.raises(ValueError, match=f"{len(shapes) + 1} arrays given, expected {len(shapes)}"):
        function(*given, given[0])


def test_what_cannot_be_called_is_refused(packed: tuple[nn.Module, Plan, list[Kernel]]) -> None:
    _, plan, kernels = packed
    function, x = NetworkFunction(plan, kernels, 1), torch.randn(64, 192)
    for given, said in (
        (x[:32], r"Sequential: input \w+ is float32\[32, 192\], expected float32\[64, 192\]"),
        (x.double(), r"is float64\[64, 192\], expected float32"),
        (x.to("meta"), "cannot be read where it lies in the host's memory"),
        (x.clone().requires_grad_(), "cannot be read"),
    ):
        with pytest.raises(ValueError, match=said):
            function(given)
    own = torch.randn(64, 192)
    with pytest.raises(ValueError, match="out overlaps input"):
        function(own, out=own)
    with pytest.raises(ValueError, match=r"out is float32\[64, 191\]"):
        function(own, out=torch.empty(64, 191))
