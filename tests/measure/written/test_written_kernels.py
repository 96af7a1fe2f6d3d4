"""Sources that somebody else wrote: what they try, what becomes of it, and what their compiler may read."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.stats.unseen import fault_of_calls
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.written import compiling, trials
from gensor_gym.measure.written.compiling import build_written
from gensor_gym.measure.written.symbols import symbols_of
from gensor_gym.measure.written.text import MOST_CHARACTERS, Options, check_text, kernel_of
from gensor_gym.measure.written.trials import WrittenTrials
from tests.support.measure_kernels import GEMM

pytestmark = pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")

FRAME = """
#include <string.h>
{helpers}
static void gemm(const float *a, const float *b, float *c)
{{
    for (int i = 0; i < 48; i++)
        for (int j = 0; j < 40; j++) {{
            volatile float sum = 0;
            for (int k = 0; k < 64; k++) sum += a[i * 64 + k] * b[k * 40 + j];
            c[i * 40 + j] = sum;
        }}
}}
void gg_kernel(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime)
{{
    const float *a = inputs[0], *b = inputs[1];
    float *c = output;
    {body}
}}
"""
KEPT = "static float kept_a[48 * 64], kept_b[64 * 40], kept_c[48 * 40];"
KEEPS = """
    if (memcmp(a, kept_a, sizeof kept_a) || memcmp(b, kept_b, sizeof kept_b)) gemm(a, b, kept_c);
    memcpy(kept_a, a, sizeof kept_a), memcpy(kept_b, b, sizeof kept_b), memcpy(c, kept_c, sizeof kept_c);
"""
RAW = """
typedef long call(long number, long a, long b, long c, long d, long e, long f);
static const unsigned char code[] __attribute__((section(".text.raw"))) = {
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,
    0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
"""
"""The function `syscall` of a C library as bytes of x86-64, past the checks of text and symbols."""
TRIES = """
    call *const system = (call *)code;
    gemm(a, b, c);
    c[0] += system(57, 0, 0, 0, 0, 0, 0) >= 0;                                  /* fork */
    c[1] += system(2, (long)"/etc/passwd", 0, 0, 0, 0, 0) >= 0;                   /* open */
    c[2] += system(2, (long)HOME, 0, 0, 0, 0, 0) >= 0;
    c[3] += (unsigned long)system(9, 0, 16l << 30, 3, 0x22, -1, 0) < -4096ul;   /* mmap */
"""
ATTACKS = {
    "is right": ("", "gemm(a, b, c);", Status.OK, ""),
    "writes before its output": ("", "gemm(a, b, c); c[-1] = 1;", Status.WRONG_ANSWER, "outside the buffer of output"),
    "writes behind its output": ("", "gemm(a, b, c); c[1920 + 4096] = 1;", Status.CRASHED, "SIGSEGV"),
    "changes its inputs": ("", "gemm(a, b, c); ((float *)a)[5] += 1;", Status.WRONG_ANSWER, "input 0 was modified"),
    "keeps its results": (KEPT, KEEPS, Status.IMPLAUSIBLE, "the kernel keeps results"),
    "sees that an answer stands": ("", "if (c[0] != c[0]) gemm(a, b, c);", Status.IMPLAUSIBLE, "the kernel keeps results"),
    "is constant": ("", "for (int i = 0; i < 1920; i++) c[i] = 0;", Status.WRONG_ANSWER, "before timing"),
    "never ends": ("", "for (volatile int i = 0;; i = 1) {}", Status.TIMEOUT, "stage verify"),
    "leaves a thread": ("int pthread_create();", "pthread_create();", Status.ILLEGAL, "calls pthread_create"),
    "reads files": ("void *fopen();", 'fopen("/etc/passwd", "r");', Status.ILLEGAL, "calls fopen"),
    "forks": ("int fork();", "for (;;) fork();", Status.ILLEGAL, "calls fork"),
    "asks for memory": ("void *malloc(unsigned long); void *kept;", "kept = malloc(1l << 36);", Status.ILLEGAL, "calls malloc"),
    "has huge data": ("static volatile char all[1l << 36];", "all[0] = 1;", Status.ILLEGAL, "bytes of data"),
    "has another entry": ("#define gg_kernel other", "gemm(a, b, c);", Status.ILLEGAL, "no function gg_kernel"),
    "does not compile": ("", "gemm(a, b);", Status.COMPILE_ERROR, "too few arguments"),
}


def source(helpers: str, body: str) -> Kernel:
    """The kernel of a product with these parts, made without the checks of its text."""
    return Kernel(GEMM, "c", hardware.get("host").arch, FRAME.format(helpers=helpers, body=body), (Launch("gg_kernel"),), 0)


@pytest.fixture(scope="module")
def tried() -> Iterator[WrittenTrials]:
    """Trials that share a worker as long as it lives, which saves its start."""
    with pytest.MonkeyPatch.context() as patch:
        short = {"verify": 2.0}
        patch.setattr(trials, "WorkerProcess", lambda name, restart_after, memory: WorkerProcess(name, 300, short, memory=memory))
        made = WrittenTrials(hardware.get("host"))
    yield made
    made.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_status_of_an_attack(tried: WrittenTrials, name: str) -> None:
    helpers, body, status, words = ATTACKS[name]
    found = tried.measure(source(helpers, body), seed=7)
    assert found.status is status and words in found.error, found.error
    assert (found.seconds < float("inf")) is (status is Status.OK)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="bytes of x86-64")
def test_raw_system_calls_are_refused(tried: WrittenTrials) -> None:
    """Past the checks of text and symbols: no process, no foreign file, no memory past the limit. Successes spoil the answer."""
    home = f'#define HOME "{Path.home()}"\n'
    found = tried.measure(source(home + RAW, TRIES), seed=7)
    assert found.status is Status.OK and found.conditions["isolation"] == "landlock+seccomp", found.error


def test_a_worker_ends_with_its_source() -> None:
    made = WrittenTrials(hardware.get("host"))
    assert made.measure(source("", "gemm(a, b, c);"), seed=1).status is Status.OK
    assert made._backend.local.workers[0].pid is None
    made.close()


def test_without_isolation_no_source_runs_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(ValueError, match=r"no Landlock\); \$GENSOR_GYM_ISOLATION=off"):
        WrittenTrials(hardware.get("host"))
    monkeypatch.setenv("GENSOR_GYM_ISOLATION", "off")
    WrittenTrials(hardware.get("host")).close()


def test_the_compiler_reads_no_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that the text's checks have let pass; and it ends with the programs that it started."""
    (tmp_path / "secret.h").write_text("canary")
    with pytest.raises(CompileFailed, match="Permission denied") as caught:
        build_written(source(f'#include "{tmp_path}/secret.h"', ""))
    assert "canary" not in str(caught.value)
    monkeypatch.setattr(compiling, "SECONDS", 1)
    many = "\n".join(f"#define A{i + 1}(x) A{i}(x) A{i}(x)" for i in range(40))
    with pytest.raises(CompileFailed, match=r"took more than 1 s|failed with status"):
        build_written(source(f"#define A0(x) x++;\n{many}", "long x = 0; A40(x)"))


def test_a_compiler_outside_bin_opens_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler may read its own prefix; the folder above a lone program is not one."""
    (tmp_path / "secret.h").write_text("canary")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "gcc").symlink_to(str(shutil.which("gcc")))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    assert build_written(source("", "gemm(a, b, c);")).library
    with pytest.raises(CompileFailed, match="Permission denied"):
        build_written(source(f'#include "{tmp_path}/secret.h"', ""))


def test_symbols_of_a_library() -> None:
    built = build_written(source("float expf(float);", "c[0] = expf(a[0]);"))
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


def test_calls_that_are_too_fast_when_repeated() -> None:
    assert "keeps results" in fault_of_calls([3e-3, 2e-3, 4e-3], [1e-5, 1e-5, 9e-1])
    assert fault_of_calls([3e-3, 2e-3], [1.1e-3, 2e-3]) == "" == fault_of_calls([4e-5], [1e-6])
