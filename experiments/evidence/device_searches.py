"""Searches that ran on the device itself: stages `compare` and `policies` of `make gpu`."""

from __future__ import annotations

from pathlib import Path

from experiments.common.journal import read_rows
from experiments.device.report import contest_lines
from experiments.device.stages.standings import standings
from experiments.evidence.facts import RAW, Facts
from gensor_gym import operators

COMPARE, POLICIES = "results.jsonl.gz", "policies.jsonl.gz"
PAGE = "device_searches.md"
FIRST = "markov"
"""The strategy that the others are compared with."""


def write(folder: Path, facts: Facts) -> list[str]:
    """Write the page; returns its name."""
    lines = [
        "# Searches on the device", "", facts.head, "",
        "Every strategy had the same number of trials, as far as the stage's time went; the winners were timed again together, "
        "in interleaved rounds, with torch beside them. These are few operators and few trials, before the mends: "
        "an interval that contains 1 tells nothing apart.", "",
        "## Strategies", "", *_contest(folder, COMPARE, facts), "",
        "## Policies", "", *_contest(folder, POLICIES, facts), "",
        "Policies are those of agents/data/policies, trained on the model of an H200.", "",
        "Not run: the seeds and operators that the stage's time cut off (named above), any of it with the mends in, strategies "
        "other than these.",
    ]  # fmt: skip
    (folder / PAGE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [PAGE]


def _contest(folder: Path, name: str, facts: Facts) -> list[str]:
    """What one stage found."""
    rows = read_rows(folder / RAW / name)
    (run,) = {row["run"] for row in rows}
    searches = [row for row in rows if row["kind"] == "search"]
    names = sorted(dict.fromkeys(row["strategy"] for row in searches), key=lambda name: name != FIRST)
    parts = [f"`{op}` {operators.part_of(operators.parse(op))}" for op in dict.fromkeys(row["operator"] for row in searches)]
    most = max(row.get("trials", 0) for row in searches)
    return [
        facts.source(name), "", f"At most {most} trials a search. Parts of the split: {', '.join(parts)}.", "",
        *contest_lines(standings(folder / RAW / name, run, names)),
    ]  # fmt: skip
