"""The page of all results: runs are grouped by configuration, figures are inside, bad folders are named."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from agents.training import curves
from experiments.comparison.winners import sentence, source
from experiments.reports import report
from experiments.reports.page import from_markdown
from gensor_gym.construction import ConstructionGraph

PNG = b"\x89PNG\r\n\x1a\n"
"""Enough of a picture for a page that does not look at it."""


def markup_of(page: str) -> str:
    """A page without its scripts."""
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def make_run(folder: Path, seed: int, rate: float, gain: float, hardware: str = "h200") -> Path:
    """A training run whose return rises by `gain` over 100 steps."""
    folder.mkdir(parents=True)
    config = {"agent": "ppo", "seed": seed, "output": str(folder), "env": {"hardware": hardware}, "ppo": {"learning_rate": rate}}
    card = {"agent": "ppo", "config": config, "training_seconds": 10.0 + seed, "evaluation": {"score": 1.0 + seed}}
    (folder / "card.json").write_text(json.dumps(card))
    points = [{"steps": s, "mean_return": gain * s / 100} for s in range(0, 101 - seed, 10)]
    (folder / "curve.jsonl").write_text("".join(json.dumps(p) + "\n" for p in points))
    return folder


def test_seeds_of_one_configuration_are_one_group(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / f"{rate}_{seed}", seed, rate, 1.0 + seed) for rate in (0.1, 0.2) for seed in (0, 2)]
    groups = curves.group(map(curves.read_run, folders))
    assert {label: len(runs) for label, runs in groups.items()} == {"ppo, learning_rate=0.1": 2, "ppo, learning_rate=0.2": 2}
    steps, returns = curves.common(groups["ppo, learning_rate=0.1"])
    assert steps[-1] == 90 and np.allclose(returns[:, -1], [0.9, 2.7])  # the shorter run ends at 90
    (row, _) = curves.rows(groups)
    assert row == ("ppo, learning_rate=0.1", "2", "100", "1.850 (1.000 to 2.700)", "11 s", "score 2.000")


def test_a_seed_that_was_run_twice_is_one(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(number), seed, 0.1, 1.0 + seed) for number, seed in enumerate((0, 1, 0, 1))]
    short = folders[0] / "curve.jsonl"
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:4]))
    groups = curves.group(map(curves.read_run, folders))
    assert [(label, len(runs)) for label, runs in groups.items()] == [("ppo", 2)]
    assert [run.steps[-1] for run in groups["ppo"]] == [100, 90], "the run that went on"


def test_page_holds_curves_pages_and_pictures(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", 0, 0.1, 1.0)
    make_run(tmp_path / "runs" / "b", 1, 0.1, 2.0, "a100")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "regret.png").write_bytes(PNG)
    text = "# A study\n\n| a | b |\n|---|---:|\n| 1 | <2 |\n\n![regret](regret.png) ![gone](gone.png)\n"
    (tmp_path / "study" / "summary.md").write_text(text)
    output = tmp_path / "page" / "report.html"
    report.main([str(tmp_path / "runs"), str(tmp_path / "study"), "--output", str(output), "--title", "T & T"])
    page = output.read_text()
    assert page.count('src="data:image/png;base64,') == 1 and page.count('<div class="plot">') == 2  # curves of two machines
    assert "<title>T &amp; T</title>" in page and "<h2>A study</h2>" in page and "&lt;2" in page
    assert "gone.png" in page and 'src="gone.png"' not in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import""", markup_of(page))


def test_markdown_without_a_title_keeps_its_first_line(tmp_path: Path) -> None:
    title, body = from_markdown("first\nsecond", tmp_path)
    assert title == "" and "first" in body and "second" in body


def test_what_cannot_be_shown_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: there is none"):
        report.make_page([tmp_path / "nowhere"], "t")
    with pytest.raises(ValueError, match="no results below"):
        report.make_page([tmp_path], "t")
    folder = make_run(tmp_path / "run", 0, 0.1, 1.0)
    (folder / "curve.jsonl").write_text('{"steps": 1}\n')
    with pytest.raises(ValueError, match="run: card.json or curve.jsonl"):
        curves.read_run(folder)


GAP = {"median": 1.1, "low": 1.05, "high": 1.2}


def make_comparison(folder: Path, strategy: str, seed: int = 0, operator: str = "gemm(m=8, n=8, k=8)") -> Path:
    """What `gensor compare` leaves of one search."""
    row = {
        "operator": operator, "strategy": strategy, "seed": seed, "label": strategy, "status": "DONE", "error": "",
        "retimed": {"median": (seed + 1) / 10_000, "low": 9e-5, "high": 3e-4}, "over_torch": None, "gap_to_best": GAP,
        "verdict": None, "construction_s": 0.1, "evaluations": 10, "training_s": None, "trials": 4, "statuses": {"OK": 4},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"rows": [row], "hardware": "h200", "device": "model of h200"}))
    return folder


def test_a_multirun_is_one_table(tmp_path: Path) -> None:
    for number in range(3):
        make_comparison(tmp_path / str(number), "markov", number)
    page = report.make_page([tmp_path], "t").text()
    assert page.count("<h2>Comparisons</h2>") == 1
    assert [f'data-value="{value}"' in page for value in (0.0001, 0.0002, 0.0003)] == [True] * 3
    assert all(f"<td>{tmp_path / str(number)}</td>" in page for number in range(3))
    assert "All searches: operator gemm(m=8, n=8, k=8), strategy markov, gap to best +10.0 %" in page
    assert "<th>hardware</th>" not in page and "<th>seed</th>" in page


LARGE = str(ConstructionGraph("gemm(m=8, n=8, k=8)", "h200").initial()).replace("1x1x1x1x1x1x1x1", "1x1x1x64x1x1x1x1", 1)
"""A schedule with a tile of more than eight rows."""


def test_a_comparison_begins_with_its_winner(tmp_path: Path) -> None:
    """Its verdict, its schedule, and the source that is written for it; a tie is told."""
    folder = make_comparison(tmp_path / "0", "roller")
    summary = json.loads((folder / "summary.json").read_text())
    schedule = str(ConstructionGraph("gemm(m=8, n=8, k=8)", "h200").initial())
    best = {"median": 1.0, "low": 1.0, "high": 1.0}
    fast = {**summary["rows"][0], "label": "markov", "gap_to_best": best, "schedule": schedule, "verdict": "FASTER",
            "over_torch": {"median": 2.0, "low": 1.9, "high": 2.1}}  # fmt: skip
    lines = [{"strategy": name, "jobs": 1, "timed": 1, "gap_to_best": gap} for name, gap in (("roller", 1.1), ("markov", 1.0))]
    (folder / "summary.json").write_text(json.dumps({**summary, "rows": [*summary["rows"], fast], "strategies": lines}))
    page = report.make_page([tmp_path], "t").text()
    section = page[page.index("<h2>Comparisons</h2>") :]
    assert "<p>Least gap to the best kernels over all operators: markov (+0.0 % in the geometric mean).</p>" in section
    assert "Fastest: markov, 100 µs [90, 300], 2.00x [1.90, 2.10] the speed of torch (FASTER).</summary>" in section
    assert f"<code>{schedule}</code>" in section and "__global__" in section
    assert section.index("<details>") < section.index("<table>")
    close = {**summary["rows"][0], "gap_to_best": {"median": 1.01, "low": 0.99, "high": 1.02}}
    assert sentence({"rows": [close, fast]}, fast["operator"]).endswith("Not told apart from it: roller.")
    assert sentence({"rows": [{**close, "gap_to_best": None}]}, fast["operator"]) == "No search found a kernel."


@pytest.mark.parametrize("change", [{"operator": "nothing(m=8)"}, {"schedule": "tile=1"}, {"schedule": LARGE}])
def test_a_schedule_that_is_not_of_here_has_no_source(change: dict[str, str]) -> None:
    row = {"operator": "gemm(m=8, n=8, k=8)", "schedule": str(ConstructionGraph("gemm(m=8, n=8, k=8)", "h200").initial())}
    assert "__global__" in source({"hardware": "h200"}, row)
    assert source({"hardware": "h200"}, {**row, **change}) == "" == source({"hardware": "nowhere"}, row)


def test_a_study_has_its_regrets(tmp_path: Path) -> None:
    regret = [{"mean": 0.5, "low": 0.4, "high": 0.6}, {"mean": 0.25, "low": 0.2, "high": 0.3}]
    summary = {"checkpoints": [16, 64], "strategies": {"markov": {"regret": regret}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    page = report.make_page([tmp_path], "t").text()
    assert "25.0 % [20.0, 30.0]" in page and "after 64" in page and "regret, %" in page
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "strategies": {"markov": {}}}))
    with pytest.raises(ValueError, match="summary.json is not as a study writes it"):
        report.make_page([tmp_path], "t")


def test_a_summary_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    cases = (("{", "Expecting property"), ("[1]", "expected an object"), ('{"rows": [{}]}', "experiments.compare writes"))
    for text, words in cases:
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(ValueError, match=rf"{tmp_path}/summary.json.*{words}"):
            report.make_page([tmp_path], "t")


ATTACK = "<script>document.title = 'caught'</script><img src=x onerror=\"document.title = 'caught'\">"


def hostile(folder: Path) -> Path:
    """Results whose every name is an attack."""
    make_comparison(folder / "0", ATTACK, operator=f"{ATTACK}</script>")
    make_run(folder / "1", 0, 0.1, 1.0, ATTACK)
    card = json.loads((folder / "1" / "card.json").read_text())
    (folder / "1" / "card.json").write_text(json.dumps({**card, "agent": ATTACK}))
    (folder / "page.md").write_text(f"# {ATTACK}\n\n{ATTACK}\n\n[a](javascript:alert(1))\n\n| {ATTACK} |\n|---|\n| {ATTACK} |\n")
    return folder


def test_what_files_say_is_text(tmp_path: Path) -> None:
    page = report.make_page([hostile(tmp_path)], ATTACK).text()
    markup = markup_of(page)
    assert "<img src=x" not in markup and "document.title" in markup
    assert all(link.startswith("#s") for link in re.findall(r'href="([^"]*)', markup))
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    allowed = set(re.findall(r"'sha256-([^']+)'", page[: page.index("<style>")]))
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts} == allowed
    assert "default-src 'none'" in page and "unsafe-inline" not in page.partition("script-src")[2][:200]
