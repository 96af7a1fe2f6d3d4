"""Make the frozen file of a new suite version: what v1 was made by. A version that has results is never frozen again.

Tasks of unseen operators are the first of each class of split v2's test part in the order of a hash; the best known program is
the certified one, or the best of 48 coordinate descents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.incumbent import incumbent
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.coordinates import moved_knobs
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.tables import read_table
from gensor_gym.operators.shapes.splits import HELD_OUT

SEEDS = list(range(10))
SPACE = "gensor"
KNOWN, UNSEEN = "h200", ("rtx3090", "t4", "mi300x")
OF_A_CLASS, HELD, ON_A_MACHINE = 2, 6, 6
RESTARTS = 48
PLAYED = ("gemm(m=512, n=512, k=512)", "gemv(m=1000, k=2048)", "conv2d(n=1, c=512, h=7, w=7, k=512, r=3, s=3, padding=1)")


def frozen() -> dict[str, Any]:
    """The content of the file."""
    recorded, chosen = list(_recorded()), _chosen()
    unseen = [_modelled(op, KNOWN, "unseen class" if op.name == HELD_OUT else "seen class") for op in chosen]
    every = [_modelled(op, name, name) for name in UNSEEN for op in chosen[:: len(chosen) // ON_A_MACHINE][:ON_A_MACHINE]]
    played = [_modelled(operators.parse(text), KNOWN, "from scratch") for text in PLAYED]
    ten: dict[str, Any] = {"trials": 10, "evaluations": 131072, "seconds": 600.0}
    free, quick = {**ten, "evaluations": 1}, {"trials": 10, "evaluations": 262144, "seconds": 10.0}
    return {
        "few_trials": _track("ten programs timed, recorded real timings, the model may be asked", recorded, ten),
        "few_trials_no_model": _track("the same without the model", recorded, free, model=False),
        "unseen_operators": _track("operators far from all that may be trained on, and a class held out", unseen, quick),
        "unseen_machines": _track("machines that may not be trained on", every, quick),
        "from_scratch": _track("learn in the environment, from nothing", played, quick, steps=50_000),
    }


def _track(
    about: str, tasks: list[dict[str, Any]], budget: dict[str, Any], model: bool = True, steps: int | None = None
) -> dict[str, Any]:
    """One track, as JSON."""
    return {"about": about, "budget": budget, "model": model, "steps": steps, "seeds": SEEDS, "tasks": tasks}


def _chosen() -> list[operators.Operator]:
    """Some of every class; elementwise maps, of which any program is near the optimum, are left out."""
    found: dict[str, list[operators.Operator]] = {}
    order = sorted(operators.resolve("split/v2/test"), key=lambda op: hashlib.sha256(f"suite:{op}".encode()).hexdigest())
    for op in order:
        kept = found.setdefault(op.name, [])
        if op.name != "elementwise" and len(kept) < (HELD if op.name == HELD_OUT else OF_A_CLASS):
            kept.append(op)
    return [op for name in sorted(found) for op in found[name]]


def _modelled(op: operators.Operator, hardware: str, group: str) -> dict[str, Any]:
    """A task of the model's tier."""
    graph = ConstructionGraph(op, hardware, SPACE)
    certificate = certificate_of(graph)
    best = certificate.optimum if certificate else incumbent(graph, list(moved_knobs(graph.tables.ints)), RESTARTS)[1]
    return _task(graph, "analytic", "", float(best), certificate is not None, group)


def _recorded() -> Iterator[dict[str, Any]]:
    """A task for every shipped table that has a choice."""
    for path in sorted(RECORDINGS.glob("*/*.parquet")):
        table = read_table(path)
        seconds = [record.measurement.seconds for record in table.records]
        if len(seconds) < 200:
            continue  # any ten programs of so few hold a good one
        hardware, backend = machines.get(path.parent.name), f"recorded:{path.parent.name}/{path.stem}"
        graph = ConstructionGraph(table.about["operator"], hardware, table.about["space"])
        edition = RecordedBackend(path).edition
        yield _task(graph, backend, edition, min(seconds), True, "GPU" if hardware.kind == "gpu" else "CPU")


def _task(graph: ConstructionGraph, backend: str, edition: str, best: float, certain: bool, group: str) -> dict[str, Any]:
    """As `SuiteTask` has it."""
    return {
        "operator": str(graph.operator), "hardware": graph.hardware.name, "space": graph.space, "backend": backend,
        "fingerprint": fingerprint(graph), "edition": edition, "best": best, "certain": certain, "group": group,
    }  # fmt: skip
