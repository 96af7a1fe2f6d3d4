"""Stage: the policy that was fine-tuned on this GPU against the traverser, on operators that no policy was trained on.

It compares what `python -m experiments.compare experiment=gpu_headline` does (conf/experiment/gpu_headline.yaml), with the policy
that stage `fine_tuning` left in the folder of the results, as far as its time goes: all operators with the first seed, then with
the next. Winners are timed together in interleaved rounds, with torch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments.device.context import Context
from experiments.device.stages.contests import run_contest
from experiments.device.stages.fine_tuning import FOLDER
from experiments.device.stages.standings import standings
from experiments.device.table import CONF, Contest, read_experiment
from experiments.device.work.fine_tuning_folder import summary

EXPERIMENT = CONF / "experiment" / "gpu_headline.yaml"
FILE = "headline.jsonl"
TUNED = "columns_fine_tuned"
"""The strategy with the policy of stage `fine_tuning`."""


def contest(out: Path) -> Contest:
    """What is compared, with the fine-tuned policy of a folder of results."""
    given = read_experiment(EXPERIMENT)
    registered, parameters = given.strategies[TUNED]
    tuned = (registered, {**parameters, "checkpoint": str(out / FOLDER)})
    return replace(given, strategies={**given.strategies, TUNED: tuned})


def run(context: Context) -> dict[str, object]:
    """Search, then time the winners together."""
    run_contest(context, contest(Path(context.out)), FILE)
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """What the rows say so far, and which policy was fine-tuned by how much."""
    found = standings(out / FILE, run, list(read_experiment(EXPERIMENT).strategies))
    return {"policy": summary(out / FOLDER, run), **found}
