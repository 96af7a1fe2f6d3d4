"""A module that was converted before is not exported again, and a module that changed is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym.cache.folders import VARIABLE
from gensor_gym.frontends import torch_export
from gensor_gym.frontends.cached import digest, networks
from gensor_gym.frontends.cached.digest import program_digest
from gensor_gym.frontends.cached.networks import FOLDER, cached_network
from gensor_gym.frontends.unsupported import Unsupported
from tests.support.own_cache import with_this_machine

X = torch.linspace(-1, 1, 24).reshape(4, 6)
SCALE = 2.0


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Found:
    """A result of a class that torch does not know."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm, self.power = nn.Linear(6, 8), nn.BatchNorm1d(8), 2
        self.kinds = {"relu", "tanh", "scale"}
        self.own = torch.arange(8.0)

    def forward(self, x: torch.Tensor, lifted: bool = False) -> Any:
        y = torch.relu(self.norm(self.linear(x))) ** self.power * SCALE
        return Pair(y, y + self.own) if lifted else y


class Wrapped(Module):
    def forward(self, x: torch.Tensor, lifted: bool = False) -> Any:
        return {"found": Found(super().forward(x)), "none": None}


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of its own; the list grows with every export."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    done, real = list[str](), torch_export.from_torch

    def counted(module: Any, example_inputs: Any) -> Any:
        done.append(type(module).__name__)
        return real(module, example_inputs)

    monkeypatch.setattr(torch_export, "from_torch", counted)
    return done


def results(network: Any, *inputs: torch.Tensor) -> list[np.ndarray]:
    return [np.asarray(one.value) for one in network.reference(*(one.float().numpy() for one in inputs))]


@pytest.mark.parametrize("kind", (Module, Wrapped))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_the_second_time_the_network_is_read_and_equal(kind: type[nn.Module], dtype: torch.dtype, exports: list[str]) -> None:
    given = X.to(dtype), kind is Module
    first, second = (cached_network(kind().eval().to(dtype), given) for _ in range(2))
    assert exports == [kind.__name__]
    assert str(second.graph) == str(first.graph) and second.types == first.types and second.arguments == first.arguments
    for one, other in zip(results(first, given[0]), results(second, given[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert type(second.form) is type(first.form)


def test_weights_are_not_stored_but_read_from_the_module(exports: list[str], tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.float16):
        for _ in range(2):
            torch.manual_seed(1)
            cached_network(nn.Linear(512, 512).eval().to(dtype), (torch.ones(1, 512, dtype=dtype),))
    assert len(exports) == 2
    assert all(path.stat().st_size < 50_000 for path in (tmp_path / "cache" / FOLDER).iterdir())


def changed_weight(module: Module) -> None:
    with torch.no_grad():
        module.linear.weight[0, 0] += 1.0


def changed_constant(module: Module) -> None:
    module.own[3] = 5.0


def changed_statistics(module: Module) -> None:
    assert module.norm.running_mean is not None
    module.norm.running_mean[2] = 0.5


CHANGES: dict[str, Callable[[Module], object]] = {
    "weight": changed_weight, "constant": changed_constant, "buffer": changed_statistics,
    "attribute": lambda module: setattr(module, "power", 3),
    "submodule": lambda module: setattr(module, "norm", nn.Identity()),
    "option": lambda module: setattr(module.norm, "eps", 0.5),
    "hook": lambda module: module.linear.register_forward_hook(doubled),
    "other forward": lambda module: setattr(module, "forward", module.linear.forward),
}  # fmt: skip


def doubled(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_exported_again(change: str, exports: list[str]) -> None:
    module = Module().eval()
    cached_network(module, (X,))
    CHANGES[change](module)
    network = cached_network(module, (X,))
    assert len(exports) == 2
    np.testing.assert_allclose(results(network, X)[0], module(X).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, value", (("SCALE", 3.0), ("Module.forward", lambda self, x: torch.tanh(self.linear(x)))))
def test_code_that_was_changed_while_it_runs_is_noticed(
    name: str, value: Any, exports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest does not see it, but the module no longer gives the stored results."""
    module = Module().eval()
    before = program_digest(module, (X,))
    cached_network(module, (X,))
    monkeypatch.setattr(f"{__name__}.{name}", value)
    network = cached_network(module, (X,))
    assert before == program_digest(module, (X,)) and len(exports) == 2
    np.testing.assert_allclose(results(network, X)[0], module(X).detach(), rtol=1e-4, atol=1e-5)


def test_a_network_keeps_its_weights_when_the_module_changes(exports: list[str]) -> None:
    for _ in range(2):
        module = Module().eval()
        network = cached_network(module, (X,))
        before = results(network, X)[0]
        with torch.no_grad():
            module.linear.weight.zero_()
        np.testing.assert_array_equal(results(network, X)[0], before)
    assert len(exports) == 1


def test_other_inputs_and_settings_are_other_programs() -> None:
    module, default = Module().eval(), torch.get_default_dtype()
    inputs = (X,), {"x": X}, (X[:2],), (X.bfloat16(),), (X, True), (X.T.contiguous().T,)
    found = {program_digest(module, given) for given in inputs}
    torch.set_default_dtype(torch.float64)
    try:
        found.add(program_digest(module, (X,)))
    finally:
        torch.set_default_dtype(default)
    assert len(found) == 7 and None not in found


@pytest.mark.parametrize("attribute", (lambda: 0, torch.ones(2, device="meta"), {(1, 2)}, sys.stderr))
def test_what_has_no_digest_is_exported_every_time(attribute: Any, exports: list[str]) -> None:
    module = Module().eval()
    module.attribute = attribute
    for _ in range(2):
        cached_network(module, (X,))
    assert len(exports) == 2


@pytest.mark.parametrize("harm", ("broken", "of others", "link"))
def test_a_file_that_cannot_be_trusted_is_written_again(harm: str, exports: list[str], tmp_path: Path) -> None:
    cached_network(Module().eval(), (X,))
    (path,) = (tmp_path / "cache" / FOLDER).iterdir()
    if harm == "broken":
        path.write_bytes(path.read_bytes()[:-20])
    elif harm == "of others":
        path.chmod(0o666)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        cached_network(Module().eval(), (X,))
    assert len(exports) == 2 and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600


def test_only_the_last_files_are_kept(exports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "MOST_FILES", 2)
    modules = [Module().eval() for _ in range(4)]
    for number, module in enumerate(modules):
        module.power = number
        cached_network(module, (X,))
        for path in (tmp_path / "cache" / FOLDER).iterdir():  # as if written a second ago
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 1))
    assert len(list((tmp_path / "cache" / FOLDER).iterdir())) == 2
    for module in reversed(modules):
        cached_network(module, (X,))
    assert len(exports) == 6


def test_a_module_is_looked_up_with_few_modules_of_python() -> None:
    """`agents.modules` hashes weights while the others are imported, so it must not need them."""
    program = "import sys, agents.modules, gensor_gym.frontends.cached.networks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "gensor_gym.networks.network" in loaded
    assert not {"numba", "scipy", "matplotlib", "agents.networks", "gensor_gym.codegen", "torch._dynamo"} & loaded


def _faked() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(8)


def _wrapped() -> torch.Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(8), torch.ones(8))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("make", [_faked, _wrapped])
def test_a_tensor_without_memory_of_its_own_has_no_digest(make: Callable[[], torch.Tensor]) -> None:
    module = Module()
    module.own = make()
    assert program_digest(module, (X,)) is None


def test_a_view_of_other_elements_is_hashed_as_it_reads() -> None:
    module, found = Module(), []
    whole = torch.view_as_complex(torch.arange(8.0).reshape(4, 2))
    for module.own in (whole, whole.conj(), whole.conj().resolve_conj(), whole.conj().imag, whole.imag):
        found.append(program_digest(module, (X,)))
    assert None not in found and found[1] == found[2] and len(set(found)) == 4


@pytest.mark.parametrize("large", (1, digest.LARGE))
@pytest.mark.parametrize("place", ((0, 0), (2, 1)))
def test_every_element_of_a_transposed_tensor_counts(
    place: tuple[int, int], large: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(digest, "LARGE", large)
    module = Module().eval()
    module.own = torch.zeros(2, 3).T
    before = program_digest(module, (X,))
    assert before == program_digest(module, (X,)) is not None
    module.own[place] = 1.0
    assert program_digest(module, (X,)) != before


@pytest.mark.parametrize("large", (1, 9, digest.LARGE))
def test_elements_belong_to_their_tensors(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "LARGE", large)
    module, found = Module().eval(), set()
    for first, second in (([1.0, 2.0], [3.0]), ([1.0], [2.0, 3.0]), ([1.0, 3.0], [2.0])):
        module.own, module.other = torch.tensor(first), torch.tensor(second)
        found.add(program_digest(module, (X,)))
    assert len(found) == 3 and None not in found


def test_errors_are_those_of_the_export(exports: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(Unsupported, match="random numbers"):
            cached_network(nn.FractionalMaxPool2d(2, output_size=2).eval(), (torch.ones(1, 2, 4, 4),))
        with pytest.raises(ValueError, match="training mode"):
            cached_network(nn.Linear(2, 2), (torch.ones(1, 2),))
        with pytest.raises(ValueError, match="expected a module"):
            cached_network(print, (X,))


PROGRAM = """
import sys, torch, gensor_gym, model
torch.manual_seed(0)
x = torch.ones(3, 5)
module = model.Model().eval()
network = gensor_gym.compile(module, (x,), quality="fast")
assert torch.allclose(network(x), module(x), atol=1e-5)
print(bool({"torch._dynamo", "torch._inductor", "matplotlib", "stable_baselines3"} & sys.modules.keys()))
with torch.no_grad():
    wanted = module(x)
    for weight in module.parameters():
        weight.zero_()
assert torch.allclose(network(x), wanted, atol=1e-5) and not torch.allclose(module(x), wanted, atol=1e-5)
"""


@pytest.mark.thorough
def test_a_new_process_does_not_load_the_export_and_sees_changed_files(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "model.py").write_text(
        "from torch import nn\nimport parts\n\nclass Model(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(5, 7)\n        self.names = {'one', 'two', 'three'}\n"
        "    def forward(self, x):\n        return parts.ended(super().forward(x))\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    (cache := tmp_path / "cache").mkdir(mode=0o700)
    environment = {**os.environ, VARIABLE: with_this_machine(cache), "PYTHONPATH": f"{tmp_path}:{root}"}
    said = []
    for function in ("relu", "relu", "tanh"):
        wanted = f"import torch\n\ndef ended(x):\n    return torch.{function}(x)\n"
        if not (tmp_path / "parts.py").exists() or (tmp_path / "parts.py").read_text() != wanted:
            (tmp_path / "parts.py").write_text(wanted)
        done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.strip())
    assert said == ["True", "False", "True"]
