"""Concatenations of images with channels last: parts lie in the whole image, their pixels apart, and results stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.modules import compile_module
from gensor_gym import hardware
from gensor_gym.dataflow import joins
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Concat, Map
from gensor_gym.dataflow.text import parse
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.export import export_network
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.choice import classes_of, parts_of
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.plan import cut_all
from tests.networks.test_orders import conv, fault
from tests.support.blocks.parts import Of
from tests.support.c_cases import machine
from tests.support.networks import check, kernels_of


class Aggregated(nn.Module):
    """As in VoVNet: every layer of a block is read by the next layer and by the block's last convolution."""

    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.stem, self.deep = conv(3, c, 3, stride=2), nn.ModuleList(conv(c, c, 3, groups=c) for _ in range(2))
        self.layers, self.third, self.last = nn.ModuleList(conv(c, c, 1) for _ in range(2)), conv(c, 2 * c), conv(5 * c, c, 1)

    def forward(self, x: Any) -> Any:
        found = [torch.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)]
        for deep, layer in zip(self.deep, self.layers, strict=True):
            found.append(torch.relu(layer(deep(found[-1]))))
        found.append(torch.relu(self.third(found[-1])))
        return torch.relu(self.last(torch.cat(found, 1))).mean((2, 3))


class Fire(nn.Module):
    """As in SqueezeNet, with a pooling of the whole image and of its parts."""

    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.stem, self.one, self.three, self.last = conv(3, c, 3, stride=2), conv(c, c, 1), conv(c, 24), conv(c + 24, c, 1)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.stem(x))
        whole = torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)
        return self.last(torch.max_pool2d(whole, 3, 2, ceil_mode=True)).mean((2, 3))


class Grown(nn.Module):
    """As in DenseNet: each concatenation begins with the one before it, and a map reads it."""

    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.stem = conv(3, c, 3, stride=2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(c * (1 + n)) for n in range(3))
        self.layers = nn.ModuleList(conv(c * (1 + n), c) for n in range(3))

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.stem(x))
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(torch.relu(norm(x)))], 1)
        return x.mean((2, 3))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {"aggregated": (Aggregated, 4), "fire": (Fire, 2), "grown": (Grown, 6)}
"""Name -> (module, number of parts that are computed in a whole image; wholes are parts of larger ones in Grown)."""


def of(module: nn.Module, *inputs: torch.Tensor) -> Network:
    torch.manual_seed(0)
    return folded(from_torch(module.eval(), inputs))


def last(old: Network) -> Network:
    """The network with channels last for all images that may have them."""
    images = (one for uses in classes_of(old, machine()) if not uses.is_fixed for one in uses.members)
    return ordered(old, machine(), frozenset(images))


def pitches(made: Network) -> dict[str, int]:
    return {name: made.pitch_of(name) for name in made.joins if made.pitch_of(name)}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_parts_lie_in_the_whole_image(name: str, batch: int) -> None:
    make, parts = NETWORKS[name]
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(batch, 3, 30, 28)
    old, hw = of(module, x), machine()
    made = last(old)
    assert len(pitches(made)) == parts and not fault(made, old, x.double().numpy())
    every = [one for one in classes_of(old, hw) if not one.is_fixed]
    for number in range(1, 1 << min(len(every), 4)):
        some = (one.members for place, one in enumerate(every) if number >> place & 1)
        assert not fault(ordered(old, hw, frozenset(name for names in some for name in names)), old, x.double().numpy())
    plan = plan_of(made, "fine", hardware.get("host"))
    steps = [str(step.computation) for step in plan.steps]
    assert any("pitch=" in text for text in steps)
    check(NetworkFunction(plan, kernels_of(plan, batch), 2), module, [x])


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_networks_are_right(name: str) -> None:
    torch.manual_seed(0)
    module, x = NETWORKS[name][0]().eval(), torch.randn(1, 3, 30, 28)
    with torch.no_grad():
        compiled, expected = compile_module(module, (x,), trials=1), module(x)
    assert any("_pitch=" in str(step.computation) for step in compiled.plan.steps)
    assert torch.allclose(torch.as_tensor(np.asarray(compiled(x))), expected, atol=1e-4)


def test_places_begin_with_the_first_channel_and_are_exported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Aggregated().eval(), torch.randn(2, 3, 30, 28)
    made = last(of(module, x))
    plan = cut_all(made)
    (whole,) = {made.place_of(name)[0] for name in made.joins}
    assert sorted(made.place_of(name)[1] for name in made.joins) == [0, 64, 128, 192] and made.pitch_of(whole) == 0
    kernels = kernels_of(plan, 0)
    function = NetworkFunction(plan, kernels, 1)
    export_network(plan, kernels, function, tmp_path / "made", 1, [{} for _ in kernels], "joined")
    offset = function.layout.values[whole].at
    assert f"{{GG_WORKSPACE, {offset}, 192}}" in (tmp_path / "made" / "network.c").read_text()


CASES: dict[str, tuple[Callable[[Any, Any, Any], Any], int, int]] = {
    "both made": (lambda a, b, x: torch.cat([a, b], 1).mean((2, 3)), 2, 0),
    "an input": (lambda a, b, x: torch.cat([a, b, x], 1).mean((2, 3)), 3, 1),
    "twice": (lambda a, b, x: torch.cat([a, b, a], 1).mean((2, 3)), 3, 1),
    "in two": (lambda a, b, x: torch.cat([a, b], 1).mean((2, 3)) + torch.cat([b, a], 1).mean((2, 3)), 4, 2),
    "sliced": (lambda a, b, x: torch.cat([a, b], 1).mean((2, 3)) * a[:, :1, 1:].mean((2, 3)), 2, 0),
    "reshaped": (lambda a, b, x: torch.cat([a, b], 1).mean((2, 3)) * a.flatten(2).amax(2)[:, :1], 2, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_which_parts_are_copied(name: str) -> None:
    body, places, copies = CASES[name]
    torch.manual_seed(0)
    parts = {"one": conv(16, 16), "two": conv(16, 24, 1)}
    module = Of(lambda own, x: body(torch.relu(own.one(x)), torch.relu(own.two(x)), x), **parts).eval()
    x = torch.randn(1, 16, 14, 12)
    old = of(module, x)
    made = last(old)
    found = [name for name, node in made.graph.nodes if isinstance(node, Map) and "_copy" in name]
    assert (len(pitches(made)), len(found)) == (places, copies) and not fault(made, old, x.double().numpy())
    check(NetworkFunction(plan := cut_all(made), kernels_of(plan, 1), 1), module, [x])


PIECES = """def pieces(a: float32[2, 8, 5, 5], b: float32[2, 6, 5, 5]):
    a1 = slice(a, axis=1, start=0, stop=4)
    a2 = slice(a, axis=1, start=4, stop=8)
    b1 = slice(b, axis=1, start=0, stop=2)
    b2 = slice(b, axis=1, start=2, stop=6)
    b3 = slice(b, axis=1, start=3, stop=6)
    rows = slice(a, axis=2, start=0, stop=5)
    c = concat({}, axis=1)
    y = maximum(c, 0.0)
    return y{}
"""


@pytest.mark.parametrize(
    ("pieces", "parts"),
    [
        ("a1, a2, b1, b2", ["a", "b"]), ("b1, b2, a, a1, a2", ["b", "a", "a"]), ("a2, a1", ["a2", "a1"]),
        ("a1, b2, a2", ["a1", "b2", "a2"]), ("b1, b3, a1", ["b1", "b3", "a1"]),
        ("a1, a1, a2", ["a1", "a"]), ("rows, a1", ["rows", "a1"]),
    ],
)  # fmt: skip
def test_slices_that_make_up_a_value_are_that_value(pieces: str, parts: list[str]) -> None:
    others = (name for name in ("a1", "a2", "b1", "b2", "b3", "rows") if name not in pieces.split(", "))
    graph = parse(PIECES.format(pieces, "".join(f", {name}" for name in others)))
    assert parts_of(Network(graph, {}), graph.makers["c"]) == parts


def test_a_residual_whose_pixels_are_apart_is_added_by_a_kernel_of_its_own() -> None:
    torch.manual_seed(0)

    def body(own: Any, x: Any) -> Any:
        a = torch.relu(own.one(x))
        b = own.two(a) + a
        return own.three(torch.cat([a, b], 1)).mean((2, 3))

    module, x = Of(body, one=conv(16, 16), two=conv(16, 16), three=conv(32, 16, 1)).eval(), torch.randn(1, 16, 14, 14)
    made = last(of(module, x))
    assert sorted(pitches(made).values()) == [32, 32]
    plan = plan_of(made, "fine", hardware.get("host"))
    assert not any("+residual" in str(step.computation) for step in plan.steps)
    check(NetworkFunction(plan, kernels_of(plan, 1), 1), module, [x])


def test_other_joins_along_the_last_axis_stay_as_they_are() -> None:
    """Halves of rotary embeddings, features of several rows: there is no image of a convolution among them."""
    rope = of(Of(lambda _, x: torch.cat([-x[..., 8:], x[..., :8]], -1) * x), torch.randn(2, 4, 5, 16))
    assert not rope.joins
    gemm = "contract(x, w, operator='gemm(m=6, n=4, k=8)')"
    text = f"def g(x: float32[6, 8], w: constant(float32[8, 4])):\n    a = {gemm}\n    b = exp(a)\n    c = concat(a, b, axis=1)\n"
    graph = parse(f"{text}    d = exp(c)\n    return d\n")
    assert not joins.joins(graph) and isinstance(graph.makers["c"], Concat)


def test_a_plan_that_forgets_where_a_part_lies_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, x = Fire().eval(), torch.randn(1, 3, 30, 28)
    made = last(of(module, x))
    monkeypatch.setattr(Network, "pitch_of", lambda self, name: 0)
    plan = cut_all(made)
    assert not any("pitch" in str(step.computation) for step in plan.steps if not isinstance(step.computation, Dataflow))
    with pytest.raises(AssertionError):
        check(NetworkFunction(plan, kernels_of(plan, 0), 1), module, [x])
