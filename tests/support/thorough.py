"""Which cases of a test are run by `make test`, and which by `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest


def thorough_but(cases: Iterable[Any], *default: Any) -> list[Any]:
    """Cases for `parametrize`; those that are not named as `default` are marked `thorough`. A tuple is several arguments."""
    cases = list(cases)
    assert all(case in cases for case in default), f"{default} are not all among {cases}"
    arguments = [case if isinstance(case, tuple) else (case,) for case in cases]
    marks = [() if case in default else pytest.mark.thorough for case in cases]
    return [pytest.param(*each, marks=mark) for each, mark in zip(arguments, marks, strict=True)]


def asked(request: pytest.FixtureRequest, cases: Iterable[Any]) -> list[Any]:
    """Those of the cases that tests of the fixture's module are run for in this session, in order."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    parameters = [tuple(item.callspec.params.values()) for item in items if hasattr(item, "callspec")]
    return [case for case in cases if (case if isinstance(case, tuple) else (case,)) in parameters]


def first_of_each(cases: Mapping[str, Sequence[Any]], *default: str) -> list[Any]:
    """Lists by name for `parametrize`: of those named `default` the first element by default, all others marked `thorough`."""
    assert set(default) <= set(cases), f"{default} are not all among {list(cases)}"
    marks = {name: () if name in default else pytest.mark.thorough for name in cases}
    first = [pytest.param(list(several[:1]), id=name, marks=marks[name]) for name, several in cases.items()]
    others = [(name, list(several[1:])) for name, several in cases.items() if len(several) > 1]
    return first + [pytest.param(several, id=f"{name}, more", marks=pytest.mark.thorough) for name, several in others]
