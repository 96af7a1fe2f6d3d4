"""Rules of fused operators on GPUs against a second implementation, and the space as a whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import HEADER, GirSchedule
from tests.gir.test_gir_rules import operators
from tests.support import oracle_gir_gpu
from tests.support.gir_cases import random_rows
from tests.support.gir_gpu_cases import gpu, graph_of
from tests.support.thorough import thorough_but


@pytest.mark.parametrize("seeds", thorough_but([range(2), range(3, 40)], range(2)), ids=str)
def test_rules_agree_with_the_oracle(seeds: range) -> None:
    answers = []
    for number, operator in enumerate(operators(seeds)):
        try:
            graph = graph_of(operator, ("h100", "rtx4090")[number % 2])
        except ValueError as error:
            assert operator.name in str(error)
            continue
        rng = np.random.default_rng(number)
        rows = np.concatenate([random_rows(graph, rng, 60), random_rows(graph, rng, 60)])
        rows[60:, :HEADER] = np.minimum(rows[60:, :HEADER], rng.integers(2, size=(60, HEADER)))
        expected = [oracle_gir_gpu.is_legal(graph.nest, graph.hardware, GirSchedule(row)) for row in rows]
        wrong = np.flatnonzero(graph.fits(rows) != expected)
        assert not len(wrong), f"{operator}: {GirSchedule(rows[wrong[0]])}, expected {expected[wrong[0]]}"
        answers += expected
    assert 0.1 < np.mean(answers) < 0.9


LARGE = (
    "softmax(m=1536, n=128)", "layernorm(m=4096, n=768)", "norm(m=4096, n=4096)", "rmsnorm(m=128, n=4096)",
    "softmax(m=3, n=70000)",
)  # fmt: skip


@pytest.mark.parametrize("text", LARGE)
def test_limits_of_large_rows_agree_with_the_oracle(text: str) -> None:
    graph = graph_of(resolve_computation(text))  # type: ignore[arg-type]
    rows = random_rows(graph, np.random.default_rng(0), 200)
    rows[:, 0] = np.minimum(rows[:, 0], 1)
    expected = [oracle_gir_gpu.is_legal(graph.nest, graph.hardware, GirSchedule(row)) for row in rows]
    assert np.array_equal(graph.fits(rows), expected) and 0 < sum(expected) < len(rows)


def test_every_limit_refuses_something() -> None:
    graph, wide = graph_of(make("softmax", m=512, n=4096)), graph_of(make("softmax", m=512, n=40000))
    assert graph.is_legal(GirSchedule.parse("vector=4 tile=8 rows=1 place=reg,reg"))
    assert not graph.is_legal(GirSchedule.parse("vector=8 tile=1 place=reg,reg")), "no load has 32 bytes"
    assert not graph.is_legal(GirSchedule.parse("vector=4 tile=8 rows=8 place=reg,reg")), "registers of 1024 threads"
    assert graph.is_legal(GirSchedule.parse("rows=4 place=sram,sram"))
    assert not graph.is_legal(GirSchedule.parse("rows=8 place=sram,sram")), "256 KiB of shared memory"
    assert wide.is_legal(GirSchedule.parse("place=dram,sram")) and not wide.is_legal(GirSchedule.parse("place=sram,sram"))
    assert not graph.is_legal(GirSchedule.parse("loop=4096 place=reg,reg"))


def test_the_optimum_keeps_rows_on_the_chip() -> None:
    graph = graph_of(make("softmax", m=4096, n=1024))
    best, seconds = graph.optimum()
    assert seconds == graph.latency(best) >= graph.floor and graph.is_legal(best)
    fused = [GirSchedule.parse(f"{str(best).partition(' place')[0]} place={place}") for place in ("dram,dram", "reg,reg")]
    assert graph.latency(fused[0]) > 1.5 * graph.latency(fused[1])


def test_rows_that_are_few_are_shared_by_blocks() -> None:
    graph = graph_of(make("norm", m=4096, n=4096))
    best, seconds = graph.optimum()
    alone = [GirSchedule.parse(f"vector=4 tile={tile} loop=4096") for tile in (1, 2)]
    assert best.value("loop") < 256 and all(graph.latency(one) > 5 * seconds for one in alone)
    assert graph.floor <= seconds < 2 * graph.floor


def test_a_gpu_of_wider_warps_is_refused() -> None:
    wide = dataclasses.replace(gpu(), name="wide", warp=64)
    for machine in (wide, hardware.get("mi300x")):
        words = rf"softmax\(m=3, n=5\) on {machine.name}: fused operators have code for CPUs and GPUs of 32 lanes"
        with pytest.raises(ValueError, match=words):
            GirGraph(make("softmax", m=3, n=5), machine)
