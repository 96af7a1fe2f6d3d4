"""Every knob, by the table: what it says of itself agrees with rows, rules, spaces and the documentation."""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from gensor_gym.graph import knobs
from gensor_gym.graph.actions import ACTIONS, space_actions
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS, Knob
from gensor_gym.graph.knobs.knob import EVERY, MATRIX
from gensor_gym.graph.rules import fits
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables import layout
from gensor_gym.graph.tables.geometry import power_value
from tests.support.graph_walks import graph_of

PAGE = Path(__file__).parents[2] / "docs" / "design.md"
KINDS = {"gpu": "GPU", "cpu": "CPU", "both": "both"}


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_knob_is_whole(knob: Knob) -> None:
    """Values climb from the default on, it says what they mean and cost, and a row has its place under its name."""
    assert list(knob.values) == sorted(set(knob.values)) and 2 <= len(knob.values) <= 16
    assert knob.default == knob.values[0] and knob.default in knob.available
    assert set(knob.masked) < set(knob.values) and set(knob.available) == set(knob.values) - set(knob.masked)
    assert knob.doc and knob.cost and "|" not in knob.doc
    assert getattr(layout, knob.name.upper()) == knob.place == layout.KNOB + KNOB_INDEX[knob.name]
    assert 0 <= knob.raising <= EVERY and 0 <= knob.lowering <= EVERY
    assert knob.cores and set(knob.cores) <= {0, 1, 2} and (knob.kind != "cpu" or knob.cores == (0, 1, 2))
    assert knob.raising & MATRIX or knob.cores == (0, 1, 2), "raising it may break MATRIX where it goes with some cores alone"


def test_the_documentation_has_the_lines_of_the_knobs(update_golden: bool) -> None:
    """The table of `docs/design.md` is what the knobs say; `--update-golden` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    head = "| knob | hardware | values, those masked in brackets |\n|---|---|---|\n"
    table = head + "".join(f"| `{knob.name}` | {KINDS[knob.kind]} | {knob.doc} |\n" for knob in KNOBS)
    there = text[text.index(head) :].split("\n\n")[0] + "\n"
    if update_golden:
        PAGE.write_text(text.replace(there, table), encoding="utf-8")
        pytest.skip("written")
    assert there == table, "the lines of the knobs changed: run with --update-golden"


@pytest.mark.parametrize("name", ["split_k", "reduce_threads", "vector", "unroll", "raster", "cluster", "thread_split"])
def test_values_that_rules_take_for_powers_of_two_are(name: str) -> None:
    values = KNOBS[KNOB_INDEX[name]].values
    assert values == tuple(power_value(index) for index in range(len(values)))


def test_space_medium_moves_the_knobs_of_operands() -> None:
    moved = {action.knob for action, legal in zip(ACTIONS, space_actions("medium"), strict=True) if legal and action.knob}
    assert moved == {knob.name for knob in KNOBS if knob.of_operands}
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `medium` |"))
    assert moved == set(re.findall(r"`(\w+)`", line)) - {"medium", "compact"}


@pytest.mark.parametrize("core", [0, 1, 2])
def test_programs_have_no_knob_of_other_kinds(core: int) -> None:
    """A program on these cores keeps the default of every knob that does not go with them."""
    graph = graph_of("gemm(m=512, n=512, k=512, dtype='float16')", "h200", "extended")
    rows = starts(graph.tables, graph.initial().row)
    row = next(row for row in rows if row[layout.TENSOR_CORE] == core and fits(row, graph.tables.ints))
    others = [knob for knob in KNOBS if core not in knob.cores]
    assert others
    for knob in others:
        changed = row.copy()
        changed[knob.place] = 1
        assert not fits(changed, graph.tables.ints), knob.name


def test_knobs_must_take_every_place_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder with one owner alone is refused, and the error names the place that it takes."""
    shutil.copy(Path(knobs.__file__).with_name("raster.py"), tmp_path)
    spec = spec_from_file_location("short_of_knobs", knobs.__file__, submodule_search_locations=[str(tmp_path)])
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "short_of_knobs", package)
    with pytest.raises(ValueError, match=rf"places {layout.KNOB} to {layout.ROW - 1}.*'raster': {layout.RASTER}"):
        spec.loader.exec_module(package)
