"""Stage 4: coefficients of the model's terms fitted to the recorded tables; nothing runs on the device.

Written in the form of gensor_gym/cost/fits.json into the results, not into the package: whether a fit ships is a
decision. Every operator is also predicted by a fit to the others, which says what to expect of a new one.
"""

from __future__ import annotations

import datetime
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from experiments.benches.fitting.fit import COEFFICIENTS, Sample, fit, loss
from experiments.benches.fitting.ranks import spearman, top_k_regret
from experiments.common.journal import read_rows
from experiments.common.results import write_text
from experiments.device.context import Context
from experiments.device.stages.tables import FILE as RECORDED
from experiments.device.stages.tables import SPACE
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import TERMS
from gensor_gym.fingerprint import common, fingerprint
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status

FILE = "fits.json"
LEAST = 20
"""Programs of an operator without which it is left out."""
MOST = 250
"""Programs of an operator that the fit looks at."""


def run(context: Context) -> dict[str, object]:
    """Fit, score before and after and left out, write the file."""
    hw = hardware.get(context.hardware)
    samples, devices = recorded_samples(context.path(RECORDED), hw, context.seed)
    if len(samples) < 2:
        raise ValueError(f"a fit needs tables of two operators with {LEAST} programs each, there are {len(samples)}")
    before = [sample.with_values(COEFFICIENTS, np.ones(len(TERMS))) for sample in samples]
    coefficients = fit(before)
    after = [sample.with_values(COEFFICIENTS, coefficients) for sample in samples]
    left_out = _left_out(before, context)
    entry = {
        "coefficients": [round(float(c), 4) for c in coefficients],
        "terms": list(TERMS),
        "device": ", ".join(devices),
        "date": datetime.date.today().isoformat(),
        "fingerprint": common(fingerprint(sample.graph) for sample in samples),
        "operators": [str(sample.graph.operator) for sample in samples],
        "schedules": sum(len(sample.seconds) for sample in samples),
        "loss_before": loss(before),
        "loss_after": loss(after),
        "by_operator": {
            str(sample.graph.operator): {
                "schedules": len(sample.seconds),
                "before": _score(b),
                "after": _score(a),
                "left_out": _score(c) if c else None,
            }
            for sample, b, a, c in zip(samples, before, after, left_out, strict=True)
        },
    }
    write_text(context.path(FILE), json.dumps({hw.name: entry}, indent=1) + "\n")
    _draw(context, coefficients)
    return digest(Path(context.out), context.run)


def _draw(context: Context, coefficients: np.ndarray) -> None:
    """Model against measurement before and after the fit, as two figures, where the machine has matplotlib."""
    if find_spec("matplotlib") is None:
        return
    from experiments.tables import sim_to_real_figure as figure
    from experiments.tables.recorded import tables_of

    recorded = list(tables_of(context.path(RECORDED), context.hardware))
    figure.draw_times(recorded, coefficients, context.path("sim_to_real_times.png"))
    figure.draw_regret(recorded, coefficients, context.path("sim_to_real_regret.png"))


def recorded_samples(path: Path, hw: Hardware, seed: int) -> tuple[list[Sample], list[str]]:
    """Measured programs by operator, and the devices they were measured on. ValueError for the test part."""
    seconds: dict[str, dict[str, float]] = {}
    devices: set[str] = set()
    for row in read_rows(path):
        if row["status"] == Status.OK.value:
            seconds.setdefault(row["operator"], {})[row["schedule"]] = float(np.median(row["samples"]))
            devices.add(row["device"])
    if len(devices) > 1:
        raise ValueError(f"{path} mixes devices {sorted(devices)}: a fit is of one")
    samples = []
    for text, table in seconds.items():
        op = operators.parse(text)
        if operators.part_of(op) == "test":
            raise ValueError(f"a fit sees the train and validation parts only; {op} is of the test part")
        graph = ConstructionGraph(op, hw, SPACE, calibrated=False)
        legal = [(s, t) for s, t in ((Schedule.parse(s), t) for s, t in table.items()) if graph.is_legal(s)]
        chosen = np.random.default_rng(seed).permutation(len(legal))[:MOST]
        if len(chosen) >= LEAST:
            rows = graph.stack([legal[i][0] for i in chosen])
            samples.append(Sample(graph, rows, np.array([legal[i][1] for i in chosen])))
    return samples, sorted(devices)


def _left_out(samples: list[Sample], context: Context) -> list[Sample | None]:
    """Each operator under a fit to the others; None once the time is out."""
    found: list[Sample | None] = []
    for number, sample in enumerate(samples):
        others = samples[:number] + samples[number + 1 :]
        found.append(sample.with_values(COEFFICIENTS, fit(others)) if context.left > 0 else None)
    return found


def _score(sample: Sample) -> dict[str, float]:
    """How a model does on one operator: ranking and scale."""
    predicted = sample.predicted()
    return {
        "spearman": spearman(predicted, sample.seconds), "top_10_regret": top_k_regret(predicted, sample.seconds, 10),
        "measured_over_model": float(np.exp(np.median(np.log(sample.seconds / predicted)))),
    }  # fmt: skip


def digest(out: Path, run: str) -> dict[str, object]:
    """Mean rank correlation before, after, and of operators left out; the coefficients."""
    path = out / FILE
    if not path.exists():
        return {}
    (entry,) = read_json(path, finite=False).values()
    lines = entry["by_operator"].values()

    def mean(which: str, name: str) -> float | None:
        values = [line[which][name] for line in lines if line[which] and np.isfinite(line[which][name])]
        return float(np.mean(values)) if values else None

    names = [(which, name) for name in ("spearman", "top_10_regret") for which in ("before", "after", "left_out")]
    return {
        "coefficients": dict(zip(entry["terms"], entry["coefficients"], strict=True)),
        "schedules": entry["schedules"],
        **{f"{name}_{which}": mean(which, name) for which, name in names},
    }
