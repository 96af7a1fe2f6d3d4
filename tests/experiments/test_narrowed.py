"""Other libraries under $GENSOR_GYM_AVX2=1: they see no AVX-512, a crash is still a crash, and our side is left alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.benches.fused import narrowed, race
from experiments.benches.fused.narrowed import VARIABLES, limits
from experiments.benches.lines import machine
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import NARROW, cpu_info

FLAGS = cpu_info().flags
ASKS = """#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
int main(int count, char **given) {
    unsigned a, b, c, d;
    (void)given;
    if (count > 1) *(volatile int *)0 = 1;
    signal(SIGSEGV, SIG_IGN);
    __cpuid_count(7, 0, a, b, c, d);
    printf("%u %u\\n", b >> 16 & 1, b >> 5 & 1);
}
"""
"""Program that says whether it sees AVX-512 and AVX2; with an argument it crashes."""


@pytest.mark.skipif(not {"avx512f", "cpuid_fault"} <= FLAGS, reason="needs AVX-512, and a system where processes can hide it")
def test_a_process_sees_avx2_and_no_avx512(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, program = tmp_path / "asks.c", tmp_path / "asks"
    source.write_text(ASKS)
    subprocess.run([*find_compiler().command, str(source), "-o", str(program)], check=True, timeout=60)

    def said(more: Mapping[str, str], *given: str) -> tuple[int, str]:
        done = subprocess.run([program, *given], env=os.environ | more, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    monkeypatch.delenv(NARROW, raising=False)
    assert limits("openvino") == {} and "avx2" not in machine() and said({}) == (0, "1 1\n")
    monkeypatch.setenv(NARROW, "1")
    assert machine()["avx2"] is True and said(limits("openvino")) == (0, "0 1\n")
    assert said(limits("openvino"), "crash")[0] == -11


def test_variables_serve_where_a_process_cannot_hide_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowed, "is_narrow", lambda: True)
    monkeypatch.setattr(narrowed, "compile_text", lambda text, arch: Path("narrowed.so"))
    for flags, expected in (({"cpuid_fault"}, {"LD_PRELOAD": "narrowed.so"}), (set(), VARIABLES)):
        info = type("Info", (), {"flags": flags})
        monkeypatch.setattr(narrowed, "cpu_info", lambda info=info: info)
        assert limits("openvino") == expected and limits("onnxruntime") == {"LD_PRELOAD": "narrowed.so"}


def test_only_other_libraries_are_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: dict[str, Any] = {}

    class Recorded:
        def __init__(self, name: str, threads: int, cache: Path, module: str, more: Mapping[str, str]) -> None:
            started[name] = more

        def close(self) -> None:
            """Nothing runs."""

    monkeypatch.setattr(race, "Side", Recorded)
    monkeypatch.setattr(race, "limits", lambda name: {"LIMITED": name})
    monkeypatch.setattr(race, "prepared", lambda *given: (_ for _ in ()).throw(race.Lost("enough")))
    with pytest.raises(race.Lost, match="enough"):
        race.raced(["ours", "ours/fine/hot", "eager"], {"threads": 1}, 1, 1.0, tmp_path)
    assert started == {"ours": {}, "ours/fine/hot": {}, "eager": {"LIMITED": "eager"}}
