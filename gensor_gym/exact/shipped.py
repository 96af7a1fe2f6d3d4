"""Certificates that ship with the package, and regret relative to them."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost import model
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.exact.certificate import Certificate, read_certificates
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.compiled import plain
from gensor_gym.locate import ROOT


def folder() -> Path:
    """Return the folder of the certificates: $GENSOR_GYM_CERTIFICATES if it is set, else the folder in the package."""
    chosen = os.environ.get("GENSOR_GYM_CERTIFICATES")
    return Path(chosen) if chosen else ROOT / "gensor_gym" / "data" / "certificates"


def certificate_of(graph: ConstructionGraph) -> Certificate | None:
    """Return the shipped certificate of a task; None if it is missing, or if it is for other rules or another model.

    The fingerprint must match, and the certified schedule must still be legal and take the certified time, to the last bit. One
    check alone does not suffice if a machine has the name of another, or if a graph was made without calibration.
    """
    found = _certificates(folder()).get((str(graph.operator), graph.hardware.name, graph.space))
    if found is None or found.fingerprint != fingerprint(graph):
        return None
    row, terms = plain(found.best.row)[None], np.empty((1, 1 + NUM_TERMS))
    model.fill_terms(row, graph.tables.ints, graph.tables.floats, graph.room(), terms)
    return found if graph.fits(row)[0] and terms[0, 0] == found.optimum else None


def certificates_of(hardware: str, space: str) -> list[Certificate]:
    """Return the valid shipped certificates of a machine and a space, in the order of the files."""
    found = [one for one in _certificates(folder()).values() if (one.hardware, one.space) == (hardware, space)]
    return [one for one in found if certificate_of(ConstructionGraph(*one.key)) is not None]


def regret_of(latency: float, certificate: Certificate) -> float:
    """Return log(latency / optimum) for a latency in seconds: 0 for an optimal program."""
    return math.log(latency / certificate.optimum)


@cache
def _certificates(where: Path) -> dict[tuple[str, str, str], Certificate]:
    """Return the last certificate of each (operator, hardware, space) in the files *.jsonl of a folder."""
    files = sorted(where.glob("*.jsonl")) if where.is_dir() else []
    return {certificate.key: certificate for path in files for certificate in read_certificates(path)}
