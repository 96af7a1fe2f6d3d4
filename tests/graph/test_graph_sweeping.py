"""Garbage is not collected while our functions are compiled, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numba
import pytest
from numba.core import event

from gensor_gym.graph.compiling.notice import COMPILING

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)


class Looked(event.Listener):  # type: ignore[misc]
    """Whether garbage is collected when a function begins to be compiled."""

    def __init__(self) -> None:
        self.found: list[bool] = []

    def on_start(self, event: event.Event) -> None:
        self.found.append(gc.isenabled())

    def on_end(self, event: event.Event) -> None:
        """Nothing."""


@pytest.fixture
def looked() -> Iterator[list[bool]]:
    """What a listener finds that is asked after ours."""
    listener = Looked()
    with event.install_listener(COMPILING, listener):
        yield listener.found
    gc.enable()


def compiled(module: str, text: str = "lambda x: x") -> None:
    function = eval(text)
    function.__module__ = module
    numba.njit(function)(1)


@pytest.mark.parametrize(("module", "collected"), [("gensor_gym.one", False), ("somebody.else", True)])
def test_only_our_functions_are_compiled_without(module: str, collected: bool, looked: list[bool]) -> None:
    compiled(module)
    assert looked == [collected] and gc.isenabled()


def test_a_function_that_cannot_be_compiled_leaves_it_on(looked: list[bool]) -> None:
    with pytest.raises(numba.TypingError):
        compiled("gensor_gym.one", "lambda x: x.nothing")
    assert looked == [False] and gc.isenabled()


def test_whoever_had_it_off_has_it_off(looked: list[bool]) -> None:
    gc.disable()
    compiled("gensor_gym.one")
    assert looked == [False] and not gc.isenabled()
