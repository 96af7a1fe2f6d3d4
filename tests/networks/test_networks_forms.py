"""Arguments and results in tuples, lists and dicts, with what is no tensor beside them; another form is named."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_structure

from agents.modules import compile_module
from agents.networks import CompiledNetwork
from gensor_gym.frontends.torch_export import Unsupported, from_torch
from tests.frontends.test_torch_export import Of

X, Y = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


class Nested(nn.Module):
    def forward(self, pair: Any, other: Any = None, factor: float = 2.0, *, more: Any = None, flag: bool = True) -> Tensor:
        made: Tensor = pair[0] - factor * pair[1] + (0.0 if other[0] is not None else other[1])
        return made + more["deep"]["er"] if flag else made


def arguments(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"pair": [x, y], "other": (None, x + 1), "factor": 3.0, "more": {"flat": y, "deep": {"er": x * 2}}, "flag": True}


@pytest.fixture(scope="module")
def nested() -> CompiledNetwork:
    return compile_module(Nested().eval(), arguments(X, Y), trials=1)


def test_inputs_in_lists_tuples_and_dicts(nested: CompiledNetwork) -> None:
    given = arguments(Y, X)
    expected = Nested()(**given)
    more = {"deep": given["more"]["deep"], "flat": X}  # in another order
    pair, other = given["pair"], given["other"]
    for found in (nested(**given), nested(pair, list(other), 3.0, flag=True, more=more), nested.as_torch()(**given)):
        torch.testing.assert_close(found, expected)


class Optional(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, factor: float = 2.0, flag: bool = True) -> Tensor:
        return (x * factor if flag else x) - (0 if mask is None else mask)


def test_what_has_a_default_may_be_left_out_or_given() -> None:
    one, other = (compile_module(Optional().eval(), given, trials=1) for given in ((X,), {"flag": False, "mask": Y, "x": X}))
    for found in (one(X), one(X, None), one(x=X, factor=2.0), one.as_torch()(X, None, 2.0), one.as_torch()(X)):
        torch.testing.assert_close(found, X * 2)
    for found in (other(X, Y, 2.0, False), other(X, flag=False, mask=Y), other(mask=Y, x=X, flag=False)):  # in the module's order
        torch.testing.assert_close(found, X - Y)
    for call, kind, said in (
        (lambda: one(X, Y), ValueError, "input mask is a Tensor: expected None"),
        (lambda: other(X, Y), ValueError, "input flag is True: expected False, for which"),
        (lambda: other(X, flag=False), TypeError, "inputs argument 0, flag, expected x, mask, factor, flag"),
        (lambda: other(X, Y, x=X, flag=False), TypeError, "inputs argument 0, argument 1, x"),
        (lambda: one(X, None, 2.0, True, True), TypeError, "expected x, mask, factor, flag"),
    ):
        with pytest.raises(kind, match=said):
            call()


def test_arguments_by_place_have_the_names_of_the_module() -> None:
    compiled = compile_module(Of(lambda pair, x: pair["a"] - 2 * x).eval(), ({"a": X}, Y), trials=1)
    torch.testing.assert_close(compiled({"a": Y}, X), Y - 2 * X)
    torch.testing.assert_close(compiled(inputs_0={"a": Y}, inputs_1=X), Y - 2 * X)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"pair": [X]}, TypeError, r"Nested: input pair is a list of 1: expected a list of 2"),
        ({"pair": [X, None]}, TypeError, r"input pair\[1\] is None: expected a tensor"),
        ({"pair": X}, TypeError, r"input pair is a Tensor: expected a list of 2"),
        ({"more": {"flat": X, "deep": {"en": X}}}, TypeError, r"input more\['deep'\] is a dict of en: expected a dict of er"),
        ({"other": (X, X)}, ValueError, r"input other\[0\] is a Tensor: expected None, for which it was compiled"),
        ({"factor": 2.0}, ValueError, r"input factor is 2.0: expected 3.0, for which"),
        ({"factor": 3}, ValueError, r"input factor is 3: expected 3.0, for which"),
        ({"pair": [X, X[:2]]}, ValueError, r"input pair_1 is float32\[2, 4\], expected float32\[3, 4\]"),
        ({"flags": True}, TypeError, r"inputs .*flags, expected pair, other, factor, more, flag"),
    ],
)
def test_what_is_given_in_another_form(nested: CompiledNetwork, change: dict[str, Any], kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        nested(**{**arguments(X, Y), **change})


class Two(NamedTuple):
    first: Tensor
    second: Any


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.max(-1),
        lambda x: Two(x + 1, {"again": [x * 2, None]}),
        lambda x: (OrderedDict(b=x + 1, a=x * 3), x.shape[0], "text", 1.5, True),
    ],
)
def test_outputs_in_the_classes_of_torch_and_python(function: Callable[[Tensor], Any]) -> None:
    found, expected = compile_module(Of(function).eval(), [X], trials=1)(Y), function(Y)
    assert type(found) is type(expected) and tree_structure(found) == tree_structure(expected)
    for one, wanted in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert torch.equal(one, wanted) if isinstance(wanted, Tensor) else one == wanted


def test_a_default_dict_goes_in_and_comes_out_as_a_dict() -> None:
    found = compile_module(Of(lambda x: defaultdict(list, made=x + 1)).eval(), [X], trials=1)(Y)
    assert type(found) is dict
    given = compile_module(Of(lambda x: x["made"] * 2).eval(), [defaultdict(list, made=X)], trials=1)
    torch.testing.assert_close(given({"made": Y}), Y * 2)
    torch.testing.assert_close(found["made"], Y + 1)


def test_examples_that_are_no_tensors_are_named_with_their_place() -> None:
    nested: Any = ({"a": [X, X.double()]},)
    for given, said in ((nested, r"input 0\['a'\]\[1\] is torch.float64"), ((X, object()), "input 1 is a object")):
        with pytest.raises(ValueError, match=said):
            from_torch(Of(lambda *given: X).eval(), given)


def test_a_class_of_its_own_is_refused() -> None:
    with pytest.raises(Unsupported, match="torch.export"):
        from_torch(Of(lambda x: slice(x, x)).eval(), (X,))
