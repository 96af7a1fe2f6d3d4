"""Networks on a GPU: every kernel in the emulator beside float64, memory, and the calls of CuPy on a stand-in."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gensor_gym  # noqa: E402
from agents.networks import compile_module  # noqa: E402
from gensor_gym.codegen.runtime import cuda  # noqa: E402
from gensor_gym.frontends.unsupported import Unsupported  # noqa: E402
from gensor_gym.measure.emulator.emulator import EmulatedKernels  # noqa: E402
from gensor_gym.networks.gpu.function import GpuNetwork  # noqa: E402
from gensor_gym.networks.gpu.memory import Tasks  # noqa: E402
from gensor_gym.networks.layout import Base  # noqa: E402
from tests.support import networks_cupy  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

nn = torch.nn


class Block(nn.Module):
    """Convolutions with a normalisation, a residual, pooling and a head, as in networks of images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.pool, self.head = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.MaxPool2d(2), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        return self.head(self.pool(y + self.depthwise(y)).mean((2, 3)))


class Parts(nn.Module):
    """Parts of a value that begin at no multiple of 16 bytes, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        flat = y.reshape(-1)
        return self.other(flat[3:18].reshape(3, 5)), torch.cat([y[:1], 2 * y[1:]])


def encoder() -> Any:
    return nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, activation="gelu")


NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 7)), (3, 12)),
    "parts": (Parts, (4, 6)), "block": (Block, (2, 4, 8, 8)), "encoder": (encoder, (2, 5, 16)),
}  # fmt: skip


def network(name: str, **options: Any) -> tuple[Any, Any, Any]:
    """(compiled network, module, input), for an H100, by the model unless `options` say otherwise."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    module, x = make().eval(), torch.randn(shape)
    given = {"hardware": "h100", "backend": "analytic", "trials": 1, "reuse": False} | options
    return compile_module(module, (x,), **given), module, x


def every(found: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def check(found: Any, compiled: Any, x: Any) -> None:
    """Outputs lie within the bounds that are propagated node by node."""
    for made, expected in zip(every(found), compiled.plan.network.reference(x.numpy()), strict=True):
        assert (np.abs(made - expected.value) <= expected.error).all()


@pytest.mark.parametrize("name", thorough_but(NETWORKS, "mlp", "parts"))
def test_networks_are_right_in_the_emulator(name: str) -> None:
    compiled, module, x = network(name, backend="emulated")
    found = compiled(x)
    check(found, compiled, x)
    with torch.no_grad():
        expected = every(module(x))
    assert all(np.allclose(made, one, atol=1e-4) for made, one in zip(every(found), expected, strict=True))
    own = tuple(torch.empty(one.shape) for one in expected)
    compiled(x, out=own if len(own) > 1 else own[0])
    assert all(np.array_equal(one.numpy(), made) for one, made in zip(own, every(found), strict=True))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EmulatedKernels]]:
    """A stand-in for CuPy whose kernels the emulator runs."""
    programs: dict[str, EmulatedKernels] = {}

    def loaded(kernel: Any, cupy: Any) -> Any:
        return type("Module", (), {"get_function": lambda _, entry: networks_cupy.Launching(kernel, entry, programs)})()

    monkeypatch.setitem(sys.modules, "cupy", networks_cupy.module())
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(cuda, "_load_module", loaded)
    yield programs
    for program in programs.values():
        program.close()


@pytest.mark.parametrize("name", thorough_but(["parts", "block"], "parts"))
def test_a_network_is_one_graph_on_a_device(name: str, device: dict[str, EmulatedKernels]) -> None:
    """A second call computes with its own inputs; outputs of the first stay. What begins at 12 bytes is copied."""
    compiled, module, x = network(name)
    function = compiled.function
    assert isinstance(function, GpuNetwork)
    first = compiled(x)
    kept = [one.copy() for one in every(first)]
    other = torch.randn(x.shape)
    second = compiled(other)
    for found, given in ((first, x), (second, other)):
        check(found, compiled, given)
    assert all(np.array_equal(one, before) for one, before in zip(every(first), kept, strict=True))
    held = function._loaded
    assert held is not None and held._graph.launched == 2
    assert networks_cupy.DEFAULT.waited[-2:] == [held._done] * 2, "calls on other streams wait"
    near = networks_cupy.on_device(x.numpy())
    own = tuple(networks_cupy.on_device(np.zeros_like(one)) for one in kept)
    compiled(near, out=own if len(own) > 1 else own[0])
    assert all(np.array_equal(np.asarray(one), before) for one, before in zip(own, kept, strict=True))
    with pytest.raises(ValueError, match="is float32.*expected"):
        compiled(x[:1])


def test_memory_that_stays_between_calls_is_nobody_elses() -> None:
    """Kernels that need zeros in their workspace get one of their own; others share one."""
    compiled, _, _ = network("mlp")
    kernels = [dataclasses.replace(kernel, workspace_bytes=64) for kernel in compiled.kernels]
    shared = Tasks(compiled.plan, kernels, "hot").listed
    assert {task.workspace.base for task in shared} == {Base.WORKSPACE}
    kernels[0] = dataclasses.replace(kernels[0], cleared_bytes=16)
    tasks = Tasks(compiled.plan, kernels, "hot")
    assert [task.workspace.base for task in tasks.listed] == [Base.FIXED, Base.WORKSPACE]
    place = tasks.listed[0].workspace.at
    assert not tasks.fixed()[place : place + 64].any() and place >= sum(one.nbytes for one in tasks.constants.values())


def test_settings_of_other_machines_are_refused(tmp_path: Any) -> None:
    compiled, module, x = network("mlp")
    with pytest.raises(ValueError, match="compiled for h100: networks are exported for CPUs"):
        compiled.export(tmp_path)
    with pytest.raises(ValueError, match="mi300x has kernels in hip: networks are compiled to c or cuda"):
        network("mlp", hardware="mi300x")
    with pytest.raises(ValueError, match="h100 cannot be timed here"):
        network("mlp", backend="auto")
    table = nn.Embedding(9, 4).eval()
    with pytest.raises(Unsupported, match="whole numbers"):
        gensor_gym.compile(table, (torch.tensor([1, 2]),), hardware="h100", backend="analytic", trials=1)


def test_without_a_device_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    compiled, _, x = network("mlp")
    assert compiled.function.launches >= 2 and compiled.results[0].seconds > 0
    with pytest.raises(cuda.CudaUnavailableError, match="emulated"):
        compiled(x)
