"""The clock of written sources: what attacks on it come to, and the parts of which it is made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.measure.isolation import landlock
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.deadlines import STAGE_SECONDS
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.written import clocked
from gensor_gym.measure.written.bursts import KEPT, Bursts
from gensor_gym.measure.written.compiling import build_written
from gensor_gym.measure.written.controlled import Controlled
from gensor_gym.measure.written.inputs import FreshInputs
from gensor_gym.measure.written.layout import MOST_BYTES, MOST_SLOTS, layout_of
from gensor_gym.measure.written.memory import _after, copy
from gensor_gym.measure.written.trials import WrittenTrials
from gensor_gym.operators.inputs import ARRAY_OFFSET, decode, random_inputs
from tests.support.measure_kernels import GEMM
from tests.support.written_attacks import ATTACKS, BACKGROUND, OK, RAW_ATTACKS, Attack, written

pytestmark = pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")
RIGHT = ATTACKS["is right"]


@pytest.fixture(scope="module")
def tried() -> Iterator[WrittenTrials]:
    """Trials with short deadlines."""
    with pytest.MonkeyPatch.context() as patch:
        for stage in ("load", "verify"):
            patch.setitem(STAGE_SECONDS, stage, 2.0)
        yield WrittenTrials(hardware.get("host"))


@pytest.fixture(scope="module")
def right(tried: WrittenTrials) -> float:
    """Seconds of the product without an attack."""
    return min(tried.measure(written(RIGHT), seed=seed).seconds for seed in range(3))


def check_outcome(found: Measurement, attack: Attack, right: float) -> None:
    assert found.status in (attack.status, attack.or_else), found.error
    if found.status is OK:
        assert found.seconds > 0.6 * right
    else:
        assert attack.words in found.error and found.seconds == float("inf")


@pytest.mark.parametrize("name", ATTACKS)
def test_outcome_of_an_attack(tried: WrittenTrials, right: float, name: str) -> None:
    check_outcome(tried.measure(written(ATTACKS[name]), seed=7), ATTACKS[name], right)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="bytes of x86-64")
@pytest.mark.parametrize("name", RAW_ATTACKS)
def test_outcome_of_machine_code(tried: WrittenTrials, right: float, name: str) -> None:
    check_outcome(tried.measure(written(RAW_ATTACKS[name]), seed=7), RAW_ATTACKS[name], right)


def test_conditions_name_protocol_and_hand_over(tried: WrittenTrials) -> None:
    found = tried.measure(written(RIGHT), seed=1).conditions
    assert found["protocol"] == clocked.PROTOCOL and found["isolation"] == "landlock+seccomp"
    assert 1e-6 < float(str(found["hand_over_seconds"])) < 5e-3 and 5 <= int(str(found["calls_verified"])) <= KEPT


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Controlled]:
    """A process whose kernel leaves a spinning thread behind that waits for new inputs."""
    attack = Attack("leave(runtime); gemm(a, b, c); next_b = b, next_c = c, next_a = a;", OK, later=BACKGROUND)
    built = build_written(written(attack))
    process = Controlled(built, layout_of(built.kernel, 8), 2, os.sched_getaffinity(0), tmp_path, 0)
    yield process
    process.close()


def state_of(folder: Path) -> str:
    """The letter of the state of a process or thread, from its folder of /proc: T if stopped, Z if ended and not waited for."""
    return folder.joinpath("stat").read_text().rsplit(")", 1)[-1].split()[0]


def test_all_threads_are_stopped_between_bursts(controlled: Controlled) -> None:
    """Also those that never give up their processor. So inputs are not seen before the clock is read."""
    controlled.load()
    pid = controlled._process.pid
    bursts = Bursts(GEMM, controlled, FreshInputs(GEMM, random_inputs(GEMM, np.random.default_rng(0))))
    for calls in (1, 3, 8):
        assert bursts.time(calls) > 0
        states = [state_of(task) for task in Path(f"/proc/{pid}/task").iterdir()]
        assert set(states) == {"T"} and len(states) >= 2
    allowed = [os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()]
    assert max(map(len, allowed)) >= len(os.sched_getaffinity(0)) - 1, "threads of the pool share the first processor"


def test_a_process_that_ends_is_named(controlled: Controlled) -> None:
    os.kill(controlled._process.pid, 9)
    with pytest.raises(WorkerLost, match="SIGKILL") as caught:
        controlled.burst(0)
    assert caught.value.status is Status.CRASHED


def test_many_short_bursts_do_not_outlast_their_stage(controlled: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    controlled.load()
    monkeypatch.setitem(STAGE_SECONDS, "time", 0.5)
    controlled.enter("time")
    limit = time.monotonic() + 30
    with pytest.raises(WorkerLost, match=r"0\.5 s in stage time") as caught:
        while time.monotonic() < limit:
            controlled.burst(1)
    assert caught.value.status is Status.TIMEOUT


def test_a_hand_over_that_was_measured_too_long_ends_the_trial(tried: WrittenTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bursts then seem to take no time."""
    load = Controlled.load

    def late(process: Controlled) -> None:
        load(process)
        process.hand_over = 1.0

    monkeypatch.setattr(Controlled, "load", late)
    monkeypatch.setitem(STAGE_SECONDS, "time", 0.5)
    found = tried.measure(written(RIGHT), seed=1)
    assert found.status in (Status.IMPLAUSIBLE, Status.TIMEOUT), found.error


def test_a_stopped_process_ends_with_the_harness(tmp_path: Path) -> None:
    """Its parent is killed, so nobody else can end it."""
    text = f"""if True:
        import os, sys
        from pathlib import Path
        from gensor_gym.measure.written.compiling import build_written
        from gensor_gym.measure.written.controlled import Controlled
        from gensor_gym.measure.written.layout import layout_of
        from tests.support.written_attacks import ATTACKS, written
        built = build_written(written(ATTACKS["is right"]))
        process = Controlled(built, layout_of(built.kernel, 8), 1, [0], Path({str(tmp_path)!r}), 0)
        print(process._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=root, check=False, timeout=100)
    pid = Path("/proc", done.stdout.strip())
    assert done.stdout.strip(), done.stderr
    limit = time.monotonic() + 10
    while pid.exists() and state_of(pid) != "Z":
        assert time.monotonic() < limit, "the stopped process lives on"
        time.sleep(0.01)


INPUTS = [
    GEMM, operators.gemm(m=48, n=40, k=64, dtype="bfloat16"), operators.gemm(m=48, n=40, k=64, dtype="float16"),
    operators.gemm(m=48, n=40, k=64, dtype="int8"),
]  # fmt: skip


@pytest.mark.parametrize("op", INPUTS, ids=str)
def test_fresh_inputs_are_distributed_like_draws_and_never_return(op: operators.Operator) -> None:
    drawn = random_inputs(op, np.random.default_rng(0))
    fresh = FreshInputs(op, drawn)
    seen = [[array.copy() for array in fresh.draw(3)] for _ in range(4)]
    for number, tensor in enumerate(op.inputs):
        calls = np.concatenate([burst[number] for burst in seen])
        assert calls.shape == (12, *tensor.shape) and calls.dtype == drawn[number].dtype
        assert len({array.tobytes() for array in calls}) == 12
        values, like = decode(calls, tensor.dtype).astype(np.float64), decode(drawn[number], tensor.dtype).astype(np.float64)
        assert values.std() == pytest.approx(like.std(), rel=0.05) and abs(values.mean()) < 0.1 * like.std()


def test_buffers_lie_between_unmapped_pages() -> None:
    for op, most in ((GEMM, 1000), (GEMM, 7), (operators.gemm(m=2048, n=2048, k=2048), 1000)):
        layout = layout_of(replace(written(RIGHT), operator=op), most)
        regions = [*sum(layout.inputs, []), *sum(layout.outputs, []), layout.workspace]
        nbytes = sum(region.nbytes for region in (*layout.inputs[0], *layout.outputs[0]))
        assert layout.slots == max(1, min(most, MOST_SLOTS, MOST_BYTES // nbytes))
        used = sorted([(region.start, region.size) for region in regions] + layout.closed)
        assert all(first + size <= second for (first, size), (second, _) in zip(used, used[1:], strict=False))
        assert all(region.start + region.size in dict(layout.closed) for region in regions)
        assert {region.place % 64 for region in sum(layout.inputs, [])} == {ARRAY_OFFSET}


def test_copies_of_many_parts() -> None:
    source, target = np.random.default_rng(0).integers(0, 256, (3000, 16), dtype=np.uint8), np.zeros((3000, 16), np.uint8)
    parts = [np.array([[a.ctypes.data + 16 * i, 16] for i in range(3000)], np.uint64) for a in (source, target)]
    copy(os.getpid(), True, *parts)
    assert (source == target).all()
    assert _after(parts[0][:4], 40).tolist() == [[int(parts[0][2, 0]) + 8, 8], parts[0][3].tolist()]


def test_kept_calls_are_a_fair_choice(monkeypatch: pytest.MonkeyPatch, controlled: Controlled) -> None:
    bursts = Bursts(GEMM, controlled, FreshInputs(GEMM, random_inputs(GEMM, np.random.default_rng(0))))
    monkeypatch.setattr(bursts, "call", lambda given, slot: given)
    for number in range(640):
        bursts._pick(number, 0)  # type: ignore[arg-type]
    kept = np.array(bursts.kept, float)
    assert len(kept) == KEPT == len(set(kept)) and 200 < kept.mean() < 440
