"""What modules return and are given: inputs themselves, a value several times, views, constants; open extents; a tensor twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import register_pytree_node, tree_leaves, tree_structure

from agents.modules import compile_module
from gensor_gym.frontends.torch_export import Unsupported, from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.frontends.test_torch_export import Of
from tests.support.networks import kernels_of

X, Y = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))


def function_of(module: Any, *examples: torch.Tensor) -> NetworkFunction:
    plan = cut_all(folded(from_torch(module, examples)))
    return NetworkFunction(plan, kernels_of(plan, 0, 0), 1)


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    twice = x * 2
    return x, twice, twice, twice.view(24), twice.T, twice[:2], twice.expand(2, 4, 6), torch.ones(3), x.mean(), x.view(3, 8)


def test_all_that_may_come_out() -> None:
    found = function_of(Of(several).eval(), X)(Y)
    for one, expected in zip(found, several(Y), strict=True):
        torch.testing.assert_close(one, expected)
    places = {one.data_ptr() for one in found}
    assert len(places) == len(found) and Y.data_ptr() not in places


class Named(nn.Module):
    """Inputs by name, some of which are not given; outputs in a dict, a tuple and a list, some of which are none."""

    def forward(self, *, ids: Any = None, mask: Any = None, other: Any = None) -> dict[str, Any]:
        made = ids.softmax(-1)
        return {"made": made, "rest": (made * mask, [made + 1], None), "none": other}


def test_outputs_come_in_the_form_of_the_module_and_inputs_by_name() -> None:
    compiled = compile_module(Named().eval(), {"ids": X, "mask": Y}, trials=1)
    expected = Named()(ids=X, mask=Y)
    for found in (compiled(X, Y), compiled(X, mask=Y), compiled(mask=Y, ids=X)):
        assert tree_structure(found) == tree_structure(expected)
        for one, wanted in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            torch.testing.assert_close(one, wanted)
    assert compile_module(Of(lambda x: (x + 1,)).eval(), [X], trials=1)(X)[0].shape == X.shape
    for names in ({"ids": X}, {"ids": X, "masc": Y}):
        with pytest.raises(TypeError, match="inputs ids.*, expected ids, mask"):
            compiled(**names)


class Layer:
    """What torch knows nothing of."""

    def __init__(self, keys: Any, count: int) -> None:
        self.keys, self.kind, self.count, self.empty = keys, Layer, count, None


class Cache:
    def __init__(self, x: torch.Tensor) -> None:
        self.layers, self.last = [Layer(x + 1, 1), Layer({"k": x * 2}, 2)], Layer(None, 0)
        self.last.empty = self  # type: ignore[assignment]


def test_objects_come_out_as_such() -> None:
    module = Of(lambda x: {"made": x.relu(), "cache": Cache(x)}).eval()
    compiled = compile_module(module, [X], trials=1)
    found, again = (compiled(one)["cache"] for one in (Y, X))
    assert isinstance(found, Cache) and [type(one) for one in found.layers] == [Layer, Layer] and found is not again
    torch.testing.assert_close(found.layers[0].keys, Y + 1)
    torch.testing.assert_close(found.layers[1].keys["k"], Y * 2)
    torch.testing.assert_close(again.layers[0].keys, X + 1)
    assert [(one.count, one.kind, one.empty) for one in found.layers] == [(1, Layer, None), (2, Layer, None)]
    assert isinstance(module(X)["cache"], Cache) and not module._forward_hooks


class Result(dict[str, Any]):
    """As results of transformers are: what is known to torch is made as it was registered."""

    made = property(lambda self: self["made"])


def test_registered_classes_come_out_as_such() -> None:
    register_pytree_node(Result, lambda d: (list(d.values()), list(d)), lambda parts, keys: Result(zip(keys, parts, strict=True)))
    found = compile_module(Of(lambda x: Result(made=x * 3)).eval(), [X], trials=1)(Y)
    assert type(found) is Result
    torch.testing.assert_close(found.made, Y * 3)


def chosen(x: torch.Tensor) -> dict[str, Any]:
    best, ids = x.max(-1)
    return {"best": best, "ids": ids, "small": ids.to(torch.int32), "more": (x > 0, torch.tensor([True, False]), torch.arange(3))}


def test_whole_numbers_and_bools_come_out_as_such() -> None:
    compiled = compile_module(Of(chosen).eval(), [X], trials=1)
    for made, expected in zip(tree_leaves(compiled(Y)), tree_leaves(chosen(Y)), strict=True):
        assert made.dtype == expected.dtype and torch.equal(made, expected)
    named = compiled(Y.numpy())
    assert named["ids"].dtype == np.int64 and named["more"][0].dtype == np.bool_ and (named["ids"] == Y.argmax(-1).numpy()).all()
    alone = compile_module(Of(lambda x: x.argmax(-1)).eval(), [X], trials=1)
    assert torch.equal(alone(Y), Y.argmax(-1)) and torch.equal(alone.as_torch()(Y), Y.argmax(-1))
    with pytest.raises(TypeError, match="out= is given, expected none where outputs are of int64"):
        alone(Y, out=torch.empty(2, 4))


def test_ids_in_lists_are_checked_as_those_in_arrays() -> None:
    table = nn.Embedding(5, 2).eval()
    several, one = (compile_module(table, [torch.tensor(ids)], trials=1) for ids in ([1, 2], 1))
    np.testing.assert_array_equal(several([4, 0]), table.weight.detach()[[4, 0]])
    np.testing.assert_array_equal(one(3), table.weight.detach()[3])
    for call, said in (
        (lambda: several([5, 0]), "has id 5: expected 0 to 4"), (lambda: one(-1), "has id -1: expected 0 to 4"),
        (lambda: several(np.array([np.nan, 1.0])), r"is float64\[2\], expected int64\[2\]"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            call()


def test_floats_that_no_integer_stands_for_are_refused() -> None:
    whole = compile_module(Of(lambda x: x.long()).eval(), [X], trials=1)
    assert torch.equal(whole(X + 1e9), (X + 1e9).long())
    for far in (1e20, float("nan")):
        with pytest.raises(ValueError, match="output 0, of int64: expected whole numbers of int64"):
            whole(X + far)


def test_ids_that_are_handed_through_are_the_same() -> None:
    handed = compile_module(Of(lambda ids: ids.view(3, 1)).eval(), [torch.arange(3)], trials=1)
    far = torch.tensor([-(1 << 63), 7, (1 << 24) + 1])
    assert torch.equal(handed(far), far.view(3, 1)) and torch.equal(handed.as_torch()(far), far.view(3, 1))
    out = torch.empty(3, 1, dtype=torch.int64)
    assert handed(far, out=out) is out and torch.equal(out, far.view(3, 1))


def test_one_tensor_given_twice_is_two_inputs() -> None:
    function = function_of(Of(lambda x, y: x - 2 * y).eval(), X, X)
    torch.testing.assert_close(function(X, Y), X - 2 * Y)


def test_exported_programs_with_open_extents() -> None:
    open_rows = {"inputs": ({0: torch.export.Dim("rows")},)}
    program = torch.export.export(Of(lambda x: x.softmax(0)).eval(), (X,), dynamic_shapes=open_rows)
    rows = torch.randn(7, 6)
    for module in (program, program.module()):
        torch.testing.assert_close(function_of(module, rows)(rows), rows.softmax(0))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: (2, None), "the module returns no tensor: expected one or more"),
        (lambda x: x.double() * 2, "makes a tensor of torch.float64"),
        (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), "true_graph_0"),
        (lambda x: x.char().float() * 2, "reads what is cast to int8, float32"),
    ],
)
def test_what_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(Of(function).eval(), (X,))


def test_what_lies_in_other_orders() -> None:
    layer = nn.Linear(4, 3).eval()
    with pytest.warns(RuntimeWarning, match="not dense"):
        torch.testing.assert_close(function_of(layer, X.T)(X.T), layer(X.T).detach())
