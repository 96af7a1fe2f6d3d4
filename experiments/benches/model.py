"""Benchmark of the analytic model on this machine: how well it ranks timed programs; also fits the model's parameters."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track

from agents.gensor.markov import MarkovExtended
from agents.runs.journal import Journal
from experiments.benches.lines import Lines, machine, resolved
from experiments.common.statistics import fastest, spearman, top_k_regret
from gensor_gym import hardware, operators
from gensor_gym.cache.jsons import write_json
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.constants import CPU_CONSTANTS
from gensor_gym.cost.terms import TERMS
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.graph.tables.tables import COEFFICIENT, CONSTANT
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.measurement import Status
from gensor_gym.operators.types import Operator

# Measured programs of operators in a file of JSON lines, from which the model can be scored and fitted on any machine.
#
# For each operator: random legal schedules, which cover the whole space, and programs spread over a construction's ranking,
# which cover the relevant part. Random schedules that are far too slow by the model are left out, as are kernels that failed.

SPACE = "extended"
TRIES = 50
"""Largest number of random draws per wanted schedule; after that many, the space counts as exhausted."""


class Timings:
    """File of timed programs; operators that it lacks are timed as conf/bench/model.yaml says."""

    def __init__(self, path: Path, backend: Backend, hw: Hardware, plan: DictConfig, seed: int) -> None:
        self.journal, self.backend, self.hardware, self.plan, self.seed = Journal(path, ()), backend, hw, plan, seed
        self.rows: dict[str, list[tuple[str, float]]] = {}
        for row in self.journal:
            self.rows.setdefault(row["operator"], []).append((row["schedule"], row["seconds"]))

    def sample(self, op: Operator) -> Sample:
        """Return the timed programs of an operator that are legal under the present rules.

        If the file has no program of the operator, programs are timed first.
        """
        graph = ConstructionGraph(op, self.hardware, SPACE)
        if str(op) not in self.rows:
            self.rows[str(op)] = self._measure(graph)
        pairs = [(Schedule.parse(text), seconds) for text, seconds in self.rows[str(op)]]
        legal = [(schedule, seconds) for schedule, seconds in pairs if graph.is_legal(schedule)]
        return Sample(graph, graph.stack([s for s, _ in legal]), np.array([seconds for _, seconds in legal]))

    def _measure(self, graph: ConstructionGraph) -> list[tuple[str, float]]:
        """Time programs of an operator, add them to the file and return (schedule, seconds) of each.

        A program's time is its fastest sample, because the model ignores other load.
        """
        schedules = list(dict.fromkeys(self._schedules(graph)))
        measured = zip(schedules, self.backend.measure(graph.operator, schedules, self.hardware), strict=True)
        pairs = [(str(s), min(m.samples)) for s, m in measured if m.status is Status.OK]
        self.journal.add(*({"operator": str(graph.operator), "schedule": text, "seconds": s} for text, s in pairs))
        return pairs

    def _schedules(self, graph: ConstructionGraph) -> list[Schedule]:
        """Choose the schedules to time: programs spread over a construction's ranking, denser at its top, then random ones."""
        rng = np.random.default_rng(self.seed)
        found = MarkovExtended().construct(graph, rng).schedules
        places = np.linspace(0.0, 1.0, self.plan.constructed) ** 2 * (len(found) - 1)
        chosen = [found[int(place)] for place in places]
        wanted = self.plan.constructed + self.plan.schedules
        for _ in range(TRIES * self.plan.schedules):
            if len(chosen) >= wanted:
                break
            schedule = graph.random_schedule(rng)
            if graph.latency(schedule) <= self.plan.slowest_s:
                chosen.append(schedule)
        return chosen


# Fits of the model to measured times: the coefficients of its terms, or the constants of the CPU model.  The loss averages two
# parts over operators: the variance of log(measured / model) within an operator, which is about ranking, and a tenth of the
# squared mean of that log, which is about scale. Programs near the fastest count most, since a search has to rank them: a
# program's weight is the square root of (fastest time / its time). A small multiple of the squared logs of (value / start) is
# added, so that a parameter without effect keeps its start value. The loss is minimised by coordinate search on the logs with
# shrinking steps, because there are few parameters, the model takes a microsecond, and its maxima are not differentiable.

STEPS = (0.7, 0.35, 0.17, 0.08, 0.04)
SCALE_WEIGHT = 0.1
PRIOR_WEIGHT = 0.003
LARGEST = 3.0
"""Bound on the absolute logarithm of a fitted coefficient."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of the model that a fit may change: names, start values and bounds, each array float64 [P].

    They are adjacent in the array `Tables.floats`, from index `place` on.
    """

    place: int
    names: tuple[str, ...]
    start: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def floats(self) -> slice:
        """Slice of the parameters in `Tables.floats`."""
        return slice(self.place, self.place + len(self.names))


_ONES = np.ones(len(TERMS))
COEFFICIENTS = Parameters(COEFFICIENT, TERMS, _ONES, _ONES * np.exp(-LARGEST), _ONES * np.exp(LARGEST))
CONSTANTS = Parameters(
    CONSTANT,
    tuple(constant.name for constant in CPU_CONSTANTS),
    *(np.array([getattr(constant, name) for constant in CPU_CONSTANTS]) for name in ("start", "low", "high")),
)


class OfOperator:
    """Base class of results about one operator, which is the operator of `graph`."""

    graph: ConstructionGraph

    @property
    def operator(self) -> str:
        """The operator's text."""
        return str(self.graph.operator)

    @property
    def part(self) -> str:
        """Part of the split (train, validation or test) that contains the operator."""
        return operators.part_of(self.graph.operator)


@dataclass(frozen=True)
class Sample(OfOperator):
    """Timed programs of one operator: their rows int32 [B, ROW] and seconds float64 [B]."""

    graph: ConstructionGraph
    rows: np.ndarray
    seconds: np.ndarray
    override: tuple[Parameters, np.ndarray] | None = None
    """(parameters, their values [P]) with which the model predicts instead of its own; None for its own."""

    def predicted(self) -> np.ndarray:
        """Return the seconds that the model predicts for the programs, float64 [B]."""
        if self.override is None:
            return self.graph.latencies(self.rows)
        parameters, values = self.override
        floats = self.graph.tables.floats
        before = floats[parameters.floats].copy()
        try:
            floats[parameters.floats] = values
            return self.graph.latencies(self.rows)
        finally:
            floats[parameters.floats] = before

    def with_values(self, parameters: Parameters, values: np.ndarray) -> Sample:
        """Return the same timings, for which the model predicts with these values of its parameters."""
        return replace(self, override=(parameters, values))


def loss(samples: list[Sample]) -> float:
    """Return how far the model's predictions are from the timings; smaller is better.

    For each operator, the errors are log(measured / predicted) of its programs; the operator's loss is their variance plus
    `SCALE_WEIGHT` times their squared mean. The result is the mean over operators. A program's weight is the square root of
    (fastest seconds / its seconds).
    """
    parts = []
    for sample in samples:
        if len(sample.seconds) > 1:
            errors = np.log(sample.seconds / sample.predicted())
            weights = np.sqrt(sample.seconds.min() / sample.seconds)
            mean = np.average(errors, weights=weights)
            parts.append(np.average((errors - mean) ** 2, weights=weights) + SCALE_WEIGHT * mean**2)
    return float(np.mean(parts))


def fit(samples: list[Sample], parameters: Parameters = COEFFICIENTS) -> np.ndarray:
    """Fit parameters of the model to timed programs by coordinate search and return their values, float64 [P].

    Raise ValueError without samples.
    """
    if not samples:
        raise ValueError("a fit needs measured programs; none ran well")
    start, low, high = (np.log(values) for values in (parameters.start, parameters.low, parameters.high))

    def cost(logs: np.ndarray) -> float:
        fitted = [sample.with_values(parameters, np.exp(logs)) for sample in samples]
        return loss(fitted) + PRIOR_WEIGHT * float(np.mean((logs - start) ** 2))

    logs = start.copy()
    best = cost(logs)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for at in range(len(logs)):
                for sign in (1.0, -1.0):
                    trial = logs.copy()
                    trial[at] = np.clip(trial[at] + sign * step, low[at], high[at])
                    value = cost(trial)
                    if value < best - 1e-9:
                        logs, best, improved = trial, value, True
    return np.exp(logs)


FITS = {"coefficients": COEFFICIENTS, "constants": CONSTANTS}


def run(config: DictConfig, emit: Lines) -> None:
    """Score the model on timed programs and, if requested, fit it; emit lines for each operator, over all and for the fit."""
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
    """Write the fitted values to a file of the same form as the shipped cost/fits.json or cost/cpu_constants.json."""
    rounded = [float(f"{value:.4g}") for value in values]
    if kind == "coefficients":
        write_json(path, {name: {"coefficients": rounded, "terms": list(TERMS), **entry}})
    else:
        write_json(path, {"values": dict(zip(parameters.names, rounded, strict=True)), **entry})


def _score(samples: list[Sample], ks: list[int], name: str, group: str, emit: Lines) -> None:
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
    """Return the seconds of the fastest program by knob and value of the knob; knobs with a single timed value are left out."""
    found = {}
    for index, knob in enumerate(KNOBS):
        column = sample.rows[:, KNOB + index]
        if len(np.unique(column)) > 1:
            found[knob.name] = {knob.values[i]: float(sample.seconds[column == i].min()) for i in np.unique(column)}
    return found
