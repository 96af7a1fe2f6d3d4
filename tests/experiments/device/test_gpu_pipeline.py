"""The pipeline of `make gpu` and the turns of its operators, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from experiments.device.work.makers import Programs
from experiments.device.work.pipeline import Pipeline
from experiments.device.work.turns import AT_ONCE, GENEROUS, LEAST_SHARE, ROUND, Entry, Turns
from gensor_gym import operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.requests import Built
from tests.support.virtual_time import Clock, VirtualCrew, VirtualJob

OP = operators.gemm(4, 4, 4)
SCHEDULE = ConstructionGraph(OP, "h200").initial()
COMPILERS, WINDOW, TRIAL = 4, 12, 0.1


def kernel(number: int, seconds: float = 0.3) -> Kernel:
    """Its source says how long it takes to compile."""
    return Kernel(OP, "cuda", "sm_90", f"{seconds} {number}", (), 0)


def compile_seconds(made: Kernel) -> float:
    return float(made.source.split()[0])


class Bench:
    """A pipeline in virtual time whose trials take TRIAL seconds."""

    def __init__(self, status: Callable[[Kernel], Status] = lambda made: Status.OK) -> None:
        self.clock = Clock()
        self.crew = VirtualCrew(self.clock, COMPILERS, compile_seconds)
        self.status = status

    def time(self, built: Built | Measurement) -> Measurement:
        if isinstance(built, Measurement):
            return built
        self.clock.wait(TRIAL)
        return Measurement(self.status(built.kernel), (1.0,), digest=built.kernel.digest)

    def pipeline(self, **options: object) -> Pipeline:
        return Pipeline(self.crew, self.time, WINDOW, **options)  # type: ignore[arg-type]

    def until(self, seconds: float) -> Callable[[], bool]:
        return lambda: self.clock.now < seconds


def test_a_straggler_holds_nobody_up() -> None:
    """The slowest is timed last; meanwhile the device is never idle but for the first compilation."""
    bench = Bench()
    work = [(i, kernel(i, 25.0 if i == 2 else 0.3)) for i in range(100)]
    found = list(bench.pipeline().run(work, bench.until(1000.0)))
    assert sorted(name for name, _ in found) == list(range(100))
    assert found[-1][0] == 2
    assert bench.clock.now == pytest.approx(25.0 + TRIAL)
    alone = Bench()
    last = list(alone.pipeline().run([pair for pair in work if pair[0] != 2], alone.until(1000.0)))
    assert len(last) == 99 and alone.clock.now == pytest.approx(0.3 + 99 * TRIAL)


def test_when_time_is_up_nothing_waits() -> None:
    bench = Bench()
    found = list(bench.pipeline().run(((i, kernel(i, 0.3 if i < 5 else 60.0)) for i in range(1000)), bench.until(2.0)))
    assert [name for name, _ in found] == [0, 1, 2, 3, 4]
    assert 2.0 <= bench.clock.now < 2.2
    assert bench.crew.finished(0.0) == []


def test_kernels_that_were_not_made_and_pauses_pass_through() -> None:
    bench = Bench()
    refused = Measurement(Status.ILLEGAL, digest="none")

    def work() -> Iterator[tuple[int, Kernel | Measurement] | None]:
        yield 0, refused
        while bench.clock.now < 5.0:
            yield None
        yield 1, kernel(1)

    found = list(bench.pipeline().run(work(), bench.until(100.0)))
    assert found[0] == (0, refused) and [name for name, _ in found] == [0, 1]
    assert 5.0 < bench.clock.now < 6.0


def test_trials_of_one_operator_stay_together() -> None:
    """Work that alternates between two is timed in a few blocks."""
    bench = Bench()
    work = ((number % 2, kernel(number)) for number in range(40))
    groups = [name for name, _ in bench.pipeline(group=lambda name: name).run(work, bench.until(100.0))]
    assert groups.count(0) == groups.count(1) == 20
    assert sum(a != b for a, b in zip(groups[:-1], groups[1:], strict=True)) <= 8


def programs(name: int, count: int = 40, seconds: float = 0.3) -> Programs:
    return [(SCHEDULE, kernel(1000 * name + i, seconds)) for i in range(count)]


def play(bench: Bench, entries: list[Entry], seconds: float) -> list[tuple[str, int, float]]:
    """Run the stage's loop; operators as their rounds end, with how many were tried and when."""
    turns = Turns(entries, lambda: seconds - bench.clock.now)
    pipeline = bench.pipeline(group=lambda ticket: ticket[0], wanted=turns.admit)
    ended = []
    for ticket, measurement in pipeline.run(turns.work(), bench.until(seconds)):
        turns.take(ticket, measurement, pipeline.busy)
        for entry in turns.settled():
            ended.append((entry.name, len(entry.tried), bench.clock.now))
            entry.ahead = float(entry.name)
        turns.next_round()
    return ended


def entry(bench: Bench, name: int, made: Programs, at: float = 0.0) -> Entry:
    return Entry(str(name), OP, VirtualJob(bench.clock, at, made))


def test_every_operator_has_its_round_before_any_has_another() -> None:
    """One whose construction takes long does not hold up the others; then those furthest behind go on."""
    bench = Bench()
    entries = [entry(bench, i, programs(i), 15.0 if i == 0 else 0.5) for i in range(8)]
    ended = play(bench, entries, 60.0)
    assert sorted(name for name, _, _ in ended[:8]) == sorted(e.name for e in entries)
    assert [tried for _, tried, _ in ended[:8]] == [ROUND] * 8
    assert ended[7][0] == "0"
    assert {name for name, _, _ in ended[8 : 8 + AT_ONCE]} == {str(i) for i in range(AT_ONCE)}
    assert all(len(e.tried) == 40 for e in entries)  # every candidate, since there was time


def test_a_share_counts_from_the_first_trial_and_only_what_went_well() -> None:
    """An operator whose candidates fail tries them all; slow ones end with its share; before a trial nothing is spent."""
    failing = Bench(lambda made: Status.WRONG_ANSWER)
    many = [entry(failing, 0, programs(0, ROUND)), entry(failing, 1, programs(1, ROUND), 30.0)]
    play(failing, many, 40.0)
    assert [len(e.tried) for e in many] == [ROUND, ROUND]
    assert many[0].spent == 0.0 and many[0].best is None

    class Slow(Bench):
        def time(self, built: Built | Measurement) -> Measurement:
            self.clock.wait(2.0 if isinstance(built, Built) and "slow" in built.kernel.source else 0.0)
            return super().time(built)

    bench = Slow()
    slow = [(SCHEDULE, Kernel(OP, "cuda", "sm_90", f"0.3 slow {i}", (), 0)) for i in range(ROUND)]
    others = [entry(bench, 0, slow), *(entry(bench, i, programs(i, ROUND)) for i in range(1, 5))]
    seconds = 30.0
    ended = play(bench, others, seconds)
    first = {name: tried for name, tried, _ in reversed(ended)}
    most = 1 + GENEROUS * seconds / len(others) / (2.0 + TRIAL)
    assert LEAST_SHARE / 2.0 < first["0"] <= most + 1 < ROUND
    assert [first[str(i)] for i in range(1, 5)] == [ROUND] * 4


def test_an_operator_without_candidates_is_no_end() -> None:
    class Broken(VirtualJob[Programs]):
        def result(self) -> Programs:
            raise ValueError("nothing fits")

    bench = Bench()
    broken = Entry("0", OP, Broken(bench.clock, 0.0, []))
    ended = play(bench, [broken, entry(bench, 1, programs(1, 5))], 20.0)
    assert [name for name, _, _ in ended] == ["0", "1"]
    assert broken.failed == "no candidates: ValueError: nothing fits"
    assert bench.clock.now < 5.0
