"""What a run on a device does, stage by stage, each by the function `run` of the module of its name. All are named here."""

from __future__ import annotations

from experiments.device.runner import Stage


def _stage(name: str, weight: float, least: float, folder: str = __name__) -> Stage:
    """The stage of a module, by its name."""
    return Stage(name, f"{folder}.{name}:run", weight, least)


STAGES = (
    _stage("correctness", 26.0, 20.0),
    _stage("operators", 176.0, 30.0),
    _stage("tables", 163.0, 20.0),
    _stage("refit", 6.0, 5.0),
    _stage("compare", 80.0, 20.0),
    _stage("policies", 76.0, 20.0),
    _stage("fused", 120.0, 30.0),
    _stage("fine_tuning", 200.0, 60.0),
    _stage("environment", 75.0, 20.0, "experiments.device.lease.stages"),
    _stage("headline", 300.0, 60.0),
)
ASKED_FOR = ("fused", "fine_tuning", "environment", "headline")
"""Stages of minutes that are run where they are named."""
FRESH = {
    "correctness": "correctness.jsonl",
    "operators": "operators.jsonl",
    "refit": "fits.json",
    "compare": "results.jsonl",
    "policies": "policies.jsonl",
    "fused": "fused.jsonl",
    "environment": "environment.jsonl",
    "headline": "headline.jsonl",
}
"""Stage -> the file that it begins anew, unless a run is continued. Recorded tables and the fine-tuning are always continued."""
