"""Test cases from torch's operator database: an operator with a sample of its inputs, compiled and compared with torch."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import gensor_gym
from agents.cli.parser import Parser
from agents.runs.files import write_text
from agents.runs.journal import Journal
from agents.runs.texts import table
from gensor_gym.frontends.unsupported import Unsupported

# Cases that may crash or hang, each run in its own process, and their outcomes as rows.

SECONDS = 300.0
"""Time limit of a case in seconds, for export, compilation and a call."""
OUTPUT = Path(__file__).resolve().parents[2] / "results" / "conformance"


def apart(module: str, name: str, case: str, seconds: float = SECONDS) -> Outcome:
    """Run one case in a process of its own, `python -m MODULE --one CASE`, and return its outcome.

    A process that fails or runs out of time gives an outcome of status `error`.
    """
    command = [sys.executable, "-m", module, "--one", case]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(name, "error", f"not done after {seconds:g} s")
    if done.returncode:
        return Outcome(name, "error", done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "ended")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def command(
    parser: Parser, arguments: Sequence[str] | None, module: str, rows: Path, tried: Callable[[str], Outcome],
    cases: Callable[[Namespace], Mapping[str, str]], page: Callable[[Sequence[Outcome]], str], seconds: float = SECONDS,
) -> int:  # fmt: skip
    """Run a command that compares cases with torch, each in a process of its own; those with a row in the file `rows` are done.

    `cases` returns, by name, the argument of `tried` for each case. A case is tried by `python -m MODULE --one ARGUMENT`, which
    prints its outcome. The page next to the rows is written after each case and says how many cases are left. Return 1 if a case
    is wrong or ends in our error, else 0.
    """
    parser.add_argument("--one", metavar="CASE", help="a single case, whose outcome is printed")
    parser.add_argument("--rows", type=Path, default=rows)
    args, console = parser.parse_args(arguments), Console()
    if args.one:
        print(json.dumps(asdict(tried(args.one))))
        return 0
    asked, rows = cases(args), args.rows
    with Journal(rows) as journal:
        for name, case in track(asked.items(), "modules", console=console, total=len(asked)):
            if name not in journal.rows:
                journal.add({"key": name, **asdict(apart(module, name, case, seconds))})
            found = [Outcome(row["name"], row["status"], row["said"]) for row in journal if row["key"] in asked]
            left = len(asked) - len(found)
            write_text(rows.with_suffix(".md"), page(found) + (f"\n{left} of {len(asked)} are left to try.\n" if left else ""))
    console.print(f"The table is in {rows.with_suffix('.md')}", soft_wrap=True)
    return int(any(one.status in ("wrong", "error") for one in found))


def paged(lines: Sequence[str], head: tuple[str, ...], rows: Sequence[tuple[str, ...]], found: Sequence[Outcome]) -> str:
    """Return a Markdown page: introductory lines, a table of counts, and each case that is not right, with the reason."""
    said = {one.name: one.said.replace("|", "/").replace("\n", " ")[:200] for one in found}
    wrong = [f"| {one.name} | {one.status} | {said[one.name]} |" for one in found if one.status != "right"]
    counts = table(head, rows)
    return "\n".join([*lines, "", *counts, "", "## Not right", "", "| module | | |", "|---|---|---|", *wrong]) + "\n"


def counted(name: str, found: Iterable[Outcome]) -> tuple[str, ...]:
    """Return a table row: a name, and its number of outcomes of each status."""
    counts = Counter(one.status for one in found)
    return (name, *(str(counts[status]) for status in STATUSES))


DTYPES = {
    "plain": {torch.float32: 2, torch.int64: 1, torch.bool: 1}, "special": {torch.float32: 2},
    "integers": {torch.int64: 1, torch.int32: 1},
}  # fmt: skip
"""Kind of inputs -> data type -> number of samples for each operator."""
LEFT_OUT = (
    "linalg", "fft", "sparse", "masked", "special", "random", "bernoulli", "multinomial", "normal", "dropout", "empty", "_refs",
    "torch.ops", "segment", "ormqr", "cholesky", "svd", "lu", "eig", "complex", "signal", "uniform", "exponential", "cauchy",
    "geometric", "jiterator", "to_sparse", "stft", "istft", "polar", "as_strided", "pinverse", "qr", "geqrf", "solve", "inverse",
    "det", "lstsq", "trapez", "histogram", "unique", "cov", "corrcoef", "ctc_loss", "householder", "logdet", "matrix_exp",
    "nested", "view_as_complex", "item",
    "equal", "allclose",
)  # fmt: skip
"""Operators whose name contains one of these are skipped: random, complex and sparse ones, factorisations and the like."""
SPECIAL = (0.0, -0.0, 1e-40, 1e-8, 16777217.0, float("inf"), float("-inf"), float("nan"))
"""Special values that replace some numbers of the samples of kind `special`."""
FAR = (0, 1, -1, (1 << 24) + 1, -(1 << 40) - 3, (1 << 63) - 1, 1 - (1 << 63))
"""Values that replace some integers of the samples of kind `integers`; int32 gets the lowest 32 bits of each.

Dividing a type's minimum by -1 would crash torch.
"""
IN_ORDER = ("bucketize", "searchsorted")
"""Operators that need sorted numbers, which special values would break."""
STATUSES = ("right", "refused", "wrong", "error")


@dataclass(frozen=True)
class Case:
    """One case: a module, such as an operator with fixed arguments, and inputs on which it is compared with torch."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of trying a case: its status, and the message of a refusal or the numbers that differ."""

    name: str
    status: str
    said: str = ""


class Called(nn.Module):
    """Module that calls a function with given arguments, whose tensors can be replaced at each call."""

    def __init__(self, function: Any, arguments: Any, named: Any) -> None:
        super().__init__()
        self.function, self.arguments, self.named = function, arguments, named

    def forward(self, *tensors: Tensor) -> Any:
        """Call the function, with these tensors in place of those among its arguments, in order."""
        left = iter(tensors)
        return self.function(*_with(self.arguments, left), **_with(self.named, left))


def cases(kind: str = "plain", step: int = 1, first: int = 0) -> Iterator[Case]:
    """Yield the cases of every `step`-th operator of the database from number `first` on, in a fixed random order.

    `kind` is the kind of inputs, a key of `DTYPES`.
    """
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    operators = [one for one in op_db if not any(part in one.name for part in LEFT_OUT)]
    random.Random(7).shuffle(operators)
    for operator in operators[first::step]:
        for dtype, count in DTYPES[kind].items():
            if kind != "plain" and operator.name in IN_ORDER:
                continue
            if dtype in operator.supported_dtypes("cpu"):
                for number, (arguments, named) in enumerate(_samples(operator, dtype)[:count]):
                    tensors = tensors_of([arguments, named])
                    if tensors and all(one.numel() for one in tensors):
                        inputs = tuple(one.clone() if kind == "plain" else _with_special(one, kind) for one in tensors)
                        name = f"{operator.formatted_name} {str(dtype).removeprefix('torch.')} {number}"
                        yield Case(name, Called(operator.op, arguments, named).eval(), inputs)


def _samples(operator: Any, dtype: torch.dtype) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return (arguments, keyword arguments) of each sample of an operator's inputs, shuffled; empty if sampling fails here."""
    torch.manual_seed(0)
    try:
        found = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception:  # any kind: samples may need missing libraries
        return []
    random.Random(3).shuffle(found)
    return [([one.input, *one.args], dict(one.kwargs)) for one in found]


def _with(tree: Any, left: Iterator[Tensor]) -> Any:
    """Return a copy of nested lists, tuples and dictionaries in which the tensors are replaced by the next ones of `left`."""
    if isinstance(tree, Tensor):
        return next(left)
    if isinstance(tree, dict):
        return {key: _with(part, left) for key, part in tree.items()}
    return type(tree)(_with(part, left) for part in tree) if type(tree) in (list, tuple) else tree


def tensors_of(tree: Any, within: tuple[Any, ...] = ()) -> list[Tensor]:
    """Return the tensors in nested lists, tuples, dictionaries and attributes of other objects, in order.

    `within` has the objects that enclose the tree, which are not entered again.
    """
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict | list | tuple):
        parts: Any = tree.values() if isinstance(tree, dict) else tree
    else:
        known = isinstance(tree, type | nn.Module) or any(tree is one for one in within)
        parts = [] if known else getattr(tree, "__dict__", {}).values()
        within = (*within, tree)
    return [one for part in parts for one in tensors_of(part, within)]


def _with_special(tensor: Tensor, kind: str) -> Tensor:
    """Return a copy of a tensor with special values in every third place, if the kind has special values of its data type."""
    made = tensor.clone(memory_format=torch.contiguous_format)
    if made.dtype in DTYPES[kind]:
        places, values = torch.arange(0, made.numel(), 3), torch.tensor(SPECIAL if kind == "special" else FAR).to(made.dtype)
        made.view(-1)[places] = values[torch.arange(len(places)) % len(values)]
    return made


def tried(case: Case, margin: float = 0.0) -> Outcome:
    """Compile a case with one trial, compare its results with torch's, and return the outcome.

    With a `margin`, a result that differs is right if it is at most `margin` times as far from the float64 result as torch's.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            expected = tensors_of(case.module(*(one.clone() for one in case.inputs)))
        except Exception as error:  # torch may refuse special values
            return Outcome(case.name, "refused", f"by torch too: {type(error).__name__}: {error}")
        try:
            compiled = gensor_gym.compile(case.module, tuple(one.clone() for one in case.inputs), trials=1)
            found = tensors_of(compiled(*case.inputs))
        except Unsupported as error:
            return Outcome(case.name, "refused", str(error))
        except Exception as error:
            beyond = "of which kernels compute all exactly" in str(error)
            return Outcome(case.name, "refused" if beyond else "error", f"{type(error).__name__}: {error}")
    said = differences(expected, found, margin, lambda: _in_float64(case))
    return Outcome(case.name, "wrong" if said else "right", said)


def differences(
    expected: Sequence[Tensor], found: Sequence[Tensor], margin: float, exact: Callable[[], Sequence[Tensor] | None]
) -> str:
    """Describe how results differ from torch's; empty if they agree within a tolerance, integers exactly.

    Results that differ agree, too, if each is at most `margin` times as far from `exact()`, the results in float64, as torch's.
    """
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    wrong = [said for pair in zip(expected, found, strict=True) if (said := _difference(*pair))]
    if wrong and margin and (right := exact()) is not None and _are_as_near(right, expected, found, margin):
        return ""
    return "; ".join(wrong)[:300]


def _in_float64(case: Case) -> list[Tensor]:
    inputs = (one.double() if one.is_floating_point() else one.clone() for one in case.inputs)
    with torch.no_grad():
        return tensors_of(copy.deepcopy(case.module).double()(*inputs))


def _are_as_near(exact: Sequence[Tensor], expected: Sequence[Tensor], found: Sequence[Tensor], margin: float) -> bool:
    for right, own, made in zip(exact, expected, found, strict=True):
        if made.dtype != own.dtype or made.shape != own.shape:
            return False
        far, near = ((one.double() - right.double()).abs().max() for one in (made, own))
        if not bool(far <= margin * near):
            return False
    return True


def _difference(expected: Tensor, found: Tensor) -> str:
    """Describe how a result differs from torch's; empty if they agree within a tolerance, integers exactly."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    apart = ~torch.isclose(found.to(wide), expected.to(wide), rtol=1e-3, atol=1e-5, equal_nan=True)
    if not (expected.is_complex() or expected.is_floating_point()):
        apart = found != expected
    if not apart.any():
        return ""
    return f"{int(apart.sum())} of {apart.numel()}: {found[apart][:3].tolist()}, expected {expected[apart][:3].tolist()}"
