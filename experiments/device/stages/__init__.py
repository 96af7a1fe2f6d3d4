"""What a run on a device does, stage by stage: correctness, libraries, tables, contests, fine-tuning. All are named here."""

from __future__ import annotations

from experiments.device.runner import Stage

STAGES = (
    Stage("correctness", "experiments.device.stages.correctness:run", 28.0, 20.0),
    Stage("operators", "experiments.device.stages.libraries:run", 170.0, 30.0),
    Stage("tables", "experiments.device.stages.recording:run", 163.0, 20.0),
    Stage("refit", "experiments.device.stages.refit:run", 6.0, 5.0),
    Stage("compare", "experiments.device.stages.strategies:run", 77.0, 20.0),
    Stage("policies", "experiments.device.stages.policies:run", 76.0, 20.0),
    Stage("fine_tuning", "experiments.device.stages.fine_tuning:run", 200.0, 60.0),
    Stage("headline", "experiments.device.stages.headline:run", 300.0, 60.0),
)
ASKED_FOR = ("fine_tuning", "headline")
"""Stages of minutes that are run where they are named."""
FRESH = {
    "correctness": "correctness.jsonl",
    "operators": "operators.jsonl",
    "refit": "fits.json",
    "compare": "results.jsonl",
    "policies": "policies.jsonl",
    "headline": "headline.jsonl",
}
"""Stage -> the file that it begins anew, unless a run is continued. Recorded tables and the fine-tuning are always continued."""
