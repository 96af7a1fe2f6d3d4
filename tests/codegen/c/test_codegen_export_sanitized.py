"""Exported sources under the compiler's sanitizers: no access out of bounds, nothing undefined, no race; planted faults show."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gensor_gym.codegen.export import Exported, export
from gensor_gym.hardware.compiler import find_compiler
from tests.support.exports import OPERATORS, kernel_of, sanitized, threads_program
from tests.support.thorough import thorough_but

MEMORY, THREADS = "-fsanitize=address,undefined", "-fsanitize=thread"
CHECKED = thorough_but([("example.c", MEMORY), ("threads.c", MEMORY), ("threads.c", THREADS)], ("threads.c", MEMORY))
GEMM, LARGER = OPERATORS[0], "gemm(m=24, n=512, k=200)"

pytestmark = pytest.mark.skipif(find_compiler().name == "zig", reason="zig brings no sanitizer of addresses or threads")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A product with packing and a workspace, for two threads."""
    kernel = kernel_of(GEMM)
    assert kernel.workspace_bytes > 64
    made = export([kernel], tmp_path_factory.mktemp("sanitized") / "kernels", 2)
    (made.folder / "threads.c").write_text(threads_program(kernel, "gensor_kernels"))
    return made


@pytest.fixture
def copied(product: Exported, tmp_path: Path) -> Path:
    """Sources that may be changed."""
    return Path(shutil.copytree(product.folder, tmp_path / "changed"))


def change(path: Path, before: str, after: str) -> None:
    """Replace what is there once."""
    text, count = re.subn(before, after, path.read_text())
    assert count == 1
    path.write_text(text)


@pytest.mark.parametrize(("main", "sanitizer"), CHECKED)
def test_exported_sources_are_clean(main: str, sanitizer: str, product: Exported) -> None:
    assert sanitized(product.folder, main, sanitizer) == ""


def test_a_larger_kernel_has_a_larger_workspace(tmp_path: Path) -> None:
    """A thread calls the one with the smaller workspace first."""
    few, many = sorted((kernel_of(GEMM), kernel_of(LARGER)), key=lambda kernel: kernel.workspace_bytes)
    assert 0 < few.workspace_bytes + 64 < many.workspace_bytes
    made = export([few, many], tmp_path / "kernels", 1)
    assert sanitized(made.folder, "example.c", MEMORY) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", OPERATORS)
def test_exported_sources_of_any_schedule_are_clean(text: str, seed: int, tmp_path: Path) -> None:
    kernel = kernel_of(text, seed)
    made = export([kernel], tmp_path / "kernels", 2)
    (made.folder / "threads.c").write_text(threads_program(kernel, "gensor_kernels"))
    for main, sanitizer in (("example.c", MEMORY), ("threads.c", THREADS)):
        assert sanitized(made.folder, main, sanitizer) == ""


def test_an_output_written_out_of_bounds_is_caught(copied: Path) -> None:
    change(copied / "gemm_m24_n40_k20_bias_relu.c", r"\.C = output\b", ".C = (float *)output + 1")
    assert "ERROR: AddressSanitizer" in sanitized(copied, "example.c", MEMORY)


@pytest.mark.thorough
def test_a_workspace_that_is_too_small_is_caught(copied: Path) -> None:
    change(copied / "gensor_kernels.h", r"\(\(size_t\)\d+\)", "((size_t)64)")
    assert "ERROR: AddressSanitizer" in sanitized(copied, "example.c", MEMORY)


def test_a_workspace_that_threads_share_is_caught(copied: Path) -> None:
    change(copied / "gensor_kernels.c", r"_Thread_local void \*kept", "void *kept")
    assert "ThreadSanitizer: data race" in sanitized(copied, "threads.c", THREADS)
