"""Sections of a page about a run on a GPU. `python -m experiments.evidence take FOLDER` copies a run's results to results/."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from agents.runs.texts import table
from experiments.common.statistics import geometric_mean
from experiments.common.style import GREY, PALETTE, RC, save
from experiments.device.lease import RESULTS, read_results
from experiments.device.stages import adaptive
from experiments.device.stages.operators import conclusions, standings
from experiments.device.table import read_experiment
from experiments.evidence.facts import FILE, RAW, RIGHT, lines_by_unit
from experiments.evidence.ship import slim, write_rows
from gensor_gym.foreign import parse_json
from gensor_gym.foreign.files import unfolded

ARMS = {
    "known": "known", "candidates": "first choices", "pingpong": "ping-pong", "producer": "producer", "tma_store": "TMA store",
    "pingpong_tma_store": "ping-pong, TMA store",
}  # fmt: skip
"""Arm of programs of operators timed before -> what the page calls its fastest one."""
CONTACTS = ("first_look_contact", "first_contact")
Row = Mapping[str, Any]


def lines_of(day: Path, figures: str) -> list[str]:
    """Return the sections of a day's page about a run on a GPU, as Markdown lines; a section without its file is omitted.

    `day` is the folder of the raw files, and `figures` the prefix of the figures' names.
    """
    return [*_environment(day, figures), *_contacts(day), *_known(day), *_adaptive(day), *_fused(day)]


def draw(day: Path, path: Path) -> list[str]:
    """Draw the figure of the agent that learned on a day, if there was one; return its file name in a list."""
    learned = _learned(day)
    if not learned:
        return []
    with plt.rc_context(RC):
        return [save(_curve(learned), path.with_name(f"{path.name}_environment.png"))]


def _rows(day: Path, name: str) -> list[Row]:
    return list(read_rows(day / f"{name}.jsonl.gz"))


def _learned(day: Path) -> list[Row]:
    return [row for row in _rows(day, "environment") if row["kind"] == "learned"]


def _environment(day: Path, figures: str) -> list[str]:
    rows, learned = _rows(day, "environment"), _learned(day)
    if not learned:
        return []
    parts = {row["key"]: row for row in rows if row["kind"] == "part"}
    quarter = len(learned) // 4
    quarters = [learned[at : at + quarter] for at in range(0, 4 * quarter, quarter)]
    medians = ", ".join(f"{1e6 * statistics.median(row['runtime_s'] for row in part):.2f}" for part in quarters)
    best = min(row["runtime_s"] for row in learned)
    programs = [row for row in rows if row["kind"] == "program"]
    user = parts.get("user", {})
    failed = [name for name, said in user.items() if isinstance(said, dict) and "failed" in said]
    return [
        "## The environment on kernel times", "",
        f"MaskablePPO of sb3-contrib by its defaults but for the learning rate, 32 environments of `gensor_gym/Write-v0` with "
        f'`backend="cuda"`, `gemm(m=1024, n=1024, k=1024, dtype="float16")`, from nothing: {len(learned)} episodes in '
        f"{learned[-1]['wall_s']:.0f} s, {len(learned) / learned[-1]['wall_s']:.1f} terminal rewards a second, of which "
        f"{len(programs)} different programs were compiled, verified and timed and the others recalled. Median microseconds of "
        f"its quarters: {medians}; the fastest {1e6 * best:.2f}. The front door with six trials of `markov_ext` found "
        f"{1e6 * user.get('measured_s', math.nan):.2f}.", "",
        f"![microseconds of every episode over seconds]({figures}_environment.png)", "",
        "A kernel that was found was called, bound, captured in a CUDA graph and exported; what failed: "
        f"{', '.join(failed) or 'nothing'}.", "",
    ]  # fmt: skip


def _curve(learned: Sequence[Row]) -> Figure:
    ran = [row for row in learned if math.isfinite(row["runtime_s"])]
    seconds, micros = [row["wall_s"] for row in ran], [1e6 * row["runtime_s"] for row in ran]
    width = 64
    middle = [float(np.median(micros[max(0, at - width) : at + 1])) for at in range(len(micros))]
    figure, axes = plt.subplots(figsize=(8.0, 3.4))
    axes.plot(seconds, micros, ".", ms=3, color=GREY, alpha=0.5, label="an episode")
    axes.plot(seconds, middle, color=PALETTE[0], lw=1.8, label=f"median of the last {width}")
    axes.plot(seconds, np.minimum.accumulate(micros), color=PALETTE[1], lw=1.4, label="fastest so far")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("seconds, compilation and timing included")
    axes.set_ylabel("kernel, us")
    axes.legend(loc="upper right")
    return figure


def _contacts(day: Path) -> list[str]:
    rows = {row["digest"]: row for name in CONTACTS for row in _rows(day, name)}
    if not rows:
        return []
    lost = ", ".join(f"`{op}`" for op in sorted({row["operator"] for row in rows.values() if row["status"] == "CRASHED"}))
    right = sum(row["status"] in RIGHT for row in rows.values())
    wrong = sum(row["status"] == "WRONG_ANSWER" for row in rows.values())
    return [
        "## Kernels that no device had run", "",
        f"{right} of {len(rows)} are right, {wrong or 'none'} wrong. "
        f"Those that crashed are all that took rows of B in groups ({lost}): boxes of a tensor map begin at multiples "
        "of 16 bytes, and theirs did not.", "",
        *lines_by_unit(list(rows.values()), "crashed", "CRASHED"), "",
    ]  # fmt: skip


def _known(day: Path) -> list[str]:
    together = [row for row in _rows(day, "known_together") if "samples" in row]
    proposals = [row for row in _rows(day, "proposals") if row["group"] == "known"]
    arms, cells = [arm for arm in ARMS if any(row["arm"] == arm for row in proposals)], []
    for row in together:
        medians = {name: 1e6 * statistics.median(values) for name, values in row["samples"].items()}
        by_arm = {
            arm: min((medians[p["digest"]] for p in proposals
                      if p["operator"] == row["operator"] and p["arm"] == arm and p["digest"] in medians), default=math.nan)
            for arm in arms
        }  # fmt: skip
        torch = min(value for name, value in medians.items() if name.startswith("torch"))
        ours = min(value for name, value in medians.items() if not name.startswith("torch"))
        numbers = ("" if math.isnan(value) else f"{value:.1f}" for value in (*by_arm.values(), torch))
        cells.append((f"`{row['operator']}`", *numbers, f"{torch / ours:.2f}"))
    if not cells:
        return []
    mean = geometric_mean(float(cell[-1]) for cell in cells)
    return [
        "## Programs of earlier days", "",
        "The fastest of three programs that an H100 ran fastest on an earlier day, the fastest of six first choices of today, "
        f"and torch's faster layout, in interleaved rounds: {len(cells)} operators, torch's time over ours {mean:.2f} in the "
        "geometric mean.", "",
        *table(("operator", *(f"{ARMS[arm]} us" for arm in arms), "torch us", "torch / ours"), cells), "",
    ]  # fmt: skip


def _adaptive(day: Path) -> list[str]:
    rows = _rows(day, "adaptive")
    if not rows:
        return []
    names = list(read_experiment(adaptive.EXPERIMENT).strategies)
    found: Any = standings([row for row in rows if row["run"] == rows[-1]["run"]], names)
    missing = ", ".join(f"`{name}` ({text})" for name, text in found["not_run"].items())
    means = [(f"`{name}`", f"{mean:.2f}", str(found["winners_of_the_means"][name]))
             for name, mean in found["geomean_over_torch"].items()]  # fmt: skip
    return [
        "## Searches that learn from ten trials", "", *(f"- {said}" for said in conclusions(found["over_first"])), "",
        *table(("strategy", "torch's time over its", "operators"), means), "",
        f"Not run: {missing or 'nothing'}. Searches whose time ended count nowhere.", "",
    ]  # fmt: skip


def _fused(day: Path) -> list[str]:
    rows = [row for row in _rows(day, "fused") if "over_torch" in row]
    if not rows:
        return []
    cells = [(row["key"], f"`{row['operator']}`", f"{row['over_torch']:.2f}", f"{row['of_copy']:.2f}") for row in rows]
    mean = geometric_mean(row["over_torch"] for row in rows)
    return [
        "## Fused operators", "",
        f"The fastest of twelve programs that the model ranks first, compared with the faster of torch and torch.compile: "
        f"{mean:.2f} in the geometric mean.", "",
        *table(("name", "operator", "torch's time over ours", "of a copy's bandwidth"), cells), "",
    ]  # fmt: skip


# Copy the results of a run to results/: `python -m experiments.evidence take FOLDER [DATE]`.
#
# FOLDER holds the returned files. Their rows go to results/CARD/raw/DATE, gzipped, with a conditions.json of machine, revision
# and date; CARDS has the folder of each GPU. `python -m experiments.evidence results/CARD` then makes the pages.

CARDS = {"H100": "h100", "H200": "h200"}
"""Word in the driver's name of a GPU -> name of the GPU's folder of results."""
COMMAND = "python3 -m experiments.gpu plan=lease"
ABOUT = {
    "first_contact": "kernels of families that no device had run", "proposals": "who proposed which kernel, in which order",
    "trials": "every kernel of the study, verified and timed", "together": "winners of the study and torch in interleaved rounds",
    "environment": "the environment on CuPy times", "known_trials": "programs of earlier days and today's first choices",
    "known_together": "these programs and torch, in interleaved rounds", "adaptive": "searches that learn from ten trials",
    "fused": "fused operators, torch and a copy, in interleaved rounds",
}  # fmt: skip
"""Name of a file of rows, without ending -> what it contains, for the page."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 if the folder has no results of a run on a GPU."""
    parser = Parser(prog="python -m experiments.evidence take", description=__doc__)
    parser.add_argument("folder", type=Path, help="what came back")
    parser.add_argument("date", nargs="?", default="", help="default: the day that the card says")
    args = parser.parse_args(arguments)
    return exit_code(lambda: print(f"taken to {take(args.folder, args.date)}"))


def take(folder: Path, date: str = "", results: Path = ROOT / "results") -> Path:
    """Unpack the results of a run into the folder of its GPU and day, and return that folder.

    `date` is by default the day of the run. Raise ValueError if the folder exists already, or if the results are missing.
    """
    files = read_results(folder / RESULTS)
    card: dict[str, Any] = parse_json(files["card.json"].decode())
    home = results / _card(card) / RAW / (date or str(card["date"])[:10])
    if not re.fullmatch(r"\d{4}-\d\d-\d\d.*", home.name):
        raise ValueError(f"date {home.name!r}: expected one such as 2026-11-26")
    if home.exists():
        raise ValueError(f"{home} is there already: name another date, such as {home.name}b")
    rows = {name.partition(".")[0]: _copied_rows(name, data) for name, data in files.items() if ".jsonl" in name}
    made = [name for name, found in sorted(rows.items()) if found]
    for name in made:
        write_rows(home / f"{name}.jsonl.gz", map(slim, rows[name]))
    (home / FILE).write_text(json.dumps(_conditions(card, made), indent=1) + "\n", encoding="utf-8")
    return home


def _copied_rows(name: str, data: bytes) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, gzipped if its name says so; an incomplete last line is left out."""
    lines = (unfolded(data) if name.endswith(".gz") else data).decode().splitlines(keepends=True)
    return [parse_json(line, finite=False) for line in lines if line.endswith("\n")]


def _card(card: Mapping[str, Any]) -> str:
    name = card["gpu"].get("name", "")
    found = next((folder for word, folder in CARDS.items() if word in name), None)
    if found is None:
        raise ValueError(f"the card is {name!r}: expected one of {', '.join(CARDS)}")
    return found


def _conditions(card: Mapping[str, Any], made: Sequence[str]) -> dict[str, Any]:
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
