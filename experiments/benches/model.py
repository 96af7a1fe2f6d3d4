"""How well the analytic model ranks programs of this machine, and the fit of its coefficients."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from experiments.benches.fit import Sample, fit, loss
from experiments.benches.lines import Lines, machine
from experiments.benches.ranks import spearman, top_k_regret
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import TERMS
from gensor_gym.hardware.cache import write_json
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator


def run(config: DictConfig, emit: Lines) -> None:
    """One line for each operator, one over all, and one of the fit where it is asked for."""
    settings = config.model
    hw = hardware.get("host")
    emit(kind="machine", **machine())
    shapes = settings.operators if isinstance(settings.operators, str) else list(settings.operators)
    ops = operators.resolve(shapes)
    if config.fit:
        _check(ops)
    store = settings.store or str(Path(config.output) / "model.sqlite")
    samples = [_measured(op, settings.schedules, config.seed, store) for op in ops]
    _score(samples, settings.top_k, "model", emit)
    if config.fit:
        coefficients = fit([s for s in samples if len(s.seconds) > 1])
        fitted = [s.with_coefficients(coefficients) for s in samples]
        _score(fitted, settings.top_k, "fitted", emit)
        entry = {
            "coefficients": [round(float(c), 4) for c in coefficients], "terms": list(TERMS),
            "device": hw.source["name"],
            "date": datetime.date.today().isoformat(), "operators": [str(op) for op in ops],
            "schedules": sum(len(s.seconds) for s in samples), "loss_before": loss(samples), "loss_after": loss(fitted),
        }  # fmt: skip
        write_json(Path(settings.fits), {hw.name: entry})
        emit(kind="fit", file=str(settings.fits), **entry)


def _check(ops: list[Operator]) -> None:
    """ValueError when an operator of the test part is among those of a fit."""
    for op in ops:
        if operators.part_of(op) == "test":
            raise ValueError(f"a fit sees the train and validation parts only; {op} is of the test part")


def _measured(op: Operator, count: int, seed: int, store: str) -> Sample:
    """Random legal schedules, measured or answered by the store; those that are not OK are left out."""
    hw = hardware.get("host")
    session = Session(Task(op, hw, get_backend("cpu", hw), "extended"), Budget(trials=count), store)
    rng = np.random.default_rng(seed)
    schedules = [session.graph.random_schedule(rng) for _ in range(count)]
    pairs = [
        (s, m.seconds) for s, m in zip(schedules, session.measure(schedules), strict=True) if m.status is Status.OK
    ]
    graph = ConstructionGraph(op, hw, "extended", calibrated=True)
    return Sample(graph, graph.stack([s for s, _ in pairs]), np.array([seconds for _, seconds in pairs]))


def _score(samples: list[Sample], ks: list[int], name: str, emit: Lines) -> None:
    """A line for each operator and one over all."""
    lines = []
    for sample in samples:
        if len(sample.seconds) < 3:
            emit(kind="operator", model=name, operator=str(sample.graph.operator), error="fewer than three ran well")
            continue
        predicted = sample.predicted()
        lines.append(
            {
                "spearman": spearman(predicted, sample.seconds),
                "measured_over_model": float(np.exp(np.median(np.log(sample.seconds / predicted)))),
                **{f"top_{k}_regret": top_k_regret(predicted, sample.seconds, k) for k in ks},
            }
        )
        emit(
            kind="operator", model=name, operator=str(sample.graph.operator), schedules=len(sample.seconds), **lines[-1]
        )
    names = ("spearman", *(f"top_{k}_regret" for k in ks))
    emit(
        kind="all", model=name, **{f"mean_{n}": float(np.nanmean([line[n] for line in lines])) for n in names if lines}
    )
