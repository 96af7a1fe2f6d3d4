"""Record tables of timings: `python -m experiments record operator=... [space=compact] [machine=NAME] [output=FOLDER]`.

Every measurement is stored before the next begins, and the same command resumes after any stop. Each operator becomes a Parquet
file with a data card, in a folder with the description of the machine. `backend=recorded:FOLDER` reads such a folder. A folder
copied to `gensor_gym/recordings/` ships.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.cli.command import command_line, configured
from agents.cli.refusal import refusals
from agents.recording import record_table
from agents.recording.passes import Plan, Recording, backend_of
from agents.runs.files import make_folder, write_text
from agents.runs.journal import locked
from agents.runs.sheets.cells import NOTHING, count, percent, seconds
from agents.runs.sheets.sheet import Sheet
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.foreign import read_text
from gensor_gym.hardware.described import FILE
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records.store import Selection, Store
from gensor_gym.measure.records.tables import file_name


@dataclass(frozen=True)
class Settings:
    """Settings of a recording of several tasks, checked and resolved."""

    plans: tuple[Plan, ...]
    folder: Path
    store: Path
    measure: bool


def settings_of(config: DictConfig) -> Settings:
    """Check and resolve the settings of a recording, and make its folder. ValueError names an invalid setting."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    hw = machines.get(plain["hardware"])
    name = plain["machine"] or (_name_of(hw) if hw.name == "host" else hw.name)
    taken = name == "host" or (name in machines.names() and name != hw.name)
    if not re.fullmatch(r"[a-z0-9_]+", name) or taken:
        raise ValueError(f"machine {name!r}: expected a name of its own of small letters, digits and underscores")
    folder = make_folder(Path(plain["output"]) / name)
    hw = _described(replace(hw, name=name), folder / FILE)
    counts = {key: plain[key] for key in ("schedules", "passes", "samples", "anchor", "seed")}
    ops = dict.fromkeys(operators.resolve(plain["operators"]))
    plans = tuple(Plan(op, hw, plain["space"], **counts) for op in ops)
    return Settings(plans, folder, Path(plain["store"] or folder.parent / "trials.sqlite"), bool(plain["measure"]))


def record(settings: Settings, backend: NativeBackend | None, console: Console) -> list[dict[str, Any]]:
    """Measure the missing programs if there is a backend, then write one table per task; return the tables' descriptions."""
    store = Store(settings.store)
    found = []
    for plan in settings.plans:
        device = backend.device(plan.hardware) if backend is not None else _device_of(store, plan)
        with console.status(f"generating kernels of {plan.operator}"):
            recording = Recording(plan, store, device, settings.folder / f"{file_name(plan.operator)}.anchor.jsonl")
        if backend is not None:
            _measure(recording, backend, console)
        about = record_table.write(record_table.content_of(recording), settings.folder)
        console.print(f"{about['operator']}: written", soft_wrap=True, highlight=False)
        found.append(about)
    sheet = sheet_of(found)
    sheet.write(settings.folder / "tables")
    sheet.show(console)
    return found


def _measure(recording: Recording, backend: NativeBackend, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, speed_estimate_period=120) as progress:
        whole = recording.programs * recording.plan.passes
        bar = progress.add_task(str(recording.plan.operator), total=whole, completed=whole - recording.left)
        recording.run(backend, lambda _: progress.advance(bar))


def sheet_of(tables: Sequence[dict[str, Any]]) -> Sheet:
    """Summarise recorded tables as a table with one row each."""
    head = ("operator", "best", "schedules", "tied", "noise floor", "samples, at least", "complete", "space", "statuses")
    rows = []
    for about in tables:
        best = about["optimum"]
        found = (seconds(best["best_s"]), count(best["tied"]), percent(best["floor"])) if best else (NOTHING,) * 3
        statuses = ", ".join(f"{name} {many}" for name, many in about["statuses"].items())
        counts = count(about["schedules"]), count(about["samples"])
        whole = "yes" if about["complete"] else "no"
        rows.append((about["operator"], found[0], counts[0], *found[1:], counts[1], whole, about["space"], statuses))
    return Sheet.of("recorded", head, rows)


def _described(hw: Hardware, path: Path) -> Hardware:
    """Return the machine's description in a folder, which is written if it is missing.

    ValueError if the folder describes another machine. New rates differ a little from run to run, so that all tables of a folder
    use the first description.
    """
    if not path.exists():
        write_text(path, machines.to_json(hw))
        return hw
    known = machines.from_json(read_text(path))
    for name in ("name", "kind", "arch", "units", "lanes", "vector_registers"):
        if getattr(known, name) != getattr(hw, name):
            raise ValueError(
                f"{path} describes another machine ({name} {getattr(known, name)!r}, here {getattr(hw, name)!r}); "
                "name another one with machine=..."
            )
    return known


def _device_of(store: Store, plan: Plan) -> str:
    groups = store.summary(("device",), Selection(operator=str(plan.operator)))
    devices = [str(group.values[0]) for group in groups]
    if len(devices) != 1:
        raise ValueError(f"{store.path} has trials of {plan.operator} on {devices or 'no device'}: a table is of one")
    return devices[0]


def _name_of(hw: Hardware) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", hw.source.get("name", "host").lower()).strip("_")
    return f"{words}_{hw.units}c"


@configured("record")
def run(config: DictConfig) -> None:
    """Run the recording that a configuration describes, and print where its results are."""
    console = Console()
    with refusals():
        settings = settings_of(config)
        plan = settings.plans[0]
        with locked(settings.folder.parent), ExitStack() as stack:
            backend = backend_of(plan.hardware, plan.samples) if settings.measure else None
            if backend is not None:
                stack.callback(backend.close)
            record(settings, backend, console)
    console.print(f"Tables and cards are in {settings.folder}", soft_wrap=True, markup=False)


def main() -> None:
    """Run the recording with the settings of the command line."""
    command_line(run)
