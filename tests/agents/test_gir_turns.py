"""Trials of fused operators go through families in turns."""

from __future__ import annotations

import dataclasses

import numpy as np

from agents.baselines.exhaustive import BEFORE_OTHER, FAMILY, Exhaustive, in_turns, tried_first
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


def test_the_first_trials_of_a_fused_operator_are_of_different_families() -> None:
    session = Session(Task.of("kv_concat(h=32, t=127, d=128)", "cascade_lake", "analytic", "gir"), Budget(trials=8))
    search = Exhaustive("gir")
    rows = np.stack(list(search._ranked(session)))
    seconds = session.graph.latencies(rows)
    near = seconds <= search.near * seconds.min()
    families = len(np.unique(rows[near][:, FAMILY], axis=0))
    assert families > BEFORE_OTHER and len(np.unique(rows[:families, FAMILY], axis=0)) == families
    last = near.sum() + 1
    assert seconds[0] == seconds.min() and near[:last].sum() >= near.sum() and (np.diff(seconds[last:]) >= 0).all()


def test_the_other_way_to_store_is_tried_however_far_it_is() -> None:
    """A copy that the model would store past the caches took a third longer so on an EPYC (Zen 5)."""
    machine = hardware.get("cascade_lake")
    memory = tuple(dataclasses.replace(level, copied=level.bandwidth / 9, streamed=level.bandwidth) for level in machine.memory)
    graph = GirGraph(fused_operator("kv_concat(h=32, t=255, d=128)"), dataclasses.replace(machine, memory=memory))
    rows = np.concatenate(list(graph.enumerate()))
    seconds = graph.latencies(rows)
    streams = GirSchedule.columns(rows)["streaming"] == 1
    assert seconds[~streams].min() > Exhaustive.near * seconds.min()
    order = tried_first(graph, rows, seconds)
    assert len(np.unique(order)) == len(rows)
    assert streams[order[:10]].tolist() == [True] * BEFORE_OTHER + [False] + [True] * 6
    assert seconds[order[BEFORE_OTHER]] == seconds[~streams].min()


def test_of_a_small_operator_one_task_and_many_are_tried() -> None:
    """What a second thread costs is known least of all."""
    machine = dataclasses.replace(hardware.get("cascade_lake"), launch_overhead=5e-7)
    graph = GirGraph(fused_operator("bias(m=49, n=232)"), machine)
    rows = np.concatenate(list(graph.enumerate()))
    header = GirSchedule.columns(rows[tried_first(graph, rows, graph.latencies(rows))[:4]])
    tasks = -(-49 // (header["rows"] * header["loop"]))
    assert 0 < np.count_nonzero(tasks == 1) < 4
