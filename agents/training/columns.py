"""Train policies that write programs column by column (`agent=columns`), for `gensor train`.

The learner, which is not from stable-baselines3, plays whole episodes of `gensor_gym/Write-v0`. A written program counts as one
step, which is one evaluation of the model. Curves, validation, checkpoints and cards are those of all agents.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from agents.cli.checks import check_whole
from agents.cli.stopping import Stopped, asked, at_safe_points
from agents.columns.choices import SEES, Choices, is_joint
from agents.columns.learner import ColumnLearner
from agents.columns.policy import Memory, write
from agents.hybrids.timed_columns import TimedColumnLearner, tasks
from agents.learners.stored import POLICY
from agents.policies.training_tasks import bound
from agents.runs.journal import append_row
from agents.training.checkpoints import check_same
from agents.training.operators.chosen import added
from agents.training.operators.drawn import drawn_for
from agents.training.operators.variants import with_variants
from agents.training.state.archive import read_state, write_state
from agents.training.watch import CURVE, LAST, VALIDATION, Every, identity, keep_rows, over_floor, steps_in_all, training_bar
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import whole
from gensor_gym.hardware.drawn import drawn as drawn_machine
from gensor_gym.measure.records import measured
from gensor_gym.operators.types import Operator


def learn(config: dict[str, Any], folder: Path, console: Console) -> tuple[ColumnLearner, float, bool]:
    """Train a policy that writes columns, and save it; return (learner, processor seconds of training, whether it was resumed).

    Processor seconds do not include other work on the machine. ValueError names a bad setting.
    """
    if config["clone"] is not None:
        raise ValueError(f"clone is {config['clone']!r}; expected null: agent 'columns' begins without a teacher")
    if config["agent"].get("corrections") and not config["agent"].get("measured"):
        raise ValueError("agent.corrections need agent.measured, the machine of Measured v1 that they are of; got none")
    begin = time.process_time()
    rng = np.random.default_rng(config["seed"])
    given = list(operators.resolve(config["operators"]))
    known = with_variants(given, config["variants"], rng)
    drawn = drawn_for(config, rng)
    graphs = _tasks([*known, *drawn], config, rng)
    kind = TimedColumnLearner if config["agent"].get("measured") else ColumnLearner
    learner = kind(config["agent"], graphs, config["steps"], config["seed"])
    if not config["agent"].get("measured"):
        learner.shown &= set(map(str, [*given, *drawn]))  # variants are near the given operators, whose demonstrations suffice
    last = folder / LAST
    resumed = bool(config["resume"]) and last.exists()
    spent = _load(last, learner, config) if resumed else time.process_time() - begin
    keep_rows(folder, learner.num_timesteps)
    with training_bar(console) as progress, at_safe_points():
        batch = config["agent"]["tasks"] * config["agent"]["programs"]
        total = steps_in_all(learner.num_timesteps, config["steps"], batch)
        bar = progress.add_task("training", total=total, completed=learner.num_timesteps)
        seconds = _train(learner, config, folder, spent, lambda done: progress.update(bar, completed=done))
    whole(folder / POLICY, learner.save)
    return learner, seconds, resumed


def _tasks(ops: list[Operator], config: dict[str, Any], rng: np.random.Generator) -> list[ConstructionGraph]:
    """Make the graphs of the training tasks: those of the operators, or those of the machine `agent.measured` in Measured v1.

    `agent.unrecorded` operators are added: for a CPU from unrecorded classes, for a GPU from the given operators. With
    `agent.machines` every operator has a machine of its own, drawn near these machines.
    """
    if config["agent"].get("measured"):
        agent = {"unrecorded": 0, **config["agent"]}
        check_whole(agent, 0, "unrecorded", of="agent.")
        is_gpu = agent["measured"] in measured.names("gpu")
        more = list(rng.permutation(np.array(ops, dtype=object))) if is_gpu else []
        if agent["unrecorded"] and not is_gpu:
            more = [one.operator for one in added() if one.part == "unrecorded"]
        return tasks(agent["measured"], config["env"]["space"], more[: agent["unrecorded"]])
    names = config["agent"].get("machines")
    if not names:
        return _graphs(ops, config)
    known = [machines.get(name) for name in names]
    return [ConstructionGraph(op, drawn_machine(known, rng, f"drawn_{i}"), config["env"]["space"]) for i, op in enumerate(ops)]


def _graphs(ops: Any, config: dict[str, Any]) -> list[ConstructionGraph]:
    return [ConstructionGraph(op, config["env"]["hardware"], config["env"]["space"]) for op in ops]


def _train(
    learner: ColumnLearner, config: dict[str, Any], folder: Path, spent: float, show: Callable[[int], None]
) -> float:
    """Train the learner to the end, with curve, validation and checkpoints.

    Return the processor seconds of the training alone.
    """
    due = {name: Every(config[name]) for name in ("curve_every", "eval_every", "checkpoint_every")}
    for every in due.values():
        every.skip_to(learner.num_timesteps)
    judged = operators.resolve(config["eval_operators"]) if config["eval_every"] else []
    judges = [Choices(graph) for graph in _graphs(judged, config) if is_joint(graph)]
    while learner.num_timesteps < config["steps"]:
        begin = time.process_time()
        learner.rewards.append(learner.advance())
        spent += time.process_time() - begin
        steps = learner.num_timesteps
        show(steps)
        if due["curve_every"](steps) or (config["curve_every"] and steps >= config["steps"]):
            length = float(np.mean([len(choices.counts) for choices in learner.choices]))
            append_row(folder / CURVE, {"steps": steps, "mean_return": float(np.mean(learner.rewards)), "mean_length": length})
            learner.rewards = []
        if due["eval_every"](steps):
            append_row(folder / VALIDATION, {"steps": steps, **score(learner, judges, config)})
        stop = asked()
        if due["checkpoint_every"](steps) or stop:
            write_state(folder / LAST, _begun(config), {"seconds": spent, "state": learner.state()})
        if stop:
            raise Stopped
    return spent


def score(learner: ColumnLearner, judges: list[Choices], config: dict[str, Any]) -> dict[str, float]:
    """Compute the score `over_floor` on the validation tasks, with the best of `eval_episodes` programs for each."""
    rng, found = np.random.default_rng(config["seed"]), []
    for choices in judges:
        rows = write(learner.network, choices, config["eval_episodes"], Memory(1.0), rng)
        best = choices.graph.latencies(rows).min() if len(rows) else choices.graph.latency(choices.graph.initial())
        found.append((float(best), choices.graph))
    return over_floor(found)


def _load(path: Path, learner: ColumnLearner, config: dict[str, Any]) -> float:
    kept = read_state(path, lambda begun: check_same(path, begun, _begun(config)))
    learner.restore(kept["state"])
    return float(kept["seconds"])


def _begun(config: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a configuration and its tasks that a checkpoint must match."""
    return {**identity(config), "fingerprint": bound(config["operators"], config["env"])["fingerprint"], "sees": SEES}
