"""A trial of a C source: verified and timed from outside, by a process that never loads the kernel and has the only clock."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from gensor_gym.cache.folders import private_dir
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.devices.machine_lock import timing_lock
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.floor import MARGIN, is_excused, warm_floor
from gensor_gym.measure.stats.timing import ClockFault, TimingRules, take_samples
from gensor_gym.measure.workers.affinity import pinned
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import LaunchError
from gensor_gym.measure.workers.worker import warn_of_isolation
from gensor_gym.measure.written.bursts import Bursts
from gensor_gym.measure.written.controlled import Controlled
from gensor_gym.measure.written.inputs import FreshInputs
from gensor_gym.measure.written.layout import layout_of
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator

PROTOCOL = "outside 1"
"""Name of the timing protocol in the conditions of a measurement. Times of different protocols are never mixed."""
HAND_OVERS = 8
"""Smallest duration of a sample on one thread in hand-overs, the time of a burst without calls. More calls in a burst would need
more memory than a second-level cache has. With several threads a sample also lasts `TimingRules.sample`, because they wake up at
each burst.
"""
_IMPOSSIBLE = 0.25
"""Share of the roofline floor below which all times are IMPLAUSIBLE, also with new rates of the machine."""
_MOST_SECONDS = 1e-3
"""Duration of a sample for which there are slots enough, if calls take as long as the roofline floor."""


def clocked(built: Built, hw: Hardware, seed: int, rules: TimingRules, memory: int) -> Measurement:
    """Verify and time one compiled kernel. `seed` determines the first inputs. Every failure is a status."""
    folder = Path(tempfile.mkdtemp(prefix="worker-", dir=private_dir("scratch")))
    digest = built.kernel.digest
    try:
        return _trial(built, hw, seed, rules, memory, folder)
    except WorkerLost as loss:
        return Measurement(loss.status, error=str(loss), digest=digest)
    except LaunchError as error:
        return Measurement(Status.LAUNCH_ERROR, error=str(error), digest=digest)
    except ClockFault as error:
        return Measurement(Status.IMPLAUSIBLE, error=str(error), digest=digest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trial(built: Built, hw: Hardware, seed: int, rules: TimingRules, memory: int, folder: Path) -> Measurement:
    op, threads, digest = built.kernel.operator, target_of(hw).threads(hw), built.kernel.digest
    assert isinstance(op, Operator)
    floor = warm_floor(op, hw)
    (draw,) = make_draws(op, seed, places=(0,))
    layout = layout_of(built.kernel, math.ceil(_MOST_SECONDS / floor))
    cpus = os.sched_getaffinity(0)
    with pinned():
        process = Controlled(built, layout, threads, cpus, folder, memory)
        try:
            warn_of_isolation(process.isolation)
            process.load()
            process.enter("verify")
            bursts = Bursts(op, process, FreshInputs(op, draw.inputs), max(1e-9, _IMPOSSIBLE * floor))
            given = [array[None] for array in draw.inputs]
            bursts.run(given)
            first = bursts.call(given, 0)
            if fault := first.damage or draw.fault(decode(first.outputs[0], op.output.dtype)):
                return Measurement(Status.WRONG_ANSWER, error=f"before timing: {fault}", digest=digest)
            shortest = max(HAND_OVERS * process.hand_over, rules.sample if threads > 1 else 0.0)
            process.enter("wait")
            with timing_lock(""):
                process.enter("time")
                samples, calls = take_samples(bursts.time, replace(rules, sample=shortest), called=1)
        finally:
            process.close()
    if fault := bursts.fault():
        return Measurement(Status.WRONG_ANSWER, error=f"in a timed call: {fault}", digest=digest)
    conditions = _conditions(built, process, threads, calls, len(bursts.kept))
    seconds = float(np.median(samples))
    if seconds < MARGIN * floor and not is_excused(op, hw, seconds):
        text = f"median {seconds:.3g} s is below {MARGIN * floor:.3g} s, the roofline floor with its margin"
        return Measurement(Status.IMPLAUSIBLE, tuple(samples), conditions, text, digest)
    return Measurement(Status.OK, tuple(samples), conditions, "", digest)


def _conditions(built: Built, process: Controlled, threads: int, calls: int, kept: int) -> dict[str, object]:
    return {
        "device": processor_name(),
        "threads": threads,
        "protocol": PROTOCOL,
        "cache": "inputs just written",
        "calls_per_sample": calls,
        "calls_verified": kept,
        "hand_over_seconds": process.hand_over,
        "compiler": built.compiler,
        "compile_seconds": built.compile_seconds,
        "load_average": os.getloadavg()[0],
        "isolation": process.isolation or "none",
    }
