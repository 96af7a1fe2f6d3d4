"""Tables fit the screen: nothing is cut, no word and no number broken; files have the same with unrounded numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from agents.runs.sheets.cells import NOTHING, Cell, Given, factor, percent_interval, seconds, spread
from agents.runs.sheets.records import of_records
from agents.runs.sheets.screen import SHORTENED
from agents.runs.sheets.sheet import Sheet
from experiments.benches.bench import TIMES
from tests.support.thorough import thorough_but

RESULTS = ROOT / "results"
PAGES = (
    "host/compare_summary.md", "host/live_policies/summary.md", "host/study_recorded/summary.md", "generalise/summary.md",
    "transfer_recorded/summary.md", "host/reproduce/gensor_operators.md", "host/peer_tvm.md",
)  # fmt: skip
"""Of each kind of command one."""
LINES = ("env", "kernels", "call", "model", "construct", "replay", "repeatability")


def tables(text: str) -> Iterator[tuple[list[str], list[list[Given]]]]:
    """Markdown tables; an interval in brackets may be left out."""
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("|").split("|")])
        elif block:
            head, _, *rows = block
            yield head, [[Cell(cell, (), re.sub(r" \[[^]]*\]", "", cell)) if "[" in cell else cell for cell in r] for r in rows]
            block = []


def real() -> Iterator[Sheet]:
    """Tables of real results."""
    for name in PAGES:
        for head, rows in tables((RESULTS / name).read_text(encoding="utf-8")):
            yield Sheet.of(name, head, rows, ["a note of eight words that is rather long " * 3])
    for name in LINES:
        yield from of_records(name, read_rows(RESULTS / "host" / f"{name}.jsonl"), TIMES).values()


REAL = list(real())


def shown(sheet: Sheet, width: int | None) -> str:
    """What is printed on a screen of so many places, or into a pipe."""
    file = io.StringIO()
    sheet.show(Console(file=file, width=width, force_terminal=width is not None, color_system=None))
    return file.getvalue()


@pytest.mark.thorough
@pytest.mark.parametrize("width", thorough_but([80, 100, 120, None], 80, None))
def test_tables_of_real_results_fit_and_nothing_is_cut(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(REAL) > 60
    for sheet in REAL:
        text = shown(sheet, width)
        words = text.split()
        short = SHORTENED in text.replace("\n  ", " ") and width is not None
        for row in sheet.rows:
            for cell in row:
                said = (cell.narrow if short else cell.text).split()
                assert cell.text == "-" or set(said) <= set(words), (sheet.title, cell.text)
        for line in text.splitlines() if width else ():
            longest = max(map(cell_len, line.split()), default=0)
            assert cell_len(line) <= max(width or 0, longest + 4), (sheet.title, line)


def test_each_row_of_a_pipe_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = Sheet.of("t", ("name", *map(str, range(40))), [("x" * 30, *("1234.5 ms",) * 40)] * 3)
    assert len(shown(wide, None).splitlines()) == 1 + 2 + 3 + 1
    monkeypatch.setenv("COLUMNS", "80")
    assert len(shown(wide, None).splitlines()) > 20


def test_intervals_go_before_columns_do_and_the_last_columns_first() -> None:
    times = {"median": 1.2e-3, "low": 1.1e-3, "high": 1.3e-3}
    head = ("strategy", "time", "over torch", "trials", "training")
    rows = [("markov", spread(times), factor({"median": 2.0, "low": 1.9, "high": 2.1}), "10 OK, 2 CRASHED, 1 WRONG", NOTHING)]
    assert "1.2 ms [1.1, 1.3]" in shown(Sheet.of("t", head, rows), 100)
    narrow = shown(Sheet.of("t", head, rows), 64)
    assert "[1.1" not in narrow and SHORTENED in narrow and ": " not in narrow.splitlines()[3]
    under = shown(Sheet.of("t", head, rows), 40).splitlines()
    assert under[4].strip() == "trials: 10 OK, 2 CRASHED, 1 WRONG" and "2.00x" in under[3]
    assert under[1].split()[-1] == "training"  # a long text goes before the last column does


def test_numbers_stand_with_their_points_below_one_another() -> None:
    rows = [("a", "1.25 ms"), ("b", "12.5 ms"), ("c", "125 µs"), ("d", "-")]
    lines = shown(Sheet.of("t", ("name", "time"), rows), 80).splitlines()
    points = [line.find(".") for line in lines[3:5]]
    assert points[0] == points[1] and lines[5].find("5 µs") + 1 == points[0] and lines[6].endswith("-")


def test_a_long_name_has_a_line_of_its_own() -> None:
    name = "conv2d(n=128, c=256, h=14, w=14, k=256, r=3, s=3, padding=1)"
    lines = shown(Sheet.of("t", ("operator", "time", "found"), [(name, seconds(2e-3), "16 trials")]), 60).splitlines()
    assert lines[3] == name and lines[4].split() == ["2", "ms", "16", "trials"]


def test_csv_has_unrounded_numbers_and_intervals(tmp_path: Path) -> None:
    regret = {"mean": 0.12345, "low": 0.1, "high": 0.15}
    rows = [("a|=b", percent_interval(regret), seconds(1.23456e-5)), ("=sum(A1)", NOTHING, "CRASHED")]
    sheet = Sheet.of("t", ("name", "regret", "time"), rows, ["said"])
    assert list(csv.reader(io.StringIO(sheet.csv()))) == [
        ["name", "regret", "regret low", "regret high", "time"],
        ["a|=b", "0.12345", "0.1", "0.15", "1.23456e-05"],
        ["'=sum(A1)", "", "", "", "CRASHED"],
    ]
    sheet.write(tmp_path / "kernels")
    page = (tmp_path / "kernels.md").read_text()
    assert "# t\n" in page and "12.3 % [10.0, 15.0]" in page and page.endswith("\nsaid\n")
    assert (tmp_path / "kernels.csv").read_text() == sheet.csv()


def test_a_row_has_as_many_cells_as_there_are_columns() -> None:
    with pytest.raises(ValueError, match="2 cells: table 't' has 1 columns"):
        Sheet.of("t", ("a",), [("1", "2")])


def test_records_of_one_kind_are_a_table() -> None:
    rows = [{"suite": "s", "kind": "shape", "n": n, "at": {"best_s": 1e-3 * n, "deep": [1]}, "cores": 2} for n in (1, 2)]
    (found,) = of_records("s", [*rows]).values()
    assert found.head == ("n", "at best") and found.notes == ("cores: 2",)
    assert [cell.text for cell in found.rows[1]] == ["2", "2 ms"]
