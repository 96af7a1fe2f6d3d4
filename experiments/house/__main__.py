"""Count the house: `python -m experiments.house LABEL` writes results/house/LABEL.json and sets all labels side by side.

LABEL names the state of the tree, such as `before`. Statements are those of the parser, without docstrings; tests are those
that pytest collects. An arrow is a module that imports another, once for each pair; it goes upward where a contract of
import-linter (pyproject.toml) says that the other is above. The page is results/house/house.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.commands.parser import Parser
from experiments.common.results import write_text
from experiments.house.counting import SOURCE, count
from experiments.house.sizes import MOST_MODULES
from gensor_gym.foreign import read_json

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "results" / "house"
PAGE = "house.md"
CAME_LATER = (
    "agents/fused", "experiments/benches/fused", "experiments/benches/networks", "experiments/explore", "experiments/house",
    "experiments/mutations", "experiments/networks", "experiments/studies/fused", "experiments/tables/graphs",
    "experiments/tables/intelligen", "gensor_gym/chains", "gensor_gym/codegen/chains", "gensor_gym/codegen/export",
    "gensor_gym/codegen/gir", "gensor_gym/codegen/hip", "gensor_gym/dataflow", "gensor_gym/env/columns", "gensor_gym/env/fused",
    "gensor_gym/env/writing", "gensor_gym/frontends", "gensor_gym/gir", "gensor_gym/graph/columns", "gensor_gym/networks",
    "gensor_gym/suites",
)  # fmt: skip
"""Rooms, with those in them, of systems that came after label `before`: fused operators, networks, exports, suites, .."""


def page(states: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables in Markdown, a column for every state of the tree."""
    labels = [f"{label} ({state['commit']})" for label, state in states.items()]
    lines = [
        "# The house in numbers", "",
        "Counted from the source by `python -m experiments.house LABEL`. Statements are those of the parser, without "
        "docstrings. An arrow is a module that imports another; it goes upward where import-linter's contracts say that the "
        "other is above. Imports for types alone are counted apart. A module that is only the way to a command is never "
        "one too many of its folder.",
        "",
        f"| | {' | '.join(labels)} |", f"|---|{'---:|' * len(labels)}",
    ]  # fmt: skip
    totals = {label: _totals(state) for label, state in states.items()}
    for name in dict.fromkeys(name for total in totals.values() for name in total):
        lines.append(f"| {name} | {' | '.join(str(total.get(name, '')) for total in totals.values())} |")
    for title in ("upward", "upward, for types alone", "circles", "circles with imports in functions",
                  "circles with imports for types", "circles of rooms"):  # fmt: skip
        for label, state in states.items():
            said = [each if isinstance(each, str) else f"{len(each)}: {', '.join(each)}" for each in state[title]]
            lines += ["", f"**{label}, {title}**{'' if said else ': none'}", "", *(f"- {each}" for each in said)]
    lines += ["", "## Files, modules and statements of each folder", "", f"| folder | {' | '.join(labels)} |"]
    lines.append(f"|---|{'---:|' * len(labels)}")
    for name in sorted({name for state in states.values() for name in state["folders"]}):
        found = [state["folders"].get(name) for state in states.values()]
        cells = ["" if f is None else f"{f['files']}, {f['modules']}, {f['statements']}" for f in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _totals(state: Mapping[str, Any]) -> dict[str, object]:
    """Rows of the first table."""
    source = {name: folder for name, folder in state["folders"].items() if name.split("/")[0] in SOURCE}
    rows: dict[str, object] = {"folders of source": len(source)}
    rows["files in them"] = sum(folder["files"] for folder in source.values())
    rows["modules in them"] = sum(folder["modules"] for folder in source.values())
    rows["modules of the largest folder"] = " in ".join(map(str, state["largest folder"]))
    rows[f"folders of more than {MOST_MODULES} modules"] = sum(
        folder["modules"] - folder.get("ways", 0) > MOST_MODULES for folder in source.values()
    )
    rows["statements"] = sum(state["statements"].values())
    later = sum(folder["statements"] for name, folder in source.items() if _is_later(name))
    rows["statements of systems that came later"] = later
    rows["statements without these"] = sum(state["statements"].values()) - later
    rows |= {f"statements of {package}": number for package, number in state["statements"].items()}
    for package, arrows in state["arrows"].items():
        rows |= {f"arrows of {package} {what}": number for what, number in arrows.items()}
    for name in ("upward", "upward, for types alone", "circles", "circles with imports in functions",
                 "circles with imports for types", "circles of rooms"):  # fmt: skip
        rows[f"arrows {name}" if name.startswith("upward") else name] = len(state[name])
    rows |= {f"{what} that are too large": number for what, number in state.get("too large", {}).items() if what != "folders"}
    return rows | {f"tests {what}": number for what, number in state["tests"].items()}


def _is_later(folder: str) -> bool:
    """Whether a folder is one of CAME_LATER, or in one."""
    return any(f"{folder}/".startswith(f"{room}/") for room in CAME_LATER)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = Parser(prog="python -m experiments.house", description="Count folders, arrows and tests.")
    parser.add_argument("label", help="name of the state of the tree, such as before")
    parser.add_argument("--tree", type=Path, default=ROOT, help="working tree of git that is counted; default: this one")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args(arguments)
    write_text(args.output / f"{args.label}.json", json.dumps(count(args.tree.resolve()), indent=1) + "\n")
    write_text(args.output / PAGE, page(read_states(args.output)))
    Console().print(f"The page is {args.output / PAGE}", soft_wrap=True)
    return 0


def read_states(folder: Path) -> dict[str, Any]:
    """What was counted, by label, `before` first."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stem != "before", path.stem))
    return {path.stem: read_json(path) for path in paths}


if __name__ == "__main__":
    raise SystemExit(main())
