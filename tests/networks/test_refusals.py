"""What may refuse a module on its way to kernels refuses it as `Unsupported`: each such function is made to raise in its turn."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gensor_gym
from agents import networks
from agents.modules import FallenBack
from agents.optimizer import Asked
from gensor_gym.frontends.unsupported import Unsupported
from gensor_gym.measure.measurement import Status

GYM = Path(gensor_gym.__file__).parent
ROOMS = ("frontends", "networks", "dataflow", "gir", "chains", "operators", "codegen", "graph")
ARGUMENTS = "frontends/torch_export.py:from_torch"
"""Raises a ValueError for arguments that are no module; torch cannot run these either."""
PLANTED = "a planted refusal"
Place = tuple[str, int]
"""File and first line of a function."""


class Block(nn.Module):
    """Something of each kind that plans treat differently."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.inner, self.outer, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
        self.table = nn.Embedding(10, 8)

    def forward(self, image: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        pixels = self.image(image).flatten(2).transpose(1, 2)
        words = torch.cat([self.table(ids), pixels[:, :4]], 1)
        seen = functional.scaled_dot_product_attention(words, words, words)
        made = self.norm(words + self.outer(functional.gelu(self.inner(seen))))
        return made.softmax(-1), (ids * 3 + 1) % 7


def raising() -> dict[Place, str]:
    """Functions of the rooms that raise a ValueError themselves."""
    found: dict[Place, str] = {}
    for path in (path for room in ROOMS for path in sorted((GYM / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(_raises(child) for child in _own(node)):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found[str(path), first] = f"{path.relative_to(GYM)}:{node.name}"
    return found


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


def _raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and "ValueError" in ast.unparse(node)


@contextmanager
def called(wanted: Container[Place], told: Callable[[Place], None]) -> Iterator[None]:
    """Tell of each call of the functions, except for those that check a user's settings."""

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        place = (frame.f_code.co_filename, frame.f_code.co_firstlineno)
        if place in wanted and "check_settings" not in _callers(frame):
            told(place)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def _refuse(place: Place) -> None:
    raise ValueError(PLANTED)


def compiled(**options: Any) -> Any:
    given = (torch.randn(1, 3, 6, 6), torch.arange(4).reshape(1, 4))
    return gensor_gym.compile(Block().eval(), given, **{"trials": 1, "fallback": "torch", "reuse": False, **options})


@pytest.mark.parametrize(
    "options, said",
    [
        ({"strategy": "nobody"}, "nobody"), ({"seed": -1}, "seed -1"), ({"trials": 0}, "trials=0"),
        ({"plan": "finest"}, "finest"), ({"hardware": "h100"}, "h100 cannot be timed here"), ({"arena": "warm"}, "warm"),
        ({"episodes": 3}, "episodes"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_settings_are_no_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        compiled(**options)
    assert not isinstance(raised.value, Unsupported)


def test_a_strategy_of_fused_operators_alone_is_a_setting() -> None:
    made = gensor_gym.compile(nn.Softmax(-1).eval(), (torch.randn(4, 16),), trials=1, strategy="gir_markov", reuse=False)
    assert [result.measurement.status for result in made.results] == [Status.OK]


def test_a_strategy_searches_the_pieces_that_it_can_and_others_have_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    searched, of = dict[str, str](), Asked.of

    def recorded(computation: Any, *args: Any, **options: Any) -> Asked:
        asked = of(computation, *args, **options)
        searched[type(computation).__name__ if computation not in networks.ANY else "checked"] = type(asked.search).__name__
        return asked

    monkeypatch.setattr(networks.Asked, "of", recorded)
    module, x = nn.Sequential(nn.Linear(16, 8), nn.Softmax(-1)).eval(), torch.randn(4, 16)
    made = gensor_gym.compile(module, (x,), trials=1, strategy="roller", reuse=False)
    assert searched == {"checked": "Roller", "Operator": "Roller", "Dataflow": "Exhaustive"}
    assert torch.allclose(made(x), module(x), rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="'roller' does not search"):
        gensor_gym.compile(nn.Softmax(-1).eval(), (x,), trials=1, strategy="roller", reuse=False)


@pytest.mark.thorough
def test_each_is_unsupported_and_falls_back() -> None:
    sites, reached = raising(), dict[Place, None]()
    assert not isinstance(compiled(), FallenBack)
    with called(sites, reached.setdefault):
        assert not isinstance(compiled(), FallenBack)
    assert len(reached) > 40
    refused, others = 0, []
    for target in (target for target in reached if sites[target] != ARGUMENTS):
        with warnings.catch_warnings(), called({target}, _refuse):
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                made = compiled()
            except Exception as error:
                others.append(f"{sites[target]}: {type(error).__name__}: {error}")
                continue
        if isinstance(made, FallenBack):
            assert PLANTED in made.reason, sites[target]
            refused += 1
    assert others == []
    assert refused > 20
