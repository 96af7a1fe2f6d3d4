"""SECURITY.md promises what tests hold: those that it names are there."""

from __future__ import annotations

import re

import pytest

from gensor_gym.locate import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_tests_that_are_named_exist(path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name or 'test_'}" in text


def test_every_part_names_its_tests() -> None:
    promised = PAGE.partition("## What is kept apart")[2].partition("## What is not")[0]
    parts = [part for part in promised.split("\n**") if part.strip()]
    assert len(parts) == 6 and all("`tests/" in part for part in parts)
