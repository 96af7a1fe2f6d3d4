"""Trials of fused operators go through families in turns."""

from __future__ import annotations

import dataclasses

import numpy as np

from agents.baselines.exhaustive import FAMILY, Exhaustive, in_turns, tried_first
from gensor_gym import hardware
from gensor_gym.dataflow.table import fused_operator
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.session import Budget, Session, Task


def test_families_take_turns_and_what_is_far_from_the_best_comes_last() -> None:
    families = np.array([[1], [1], [2], [1], [2], [3], [3]], np.int32)
    seconds = np.array([1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.5])
    assert in_turns(families, seconds, 1.2).tolist() == [0, 2, 5, 1, 4, 3, 6]
    assert in_turns(families, seconds, 1.1).tolist() == [0, 2, 1, 3, 4, 5, 6]
    assert in_turns(families, seconds, 0.0).tolist() == list(range(7))
    assert in_turns(families, seconds, 1.1, firsts=[0, 5]).tolist() == [0, 5, 2, 1, 3, 4, 6]


def test_the_first_trials_of_a_fused_operator_are_of_different_families() -> None:
    session = Session(Task.of("kv_concat(h=32, t=127, d=128)", "cascade_lake", "analytic", "gir"), Budget(trials=8))
    search = Exhaustive("gir")
    rows = np.stack(list(search._ranked(session)))
    seconds = session.graph.latencies(rows)
    near = seconds <= search.near * seconds.min()
    families = len(np.unique(rows[near][:, FAMILY], axis=0))
    assert families > 1 and len(np.unique(rows[:families, FAMILY], axis=0)) == families
    assert seconds[0] == seconds.min() and np.count_nonzero(near[: near.sum() + 1]) == near.sum()
    assert (np.diff(seconds[near.sum() + 1 :]) >= 0).all()


def test_the_other_way_to_store_is_tried_however_far_it_is() -> None:
    """Of a copy that the model stores past the caches, an EPYC (Zen 5) took a third longer so."""
    machine = hardware.get("cascade_lake")
    memory = tuple(dataclasses.replace(level, copied=level.bandwidth / 9, streamed=level.bandwidth) for level in machine.memory)
    graph = GirGraph(fused_operator("kv_concat(h=32, t=127, d=128)"), dataclasses.replace(machine, memory=memory))
    rows = np.concatenate(list(graph.enumerate()))
    seconds = graph.latencies(rows)
    streams = GirSchedule.columns(rows)["streaming"] == 1
    assert seconds[~streams].min() > Exhaustive.near * seconds.min()
    first = rows[tried_first(graph, rows, seconds)[:10]]
    assert 0 < np.count_nonzero(GirSchedule.columns(first)["streaming"]) < 10


def test_of_a_small_operator_one_task_and_many_are_tried() -> None:
    """What a second thread costs is known least of all."""
    machine = dataclasses.replace(hardware.get("cascade_lake"), launch_overhead=5e-7)
    graph = GirGraph(fused_operator("bias(m=49, n=232)"), machine)
    rows = np.concatenate(list(graph.enumerate()))
    header = GirSchedule.columns(rows[tried_first(graph, rows, graph.latencies(rows))[:4]])
    tasks = -(-49 // (header["rows"] * header["loop"]))
    assert 0 < np.count_nonzero(tasks == 1) < 4
