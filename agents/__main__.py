"""`python -m agents` lists the strategies; `python -m agents NAME` lists a strategy's hyperparameters with their defaults.

Strategies of the plugins in `$GENSOR_GYM_PLUGINS` are listed, too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence

from agents.cli.refusal import refusals
from agents.strategy import STRATEGIES, class_of
from gensor_gym.plugins import load_named
from gensor_gym.registry import near


def summary(name: str) -> str:
    """Return the summary of a strategy: the first paragraph of the docstring of its class, as one line."""
    return " ".join((inspect.getdoc(class_of(name)) or "").split("\n\n")[0].split())


def hyperparameters(name: str) -> Iterator[tuple[str, object, str]]:
    """Yield (name, default, docstring or "") of every field of a strategy's class."""
    cls = class_of(name)
    said: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if dataclasses.is_dataclass(base)]):
        said |= _said(base)
    own = next(iter(STRATEGIES[name].searches.values()))
    return ((field.name, own.get(field.name, field.default), said.get(field.name, "")) for field in dataclasses.fields(cls))


def _said(cls: type) -> dict[str, str]:
    """Return the docstrings of a class's own fields; none if the class has no source, as one that was made from a function."""
    try:
        source = inspect.getsource(cls)
    except OSError:
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0].body  # type: ignore[attr-defined]
    return {
        ast.unparse(field.target): " ".join(str(text.value.value).split())
        for field, text in zip(body, body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, which is 2 for an unknown strategy or plugin."""
    with refusals():
        load_named()
    names = sys.argv[1:] if arguments is None else list(arguments)
    if unknown := sorted(set(names) - set(STRATEGIES)):
        print(f"no strategies {unknown}; strategies are {sorted(STRATEGIES)}{near(unknown, STRATEGIES)}", file=sys.stderr)
        return 2
    for name in names or STRATEGIES:
        print(f"{name}: {summary(name)}")
        for field, default, text in hyperparameters(name) if names else ():
            print(f"  {field}={default!r}{'  ' + text if text else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
