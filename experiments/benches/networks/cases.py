"""Networks timed against peers, case by case. A second start with the same settings resumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agents.runs.journal import Journal
from agents.runs.settings import code_digest, short_hash
from experiments.benches.fused.process import OURS
from experiments.benches.fused.race import CALLED, Lost, raced
from experiments.benches.fused.suite import versions_of
from experiments.benches.lines import Steal, once
from experiments.comparison.summary import interval, ratio

MODULE = "experiments.benches.networks.process"
PROTOCOL = 3
"""Version of the timing; raised with each change, so that networks are timed again."""
_OF_RACE = ("limit_s", "rounds", "enough_s", "most_bytes")
"""Settings that are not sent to the sides."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A network of `experiments.networks.suite`, a batch size, and the peers.

    A side is a library, or `ours/PLAN/ARENA` for our compiler with another plan and memory layout.
    """

    network: str
    batch: int
    sides: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """Settings of timing and of compiling our side, the same for all cases; conf/bench.yaml explains them."""

    trials: int
    rounds: int
    threads: int
    plan: str
    """Plan of `ours`: the name of a rule in `gensor_gym.networks.fusion.rules`."""
    seed: int = 0
    arena: str = "hot"
    dtype: str = "float32"
    """Data type of weights and inputs."""
    limit_s: float = 3600.0
    enough_s: float = float("inf")
    """Seconds after which no further round begins, except the first few rounds."""
    most_bytes: float = float("inf")
    """Most memory that all processes of a case may need at once; larger cases fail with an error in their row."""


def timed(cases: Iterable[Case], settings: Settings, folder: Path) -> Iterator[Row]:
    """Yield a row for each case; `folder` keeps finished rows. A failed case has an `error` and is timed again the next time."""
    same = {name: value for name, value in asdict(settings).items() if name != "limit_s"}
    with Journal(folder / "networks" / "done.jsonl", ("key",), finite=True) as done:
        for case in cases:
            key = short_hash([PROTOCOL, asdict(case), str(same), versions_of(case.sides), code_digest()])
            yield once(done, key, _timed, case, settings, folder / "networks" / "inductor")


def _timed(case: Case, settings: Settings, cache: Path) -> Row:
    """Time one case and return its row."""
    row: Row = {"network": case.network, "batch": case.batch, "threads": settings.threads}
    row |= {"dtype": settings.dtype} if settings.dtype != "float32" else {}
    asked = {name: value for name, value in asdict(settings).items() if name not in _OF_RACE}
    most = settings.most_bytes / (1 + len(case.sides))
    asked |= {"network": case.network, "batch": case.batch, "most_bytes": most if most < float("inf") else None}
    steal = Steal()
    try:
        sides = [OURS, *case.sides]
        found = raced(sides, asked, settings.rounds, settings.limit_s, cache, MODULE, settings.enough_s)
    except Lost as error:
        return {**row, "error": str(error)}
    row |= {"missing": found["missing"], "out_of_bounds": found["out_of_bounds"], **found["answers"].pop(OURS)}
    row["sides"] = {side: facts for side, facts in found["answers"].items() if facts}
    samples = {side: [*ways[CALLED]] for side, ways in found["samples"].items()}
    row |= {"times": {side: interval(values) for side, values in samples.items()}, "samples": samples}
    row["over"] = {side: ratio(values, samples[OURS]) for side, values in samples.items() if side != OURS}
    return row | {"waiting_busy": found["waiting_busy"], "stolen": steal.share()}
