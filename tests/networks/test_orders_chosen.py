"""Orders of images in random small networks for CPUs: no other choice is predicted to take less time, and results stay."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gensor_gym import operators
from gensor_gym.cache.folders import VARIABLE
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders import choice, machines
from gensor_gym.networks.orders.choice import channels_last
from gensor_gym.networks.orders.machines import FOLDER, by_winograd
from gensor_gym.networks.orders.rewrite import ordered
from tests.networks.test_orders import conv, every_choice, fault, seconds
from tests.support.c_cases import machine
from tests.support.thorough import thorough_but

STEPS = 5
SIZE = 24
"""Rows and columns of an image."""


class Drawn(nn.Module):
    """A random network: convolutions with one tap, with nine taps and with groups, residuals, poolings, concatenations."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng, width = random.Random(seed), 16
        self.kinds, self.parts, self.first = list[str](), nn.ModuleList(), conv(3, width)
        for _ in range(STEPS):
            kind, wide = rng.choice(("product", "window", "groups", "residual", "pooled", "joined")), rng.choice((16, 32, 96))
            self.kinds.append(kind)
            made = wide if kind in ("product", "window") else width
            groups = width if kind == "groups" else 1
            self.parts.append(conv(width, made, 3 if kind in ("window", "groups") else 1, groups=groups))
            width = 2 * width if kind == "joined" else made
        self.last = conv(width, 16, 1)

    def forward(self, x: Any) -> Any:
        """Apply the network to images."""
        y = torch.relu(self.first(x))
        for kind, part in zip(self.kinds, self.parts, strict=True):
            z = torch.relu(part(torch.max_pool2d(y, 3, 1, 1) if kind == "pooled" else y))
            y = y + z if kind == "residual" else torch.cat([y, z], 1) if kind == "joined" else z
        return self.last(y).mean((2, 3))


def module_of(seed: int) -> tuple[Drawn, torch.Tensor]:
    """The module of a seed, and images."""
    torch.manual_seed(0)
    x = torch.randn(1, 3, SIZE, SIZE)
    return Drawn(seed).eval(), x


def drawn(seed: int) -> tuple[Network, Any]:
    """The network of a seed, and images."""
    module, x = module_of(seed)
    return folded(from_torch(module, (x,))), x.double().numpy()


@pytest.mark.parametrize("seed", thorough_but(range(12), 1, 4))
@pytest.mark.parametrize("lanes", [8, 16])
def test_no_choice_costs_less_and_none_changes_results(seed: int, lanes: int) -> None:
    """All choices of the classes of images are enumerated; the rewritten networks have the seconds that are compared."""
    old, x = drawn(seed)
    costs = every_choice(old, machine(lanes))
    assert seconds(ordered(old, machine(lanes)), machine(lanes)) == pytest.approx(min(costs.values()))
    for names in random.Random(seed).sample(sorted(costs, key=sorted), 3):
        assert not fault(ordered(old, machine(lanes), names), old, x)


def test_classes_on_both_sides_of_a_convolution_are_chosen_together() -> None:
    """Convolutions with nine taps between others get channels last; those between depthwise ones keep the images' planes."""
    windows = folded(from_torch(nn.Sequential(conv(3, 16), conv(16, 16), conv(16, 16), nn.Conv2d(16, 3, 1)).eval(),
                                (torch.randn(1, 3, SIZE, SIZE),)))  # fmt: skip
    assert channels_last(windows, machine()) == {"conv2d", "add", "conv2d_2", "add_2"}
    parts = (conv(3, 32), conv(32, 32, groups=32), conv(32, 16, 1), conv(16, 96, 1), conv(96, 96, groups=96), conv(96, 32, 1))
    x = torch.randn(1, 3, 112, 112)
    assert not channels_last(folded(from_torch(nn.Sequential(*parts).eval(), (x,))), machine())


def test_a_choice_is_kept_for_its_network_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again for another graph, machine or setting, and if its text names other values."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    old, made, plain = drawn(1)[0], list[int](), choice._cheapest
    monkeypatch.setattr(choice, "_cheapest", lambda *asked: made.append(asked[1].lanes) or plain(*asked))
    first = channels_last(old, machine(8))
    assert first == channels_last(old, machine(8)) == channels_last(drawn(1)[0], machine(8)) and made == [8]
    channels_last(old, machine(16))
    channels_last(old, machine(8), winograd=False)
    channels_last(drawn(4)[0], machine(8))
    assert made == [8, 16, 8, 8]
    for path in (tmp_path / FOLDER).iterdir():
        path.write_text(f"{path.read_text()} another")
    assert channels_last(old, machine(8)) == first and made == [8, 16, 8, 8, 8]


def test_predicted_seconds_are_kept_for_their_convolution_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    ops = [operators.conv2d(n=1, c=16, h=size, w=size, k=32, r=3, s=3, padding=1) for size in (14, 15)]
    asked = [(op, machine(lanes)) for op in ops for lanes in (8, 16)]
    found = [by_winograd.__wrapped__(*one) for one in asked]
    for module, name in ((machines, "best_seconds"), (machines, "WinogradGraph")):
        monkeypatch.setattr(module, name, None)
    machines.convolution_seconds.cache_clear()
    assert [by_winograd.__wrapped__(*one) for one in asked] == found
    assert len({seconds for _, seconds in found}) == len(asked)
    machines.convolution_seconds.cache_clear()
    monkeypatch.setattr(machines, "sources", lambda: "of another version")
    with pytest.raises(TypeError):
        by_winograd.__wrapped__(*asked[0])
