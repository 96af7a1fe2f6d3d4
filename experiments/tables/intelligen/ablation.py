"""Ablation of IntelliGen's steps: graph transformation, placement, and choice of instructions are left out in turn.

On the model, a variant without a step is its fastest program by prediction, of its whole space. Measured, the few programs that
the model predicts to be fastest are timed, and the winners are timed again, alternately.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents.runs.calls import placed, seconds
from agents.runs.journal import Journal
from agents.runs.settings import code_digest, short_hash
from agents.runs.texts import seconds_text
from experiments.benches.fused.race import Ways, wrong
from experiments.benches.lines import once
from experiments.comparison.summary import Interval, interval, ratio
from experiments.tables.table import Cell, Stamp, Table
from gensor_gym import codegen
from gensor_gym import hardware as machines
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Node, Reshape, Value
from gensor_gym.dataflow.table import fused_operator, source, stand_in
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import HEADER, GirSchedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.inputs import random_inputs

# A fused operator without graph transformation: every node is a separate kernel, with a tensor between any two.
#
# Broadcasts and reshapes are not kernels: a node that reads a broadcast reads its source, and a reshape is the same memory.
# (Unified IR, the group's later text, calls these `identity`.)

@dataclass(frozen=True)
class Chain:
    """A fused operator without fusion: each of its nodes that needs a kernel, as an operator of its own.

    Every output of the operator comes from one of them.
    """

    graph: Dataflow
    parts: tuple[Dataflow, ...]

    def bound(self, kernels: Mapping[Dataflow, BuiltKernel], inputs: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Return a function that calls the kernels of all nodes in order, with tensors allocated beforehand between them."""
        known = dict(zip((value.name for value in self.graph.inputs), inputs, strict=True))
        calls = []
        parts = {part.returns[0]: part for part in self.parts}
        for name, node in self.graph.nodes:
            if isinstance(node, Reshape):
                known[name] = known[node.source].reshape(node.to)
            elif not isinstance(node, Broadcast):
                known[name] = aligned(self.graph.values[name].shape, np.dtype(np.float32))
                given = (known[value.name] for value in parts[name].inputs)
                calls.append(kernels[parts[name]].bind(*given, known[name]))
        outputs = [known[name] for name in self.graph.returns]

        def call() -> list[np.ndarray]:
            for one in calls:
                one()
            return outputs

        return call


def chain_of(graph: Dataflow) -> Chain:
    """Split a fused operator into one operator for each node that needs a kernel.

    Raise ValueError if an output is only a broadcast.
    """
    nodes = dict(graph.nodes)
    if repeated := [name for name in graph.returns if isinstance(nodes.get(name), Broadcast)]:
        raise ValueError(f"{graph}: output {repeated[0]} is a broadcast, expected a node that has a kernel")
    made = [(name, node) for name, node in nodes.items() if not isinstance(node, (Broadcast, Reshape))]
    return Chain(graph, tuple(_alone(graph, nodes, name, node) for name, node in made))


def _alone(graph: Dataflow, nodes: Mapping[str, Node], name: str, node: Node) -> Dataflow:
    """Return one node as an operator of its own, with the broadcasts that it reads."""
    repeated: list[tuple[str, Node]] = []
    read: dict[str, Value] = {}
    for at in node.inputs:
        while isinstance(one := nodes.get(at), Broadcast):
            repeated.insert(0, (at, one))
            at = one.source
        read[at] = graph.values[at]
    steps = tuple(dict.fromkeys((*repeated, (name, node))))
    return Dataflow(f"{graph.name}_{name}", tuple(read.values()), steps, (name,))


PROTOCOL = 1
"""Version of the timing procedure; it is raised with each change, so that operators are timed again."""
TRIALS, ROUNDS = 3, 7
MODEL_OF = "cascade_lake"
FULL, APART, DRAM, TEMPLATE = "all steps", "no graph transformation", "no placement", "no choice of instructions"
VARIANTS = (APART, DRAM, TEMPLATE)
_STEPS = 16
"""Largest number of steps of a task in the fixed template of instructions."""
Allowed = Callable[[np.ndarray], np.ndarray]
"""Function from legal rows (schedules) int32 [B, ROW] to a mask bool [B] of those that a variant may use."""


def _in_dram(rows: np.ndarray) -> np.ndarray:
    """Return a mask of the rows (schedules) that leave every value between passes in DRAM.

    An input is loaded again, and a computed value ends its kernel.
    """
    return np.count_nonzero(rows[:, HEADER:], axis=1) == 0


def _as_template(rows: np.ndarray) -> np.ndarray:
    """Return a mask of the rows (schedules) that follow a fixed template.

    In the template a step computes one row with the widest vectors, a task has the largest possible number of steps up to
    `_STEPS`, and stores are plain.
    """
    header = GirSchedule.columns(rows)
    vector, loop = header["vector"], header["loop"]
    plain = (header["tile"] == 1) & (header["rows"] == 1) & (header["streaming"] == 0)
    plain &= vector == vector[plain].max()
    return plain & (loop == loop[plain & (loop <= _STEPS)].max())


WITHIN: Mapping[str, Allowed] = {FULL: lambda rows: np.ones(len(rows), bool), DRAM: _in_dram, TEMPLATE: _as_template}
"""Variant of the ablation -> mask of the schedules of an operator's space that it may use.

The variant without graph transformation is missing: there, every node has its own space.
"""


def one_thread(name: str) -> Hardware:
    """Return a machine's CPU with one core in use; raise ValueError for a GPU."""
    hardware = machines.get(name)
    if hardware.kind != "cpu":
        raise ValueError(f"hardware={name}: the ablation of table intelligen is of C, expected a CPU")
    return dataclasses.replace(hardware, units=1)


def operators(config: DictConfig) -> list[Dataflow]:
    """Return the operators of the suite, at most `limit`."""
    return [fused_operator(text) for text in list(stand_in())[: config.limit]]


def ranked(graph: GirGraph, variant: str) -> np.ndarray:
    """Return the rows int32 [B, ROW] (schedules) that a variant may use, sorted by predicted seconds."""
    table = graph.table
    numbers = np.flatnonzero(table.reachable)
    numbers = numbers[np.argsort(table.seconds[numbers], kind="stable")]
    rows = table.rows(numbers)
    found: np.ndarray = rows[WITHIN[variant](rows)]
    return found


# By the model

def predicted(config: DictConfig) -> Table:
    """Make the table of every variant's fastest program on the model."""
    hardware, rows = one_thread(MODEL_OF), []
    for op in operators(config):
        graph = GirGraph(op, hardware)
        least = {name: graph.latency(GirSchedule(ranked(graph, name)[0])) for name in WITHIN}
        least[APART] = math.fsum(GirGraph(part, hardware).table.optimum[1] for part in chain_of(op).parts)
        rows.append((str(op), least[FULL], [least[name] / least[FULL] for name in VARIANTS]))
    title = f"An ablation of IntelliGen's steps on the model of one core of {MODEL_OF}"
    return _table(title, Stamp.PREDICTED, rows, ("The best of each variant's whole space by the model.",))


# Measured

def measured(config: DictConfig, folder: Path) -> Table:
    """Make the table of the fastest of a few programs of every variant, timed again alternately.

    Operators that are finished are not timed again.
    """
    hardware, trials = one_thread(config.hardware), config.trials or TRIALS
    same = {"trials": trials, "rounds": ROUNDS, "code": code_digest(), "device": processor_name()}
    rows = []
    file = folder / "intelligen_ablation.jsonl"
    with closing(get_backend("cpu", hardware)) as backend, Journal(file, ("key",), finite=True) as done:
        for op in operators(config):
            key = short_hash([PROTOCOL, str(op), same])
            rows.append(once(done, key, _measured, op, hardware, backend, trials, config))
    notes = (
        f"Ours: {processor_name()}, one thread, float32; of each variant the fastest of {trials} programs, those that the model "
        f"ranks first in its space, timed again in {ROUNDS} rounds in turns; every output verified. Slowdowns over all steps.",
    )
    shown = [
        (row["operator"], row["seconds"][FULL]["median"], [row["slowdown"][name]["median"] for name in VARIANTS]) for row in rows
    ]
    return _table(f"An ablation of IntelliGen's steps on one thread of {processor_name()}", Stamp.REPLICATED, shown, notes)


def _measured(op: Dataflow, hardware: Hardware, backend: Backend, trials: int, config: DictConfig) -> dict[str, Any]:
    """Time every variant of an operator; return a row with its seconds and slowdown. RuntimeError if an output is wrong."""
    store = config.store or str(Path(config.output) / "trials.sqlite")

    def fastest(part: Dataflow, variant: str) -> GirSchedule:
        session = Session(Task(part, hardware, backend, "gir"), Budget(trials=trials), store)
        graph: GirGraph = session.graph  # type: ignore[assignment]
        chosen: list[Any] = [graph.schedule(row) for row in ranked(graph, variant)[:trials]]
        session.measure(chosen)
        if session.best is None:
            raise RuntimeError(f"{part}: no program of {variant!r} ran well in {trials} trials: {session.first_error}")
        return session.best[0]  # type: ignore[return-value]

    drawn = random_inputs(op, np.random.default_rng(0))
    inputs = [placed(array, 0) for array in drawn]
    chosen = {name: fastest(op, name) for name in WITHIN}
    alike = {name: next(one for one in WITHIN if chosen[one] == schedule) for name, schedule in chosen.items()}
    calls = {name: _bound(op, chosen[name], hardware, inputs) for name, first in alike.items() if first == name}
    chain = chain_of(op)
    if len(chain.parts) > 1:
        calls[APART] = chain.bound({part: codegen.build(part, fastest(part, FULL), hardware) for part in chain.parts}, inputs)
    if faults := wrong(op, drawn, Ways(calls)):
        raise RuntimeError(f"{op}: {faults}")
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(seconds(call))
    for name in VARIANTS:  # variants with the same program, or with a single node, share a time
        samples.setdefault(name, samples[alike.get(name, FULL)])
    slowdown: dict[str, Interval] = {name: ratio(samples[name], samples[FULL]) for name in VARIANTS}
    spent = {name: interval(found) for name, found in samples.items()}
    schedules = {name: str(one) for name, one in chosen.items()}
    return {"operator": str(op), "seconds": spent, "slowdown": slowdown, "schedules": schedules}


def _bound(op: Dataflow, schedule: GirSchedule, hardware: Hardware, inputs: Sequence[np.ndarray]) -> Callable[[], Any]:
    outputs = [aligned(value.shape, np.dtype(np.float32)) for value in op.outputs]
    bound = codegen.build(op, schedule, hardware).bind(*inputs, *outputs)

    def call() -> list[np.ndarray]:
        bound()
        return outputs

    return call


# By the model and measured

def _table(title: str, stamp: Stamp, found: Sequence[tuple[str, float, list[float]]], notes: tuple[str, ...]) -> Table:
    """Make a table with a row for each operator and a row of geometric means.

    `found` has (operator, seconds with all steps, slowdown without each step).
    """
    rows: list[tuple[Cell, ...]] = [(op, seconds_text(spent), *slower) for op, spent, slower in found]
    means = np.exp(np.mean(np.log([slower for _, _, slower in found]), axis=0))
    rows.append((f"geometric mean of {len(found)}", None, *(float(mean) for mean in means)))
    said = (
        *notes,
        f"{APART}: each node, a line of the operator's text, is a kernel of its own, found like the others; {DRAM}: what several "
        f"passes read is loaded again, or ends its kernel where it is computed; {TEMPLATE}: every operator is made of vectors as "
        f"wide as there are, one a step, of one row, {_STEPS} rows a task, stored plainly. An operator of one node, or of which "
        "nothing crosses passes, is the same without that step.",
        "The suite is a stand-in. " + source(),
        "Published: whether the paper has an ablation, and of what, is not known to us.",
    )
    return Table(title, stamp, ("operator", f"time, {FULL}", *VARIANTS), tuple(rows), said)
