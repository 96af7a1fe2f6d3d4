"""The cache of libraries: what another user could have written is never loaded."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

import pytest

from gensor_gym.codegen.runtime import compile as module
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.hardware.cache import is_own, make_cache_dir

SOURCE, FORGED = "int answer(void) { return 42; }", "int answer(void) { return 666; }"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer(path: Path) -> int:
    """What a library says, of a copy: a process does not load two files of one name."""
    copy = path.with_name(f"{os.urandom(8).hex()}.so")
    copy.write_bytes(path.read_bytes())
    return int(ctypes.CDLL(str(copy)).answer())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_libraries_are_the_users_alone(cache: Path) -> None:
    before = os.umask(0o002)
    try:
        path = compile_text(SOURCE, "native")
    finally:
        os.umask(before)
    assert [mode(each) for each in (cache, path.parent, path)] == [0o700] * 3 and is_own(path)
    path.parent.chmod(0o777)
    assert mode(make_cache_dir("kernels")) == 0o700


def forged(kind: str, path: Path, other: Path, patch: pytest.MonkeyPatch) -> None:
    """Put another library in the place of one."""
    if kind == "a link":
        path.unlink()
        path.symlink_to(other)
        return
    path.write_bytes(other.read_bytes())
    if kind == "of another user":
        plain = os.stat
        foreign = lambda file, *arguments, **options: _owned_by(plain(file, *arguments, **options), Path(file) == path)  # noqa: E731
        patch.setattr(os, "stat", foreign)
    else:
        path.chmod(0o720 if kind == "of the group" else 0o702)


def _owned_by(found: os.stat_result, another: bool) -> os.stat_result:
    values = list(found)
    values[stat.ST_UID] += another
    return os.stat_result(values)


@pytest.mark.parametrize("kind", ["a link", "of another user", "of the group", "of everybody"])
def test_a_library_that_others_could_have_written_is_not_loaded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = compile_text(SOURCE, "native"), compile_text(FORGED, "native")
    with monkeypatch.context() as patch:
        forged(kind, path, other, patch)
        assert answer(path) == 666
        with pytest.warns(RuntimeWarning, match=f"{path.name} belongs to another user or can be written by others: it is not"):
            again = compile_text(SOURCE, "native")
    assert again == path and answer(path) == 42 and is_own(path)


def test_a_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_text(SOURCE, "native")
    path.write_bytes(compile_text(FORGED, "native").read_bytes())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    module._own_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"{path.parent} belongs to another user .* into a folder of its own"):
        again = compile_text(SOURCE, "native")
    assert again.parent == module._own_folder() != path.parent and answer(again) == 42 and mode(again.parent) == 0o700
