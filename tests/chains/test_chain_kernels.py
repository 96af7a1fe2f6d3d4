"""Kernels of chains: right within the propagated bound between pages that nobody may touch, and under sanitizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.codegen.chains.generate import generate_chain
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.dataflow.nodes import Broadcast, Contract
from gensor_gym.frontends.builder import Builder
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.operators.kinds.linear import gemm
from tests.support.apart import in_a_process_of_its_own
from tests.support.chain_cases import chain_kernels
from tests.support.chain_gpu_cases import attention
from tests.support.gir_cases import faults_of, machine, sanitized
from tests.support.thorough import thorough_but

sanitizers = pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")


def check(seeds: range) -> None:
    """None is wrong."""
    kernels = chain_kernels(seeds)
    assert len(kernels) > 0.8 * len(seeds) and faults_of(kernels) == []


@pytest.mark.as_shipped
@pytest.mark.parametrize("seeds", thorough_but([range(start, start + 20) for start in range(0, 200, 20)], range(20)), ids=str)
def test_random_chains_between_guard_pages(seeds: range) -> None:
    in_a_process_of_its_own(__name__, f"check({seeds!r})")


def shared_keys(half: str) -> None:
    """Kernels of six heads with the keys of two are right."""
    graph = attention(20, 17, 16, 6, 2, 2, "added", half)
    assert chain_of(graph).first.batch[-1] == 0
    space = ChainGraph(graph, machine(8))
    rng = np.random.default_rng(0)
    schedules = [space.random_schedule(rng) for _ in range(3)]
    assert faults_of([generate_chain(ChainProgram(space.chain, one, space.hardware)) for one in schedules]) == []


@pytest.mark.parametrize("half", ["", "bfloat16"])
def test_keys_that_heads_share_are_not_copied(half: str) -> None:
    in_a_process_of_its_own(__name__, f"shared_keys({half!r})")


def test_repeated_rows_are_refused() -> None:
    b = Builder()
    q, k, v = (b.input(name, shape) for name, shape in (("q", (1, 4)), ("k", (4, 6)), ("v", (6, 5))))
    wide = b.add(Broadcast(q, (3, 4)))
    made = b.add(Contract(gemm(3, 5, 6), (b.add(Contract(gemm(3, 6, 4), (wide, k))), v)))
    with pytest.raises(ValueError, match="rows or columns of q are repeated, expected repetitions along the batch alone"):
        chain_of(b.network("repeated", [made]).graph)


@pytest.mark.thorough
@sanitizers
@pytest.mark.parametrize("seeds", thorough_but([range(200, 204), range(204, 234)], range(200, 204)), ids=str)
def test_sanitizers_find_nothing(tmp_path: Path, seeds: range) -> None:
    assert sanitized(tmp_path, chain_kernels(seeds)) == ""
