"""A comparison that is a task of a multirun: its own folder, and a note for the final table (`sweep.py`)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.commands.hydra_folder import sweep_name, task_folder, task_number
from experiments.common.results import write_text
from experiments.common.settings import Settings, short_hash

NOTES, TASKS = "task-*.json", "tasks"


def own_folder(settings: Settings, config: DictConfig) -> Settings:
    """Settings whose folder no other task of the multirun uses: below `output`, unless `output` itself differs by task (`${..}`).

    A task times its winners in one process, because the winners of all tasks are timed again at the end.
    """
    if task_folder() is None:
        return settings
    settings = dataclasses.replace(settings, group=sweep_name(), processes=1)
    written: Any = OmegaConf.to_container(config, resolve=False)
    if written["output"] is None or "${" in str(written["output"]):
        return settings
    name = short_hash([{**job.config, "code": ""} for job in settings.jobs])
    return dataclasses.replace(settings, output=settings.output / TASKS / name)


def leave_note(settings: Settings) -> None:
    """Write a note about the folder of this task's results, if it is a task of a multirun."""
    if (folder := task_folder()) is not None:
        places = {"output": str(settings.output.resolve()), "store": str(settings.store.resolve())}
        note = {"config": settings.config, "group": settings.group, **places}
        write_text(folder / f"task-{task_number()}.json", json.dumps(note))
