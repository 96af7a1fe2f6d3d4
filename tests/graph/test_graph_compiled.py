"""Where compiled functions are cached: a folder for every state of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from gensor_gym.graph import compiled as module
from gensor_gym.graph import rules

ROOT = Path(__file__).resolve().parents[2]
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


def test_a_folder_that_others_can_write_to_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiled functions are loaded from it as they stand there."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = folder_of(module._PACKAGE)
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"{folder} belongs to another user or can be written by others"):
        assert folder_of(module._PACKAGE) is None
    monkeypatch.setattr("os.access", lambda *_: False)
    assert folder_of(module._PACKAGE) is None  # without a word, as of an installation by the administrator


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


def test_the_users_cache_stands_in_for_a_package_folder_that_cannot_be_written(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (package / "__pycache__").write_text("a file, so that no folder can be made here")
    user = tmp_path_factory.mktemp("user")
    monkeypatch.setattr(module, "_PACKAGE", package)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(user))
    assert folder_of(package).parent == user / "numba"
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(package / "__pycache__" / "below"))
    assert folder_of(package) is None
    monkeypatch.setattr(module, "_folder", folder_of)
    assert module.compiled(lambda: 1)() == 1


@pytest.mark.thorough
def test_the_package_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A copy of the package, each of whose cache folders is a file, and a home that cannot be made."""
    copy = tmp_path / "gensor_gym"
    shutil.copytree(module._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        (folder / "__pycache__").write_text("")
    nowhere = str(copy / "__pycache__" / "home")
    text = (
        "import numpy as np, gensor_gym, gensor_gym.measure.backend\n"
        "from gensor_gym.graph.tables.geometry import power_value\n"
        "from gensor_gym.operators import elementwise, evaluate\n"
        "y = evaluate(elementwise('gelu', 3), [np.array([-1.0, 0.0, 1.0])])\n"
        "print(gensor_gym.__file__, power_value(3), *np.round(y, 6))\n"
    )
    for names in (("HOME", "XDG_CACHE_HOME"), ("HOME", "XDG_CACHE_HOME", "GENSOR_GYM_CACHE", "NUMBA_CACHE_DIR")):
        own = {key: value for key, value in os.environ.items() if key not in ("GENSOR_GYM_CACHE", "NUMBA_CACHE_DIR")}
        environment = own | {"PYTHONPATH": str(tmp_path)} | dict.fromkeys(names, nowhere)
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [str(copy / "__init__.py"), "8", "-0.158655", "0.0", "0.841345"]


READ_ONLY = """
import numpy as np
from gensor_gym import ConstructionGraph
from gensor_gym.cost import model
from gensor_gym.env.tasks import TaskSet
from gensor_gym.graph import rules
from gensor_gym.graph.compiled import plain
graph = ConstructionGraph("gemm(m=64, n=48, k=40)", "h200", "extended")
schedule = graph.random_schedule(np.random.default_rng(0))
rows = np.repeat(schedule.row[None], 4, axis=0)
rows.setflags(write=False)
assert graph.is_legal(schedule) and graph.fits(rows).all() and graph.latencies(rows)[0] == graph.latency(schedule)
assert graph.action_masks(rows)[0].tolist() == graph.action_mask(schedule).tolist()
assert graph.transition(schedule, 1) and graph.terms(schedule) and len(TaskSet(graph.operator, "h200", "extended").starts)
assert plain(rows) is not rows and plain(own := rows.copy()) is own
assert len(graph.latencies(own[::2])) == len(graph.action_masks(own[::2])) == len(graph.fits(own[::2])) == 2
compiled = [rules.fits, rules.fill_masks, rules.transitions, model.fill_latencies, model.fill_terms]
kinds = [str(kind) for function in compiled for signature in function.signatures for kind in signature]
print(len(kinds) > 10, *(kind for kind in kinds if "readonly" in kind or ", A)" in kind))
"""


@pytest.mark.thorough
def test_rows_are_of_one_type() -> None:
    """A schedule's row is read-only, which is another type to Numba: rules and model would be compiled a second time."""
    done = subprocess.run([sys.executable, "-c", READ_ONLY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stdout + done.stderr
