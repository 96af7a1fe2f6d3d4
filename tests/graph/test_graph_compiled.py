"""Compiled functions: signatures, caches, units that callers share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

from gensor_gym.cache.sources import files_of
from gensor_gym.cost import model
from gensor_gym.cost.gpu.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph import compiled as module
from gensor_gym.graph import rules
from gensor_gym.graph.compiled import compiled, lean, outlined
from gensor_gym.graph.compiling.units import Unit
from tests.support.graph_walks import graph_of

ROOT = Path(__file__).resolve().parents[2]
_uncached = module._folder.__wrapped__


def folder_of(package: Path) -> Path:
    """The cache folder for the sources as they are now, not as this process has read them."""
    files_of.cache_clear()
    found: Path = _uncached(package)
    return found


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
from gensor_gym.cache.sources import files_of
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


if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)


def test_callers_have_no_copy_of_the_model() -> None:
    """Nor is it compiled for Python beside: what Python calls is the function that they call."""
    graph = graph_of("gemm(m=64, n=48, k=40)", "h200", "compact")
    ints, floats, row = graph.tables.ints, graph.tables.floats, graph.initial().row.copy()
    asked, terms = numba.njit(model.fill_latencies.py_func), np.empty(NUM_TERMS)
    asked(row[None], ints, floats, graph.room(), seconds := np.empty(1))
    assert latency_gpu(row, ints, floats, terms) == seconds[0] == graph.latency(graph.initial())
    (text,) = asked.inspect_llvm().values()
    (made,) = [found for found in latency_gpu.overloads.values()]
    assert isinstance(latency_gpu, Unit) and f"declare i32 @{made.fndesc.mangled_name}(" in text
    assert f"@{made.fndesc.mangled_name}(" not in text.replace("declare i32 @", "").replace("call i32 @", "")


@lean
def weighted(values, weights):  # noqa: ANN001, ANN201
    found = 0.0
    for i in range(values.shape[0]):
        found += values[i] * weights[i]
    return found


@compiled
def once(values):  # noqa: ANN001, ANN201
    made = np.sqrt(values)
    return weighted(made, values)


@compiled
def twice(values):  # noqa: ANN001, ANN201
    return once(values) + once(values + 1.0)


def test_an_entry_that_others_call_is_a_part_of_them() -> None:
    values = np.random.default_rng(0).random(9)
    assert twice(values) == once.py_func(values) + once.py_func(values + 1.0) and not once.overloads
    assert once(values) == once.py_func(values) and len(once.overloads) == 1


def test_a_unit_stands_at_the_top_of_its_module() -> None:
    with pytest.raises(ValueError, match=r"<locals>\.inner is inside of a function or a class"):

        @outlined
        def inner(value):  # noqa: ANN001, ANN202
            return value


SHARED = """
import numpy as np
from gensor_gym.graph.compiled import compiled, lean, outlined
@outlined
def product(a, b):
    found = 0.0
    for i in range(a.shape[0]):
        found += a[i] * b[i]
    return found
@outlined
def square(a):
    return product(a, a) + 1.0
@lean
def doubled(a):
    return 2.0 * square(a)
@compiled
def single(a):
    return doubled(a)
@compiled
def both(a):
    return single(a) + product(a, a)
"""
ASKED = """
import sys
import numpy as np
import shared
print(getattr(shared, sys.argv[1])(np.arange(4.0)))
for name in ("product", "square", "single", "both"):
    stats = getattr(shared, name).stats
    print(name, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.mark.thorough
def test_cached_callers_find_their_units_in_another_process(tmp_path: Path) -> None:
    """Also where a unit was compiled by another process than its caller, and where it is no longer on disk."""
    (tmp_path / "shared.py").write_text(SHARED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    def asked(name: str) -> list[str]:
        command = [sys.executable, "-c", ASKED, name]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert asked("single") == ["30.0", "product 0 1", "square 0 1", "single 0 1", "both 0 0"]
    assert asked("both") == ["44.0", "product 1 0", "square 1 0", "single 0 0", "both 0 1"]
    for kept in (tmp_path / "numba").rglob("shared.product-*"):
        kept.unlink()
    assert asked("both") == ["44.0", "product 0 1", "square 1 0", "single 0 0", "both 1 0"]
