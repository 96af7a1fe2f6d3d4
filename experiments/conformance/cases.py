"""Cases of torch's operator database: an operator with a sample of its inputs, compiled and compared with torch's result."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import gensor_gym
from gensor_gym.frontends.unsupported import Unsupported

DTYPES = {torch.float32: 2, torch.int64: 1, torch.bool: 1}
"""Input types, with the number of samples for each operator."""
LEFT_OUT = (
    "linalg", "fft", "sparse", "masked", "special", "random", "bernoulli", "multinomial", "normal", "dropout", "empty", "_refs",
    "torch.ops", "segment", "ormqr", "cholesky", "svd", "lu", "eig", "complex", "signal", "uniform", "exponential", "cauchy",
    "geometric", "jiterator", "to_sparse", "stft", "istft", "polar", "as_strided", "pinverse", "qr", "geqrf", "solve", "inverse",
    "det", "lstsq", "trapez", "histogram", "unique", "cov", "corrcoef", "ctc_loss", "householder", "logdet", "matrix_exp",
    "nested", "view_as_complex", "item",
    "equal", "allclose",
)  # fmt: skip
"""Parts of skipped operators' names: random, complex or sparse ones, matrix factorisations, results without a tensor."""
SPECIAL = (0.0, -0.0, 1e-40, 1e-8, 16777217.0, float("inf"), float("-inf"), float("nan"))
"""Numbers that are put among those of a sample."""
IN_ORDER = ("bucketize", "searchsorted")
"""Operators that need sorted numbers, which special values would break."""
STATUSES = ("right", "refused", "wrong", "error")


@dataclass(frozen=True)
class Case:
    """An operator of a sample."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case, with the refusal's words or the numbers that differ."""

    name: str
    status: str
    said: str = ""


class Called(nn.Module):
    """A function with arguments, whose tensors can be replaced."""

    def __init__(self, function: Any, arguments: Any, named: Any) -> None:
        """The sampled function and arguments."""
        super().__init__()
        self.function, self.arguments, self.named = function, arguments, named

    def forward(self, *tensors: Tensor) -> Any:
        """The function of these tensors, in order."""
        left = iter(tensors)
        return self.function(*_with(self.arguments, left), **_with(self.named, left))


def cases(special: bool = False, step: int = 1, first: int = 0) -> Iterator[Case]:
    """Cases of every `step`-th operator from `first` on, in a shuffled order.

    `special`: with `SPECIAL` numbers among those of float32 inputs.
    """
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    operators = [one for one in op_db if not any(part in one.name for part in LEFT_OUT)]
    random.Random(7).shuffle(operators)
    for operator in operators[first::step]:
        for dtype, count in DTYPES.items():
            if special and (dtype is not torch.float32 or operator.name in IN_ORDER):
                continue
            if dtype in operator.supported_dtypes("cpu"):
                for number, (arguments, named) in enumerate(_samples(operator, dtype)[:count]):
                    tensors = tensors_of([arguments, named])
                    if tensors and all(one.numel() for one in tensors):
                        inputs = tuple(_with_special(one) if special else one.clone() for one in tensors)
                        name = f"{operator.formatted_name} {str(dtype).removeprefix('torch.')} {number}"
                        yield Case(name, Called(operator.op, arguments, named).eval(), inputs)


def _samples(operator: Any, dtype: torch.dtype) -> list[tuple[list[Any], dict[str, Any]]]:
    """(arguments, named ones) of each, shuffled; none where the database cannot make them."""
    torch.manual_seed(0)
    try:
        found = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception:  # of many kinds: it is made for machines with more libraries
        return []
    random.Random(3).shuffle(found)
    return [([one.input, *one.args], dict(one.kwargs)) for one in found]


def _with(tree: Any, left: Iterator[Tensor]) -> Any:
    """A tree with the next tensors in the places of its own."""
    if isinstance(tree, Tensor):
        return next(left)
    if isinstance(tree, dict):
        return {key: _with(part, left) for key, part in tree.items()}
    return type(tree)(_with(part, left) for part in tree) if type(tree) in (list, tuple) else tree


def tensors_of(tree: Any, within: tuple[Any, ...] = ()) -> list[Tensor]:
    """Tensors of a tree, in order; for objects of non-builtin classes, `within` which it lies, their attributes."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict | list | tuple):
        parts: Any = tree.values() if isinstance(tree, dict) else tree
    else:
        known = isinstance(tree, type | nn.Module) or any(tree is one for one in within)
        parts = [] if known else getattr(tree, "__dict__", {}).values()
        within = (*within, tree)
    return [one for part in parts for one in tensors_of(part, within)]


def _with_special(tensor: Tensor) -> Tensor:
    """With special numbers at every third index, as far as there is room."""
    made = tensor.clone(memory_format=torch.contiguous_format)
    if made.dtype is torch.float32:
        places = torch.arange(0, made.numel(), 3)
        made.view(-1)[places] = torch.tensor(SPECIAL)[torch.arange(len(places)) % len(SPECIAL)]
    return made


def tried(case: Case, margin: float = 0.0) -> Outcome:
    """Outcome of a case: compiled with one trial, and called.

    Results may deviate from those in float64 by `margin` times torch's largest deviation.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            expected = tensors_of(case.module(*(one.clone() for one in case.inputs)))
        except Exception as error:  # of special numbers
            return Outcome(case.name, "refused", f"by torch too: {type(error).__name__}: {error}")
        try:
            compiled = gensor_gym.compile(case.module, tuple(one.clone() for one in case.inputs), trials=1)
            found = tensors_of(compiled(*case.inputs))
        except Unsupported as error:
            return Outcome(case.name, "refused", str(error))
        except Exception as error:
            beyond = "of which kernels compute all exactly" in str(error)
            return Outcome(case.name, "refused" if beyond else "error", f"{type(error).__name__}: {error}")
    wrong = [said for pair in zip(expected, found, strict=False) if (said := _difference(*pair))]
    if wrong and margin and len(found) == len(expected) and _are_as_near(case, expected, found, margin):
        wrong = []
    wrong += [f"{len(found)} results, expected {len(expected)}"] if len(found) != len(expected) else []
    return Outcome(case.name, "wrong" if wrong else "right", "; ".join(wrong)[:300])


def _are_as_near(case: Case, expected: Sequence[Tensor], found: Sequence[Tensor], margin: float) -> bool:
    """Whether all are as near to the module's results in float64 as torch's, times a margin."""
    inputs = (one.double() if one.is_floating_point() else one.clone() for one in case.inputs)
    with torch.no_grad():
        exact = tensors_of(copy.deepcopy(case.module).double()(*inputs))
    for right, own, made in zip(exact, expected, found, strict=True):
        if made.dtype != own.dtype or made.shape != own.shape:
            return False
        far, near = ((one.double() - right.double()).abs().max() for one in (made, own))
        if not bool(far <= margin * near):
            return False
    return True


def _difference(expected: Tensor, found: Tensor) -> str:
    """Difference of a result from torch's; empty if there is none."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    apart = ~torch.isclose(found.to(wide), expected.to(wide), rtol=1e-3, atol=1e-5, equal_nan=True)
    if not apart.any():
        return ""
    return f"{int(apart.sum())} of {apart.numel()}: {found[apart][:3].tolist()}, expected {expected[apart][:3].tolist()}"
