"""`gensor adapt`: programs timed for some minutes, a correction learned from them, and the strategy that searches by it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents import get_strategy
from agents.hybrids.correction import load_correction
from agents.hybrids.here import adapted_folder
from agents.optimizer import Asked
from agents.recording import adapt, collect
from agents.recording.ahead import prepared
from agents.recording.collect import FIELDS
from agents.runs.journal import Journal
from agents.strategy import default_for
from agents.training.operators.chosen import Chosen
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.measure.records import measured
from tests.agents.recording.test_measured import Machine, eight

MACHINE = hardware.get("cascade_lake")
SOME = [operators.parse(f"gemm(m={m}, n=16, k=40)") for m in range(24, 64)]
OPS = [op for op in SOME if operators.part_of(op) == "train"][:6]


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine without a compiler, eight random programs of six operators, a cache of its own; the kernels that were timed."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(collect, "programs", eight)
    monkeypatch.setattr(adapt, "operators_to_learn_from", lambda: [Chosen("train", op) for op in OPS])
    machine = Machine()
    machine.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(adapt, "cpu_backend", lambda rules: machine)
    monkeypatch.setattr(measured, "names", lambda _: [])
    return machine.timed


def recorded(path: Path, minutes: float) -> list[dict]:
    with Journal(path, FIELDS) as journal:
        adapt.record(MACHINE, journal, minutes, set(), Console(quiet=True), seed=0)
        return list(journal)


def test_measuring_ends_with_its_minutes_and_goes_on(timed: list[str], tmp_path: Path) -> None:
    rows = recorded(tmp_path / "trials.jsonl", 1e-9)
    assert {row["operator"] for row in rows} == {str(OPS[0])} and len(timed) == len(rows)
    recorded(tmp_path / "trials.jsonl", 1e-9)
    rows = recorded(tmp_path / "trials.jsonl", 1.0)
    assert list(dict.fromkeys(row["operator"] for row in rows)) == [str(op) for op in OPS] and len(timed) == len(rows)


def test_the_strategy_searches_by_what_was_learned(timed: list[str], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gensor adapt"):
        get_strategy("adapted").construct(ConstructionGraph(OPS[0], MACHINE, "extended"), np.random.default_rng(0))  # type: ignore
    correction, card = adapt.learned(recorded(tmp_path / "trials.jsonl", 1.0), MACHINE)
    correction.save(adapted_folder(), card)
    assert json.loads((adapted_folder() / "card.json").read_text())["operators"] == sorted(map(str, OPS))
    graph = ConstructionGraph(OPS[1], MACHINE, "extended")
    found = get_strategy("adapted", walkers=1, refined=1).construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    rows = graph.stack(list(found.schedules))
    assert np.allclose(found.latencies, correction.seconds(graph, rows)) and list(found.latencies) == sorted(found.latencies)


def test_searches_begin_with_what_was_learned_of_this_machine(timed: list[str], tmp_path: Path) -> None:
    here = dataclasses.replace(MACHINE, name="host")
    assert default_for(OPS[0], here) == "markov"
    correction, card = adapt.learned(recorded(tmp_path / "trials.jsonl", 1.0), MACHINE)
    correction.save(adapted_folder(), card)
    (adapted_folder() / "hardware.json").write_text(hardware.to_json(here))
    assert default_for(OPS[0], here) == "in_turn"
    assert default_for(OPS[0], dataclasses.replace(here, units=here.units + 1)) == default_for(OPS[0], MACHINE) == "markov"
    assert default_for(resolve_computation("softmax(m=16, n=40)"), here) == "exhaustive"
    assert default_for(resolve_computation('gemm(m=16, n=16, k=16, dtype="bfloat16")'), here) == "markov_ext"
    plain = Asked.of(OPS[0], "host", walkers=3)
    assert type(plain.search).__name__ == "Markov"
    (adapted_folder() / "card.json").write_text(json.dumps({**card, "fingerprint": "of yesterday"}))
    load_correction.cache_clear()
    with pytest.warns(RuntimeWarning, match="without the model of time of gensor adapt"):
        assert default_for(OPS[0], here) == "markov"
    (adapted_folder() / "hardware.json").unlink()
    with pytest.warns(RuntimeWarning, match=r"hardware\.json"):
        assert default_for(OPS[0], here) == "markov"


def test_without_other_processors_nothing_is_prepared_ahead() -> None:
    done: list[int] = []
    for item, made in prepared(range(3), lambda item: done.append(item) or len(done), set()):
        assert made == item + 1 == len(done)
