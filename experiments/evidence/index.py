"""The index of a folder of evidence: its pages, its raw files, and how all of it is made."""

from __future__ import annotations

from pathlib import Path

from experiments.evidence import correctness, device_searches, libraries, model, searches
from experiments.evidence.facts import FILE as FACTS
from experiments.evidence.facts import RAW, Facts
from experiments.studies.headline.scores import has_study

FILE = "README.md"
LATER = "a later day: correctness, libraries, recorded kernels, a fine-tuned policy"
STUDY = "a later day: learned policies beside the traverser, and what else was asked"


def write(folder: Path, facts: Facts) -> list[str]:
    """Write the page; returns its name."""
    pages = {
        correctness.PAGE: "kernels of every family against their references, before the mends and after",
        libraries.PAGE: "the best of our kernels beside cuBLAS and cuDNN",
        model.PAGE: "what the uncalibrated model said of programs that ran",
        device_searches.PAGE: "strategies and policies that searched on the device, few trials",
        f"{searches.FOLDER}/{searches.PAGE}": "strategies on the complete recorded tables, 8, 32 and 128 trials",
    }
    for day in sorted(path.parent for path in (folder / RAW).glob(f"*/{FACTS}")):
        pages[f"{day.name}.md"] = STUDY if has_study(day) else LATER
    lines = [
        f"# What an {facts.machine.upper()} said", "", facts.head, "",
        "Everything here but `raw` is made by `python -m experiments.evidence`, and so are the recorded tables of this machine "
        "in `gensor_gym/recordings`. The same raw files give the same bytes.", "",
        "| page | |", "|---|---|", *(f"| [{name}]({name}) | {words} |" for name, words in pages.items()), "",
        "| raw file | | mends that were in |", "|---|---|---|",
        *(
            f"| [{name}]({RAW}/{name}) | {said['about']} | {facts.mends_in(name)} |"
            for name, said in facts.files.items()
        ), "",
        "The mends:", "", *facts.mended, "",
        "All recorded tables are of train operators. The model was not calibrated by any of this.",
    ]  # fmt: skip
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [FILE]
