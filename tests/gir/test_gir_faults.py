"""Faults that are planted in generated C do not pass verification."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.measure.workers.trial import run_trial
from tests.support import gir_cases
from tests.support.gir_cases import kernel_at, planted

SCHEDULE = "vector=16 tile=2 rows=2 loop=1 streaming=0"
PLACES = {"softmax": "sram,sram", "layernorm": "dram,recompute", "rmsnorm": "sram", "add_layernorm": "dram,sram"}
FAULTS: dict[str, tuple[str, str, str]] = {
    "no maximum subtracted": ("softmax", r"exp_16\(\((v_x_\d_\d) - v_top_all\d\)\)", r"exp_16(\1)"),
    "another row's maximum": ("softmax", r"v_top_all1 = splat_16\(v_top_1\)", "v_top_all1 = splat_16(v_top_0)"),
    "another row's sum": ("softmax", r"1\.0f / v_total_1", "1.0f / v_total_0"),
    "a tail that is not added": ("softmax", r"keep_16\((v_e_\d_0), 13, 0\.0f\)", r"keep_16(\1, 0, 0.0f)"),
    "a tail that is added whole": ("softmax", r"keep_16\((v_e_\d_0), 13, 0\.0f\)", r"\1"),
    "a tail that is not written": ("softmax", r"store_masked_16\((t_y\w+ \+ 64), 0, 13", r"store_masked_16(\1, 0, 12"),
    "one sum of two dropped": ("softmax", r"sum_total_0_0 = sum_total_0_0 \+ sum_total_0_1;", ""),
    "the value of the step before": ("softmax", r"load_16\(b_e_row_at1 \+ c \+ 16\)", "load_16(b_e_row_at1 + c)"),
    "the value of the row before": ("softmax", r"load_16\(b_e_row_at1 \+ c\)", "load_16(b_e_row_at0 + c)"),
    "the last row skipped": ("softmax", r"row \+ 1 <= last; row \+= 1", "row + 1 < last; row += 1"),
    "a row read again": ("softmax", r"call->t_x \+ \(\(row \+ 1\)\) \* 77", "call->t_x + row * 77"),
    "columns for rows": ("softmax", r"call->t_y \+ row \* 77", "call->t_y + row * 76"),
    "a missing eps": ("layernorm", r" \+ 1e-05f", ""),
    "a missing eps of mean squares": ("rmsnorm", r" \+ 1e-06f", ""),
    "a missing eps behind a sum": ("add_layernorm", r" \+ 1e-05f", ""),
    "a mean of one element less": ("layernorm", r"0\.012987012987012988f\)\);", "0.013157894736842105f));"),
    "a variance of what is not centred": ("layernorm", r"\(v_centred_(\d_\d) \* v_centred_\1\)", r"(v_x_\1 * v_x_\1)"),
    "a gain along the rows": ("layernorm", r"t_gamma_1_at1 = call->t_gamma;", "t_gamma_1_at1 = call->t_gamma + row;"),
    "an offset left out": ("layernorm", r" \+ v_beta_wide_0_0\)", ")"),
    "the first output not written": ("add_layernorm", r"store_16\(t_s_\d_at0 \+ c, v_s_0_0\);", ""),
    "the first output written late": ("add_layernorm", r"(store_16\(t_s_\d_at0) \+ c, (v_s_0_0)\);", r"\1 + 32, \2);"),
}  # fmt: skip
"""What is wrong -> factory, pattern in the C text, what is put in its place."""


def right(name: str) -> Kernel:
    return kernel_at(make(name, m=7, n=77), f"{SCHEDULE} place={PLACES[name]}")


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """What verification says of every fault, and of kernels without one."""
    sound = {name: right(name) for name in PLACES}
    kernels = [*sound.values(), *(planted(sound[name], pattern, instead) for name, pattern, instead in FAULTS.values())]
    entries = gir_cases.entries_of(kernels)
    found = {}
    for name, kernel, entry in zip([*PLACES, *FAULTS], kernels, entries, strict=True):
        assert isinstance(kernel.operator, Dataflow)
        found[name] = gir_cases.fault_of(kernel, entry, fused_draws(kernel.operator, 0)[:2])
    return found


@pytest.mark.parametrize("name", PLACES)
def test_what_has_no_fault_passes(name: str, answers: dict[str, str]) -> None:
    assert answers[name] == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault: str, answers: dict[str, str]) -> None:
    assert "elements wrong" in answers[fault]


def test_a_trial_says_wrong_answer() -> None:
    kernel, device = planted(right("layernorm"), *FAULTS["a missing eps"][1:]), CpuDevice()
    request = TrialRequest(Built(kernel, str(compile_c(kernel))), 1, 0.0)
    measured = run_trial(device, ExpectationCache(device.draws), request, lambda stage: None)
    assert measured.status is Status.WRONG_ANSWER and "before timing" in measured.error


def test_the_timed_draw_is_plain_and_the_hard_one_has_a_bound() -> None:
    for name in gir_cases.SUITE:
        plain, hard, last = fused_draws(gir_cases.of_suite(name, np.random.default_rng(3)), 0)
        for draw in (plain, last):
            assert max(np.abs(array).max() for array in draw.inputs) < 8
        unbound = np.mean([np.isinf(output.error).mean() for output in hard.outputs])
        assert unbound < 0.35, f"{name}: {unbound}"
        assert all(np.isfinite(output.error).all() for draw in (plain, last) for output in draw.outputs)


def test_an_output_more_or_less_is_no_answer() -> None:
    graph = make("add_layernorm", m=2, n=5)
    draw = fused_draws(graph, 0)[0]
    values = [output.value.astype(np.float32) for output in draw.outputs]
    assert draw.fault(values) == "" and draw.distance(values)[0] < 1e-5
    assert draw.fault([values[1], values[0]]).startswith("output 0: ")
    with pytest.raises(ValueError):
        draw.fault(values[:1])
    assert isinstance(draw, FusedDraw) and draw.nbytes > sum(array.nbytes for array in draw.inputs)
    assert draw.changed([np.zeros_like(array) for array in draw.inputs])
