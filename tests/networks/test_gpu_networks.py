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
from agents.modules import compile_module  # noqa: E402
from gensor_gym import hardware  # noqa: E402
from gensor_gym.codegen.runtime import cuda  # noqa: E402
from gensor_gym.frontends.torch_export import from_torch  # noqa: E402
from gensor_gym.frontends.unsupported import Unsupported  # noqa: E402
from gensor_gym.measure.emulator.emulator import EmulatedKernels, emulate  # noqa: E402
from gensor_gym.networks.fusion.coarse import fine_coarse  # noqa: E402
from gensor_gym.networks.gpu.function import GpuNetwork  # noqa: E402
from gensor_gym.networks.gpu.memory import Tasks  # noqa: E402
from gensor_gym.networks.layout import Base  # noqa: E402
from gensor_gym.networks.steps import fused_step  # noqa: E402
from tests.support import networks_cupy  # noqa: E402
from tests.support.gir_gpu_cases import kernel_of  # noqa: E402
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

    monkeypatch.setitem(sys.modules, "cupy", networks_cupy.module())
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(cuda, "_load_module", networks_cupy.loader(programs))
    monkeypatch.setattr(cuda, "launch_dependent", networks_cupy.launch_dependent)
    yield programs
    for program in programs.values():
        program.close()


@pytest.mark.parametrize("name", thorough_but(["parts", "block", "mlp"], "parts", "mlp"))
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
    held = function.loaded()
    assert held.graph.launched == 2
    assert networks_cupy.DEFAULT.waited[-2:] == [held._done] * 2, "calls on other streams wait"
    near = networks_cupy.on_device(x.numpy())
    own = tuple(networks_cupy.on_device(np.zeros_like(one)) for one in kept)
    compiled(near, out=own if len(own) > 1 else own[0])
    assert all(np.array_equal(np.asarray(one), before) for one, before in zip(own, kept, strict=True))
    with pytest.raises(ValueError, match="is float32.*expected"):
        compiled(x[:1])
    dependent = function.dependent()
    assert all(task.kernel.dependent for task in dependent.tasks.listed) and not any(one.dependent for one in compiled.kernels)
    networks_cupy.FOLLOWING.clear()
    assert all(np.array_equal(one, before) for one, before in zip(every(dependent(x)), kept, strict=True))
    follow = {"parts": 1}.get(name, dependent.launches - 1)
    assert len(networks_cupy.FOLLOWING) == 2 * follow, "the first kernel, and those after copies, are launched as others are"


def test_a_graph_whose_memory_was_freed_is_found(device: dict[str, EmulatedKernels]) -> None:
    """A captured graph keeps addresses alone. The copies of arrays at 12 bytes belong to nobody but the calls."""
    compiled, _, x = network("parts")
    compiled(x)
    compiled.function.loaded()._calls.clear()
    with pytest.raises(AssertionError, match="memory that was freed"):
        compiled(x)


def test_memory_that_stays_between_calls_is_zero_for_all_kernels() -> None:
    """What kernels leave zero in their workspaces ends at one place of a block that they share; others share another one."""
    compiled, _, _ = network("mlp")
    kernels = [dataclasses.replace(kernel, workspace_bytes=6144) for kernel in compiled.kernels]
    shared = Tasks(compiled.plan, kernels, "hot").listed
    assert {task.workspace.base for task in shared} == {Base.WORKSPACE} and len(shared) == 2
    kernels = [dataclasses.replace(one, cleared_bytes=size) for one, size in zip(kernels, (1024, 3072), strict=True)]
    tasks = Tasks(compiled.plan, kernels, "hot")
    assert {task.workspace.base for task in tasks.listed} == {Base.FIXED}
    one, other = (task.workspace.at for task in tasks.listed)
    assert one + 1024 == other + 3072 and other >= sum(array.nbytes for array in tasks.constants.values())
    assert tasks.layout.fixed_bytes == one + 6144 and not tasks.fixed()[other:].any()


def test_settings_of_other_machines_are_refused() -> None:
    _, module, x = network("mlp")
    with pytest.raises(ValueError, match="mi300x has kernels in hip: networks are compiled to c or cuda"):
        network("mlp", hardware="mi300x")
    with pytest.raises(ValueError, match="h100 cannot be timed here"):
        network("mlp", backend="auto")
    def pieces(network: Any) -> Any:
        return fine_coarse(network, hardware.get("host"))

    stack = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)).eval()
    with pytest.raises(Unsupported, match="cuda has no generator of products with rows"):
        gensor_gym.compile(stack, (torch.randn(256, 64),), hardware="h100", backend="analytic", trials=1, plan=pieces)


class OfIds(nn.Module):
    """A table whose rows ids select, positions, and arithmetic of whole numbers and truth values."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(11, 12), nn.Embedding(7, 12)

    def forward(self, ids: Any, counts: Any, kept: Any) -> Any:
        found = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        return torch.where(kept[..., None], found, -found) * counts[:, None, None]


def test_whole_numbers_and_tables_are_torchs() -> None:
    torch.manual_seed(0)
    module, ids = OfIds().eval(), torch.randint(11, (3, 7))
    given = ids, torch.tensor([3, -2, 5], dtype=torch.int32), torch.rand(3, 7) > 0.5
    compiled = compile_module(module, given, hardware="h100", backend="emulated", trials=1, reuse=False)
    with torch.no_grad():
        assert torch.equal(compiled(*given), module(*given))
    with pytest.raises(ValueError, match="has id 11: expected 0 to 10"):
        compiled(torch.full((3, 7), 11), *given[1:])


def test_ids_that_a_kernel_meets_outside_their_table_give_nan() -> None:
    """By a schedule with 16-byte loads and one without; nothing is read outside the table."""
    graph = fused_step(*_gather()).computation
    rows = np.array([[0, 5, -1, 2]], dtype=np.int64)
    for text in ("vector=4", "vector=1"):
        kernel = kernel_of(graph, text)
        table = np.arange(20, dtype=np.float32).reshape(5, 4)
        arrays = [rows.reshape(value.shape) if value.dtype == "int64" else table for value in graph.inputs]
        found = np.asarray(emulate(kernel, arrays)).reshape(4, 4)
        assert np.isnan(found[1:3]).all() and np.array_equal(found[[0, 3]], table[[0, 2]])


def _gather() -> tuple[Any, tuple[str, ...]]:
    network = from_torch(nn.Embedding(5, 4).eval(), (torch.tensor([[1, 2, 3, 4]]),))
    return network, tuple(name for name, _ in network.graph.nodes if not network.is_free(name))


def test_without_a_device_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    compiled, _, x = network("mlp")
    assert compiled.function.launches >= 2 and compiled.results[0].seconds > 0
    with pytest.raises(cuda.CudaUnavailableError, match="emulated"):
        compiled(x)
