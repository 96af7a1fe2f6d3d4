"""Certified optima of a study's tasks: shipped certificates, and missing ones certified into the study's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agents.runs.journal import append_row, read_rows
from agents.runs.pool import side_by_side
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, append_certificate, certify, read_certificates
from gensor_gym.exact.optimum import MOST_NODES
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.fingerprint import fingerprints
from gensor_gym.operators import parse

NAME, REFUSED = "certificates.jsonl", "not_certified.jsonl"
Key = tuple[str, str, str]
"""(operator, hardware, space), as text."""


@dataclass(frozen=True)
class Wanted:
    """A task whose optimum is wanted."""

    operator: str
    hardware: str
    space: str
    nodes: int
    """Number of nodes after which the search gives up."""

    @property
    def key(self) -> Key:
        """Key of the task, equal to the key of its certificate."""
        return self.operator, self.hardware, self.space


def optima(
    operators: Sequence[str], hardware: str, space: str, folder: Path, workers: int, nodes: int = MOST_NODES
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """(certificates by operator, reasons for missing ones by operator).

    Files of the folder are read and extended. A task that could not be certified with `nodes` nodes is not tried again.
    """
    wanted = [Wanted(operator, hardware, space, nodes) for operator in dict.fromkeys(operators)]
    parsed = [(text, parse(text)) for text in operators]
    marks = fingerprints((op for _, op in parsed), hardware, space)
    now = {text: marks[str(op)] for text, op in parsed}
    known = {c.key: c for c in read_certificates(folder / NAME) if c.fingerprint == now.get(c.operator)}
    refused = _refused(folder / REFUSED, nodes, now)
    for task in wanted:
        if task.key not in known and (shipped := certificate_of(ConstructionGraph(*task.key))) is not None:
            known[task.key] = shipped
    left = [task for task in wanted if task.key not in known and task.key not in refused]
    for task, found in side_by_side(_certified, left, workers):
        if isinstance(found, Certificate):
            append_certificate(folder / NAME, found)
            known[task.key] = found
        else:
            refused[task.key] = found
            append_row(folder / REFUSED, {**asdict(task), "why": found, "fingerprint": now[task.operator]})
    return (
        {task.operator: known[task.key] for task in wanted if task.key in known},
        {task.operator: refused[task.key] for task in wanted if task.key not in known},
    )


def _certified(task: Wanted) -> tuple[Wanted, Certificate | str]:
    """(task, its certificate or the reason for a missing one)."""
    try:
        return task, certify(ConstructionGraph(*task.key), most_nodes=task.nodes)
    except ValueError as error:
        return task, str(error).splitlines()[0]


def _refused(path: Path, nodes: int, now: Mapping[str, str]) -> dict[Key, str]:
    """Reasons by task for certificates that at least `nodes` nodes could not prove; `now` has the fingerprints by operator."""
    kept = [row for row in read_rows(path) if row["nodes"] >= nodes and row["fingerprint"] == now.get(row["operator"])]
    return {(row["operator"], row["hardware"], row["space"]): row["why"] for row in kept}


def split_of(operators: Sequence[str]) -> tuple[list[str], list[str]]:
    """(operators whose optimum is wanted, operators left out). Elementwise maps are left out: their spaces are too large."""
    out = [text for text in operators if text.startswith("elementwise(")]
    return [text for text in operators if text not in out], out
