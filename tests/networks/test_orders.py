"""Orders of images in networks for sm_90: what is chosen costs least, the results stay, wrong orders show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.modules import compile_module  # noqa: E402
from gensor_gym import hardware  # noqa: E402
from gensor_gym.dataflow.nodes import Contract, Transpose  # noqa: E402
from gensor_gym.frontends.torch_export import from_torch  # noqa: E402
from gensor_gym.hardware.types import Hardware  # noqa: E402
from gensor_gym.networks.folding import folded  # noqa: E402
from gensor_gym.networks.gpu.emulated import EmulatedNetwork  # noqa: E402
from gensor_gym.networks.gpu.memory import Tasks  # noqa: E402
from gensor_gym.networks.network import Network  # noqa: E402
from gensor_gym.networks.orders import rewrite  # noqa: E402
from gensor_gym.networks.orders.choice import classes_of, costs_of  # noqa: E402
from gensor_gym.networks.orders.machines import (  # noqa: E402
    by_winograd,
    convolution_seconds,
    is_fast,
    turning_seconds,
)
from gensor_gym.networks.orders.rewrite import ordered  # noqa: E402
from gensor_gym.operators.text import with_arguments  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

nn = torch.nn
H100 = hardware.get("h100")
C = 32
"""Channels, rows and columns of an image alike, so that shapes do not show a wrong order."""


def conv(c: int = C, k: int = C, size: int = 3, **more: Any) -> Any:
    return nn.Conv2d(c, k, size, padding=size // 2, **more)


class Parts(nn.Module):
    """Poolings, a residual of another stride, a channel's gate, a concatenation, a depthwise convolution, means of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two, self.wide = conv(3, C, 7, stride=2), conv(), conv(stride=2), conv(C, C, 1, stride=2)
        self.gate, self.deep, self.last = nn.Linear(C, C), conv(groups=C), conv(2 * C, C)

    def forward(self, x: Any) -> Any:
        y = torch.max_pool2d(torch.relu(self.first(x)), 3, 2, 1)
        y = torch.relu(self.two(torch.relu(self.one(y))) + self.wide(y))
        y = y * torch.relu(self.gate(y.mean((2, 3))))[:, :, None, None]
        z = torch.nn.functional.avg_pool2d(self.one(y), 3, 1, 1)
        return self.last(torch.cat([self.deep(z) + z, self.one(z)], 1)).mean((2, 3))


NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "chain": (lambda: nn.Sequential(conv(), nn.ReLU(), conv(bias=False)), (1, C, C, C)), "parts": (Parts, (2, 3, 64, 64)),
}  # fmt: skip


def given(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    return make().eval().bfloat16(), torch.randn(shape).bfloat16()


def network(name: str) -> Network:
    module, x = given(name)
    return folded(from_torch(module, (x,)))


def operators(made: Network) -> list[str]:
    """Arguments of all convolutions that name orders."""
    found = (node.operator for _, node in made.graph.nodes if isinstance(node, Contract) and node.operator.name == "conv2d")
    return [" ".join(f"{key}={value}" for key, value in op.arguments if key in ("image", "weights", "result")) for op in found]


def fault(made: Network, of: Network, x: np.ndarray) -> bool:
    """Whether a network's results in float64 are not those of another network."""
    pairs = zip(made.reference(x), of.reference(x), strict=True)
    return not all(np.allclose(one.value, other.value, rtol=1e-9, atol=1e-9) for one, other in pairs)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_computes_the_same(name: str) -> None:
    old, (_, x) = network(name), given(name)
    made = ordered(old, H100)
    assert operators(made) != operators(old) and not fault(made, old, x.double().numpy())
    every = frozenset(one for uses in classes_of(old, H100) if not uses.is_fixed for one in uses.members)
    assert not fault(ordered(old, H100, every), old, x.double().numpy()), "whatever is chosen"
    single = folded(from_torch(NETWORKS[name][0]().eval(), (x.float(),)))
    assert ordered(old, hardware.get("a100")) is old and ordered(single, H100) is single, "which have no wgmma"


def test_a_chain_lays_out_its_input_alone() -> None:
    """The weights are constants in the order that kernels read, and lie so in the memory of the network."""
    made = ordered(network("chain"), H100)
    assert operators(made) == ["weights=rskc result=nhwc", "image=nhwc weights=rskc"]
    assert not any(isinstance(node, Transpose) for _, node in made.graph.nodes)
    old = {name: array for name, array in network("chain").constants.items() if array.ndim == 4 and array.size == C * C * 9}
    assert len(old) == 2
    for name, array in old.items():
        assert np.array_equal(made.constants[f"{name}_rskc"], array.transpose(2, 3, 0, 1)) and name not in made.constants


WRONG = {
    "a reader that believes nchw": ("with_arguments", lambda op, **orders: RIGHT(op, **{**orders, "image": "nchw"})),
    "a writer that believes nchw": ("with_arguments", lambda op, **orders: RIGHT(op, **{**orders, "result": "nchw"})),
    "weights with the window turned": ("WEIGHTS", ("kcrs", "srkc")),
}
RIGHT = rewrite.with_arguments


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_order_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, (_, x) = network("chain"), given("chain")
    monkeypatch.setattr(rewrite, *WRONG[name])
    assert fault(ordered(old, H100), old, x.double().numpy())


def seconds(made: Network, on: Hardware) -> float:
    """Predicted seconds of a rewritten network's fast convolutions and transpositions, without what all orders share."""
    found = 0.0
    for name, node in made.graph.nodes:
        if isinstance(node, Transpose):
            found += turning_seconds(made.graph.values[name].nbytes, on)
        elif isinstance(node, Contract) and node.operator.name == "conv2d" and is_fast(node.operator, on):
            plain = with_arguments(node.operator, winograd=0)
            found += by_winograd(plain, on)[1] if node.operator.winograd else convolution_seconds(plain, on)
    return found


def every_choice(old: Network, on: Hardware) -> dict[frozenset[str], float]:
    """Seconds of the network for every choice of the classes on which a convolution depends."""
    classes = classes_of(old, on)
    used = {at for names, _ in list(costs_of(old, on, classes))[len(classes) :] for at in names}
    free = [uses.members for at, uses in enumerate(classes) if at in used]
    assert 3 <= len(free) <= 11
    chosen = itertools.chain(*(itertools.combinations(free, count) for count in range(len(free) + 1)))
    every = (frozenset(itertools.chain(*some)) for some in chosen)
    return {names: seconds(ordered(old, on, names), on) for names in every}


def test_the_choice_costs_least() -> None:
    """Of all choices of classes: none is cheaper, and choosing nothing or everything costs more."""
    old = network("parts")
    costs = every_choice(old, H100)
    least = seconds(ordered(old, H100), H100)
    assert least == pytest.approx(min(costs.values())) and costs[frozenset()] > least < costs[max(costs, key=len)]


@pytest.mark.parametrize("name", thorough_but(NETWORKS, "chain"))
def test_networks_are_right_in_the_emulator(name: str) -> None:
    """Beside the module's reference in float64; the last convolution by wgmma reads its image in place."""
    module, x = given(name)
    x = x[..., :8, :].contiguous() if name == "chain" else x
    old = folded(from_torch(module, (x,)))
    compiled = compile_module(module, (x,), hardware="h100", backend="analytic", trials=1, reuse=False)
    found = EmulatedNetwork(compiled.plan, compiled.kernels)(x).double().numpy()
    (expected,) = old.reference(x.double().numpy())
    assert (np.abs(found - expected.value) <= expected.error).all()
    tasks = Tasks(compiled.plan, compiled.kernels, "whole")  # whose memory exports write, too
    turned = {one: array for one, array in tasks.constants.items() if one.endswith("_rskc")}
    assert turned and all(array.tobytes() in tasks.fixed().tobytes() for array in turned.values())
    *_, last = (kernel for kernel in compiled.kernels if kernel.maps)
    assert [launch.entry for launch in last.launches] == ["gg_conv2d"] and not last.workspace_bytes
