"""Continue the training of a policy with measured rewards: `python -m experiments fine_tune checkpoint=FOLDER output=FOLDER`.

A policy trained on the model is trained further, with the same method, on operators of the train part whose kernels run quickly.
The training ends when a given number of distinct kernels has been measured (conf/fine_tune.yaml). Every measurement is written to
a store and to measured.jsonl, and the policy is saved after every update, so that the same command resumes a killed run.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.command import command
from agents.columns.policy import ColumnWriter
from agents.policies.card import CARD, checked_card
from agents.policies.training_tasks import is_current
from agents.runs.anytime import digest_of_policy
from agents.runs.files import make_folder, write_text
from agents.runs.journal import locked, read_rows
from agents.training.fine_tuning import columns, walk
from agents.training.fine_tuning.measured_reward import CURVE, Timings
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.foreign import read_json
from gensor_gym.locate import located
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.records.store import Store
from gensor_gym.operators.types import Operator

BEGUN, MEASURED = "begun.json", "measured.jsonl"
"""Files of a fine-tuning folder: the initial settings, and the measurements."""
FREE = ("measurements", "seconds", "store", "output", "hydra", "trust")
"""Settings that may differ when a fine-tuning is resumed."""


def chosen(config: DictConfig) -> list[Operator]:
    """Return the operators to measure: the configured ones without `leave_out`, each with at most `most_points` loop points.

    ValueError if one of them is not in the train part.
    """
    given: Any = config.operators if isinstance(config.operators, str) else list(config.operators)
    kept = [op for op in operators.resolve(given) if op.name not in config.leave_out]
    found = [op for op in kept if op.points <= config.most_points]
    others = sorted({operators.part_of(op) for op in found} - {"train"})
    if others or not found:
        raise ValueError(f"operators {config.operators}: expected operators of the train part, found {others or 'none'} as well")
    return found


def begin(config: DictConfig, device: str, folder: Path) -> None:
    """Record the initial settings of a fine-tuning in its folder.

    ValueError names the differences if the folder has measurements made with other settings.
    """
    settings: Any = OmegaConf.to_container(config)
    kept = {name: value for name, value in settings.items() if name not in FREE}
    now = {**kept, "policy": digest_of_policy(located(config.checkpoint)), "device": device}
    path = folder / BEGUN
    before = read_json(path, finite=False) if path.exists() and read_rows(folder / MEASURED) else now
    if other := [f"{name} {before.get(name)!r}, now {now[name]!r}" for name in now if before.get(name) != now[name]]:
        raise ValueError(
            f"{folder} holds a fine-tuning begun with {'; '.join(other)}: expected the same, or another output=FOLDER"
        )
    write_text(path, json.dumps(now, indent=1) + "\n")


def fine_tune(config: DictConfig, console: Console) -> dict[str, Any]:
    """Fine-tune a policy, write policy and card, and return the card.

    ValueError for a bad argument or a folder that another process uses.
    """
    folder, source = make_folder(config.output), located(config.checkpoint)
    with locked(folder):
        card = checked_card(source)
        if not is_current(card):
            why = "was trained on tasks whose fingerprints differ here: other rules or another model"
            raise ValueError(f"checkpoint {source} {why}")
        ops, hw = chosen(config), machines.get(config.env.hardware)
        backend = get_backend(config.env.backend, hw)
        begin(config, backend.device(hw), folder)
        store = Store(make_folder(Path(config.store).parent) / Path(config.store).name) if backend.stored else None
        timings = Timings(folder / MEASURED, backend, store)
        go_on = columns.learn if card["agent"] == ColumnWriter.agent else walk.learn
        with console.status(f"fine-tuning {source} on {backend.device(hw)}; curve in {folder / CURVE}"):
            steps, seconds = go_on(config, card, ops, hw, timings, folder)
        return _write_card(config, card, timings, folder, seconds, steps)


def _write_card(
    config: DictConfig, card: dict[str, Any], timings: Timings, folder: Path, seconds: float, steps: int
) -> dict[str, Any]:
    found = {
        "from": str(config.checkpoint), "digest": digest_of_policy(located(config.checkpoint)), "backend": timings.backend.name,
        "device": timings.backend.device(machines.get(config.env.hardware)), "reward": "measured", "split": "v1 train",
        "measurements": timings.spent, "failed": sum(row["seconds"] is None for row in timings.rows),
        "operators": sorted({row["operator"] for row in timings.rows}), "seconds": round(seconds, 1), "steps": steps,
        "trained_on_model_s": card["training_seconds"], "config": OmegaConf.to_container(config),
    }  # fmt: skip
    total = round(card["training_seconds"] + seconds, 1)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    whole = {**card, "training_seconds": total, "date": date, "fine_tuned": found}
    write_text(folder / CARD, json.dumps(whole, indent=1) + "\n")
    return whole


@command("fine_tune")
def main(config: DictConfig, console: Console) -> None:
    """Fine-tune with the settings of the command line, and print a summary."""
    found = fine_tune(config, console)["fine_tuned"]
    console.print(
        f"{found['measurements']} kernels measured ({found['failed']} failed) in {found['seconds']:.0f} s; policy and card in "
        f"{config.output}", highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
