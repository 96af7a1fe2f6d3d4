"""What a run would get done, in virtual time: as it was, and as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.common.journal import read_rows
from experiments.device.simulation import simulate
from experiments.device.simulation.delays import LONGEST, Delays
from experiments.device.simulation.virtual import Clock, VirtualJob
from gensor_gym import operators

DELAYS = Delays.of(read_rows(simulate.ROWS))
ON_DEVICE = replace(DELAYS, per_byte=0.2 * DELAYS.per_byte, reference_scale=0.03)


def test_delays_are_those_of_the_rows() -> None:
    """Mean and longest compilation as recorded; the references that were timed; a trial as long as those recorded."""
    assert DELAYS.compile_seconds.mean() == pytest.approx(0.311, abs=1e-3)
    assert DELAYS.compile_seconds.max() == pytest.approx(27.489, abs=1e-3)
    assert DELAYS.reference(operators.gemm(4096, 4096, 4096)) == pytest.approx(15.0)
    assert DELAYS.reference(operators.gemm(8192, 8192, 8192)) == pytest.approx(38.0, rel=0.01)
    assert 0.05 < DELAYS.trial < DELAYS.trial_seconds(operators.gemm(1024, 1024, 1024)) < LONGEST
    with pytest.raises(ValueError, match="none of these ran well"):
        Delays.of([{"status": "CRASHED"}])


def test_the_former_schedulers_got_done_what_their_runs_said() -> None:
    """0 verified; 3 and 18 operators of 29: the model of the machine is coarse, and near that."""
    found = simulate.before(DELAYS, 0)
    assert found["correctness"]["verified"] == 0
    assert 3 <= found["operators, first run"]["compared"] <= 6
    assert 15 <= found["operators, second run"]["compared"] <= 23


def test_nine_minutes_suffice() -> None:
    """The targets of a run of nine minutes, with answers checked on the device."""
    found = simulate.now(ON_DEVICE, 0, 540.0)
    assert found["correctness"]["verified"] >= 400
    assert found["operators"]["compared"] == found["operators"]["operators"] == 30
    assert found["operators"]["fewest_candidates"] >= 16
    assert found["tables"]["recorded"] >= 1500 and found["tables"]["operators"] == found["tables"]["of"]
    for stage in ("compare", "policies"):
        assert found[stage]["operators_with_two_seeds"] >= 6


def test_a_virtual_job_is_not_asked_too_early() -> None:
    clock = Clock()
    job = VirtualJob(clock, 2.0, "answer")
    with pytest.raises(RuntimeError, match="done at 2.000 s"):
        job.result()
    clock.wait(2.0)
    assert job.done() and job.result() == "answer"


def test_bad_words_are_named(capsys: pytest.CaptureFixture) -> None:
    assert simulate.main(["speed=3"]) == 2
    assert "expected key=value with a key of budget_s" in capsys.readouterr().err
