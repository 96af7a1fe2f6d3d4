"""Exported networks with loops under sanitizers: memory, threads, and a planted race."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.export import export_network
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan
from tests.networks.test_loops import chain, drawn, fine_coarse
from tests.support.exports import sanitized, threads_program
from tests.support.networks import kernels_of
from tests.support.thorough import thorough_but

MEMORY, THREADS = "-fsanitize=address,undefined", "-fsanitize=thread"


def written(plan: Plan, kernels: list[Kernel], folder: Path) -> Path:
    """An exported network and programs that call it from several threads."""
    function, known = NetworkFunction(plan, kernels, 2), [{}] * len(kernels)
    export_network(plan, kernels, function, folder, 2, known, "gensor_network")
    called = dataclasses.replace(kernels[0], operator=plan.network.called, prepares="")
    (folder / "threads.c").write_text(threads_program(called, "gensor_network", threads=2, calls=20))
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with loops, in C."""
    network = drawn(2)[2]
    plan = fine_coarse(network)
    return written(plan, kernels_of(plan, 1), tmp_path_factory.mktemp("loops") / "made")


CHECKED = thorough_but([("example.c", MEMORY), ("threads.c", THREADS)], ("threads.c", THREADS))


@pytest.mark.thorough
@pytest.mark.parametrize(("main", "sanitizer"), CHECKED)
def test_loops_are_clean_under_sanitizers(main: str, sanitizer: str, exported: Path) -> None:
    assert "1}," in (exported / "network.c").read_text()
    assert sanitized(exported, main, sanitizer) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_random_loops_are_clean_under_sanitizers(seed: int, tmp_path: Path) -> None:
    network = drawn(seed)[2]
    plan = chain(fine_coarse(network), np.random.default_rng(100 + seed), 3)
    folder = written(plan, kernels_of(plan, seed), tmp_path / "made")
    assert sanitized(folder, "example.c", MEMORY) == sanitized(folder, "threads.c", THREADS) == ""


@pytest.mark.thorough
def test_a_piece_that_reads_all_rows_is_caught_in_a_loop(exported: Path, tmp_path: Path) -> None:
    """Planted: every piece goes on in the loop before it."""
    folder = Path(shutil.copytree(exported, tmp_path / "changed"))
    source = folder / "network.c"
    source.write_text(source.read_text().replace(", 0},\n    {piece", ", 1},\n    {piece").replace(", 1},", ", 0},", 1))
    with pytest.raises(AssertionError):  # the data race, or the numbers that come of it, whichever is seen first
        assert sanitized(folder, "threads.c", THREADS) == ""
