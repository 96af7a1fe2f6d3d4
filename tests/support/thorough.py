"""Which cases of a test are run by `make test`, and which by `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thorough_but(cases: Iterable[Any], *default: Any) -> list[Any]:
    """Cases for `parametrize`; those that are not named as `default` are marked `thorough`. A tuple is several arguments."""
    cases = list(cases)
    assert all(case in cases for case in default), f"{default} are not all among {cases}"
    arguments = [case if isinstance(case, tuple) else (case,) for case in cases]
    marks = [() if case in default else pytest.mark.thorough for case in cases]
    return [pytest.param(*each, marks=mark) for each, mark in zip(arguments, marks, strict=True)]
