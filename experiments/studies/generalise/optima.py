"""Certified optima of a study's tasks: shipped certificates, and new certificates in the study's folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from agents.runs.journal import append_row, read_rows
from agents.runs.pool import side_by_side
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, append_certificate, certify, read_certificates
from gensor_gym.exact.optimum import MOST_NODES
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.fingerprint import fingerprints
from gensor_gym.operators.types import Operator

NAME, REFUSED = "certificates.jsonl", "not_certified.jsonl"


def optima(
    operators: Sequence[Operator], hardware: str, space: str, folder: Path, workers: int, nodes: int = MOST_NODES
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """(certificates by operator, reasons for missing certificates by operator).

    Files of the folder are read and extended. A task that could not be certified with `nodes` nodes is not tried again.
    """
    now = fingerprints(operators, hardware, space)
    here = [(text, hardware, space, mark) for text, mark in now.items()]
    kept = [found for found in read_certificates(folder / NAME) if (*found.key, found.fingerprint) in here]
    known = {found.operator: found for found in kept}
    for text in now:
        if text not in known and (shipped := certificate_of(ConstructionGraph(text, hardware, space))) is not None:
            known[text] = shipped
    names = ("operator", "hardware", "space", "fingerprint")
    tried = [row for row in read_rows(folder / REFUSED) if row["nodes"] >= nodes and tuple(row[name] for name in names) in here]
    refused = {row["operator"]: row["why"] for row in tried}
    left = [text for text in now if text not in known and text not in refused]
    for text, found in side_by_side(partial(_certified, hardware, space, nodes), left, workers):
        if isinstance(found, Certificate):
            append_certificate(folder / NAME, found)
            known[text] = found
        else:
            refused[text] = found
            about = {"operator": text, "hardware": hardware, "space": space, "nodes": nodes}
            append_row(folder / REFUSED, {**about, "why": found, "fingerprint": now[text]})
    return {text: known[text] for text in now if text in known}, {text: refused[text] for text in now if text not in known}


def _certified(hardware: str, space: str, nodes: int, text: str) -> tuple[str, Certificate | str]:
    """(operator, its certificate or the reason for a missing one)."""
    try:
        return text, certify(ConstructionGraph(text, hardware, space), most_nodes=nodes)
    except ValueError as error:
        return text, str(error).splitlines()[0]
