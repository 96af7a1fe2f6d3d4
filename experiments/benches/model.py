"""How well the analytic model ranks programs of this machine, and fits of its coefficients or constants."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track

from experiments.benches.fitting import ranking
from experiments.benches.fitting.fit import COEFFICIENTS, CONSTANTS, Parameters, Sample, fit, loss
from experiments.benches.fitting.ranks import fastest, spearman, top_k_regret
from experiments.benches.fitting.timings import Timings
from experiments.benches.lines import Lines, machine, resolved
from gensor_gym import hardware, operators
from gensor_gym.cache.jsons import write_json
from gensor_gym.cost.terms import TERMS
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.measure.backend import get_backend

FITS = {"coefficients": COEFFICIENTS, "constants": CONSTANTS}


def run(config: DictConfig, emit: Lines) -> None:
    """Emit one line for each operator, one over all, and one for a fit if requested; or run the ranking benchmark."""
    if config.ranking:
        ranking.rank(config, emit)
        return
    settings = config.model
    if config.fit not in (None, *FITS):
        raise ValueError(f"fit {config.fit!r}: expected one of {', '.join(FITS)}, or null")
    hw = hardware.get("host")
    emit(kind="machine", **machine())
    train, held_out = (resolved(given) if given else [] for given in (settings.operators, settings.held_out))
    if config.fit and (unseen := [op for op in train if operators.part_of(op) == "test"]):
        raise ValueError(f"a fit sees the train and validation parts only; {unseen[0]} is of the test part")
    path = Path(settings.timings or Path(config.output) / "model_timings.jsonl")
    timings = Timings(path, get_backend("cpu", hw), hw, settings, config.seed)
    ops = track([*train, *held_out], "timing programs", console=Console(stderr=True))
    samples = [timings.sample(op) for op in ops]
    fitted_on, others = samples[: len(train)], samples[len(train) :]
    _score(fitted_on, settings.top_k, "model", "fitted on", emit)
    _score(others, settings.top_k, "model", "held out", emit)
    if not config.fit:
        return
    parameters = FITS[config.fit]
    values = fit([s for s in fitted_on if len(s.seconds) > 1], parameters)
    after = [s.with_values(parameters, values) for s in fitted_on]
    _score(after, settings.top_k, "fitted", "fitted on", emit)
    _score([s.with_values(parameters, values) for s in others], settings.top_k, "fitted", "held out", emit)
    entry = {
        "device": hw.source["name"], "date": datetime.date.today().isoformat(),
        "operators": [str(op) for op in train], "schedules": sum(len(s.seconds) for s in fitted_on),
        "loss_before": loss(fitted_on), "loss_after": loss(after),
    }  # fmt: skip
    _write(Path(settings.fits), config.fit, parameters, values, hw.name, entry)
    emit(kind="fit", file=Path(settings.fits).name, **entry)


def _write(path: Path, kind: str, parameters: Parameters, values: np.ndarray, name: str, entry: dict) -> None:
    """Write the fit in the form of the shipped cost/fits.json or cost/cpu_constants.json."""
    rounded = [float(f"{value:.4g}") for value in values]
    if kind == "coefficients":
        write_json(path, {name: {"coefficients": rounded, "terms": list(TERMS), **entry}})
    else:
        write_json(path, {"values": dict(zip(parameters.names, rounded, strict=True)), **entry})


def _score(samples: list[Sample], ks: list[int], name: str, group: str, emit: Lines) -> None:
    """Emit the ranking scores of each operator, and their means."""
    lines = []
    for sample in samples:
        op = sample.graph.operator
        about = {"model": name, "operator": str(op), "group": group, "part": operators.part_of(op)}
        if len(sample.seconds) < 3:
            emit(kind="operator", **about, error="fewer than three ran well")
            continue
        predicted = sample.predicted()
        fast = fastest(sample.seconds)
        lines.append(
            {
                "spearman": spearman(predicted, sample.seconds),
                "spearman_fastest": spearman(predicted[fast], sample.seconds[fast]),
                "measured_over_model": float(np.exp(np.median(np.log(sample.seconds / predicted)))),
                **{f"top_{k}_regret": top_k_regret(predicted, sample.seconds, k) for k in ks},
            }
        )
        emit(kind="operator", **about, schedules=len(sample.seconds), **lines[-1], fastest_s=fastest_by_knob(sample))
    if lines:
        means = {f"mean_{n}": float(np.nanmean([line[n] for line in lines])) for n in lines[0]}
        emit(kind="all", model=name, group=group, operators=len(lines), **means)


def fastest_by_knob(sample: Sample) -> dict[str, dict[int, float]]:
    """Seconds of the fastest timed program by knob and value, for knobs with several timed values."""
    found = {}
    for index, knob in enumerate(KNOBS):
        column = sample.rows[:, KNOB + index]
        if len(np.unique(column)) > 1:
            found[knob.name] = {knob.values[i]: float(sample.seconds[column == i].min()) for i in np.unique(column)}
    return found
