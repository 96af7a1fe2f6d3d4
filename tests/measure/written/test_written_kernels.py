"""Sources that somebody else wrote: what their texts may contain, and what their compiler may read."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gensor_gym import hardware
from gensor_gym.codegen.kernel import Launch
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.stats.unseen import fault_of_calls
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.written import compiling, trials
from gensor_gym.measure.written.compiling import build_written
from gensor_gym.measure.written.symbols import symbols_of
from gensor_gym.measure.written.text import MOST_CHARACTERS, Options, check_text, kernel_of
from gensor_gym.measure.written.trials import WrittenTrials
from tests.support.measure_kernels import GEMM
from tests.support.written_attacks import ATTACKS, Attack, written

pytestmark = pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")

def test_without_isolation_no_source_runs_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(ValueError, match=r"no Landlock\); \$GENSOR_GYM_ISOLATION=off"):
        WrittenTrials(hardware.get("host"))
    monkeypatch.setenv("GENSOR_GYM_ISOLATION", "off")
    WrittenTrials(hardware.get("host")).close()


def test_without_copies_between_processes_no_source_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "AVAILABLE", False)
    with pytest.raises(ValueError, match="on Linux only"):
        WrittenTrials(hardware.get("host"))


def test_the_compiler_reads_no_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that the text's checks have let pass; and it ends with the programs that it started."""
    (tmp_path / "secret.h").write_text("canary")
    with pytest.raises(CompileFailed, match="Permission denied") as caught:
        build_written(written(Attack("", Status.COMPILE_ERROR, helpers=f'#include "{tmp_path}/secret.h"')))
    assert "canary" not in str(caught.value)
    monkeypatch.setattr(compiling, "SECONDS", 1)
    many = "\n".join(f"#define A{i + 1}(x) A{i}(x) A{i}(x)" for i in range(40))
    with pytest.raises(CompileFailed, match=r"took more than 1 s|failed with status"):
        build_written(written(Attack("long x = 0; A40(x)", Status.COMPILE_ERROR, helpers=f"#define A0(x) x++;\n{many}")))


def test_a_compiler_outside_bin_opens_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler may read its own prefix; the folder above a lone program is not one."""
    (tmp_path / "secret.h").write_text("canary")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "gcc").symlink_to(str(shutil.which("gcc")))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    assert build_written(written(ATTACKS["is right"])).library
    with pytest.raises(CompileFailed, match="Permission denied"):
        build_written(written(Attack("", Status.COMPILE_ERROR, helpers=f'#include "{tmp_path}/secret.h"')))


def test_symbols_of_a_library() -> None:
    built = build_written(written(Attack("c[0] = expf(a[0]);", Status.WRONG_ANSWER, helpers="float expf(float);")))
    symbols = symbols_of(built.library)
    assert "expf" in symbols.taken and "gg_kernel" in symbols.given and 0 < symbols.memory < 1 << 20
    for broken in (b"", b"\x7fELF\x01\x01", built.library[:5000], built.library[:40] + b"\xff" * 30 + built.library[70:]):
        with pytest.raises(ValueError, match="ELF|incomplete"):
            symbols_of(broken)


REFUSED = [
    ('#include "/etc/passwd"', "c", "is not accepted"),
    ("#include <stdio.h>", "c", "is not accepted"),
    ("#inc\\\nlude </etc/passwd>", "c", "is not accepted"),
    ("/*\n*/ # /**/ include <x>", "c", "is not accepted"),
    ("%:include <x>", "c", "is not accepted"),
    ("#if __has_include(</etc/passwd>)", "c", "is not accepted"),
    ("#embed </etc/passwd>", "cuda", "is not accepted"),
    ("#include <stdint.h>", "cuda", "that a source may include: none"),
    ('__asm__("syscall");', "c", "single vector instructions"),
    ('__asm__("vaddps %0, %0, %0" "\\nsyscall" : "+v"(x));', "c", "single vector instructions"),
    ("int naïve;", "c", "printable ASCII"),
    ("x" * (MOST_CHARACTERS + 1), "c", "at most"),
]


@pytest.mark.parametrize(("text", "language", "words"), REFUSED, ids=range(len(REFUSED)))
def test_texts_that_are_refused(text: str, language: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_text(text, language)


def test_texts_that_are_accepted() -> None:
    check_text('#include <math.h>\n// include the edge\n__asm__ volatile("" ::: "memory"); asm("vpaddd %1, %0" : "=v"(x));', "c")
    check_text('asm volatile("cp.async.commit_group;\\n");', "cuda")


def test_kernels_in_cuda_have_an_entry_and_a_launch() -> None:
    h200 = hardware.get("h200")
    text = 'extern "C" __global__ void __launch_bounds__(32) mine(const float *A, const float *B, float *C, float *workspace) {}'
    kernel = kernel_of(GEMM, h200, text, Options(8, (2, 1, 1), (32, 1, 1), 64))
    assert kernel.launches == (Launch("mine", (2, 1, 1), (32, 1, 1), 64),) and kernel.workspace_bytes == 8
    for changed in ({"block": (64, 32, 1)}, {"grid": (0, 1, 1)}, {"shared": 1 << 20}, {"workspace": 1 << 40}):
        with pytest.raises(ValueError, match="expected|accepted"):
            kernel_of(GEMM, h200, text, replace(Options(), **changed))
    with pytest.raises(ValueError, match="no entry"):
        kernel_of(GEMM, h200, "__device__ void mine() {}", Options())
    with pytest.raises(ValueError, match="sources are accepted in c and cuda"):
        kernel_of(GEMM, hardware.get("mi300x"), text, Options())


def test_kept_results_are_found_where_a_worker_has_the_clock() -> None:
    """As for sources in CUDA C."""
    backend = cpu_backend()
    found = backend.trial(build_written(written(ATTACKS["keeps its results"])), hardware.get("host"), seed=3, unseen=True)
    backend.close()
    assert found.status is Status.IMPLAUSIBLE and "the kernel keeps results" in found.error


def test_calls_that_are_too_fast_when_repeated() -> None:
    assert "keeps results" in fault_of_calls([3e-3, 2e-3, 4e-3], [1e-5, 1e-5, 9e-1])
    assert fault_of_calls([3e-3, 2e-3], [1.1e-3, 2e-3]) == "" == fault_of_calls([4e-5], [1e-6])
