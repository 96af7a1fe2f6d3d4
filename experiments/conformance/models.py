"""Try models by name: `python -m experiments.conformance.models`, with torchvision, timm and transformers installed.

The models are variants of every family of torchvision and timm (a family is a module there), and small configurations of
transformers architectures for three tasks. `SEED` decides which are drawn; weights are random, and nothing is downloaded. Each
model has its own process.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.commands.parser import Parser
from experiments.common.texts import table
from experiments.conformance import drawn_models
from experiments.conformance.apart import OUTPUT, arguments_of, counted, each_apart, not_right, printed
from experiments.conformance.cases import STATUSES, Outcome
from experiments.conformance.drawn_models import MARGIN

ROWS = OUTPUT / "models.jsonl"
MODULE = "experiments.conformance.models"
SECONDS = 900.0


def page(found: Sequence[Outcome]) -> str:
    """A Markdown page: counts by library, and each model that is not right with the reason."""
    rows = []
    for library in ("torchvision", "timm", "transformers"):
        own = [one for one in found if one.name.startswith(library)]
        rows.append((*counted(library, (one for one in own if not is_left_out(one))), str(sum(map(is_left_out, own)))))
    lines = [
        "# Models by name", "",
        "Variants of every family of torchvision and timm, and architectures of transformers made small, with random weights;",
        "one trial, compared with torch: `python -m experiments.conformance.models`. Where numbers differ, they may be as far",
        f"from float64 as {MARGIN:g} times torch's. *Not tried* are those that torch does not run so.",
        "", *table(("library", *STATUSES, "not tried"), rows),
    ]  # fmt: skip
    return "\n".join([*lines, *not_right(found)]) + "\n"


def is_left_out(one: Outcome) -> bool:
    """Whether a model was not tried."""
    return one.status == "refused" and one.said.startswith("not tried: ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a model is wrong or ends in an error of this project."""
    args = arguments_of(Parser(prog=f"python -m {MODULE}", description="Compare models by name with torch."), ROWS)
    given = args.parse_args(arguments)
    if given.one:
        return printed(drawn_models.outcome(given.one))
    return each_apart({key: key for key in drawn_models.keys()}, MODULE, given.rows, page, SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
