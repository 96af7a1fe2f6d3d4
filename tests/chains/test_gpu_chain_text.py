"""What NVRTC makes of attention's kernels, what chains have none, and what the model says of them."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.chains.gpu.stream import Stream
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.dataflow.graph import Dataflow
from tests.support.chain_gpu_cases import attention
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

ARCHES = {"sm_80": "a100", "sm_89": "rtx4090", "sm_90a": "h100"}
CASES = [(arch, size, mask) for arch in ARCHES for size in (64, 128) for mask in ("", "added")]


def best(graph: Dataflow, machine: str) -> tuple[GpuChainGraph, GpuChainSchedule]:
    """(graph, fastest schedule by the model)."""
    space = GpuChainGraph(graph, hardware.get(machine))
    rows = next(space.enumerate())
    return space, space.schedule(rows[int(np.argmin(space.latencies(rows)))])


@needs_nvrtc
@pytest.mark.parametrize(("arch", "size", "mask"), thorough_but(CASES, ("sm_80", 64, "added"), ("sm_90a", 128, "")))
def test_the_fastest_programs_spill_nothing(arch: str, size: int, mask: str) -> None:
    """NVRTC keeps scores and sums in registers, and as many blocks fit as the model counts."""
    for heads, length in ((1, 128), (96, 512)):
        graph, schedule = best(attention(length, length, size, heads, heads, 1, mask), ARCHES[arch])
        compiled = compile_cubin(generate(graph.operator, schedule, graph.hardware), arch)
        resident = int(graph.model.room.resident(GpuChainSchedule.columns(schedule.row[None]))[0])
        assert compiled.spill_bytes == 0 and compiled.registers * schedule.value("warps") * 32 * resident <= 65536
        assert compiled.loss == ""


def test_softmax_takes_one_pass_and_shared_keys_are_not_copied() -> None:
    chain = chain_of(attention(40, 77, 32, 6, 2, 2, "added"))
    stream = Stream.of(chain)
    assert stream.passes == 1 and stream.running is not None and str(stream.running.factor) == "1.0 / sum"
    assert chain.batch == (2, 2, 3) and chain.first.batch[-1] == chain.second.batch[-1] == 0
    assert chain.left.batch[-1] == 32


def test_long_attention_runs_at_half_of_the_rate() -> None:
    """FlashAttention-2 reaches 50 to 73 % of an A100's rate of 312 TFLOP/s (arXiv 2307.08691, abstract, recalled)."""
    graph, schedule = best(attention(2048, 2048, 128, 16, 16, 8), "a100")
    rate = graph.operator.flops / graph.latency(schedule) / 1e12
    assert 0.45 < rate / 312 < 0.73
    assert graph.floor < graph.latency(schedule)


@pytest.mark.parametrize(
    ("machine", "made", "words"),
    [
        ("t4", attention(16, 16, 32), "from sm_80 on, found sm_75"),
        ("a100", attention(16, 16, 32, half=""), "products of float32, expected bfloat16 or float16"),
        ("a100", attention(16, 16, 1024), "1024 elements of a key and 1024 of a value are too many"),
        ("host", attention(16, 16, 32), "expected a GPU"),
    ],
)  # fmt: skip
def test_chains_without_a_kernel_are_refused(machine: str, made: Dataflow, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GpuChainGraph(made, hardware.get(machine))


def test_schedules_of_another_kind_of_machine_are_refused() -> None:
    graph = attention(16, 16, 32)
    with pytest.raises(ValueError, match="expected a ChainSchedule"):
        generate(graph, GpuChainSchedule.parse("warps=4"), "host")
