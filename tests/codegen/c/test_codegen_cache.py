"""The cache of libraries: what another user could have written is never loaded."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

import pytest

from gensor_gym.cache import folders as module
from gensor_gym.cache import sources
from gensor_gym.cache.folders import make_cache_dir
from gensor_gym.cache.owned import is_own, made_own, read_own
from gensor_gym.cache.texts import kept
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.measure.isolation.readable import readable

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


def test_a_library_without_content_is_compiled_anew() -> None:
    """As after a power cut."""
    path = compile_text(SOURCE, "native")
    path.write_bytes(b"")
    assert compile_text(SOURCE, "native") == path and answer(path) == 42


def test_a_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_text(SOURCE, "native")
    path.write_bytes(compile_text(FORGED, "native").read_bytes())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    module._own_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"{path.parent} belongs to another user .* into a folder of its own"):
        again = compile_text(SOURCE, "native")
    assert again.parent == module._own_folder("kernels") != path.parent and answer(again) == 42 and mode(again.parent) == 0o700


def test_a_user_without_a_home_has_a_cache_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container runs under a number that no list of users has."""

    def none(_number: int) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "GENSOR_GYM_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", none)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert module.cache_dir() == tmp_path / f"gensor_gym-{os.geteuid()}"
    monkeypatch.setenv("HOME", "here")
    assert module.cache_dir().is_absolute()
    path = compile_text(SOURCE, "native")
    assert path.is_relative_to(tmp_path) and mode(path.parent) == 0o700 and readable()


def test_a_home_that_cannot_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a folder of that name used that somebody else has put there."""
    monkeypatch.delenv("GENSOR_GYM_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    folder = tmp_path / f"gensor_gym-{os.geteuid()}"
    assert module.cache_dir() == folder
    folder.symlink_to(tmp_path / "nowhere")
    module._own_folder.cache_clear()
    assert module.cache_dir() not in (folder, tmp_path / "nowhere") and mode(module.cache_dir()) == 0o700
    monkeypatch.setenv("HOME", str(tmp_path))
    assert module.cache_dir() == tmp_path / ".cache" / "gensor_gym"


@pytest.mark.parametrize("kind", ["of the group", "of everybody"])
def test_a_named_cache_that_others_may_write_to_is_left_as_it_is_and_not_used(cache: Path, kind: str) -> None:
    cache.mkdir()
    cache.chmod(0o770 if kind == "of the group" else 0o777)
    module._own_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="into a folder of its own; set .GENSOR_GYM_CACHE to a folder that is yours alone"):
        path = compile_text(SOURCE, "native")
    assert not path.is_relative_to(cache) and answer(path) == 42 and mode(cache) & 0o070 == 0o070


def test_a_folder_that_everybody_may_exchange_is_not_used(cache: Path) -> None:
    open_to_all = cache.parent / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folder = open_to_all / "numba" / "0123"
    with pytest.warns(RuntimeWarning, match="it is not used"):
        assert not made_own(folder)
    open_to_all.chmod(0o1777)
    assert made_own(folder) and mode(folder) == mode(folder.parent) == 0o700


@pytest.mark.parametrize("kind", ["a link", "of another user", "of everybody"])
def test_a_cache_of_numba_with_entries_of_others_is_made_anew(cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache / "numba" / "0123"
    assert made_own(folder)
    inner = folder / "graph_4567"
    inner.mkdir()
    ours, theirs = inner / "rule.nbi", inner / "rule.1.nbc"
    ours.write_bytes(b"index")
    assert made_own(folder) and ours.exists()
    with monkeypatch.context() as patch:
        theirs.write_bytes(b"code")
        if kind == "a link":
            theirs.unlink()
            theirs.symlink_to("/dev/null")
        elif kind == "of everybody":
            theirs.chmod(0o666)
        else:
            plain = os.stat
            foreign = lambda file, *arguments, **options: _owned_by(plain(file, *arguments, **options), Path(file) == theirs)  # noqa: E731
            patch.setattr(os, "lstat", lambda file, **options: foreign(file, follow_symlinks=False, **options))
            patch.setattr(os, "stat", foreign)
        with pytest.warns(RuntimeWarning, match="rule.1.nbc .1 in all. belongs to another user or can be written by others"):
            assert made_own(folder)
    assert mode(folder) == 0o700 and not list(folder.iterdir())


def test_what_is_read_is_the_file_that_was_looked_at(cache: Path) -> None:
    path = compile_text(SOURCE, "native")
    assert read_own(path)[:4] == b"\x7fELF"
    for wrong, words in ((0o720, "can be written by others"), (0o702, "can be written by others")):
        path.chmod(wrong)
        with pytest.raises(ValueError, match=words):
            read_own(path)
    path.chmod(0o700)
    link = path.with_name("link.so")
    link.symlink_to(path)
    for refused in (link, path.parent, path.with_name("none.so")):
        with pytest.raises(ValueError, match=f"{refused} (cannot be read|belongs)"):
            read_own(refused)
    path.parent.chmod(0o770)
    with pytest.raises(ValueError, match="can be written by others"):
        read_own(path)


def test_a_text_is_made_once_for_all_that_it_depends_on(cache: Path) -> None:
    made = list[str]()

    def asked(*depends: str) -> int:
        return kept("numbers", depends, int, lambda: made.append("".join(depends)) or len(made))

    assert [asked("a"), asked("a"), asked("b"), asked("a"), asked("a", "b"), asked("ab")] == [1, 1, 2, 1, 3, 4]
    for path in (cache / "numbers").iterdir():
        path.write_text("no number")
    assert asked("a") == asked("a") == 5
    for path in (cache / "numbers").iterdir():
        path.chmod(0o666)
    assert asked("b") == asked("b") == 6 and all(mode(path) in (0o600, 0o666) for path in (cache / "numbers").iterdir())
    with pytest.raises(ZeroDivisionError):
        kept("numbers", ["c"], int, lambda: 1 // 0)


def test_the_digest_covers_sources_and_the_models_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("one.py", "graph/two.py", "codegen/runtime/three.c", "four.h", "cost/five.json")]
    for path in (*files, without := tmp_path / "six.md"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("before")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    found = []
    for path in (without, *files):
        path.write_text("after")
        sources.files_of.cache_clear()
        found.append(sources.sources.__wrapped__())
    path.rename(path.with_name("seven.json"))
    assert len({*found, sources.sources.__wrapped__()}) == len(files) + 2
    without.write_text("before")
    sources.files_of.cache_clear()
    assert sources.sources.__wrapped__() not in found
