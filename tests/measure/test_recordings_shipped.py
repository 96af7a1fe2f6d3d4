"""Tables that come with the package: complete for today's rules, sampled enough, described, and an environment by name alone."""

from __future__ import annotations

import math
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import gensor_gym
from agents import optimize
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.described import FILE, RECORDINGS, differences
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.backend import open_recorded
from gensor_gym.measure.records.tables import file_name, read_table
from tests.support.thorough import thorough_but

FILES = sorted(RECORDINGS.glob("*/*.parquet"))
LEAST_TABLES = 8
LEAST = {"zen5_1c": (15, 3), "h100": (5, 1)}
"""Samples and passes of every kernel that ran."""


@pytest.mark.thorough
def test_there_are_enough_of_them() -> None:
    assert hardware.recorded_names() and len(FILES) >= LEAST_TABLES
    assert len({operators.parse(read_table(path).about["operator"]).name for path in FILES}) >= LEAST_TABLES


@pytest.mark.parametrize("path", thorough_but(FILES, *FILES[::5]), ids=lambda path: path.stem)
def test_every_schedule_of_the_space_is_there(path: Path) -> None:
    table = read_table(path)
    op, hw = operators.parse(table.about["operator"]), hardware.get(path.parent.name)
    assert path.stem == file_name(op) and table.about["part"] == operators.part_of(op)
    assert not differences(hardware.from_json(table.about["hardware"]), hw)
    assert hardware.from_json(table.about["hardware"]) == hardware.from_json((path.parent / FILE).read_text())
    graph = ConstructionGraph(op, hw, table.about["space"])
    wanted = {str(Schedule(row)) for rows in graph.enumerate() for row in rows}
    assert {record.schedule for record in table.records} == wanted
    good = [record.measurement for record in table.records if record.measurement.status is Status.OK]
    assert len(good) >= (1.0 if hw.kind == "cpu" else 0.85) * len(wanted), "what spills registers is not timed on a GPU"
    samples, passes = LEAST[path.parent.name]
    assert min(len(m.samples) for m in good) >= samples
    assert passes <= min(len(set(m.conditions["passes"])) for m in good) <= table.about["passes"]
    assert all(m.seconds > graph.floor * 0.5 for m in good)
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert str(op) in card and "licence" in card.lower()
    backend = open_recorded("recorded", hw)
    regrets = [backend.regret(graph, Schedule.parse(record.schedule)) for record in table.records]
    assert None not in regrets and table.about["optimum"]["tied"] == sum(r == 0.0 for r in regrets) < len(regrets) / 2
    assert sum(math.isinf(r) for r in regrets if r is not None) == len(wanted) - len(good)


@pytest.mark.parametrize("file", FILES[:: len(FILES) - 1], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_by_name_alone(file: Path) -> None:
    op = operators.parse(read_table(file).about["operator"])
    machine = file.parent.name
    env = gymnasium.make("gensor_gym/Construct-v0", operator=op, hardware=machine, space="compact", backend="recorded")
    _, info = env.reset(seed=0)
    rng, ended = np.random.default_rng(0), False
    while not ended:
        _, _, ended, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
    assert info["status"] == "OK" and info["regret"] >= 0.0
    best = optimize(op, machine, "exhaustive", trials=2000, backend="recorded", space="compact")
    assert open_recorded("recorded", hardware.get(machine)).regret(best.task.graph(), best.schedule) == 0.0
    assert gensor_gym.load_space(file).seconds("median").min() == best.seconds
