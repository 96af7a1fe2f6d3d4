"""Which compiler is found, its flags, and that code compiled with them runs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gensor_gym.hardware import compiler, cpuinfo

SOURCE = """
#include <math.h>
typedef float vec __attribute__((vector_size(LANES * 4)));
float total(const float *x) {
    vec v = *(const vec *)x;
    float s = 0;
    for (int i = 0; i < LANES; i++) s += v[i];
    return expf(s);
}
"""
DRIVER = """
import ctypes, sys
lanes = int(sys.argv[2])
f = ctypes.CDLL(sys.argv[1]).total
f.restype = ctypes.c_float
room = ctypes.create_string_buffer(4 * lanes + 64)
start = (ctypes.addressof(room) + 63) // 64 * 64
(ctypes.c_float * lanes).from_address(start)[:] = [0.0] * lanes
print(f(ctypes.c_void_p(start)))
"""


def _available() -> list[Any]:
    commands = [pytest.param((name,), id=name) for name in ("gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang") is not None:  # which compiles its C library first
        commands.append(pytest.param((sys.executable, "-m", "ziglang", "cc"), id="ziglang", marks=pytest.mark.thorough))
    return commands


@pytest.mark.parametrize("command", _available())
def test_compiled_code_runs(command: tuple[str, ...], tmp_path: Path) -> None:
    found = compiler._ask(command)
    assert found is not None and found.version
    lanes = cpuinfo.cpu_info().lanes
    source, library = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text(SOURCE.replace("LANES", str(lanes)))
    subprocess.run(found.line(source, library, "native", lanes), check=True, capture_output=True, timeout=120)
    # In a process of its own: tests load no generated library either.
    command_line = [sys.executable, "-c", DRIVER, str(library), str(lanes)]
    done = subprocess.run(command_line, check=True, capture_output=True, text=True, timeout=60)
    assert float(done.stdout) == 1.0


def test_flags_by_family_and_width() -> None:
    gcc = compiler.Compiler(("gcc",), "gcc", "")
    zig = compiler.Compiler(("python", "-m", "ziglang", "cc"), "zig", "")
    for one in (gcc, zig):
        assert {"-O2", "-shared", "-fPIC", "-ffp-contract=fast"} <= set(one.flags("native", 16))
        assert "-ffast-math" not in one.flags("native", 16)
        assert "-mprefer-vector-width=512" in one.flags("native", 16)
        assert "-mprefer-vector-width=512" not in one.flags("native", 8)
        assert "-shared" not in one.flags("native", 8, shared=False)
    assert "-mcpu=native" in zig.flags("native", 16)
    assert "-mcpu=skylake_avx512" in zig.flags("skylake-avx512", 16)
    assert "-fno-slp-vectorize" in zig.flags("native", 16)
    assert "-fno-tree-slp-vectorize" in gcc.flags("native", 16)
    assert "-march=cascadelake" in gcc.flags("cascadelake", 16) or compiler._is_arm()


def _fake(folder: Path, name: str, says: str, status: int = 0) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_order_of_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENSOR_GYM_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    _fake(tmp_path, "cc", "Apple clang version 15")
    _fake(tmp_path, "gcc", "broken", status=1)
    assert compiler._find.__wrapped__("", str(tmp_path)).name == "clang"
    _fake(tmp_path, "gcc", "gcc (Debian) 12")
    assert compiler._find.__wrapped__("", str(tmp_path)) == compiler.Compiler(("gcc",), "gcc", "gcc (Debian) 12")
    mine = _fake(tmp_path, "mine", "my clang version 1")
    monkeypatch.setenv("GENSOR_GYM_CC", f"{mine} -pipe")
    assert compiler.find_compiler() == compiler.Compiler((str(mine), "-pipe"), "clang", "my clang version 1")


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENSOR_GYM_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="install gcc or clang.*ziglang"):
        compiler.find_compiler()
    monkeypatch.setenv("GENSOR_GYM_CC", "no_such_compiler")
    with pytest.raises(RuntimeError, match="no_such_compiler"):
        compiler.find_compiler()


def test_an_unchanged_compiler_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    asked: list[list[str]] = []
    plain = subprocess.run
    monkeypatch.setattr(compiler.subprocess, "run", lambda line, **options: (asked.append(line), plain(line, **options))[1])
    program = tmp_path / "gcc-99"
    shutil.copy(shutil.which("echo"), program)  # a program that answers
    first = compiler._ask(("gcc-99",))
    assert first is not None and compiler._ask(("gcc-99",)) == first and len(asked) == 1
    with program.open("ab") as file:
        file.write(b"\0")  # another version
    compiler._ask(("gcc-99",))
    assert len(asked) == 2
    for other in (_fake(tmp_path, "gcc-wrapped", "gcc 3"), shutil.copy(shutil.which("echo"), tmp_path / "ccache")):
        before = len(asked)
        assert compiler._ask((str(other),)) == compiler._ask((str(other),)) is not None
        assert len(asked) == before + 2, f"{other} passes the question on"
