"""Where compiled functions are cached: a folder for every state of the sources."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numba
import pytest

from gensor_gym.graph import compiled as module
from gensor_gym.graph import rules

folder_of = module._folder.__wrapped__


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text("from gensor_gym.graph.compiled import compiled\nONE = 1\n")
    (tmp_path / "report.py").write_text("TITLE = 'a'\n")
    return tmp_path


def test_a_changed_source_has_another_folder(package: Path) -> None:
    before = folder_of(package)
    assert folder_of(package) == before != folder_of(module._PACKAGE)
    (package / "report.py").write_text("TITLE = 'b'\n")
    assert folder_of(package) == before
    (package / "walk.py").write_text("from gensor_gym.graph.compiled import compiled\nONE = 2\n")
    assert folder_of(package) != before


def test_numbas_own_setting_is_left_alone_and_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting = numba.config.CACHE_DIR
    function = module.compiled(lambda: 1)
    assert numba.config.CACHE_DIR == setting and function() == 1
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert tmp_path in folder_of(module._PACKAGE).parents


def test_rules_are_cached_there() -> None:
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    path = Path(rules.fill_masks._cache.cache_path)
    assert module._folder(module._PACKAGE) in path.parents


def test_folders_unused_for_a_week_go(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(old, (week_ago, week_ago))
    module._remove_unused(tmp_path)
    assert not old.exists() and new.exists()
