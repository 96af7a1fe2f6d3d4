"""What NVRTC makes of fused operators' kernels: no spills, registers and shared memory as the rules reckon with."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.dataflow.table import fused_operator, stand_in
from gensor_gym.gir.gpu.teams import teams_of
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import HEADER, GirSchedule
from tests.support.gir_cases import random_schedule
from tests.support.gir_gpu_cases import gpu, graph_of, kernel_of
from tests.support.thorough import thorough_but

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
SPARE = 16
"""Registers that a kernel may take over what the rules reckon: several tensors with columns apart have an address each."""


def check(text: str, schedule: GirSchedule, arch: str) -> None:
    """Compiles, spills nothing, warns of nothing, takes about as many registers and no more shared memory than reckoned."""
    operator = fused_operator(text)
    graph, kernel = graph_of(operator), kernel_of(operator, schedule)
    header, row = schedule.columns(schedule.row[None]), schedule.row[HEADER:]
    teams = teams_of(graph.nest, header, graph.hardware)
    made = nvrtc.compile_cubin(kernel, arch)
    whole, buffers = (np.array([(row == level).sum()]) for level in (Level.REG, Level.SRAM))
    reckoned = graph.rules.registers_of(teams, header, whole)[0]  # type: ignore[attr-defined]
    room = graph.rules.shared_bytes(teams, buffers)[0]  # type: ignore[attr-defined]
    assert not made.loss and made.registers <= reckoned + SPARE, f"{text} {schedule}: {made.registers} of {reckoned}"
    assert max(launch.shared_bytes for launch in kernel.launches) <= max(room, 4 * 32 * 4)
    assert all(np.prod(launch.block) * made.registers <= gpu().registers_per_unit for launch in kernel.launches)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90"])
def test_a_row_in_registers_compiles_for_every_architecture(arch: str) -> None:
    check("softmax(m=64, n=1000)", GirSchedule.parse("vector=4 tile=4 rows=2 place=reg,reg"), arch)


@pytest.mark.parametrize("names", thorough_but([["rope", "nrm/512"], sorted(stand_in())], ["rope", "nrm/512"]), ids=len)
def test_the_optimum_and_random_programs_of_the_suite(names: list[str]) -> None:
    for name in names:
        graph = graph_of(fused_operator(name))
        rng = np.random.default_rng(len(name))
        for schedule in (graph.optimum()[0], random_schedule(graph, rng)):
            check(name, schedule, "sm_90")
