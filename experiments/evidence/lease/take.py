"""Copy the results of a lease home: `python -m experiments.evidence take FOLDER [DATE]`.

FOLDER holds the returned files. Their rows go to results/CARD/raw/DATE, gzipped, with a conditions.json of machine, revision and
date; the card names its folder. `python -m experiments.evidence results/CARD` then makes the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.settings import ROOT
from experiments.device.lease import RESULTS, read_results
from experiments.evidence.facts import FILE, RAW
from experiments.evidence.ship import slim, write_rows
from gensor_gym.foreign import parse_json
from gensor_gym.foreign.files import unfolded

CARDS = {"H100": "h100", "H200": "h200"}
"""Word in the driver's name of a GPU -> folder of results."""
COMMAND = "python3 -m experiments.gpu plan=lease"
ABOUT = {
    "first_contact": "kernels of families that no device had run", "proposals": "who proposed which kernel, in which order",
    "trials": "every kernel of the study, verified and timed", "together": "winners of the study and torch in interleaved rounds",
    "environment": "the environment on CuPy times", "known_trials": "programs of earlier days and today's first choices",
    "known_together": "the same beside torch, in interleaved rounds", "adaptive": "searches that learn from ten trials",
    "fused": "fused operators beside torch and a copy",
}  # fmt: skip
"""Name of a file of rows -> its description."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 2 if the folder has no results of a lease."""
    parser = Parser(prog="python -m experiments.evidence take", description=__doc__)
    parser.add_argument("folder", type=Path, help="what came back")
    parser.add_argument("date", nargs="?", default="", help="default: the day that the card says")
    args = parser.parse_args(arguments)
    return exit_code(lambda: print(f"taken to {take(args.folder, args.date)}"))


def take(folder: Path, date: str = "", results: Path = ROOT / "results") -> Path:
    """Unpack results into the folder of their card and day and return it; ValueError if it exists or there are no results."""
    files = read_results(folder / RESULTS)
    card: dict[str, Any] = parse_json(files["card.json"].decode())
    home = results / _card(card) / RAW / (date or str(card["date"])[:10])
    if not re.fullmatch(r"\d{4}-\d\d-\d\d.*", home.name):
        raise ValueError(f"date {home.name!r}: expected one such as 2026-11-26")
    if home.exists():
        raise ValueError(f"{home} is there already: name another date, such as {home.name}b")
    rows = {name.partition(".")[0]: _rows(name, data) for name, data in files.items() if ".jsonl" in name}
    made = [name for name, found in sorted(rows.items()) if found]
    for name in made:
        write_rows(home / f"{name}.jsonl.gz", map(slim, rows[name]))
    (home / FILE).write_text(json.dumps(_conditions(card, made), indent=1) + "\n", encoding="utf-8")
    return home


def _rows(name: str, data: bytes) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines, which is gzipped if its name says so; a torn last line is left out."""
    lines = (unfolded(data) if name.endswith(".gz") else data).decode().splitlines(keepends=True)
    return [parse_json(line, finite=False) for line in lines if line.endswith("\n")]


def _card(card: Mapping[str, Any]) -> str:
    """Folder of a GPU's results; ValueError for a GPU without one."""
    name = card["gpu"].get("name", "")
    found = next((folder for word, folder in CARDS.items() if word in name), None)
    if found is None:
        raise ValueError(f"the card is {name!r}: expected one of {', '.join(CARDS)}")
    return found


def _conditions(card: Mapping[str, Any], made: Sequence[str]) -> dict[str, Any]:
    """Facts about the machine, for pages."""
    gpu, packages, built = card["gpu"], card["packages"], card.get("archive", {})
    commit = str(built.get("revision") or card.get("commit") or "unknown")
    cuda = re.search(r"CUDA Version: *([\d.]+)", str(card.get("nvidia_smi", "")))
    return {
        "device": gpu["name"], "driver": gpu.get("driver_version", "unknown"), "cuda": cuda[1] if cuda else "unknown",
        "python": card["python"], "cupy": packages.get("cupy-cuda13x", "none"), "torch": packages.get("torch", "none"),
        "triton": packages.get("triton", "none"), "cores": card["cores"],
        "clocks": f"as found (at most {gpu.get('clocks.max.sm', 'unknown')})", "others": "nobody else on the card",
        "commit": commit, "date": str(card["date"]), "model": card.get("model", ""), "compiler": built.get("compiler", ""),
        "files": {f"{name}.jsonl.gz": {"command": COMMAND, "commit": commit, "about": ABOUT.get(name, name)} for name in made},
        "also": {},
    }  # fmt: skip
