"""Products with rows after them: right within the propagated bound, under sanitizers; what is none is refused; faults show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.chains.panel import Panel, panel_of
from gensor_gym.codegen.c import whole_rows
from gensor_gym.codegen.chains.panel import PanelProgram, generate_panel
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load_entry
from gensor_gym.frontends.builder import Builder
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.operators.kinds.linear import gemm
from tests.support.apart import in_a_process_of_its_own
from tests.support.gir_cases import called, machine, sanitized_apart
from tests.support.panel_cases import PanelDraw
from tests.support.thorough import thorough_but

sanitizers = pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")


def drawn(seeds: range) -> Iterator[Kernel]:
    """Of each random panel the C kernel of a random legal schedule, for one of three widths of vectors.

    Draws whose rows are not those of the product are refused by name, and passed over.
    """
    for seed in seeds:
        graph, rng = PanelDraw(seed).graph, np.random.default_rng(seed)
        hw = dataclasses.replace(machine(int(rng.choice((16, 16, 8, 4)))), units=1 + seed % 2)
        try:
            panel = panel_of(graph)
        except ValueError as error:
            assert "is not gone through row by row" in str(error)
            continue
        yield generate_panel(PanelProgram(panel, graph_of(graph, hw).random_schedule(rng), hw))


def faults(kernels: list[Kernel]) -> list[str]:
    """What is wrong with answers, between pages that nobody may touch; packed weights lie in a workspace that was prepared."""
    found = []
    for kernel in kernels:
        entry = load_entry(kernel)
        for at_end, draw in enumerate(fused_draws(kernel.operator, 0)[:2]):  # type: ignore[arg-type]
            outputs = called(kernel, entry, draw.inputs, bool(at_end))
            fault = draw.fault(outputs[0] if len(outputs) == 1 else outputs)
            found += [f"{kernel.source.partition(' */')[0]}: {fault}"] if fault else []
    return found


def check(seeds: range) -> None:
    """None is wrong."""
    kernels = list(drawn(seeds))
    assert kernels, "something is tested"
    assert faults(kernels) == []


@pytest.mark.parametrize("seeds", thorough_but([range(start, start + 4) for start in range(0, 200, 4)], range(4)), ids=str)
def test_random_panels_between_guard_pages(seeds: range) -> None:
    in_a_process_of_its_own(__name__, f"check({seeds!r})")


@pytest.mark.thorough
@sanitizers
@pytest.mark.parametrize("seeds", thorough_but([range(300, 302), range(302, 322)], range(300, 302)), ids=str)
def test_sanitizers_find_nothing(tmp_path: Path, seeds: range) -> None:
    assert sanitized_apart(tmp_path, list(drawn(seeds))) == ""


def attended(m: int = 6, k: int = 8, n: int = 16) -> Panel:
    """A product with bias, residual, and a norm."""
    b = Builder()
    x = b.contract(gemm(m, n, k), b.input("a", (m, k)), b.input("w", (k, n)))
    x = b.call("add", x, b.repeat(b.input("bias", (n,)), (m, n)))
    x = b.call("add", b.input("y", (m, n)), x)
    made = b.call("subtract", x, b.repeat(b.mean(x, [-1]), (m, n)))
    return panel_of(b.network("attended", [made]).graph)


def test_rows_are_done_in_both_places() -> None:
    """At the end of tasks, and in a loop of its own, which the kernels above and below have."""
    assert {"some_rows" in kernel.source for kernel in drawn(range(6))} == {False, True}


def test_what_a_panel_is() -> None:
    panel = attended()
    assert [stage.name for stage in panel.product.epilogue] == ["bias", "residual"] and panel.home == panel.graph.returns[0]
    assert panel.nest.rows == 6 and panel.nest.columns == 16 and len(panel.nest.graph.inputs) == 1


def test_an_output_that_is_written_before_all_is_read_is_no_home() -> None:
    """The product's value may not lie where something else is stored while rows of it are still read."""
    b = Builder()
    x = b.contract(gemm(6, 16, 8), b.input("a", (6, 8)), b.input("w", (8, 16)))
    early = b.call("tanh", x)
    late = b.call("subtract", x, b.repeat(b.mean(x, [-1]), (6, 16)))
    panel = panel_of(b.network("two", [early, late]).graph)
    assert panel.home == panel.graph.returns[1]


@pytest.mark.parametrize("kind", ["columns", "no rows", "two", "batch of rows"])
def test_what_is_no_panel_is_refused(kind: str) -> None:
    b = Builder()
    x = b.contract(gemm(6, 16, 8), b.input("a", (6, 8)), b.input("w", (8, 16)))
    if kind == "columns":
        x = b.call("subtract", x, b.repeat(b.mean(x, [0]), (6, 16)))
    elif kind == "two":
        x = b.contract(gemm(6, 4, 16), b.call("tanh", x), b.input("v", (16, 4)))
    elif kind == "batch of rows":
        x = b.reshape(x, (3, 32))
        x = b.call("subtract", x, b.repeat(b.mean(x, [-1]), (3, 32)))
    else:
        x = b.call("maximum", x, 0.0)
    said = {"columns": "after the product|row by row", "no rows": "nothing is made", "two": "2 products"}
    with pytest.raises(ValueError, match=said.get(kind, "rows of 32")):
        panel_of(b.network("none", [x]).graph)


@pytest.mark.parametrize("fault", ["a row too few", "rows of the task before", "home written early"])
def test_planted_faults_of_a_panel_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    panel, hw = attended(9), dataclasses.replace(machine(16), units=1)
    graph = graph_of(panel.graph, hw)

    def kernel() -> Kernel:
        return generate_panel(PanelProgram(panel, graph.initial(), hw))

    assert faults([kernel()]) == []
    if fault == "home written early":
        b = Builder()
        x = b.contract(gemm(6, 16, 8), b.input("a", (6, 8)), b.input("w", (8, 16)))
        late = b.call("subtract", x, b.repeat(b.mean(x, [-1]), (6, 16)))
        panel = panel_of(b.network("two", [b.call("tanh", x), late]).graph)
        graph = graph_of(panel.graph, hw)
        monkeypatch.setattr(Panel, "home", panel.graph.returns[0])
    elif fault == "a row too few":
        right = whole_rows.loop_call
        monkeypatch.setattr("gensor_gym.codegen.c.codegen.loop_call", lambda plan, rows: right(plan, rows)[:0])
        monkeypatch.setattr("gensor_gym.codegen.c.codegen.at_end", lambda plan: False)
    else:
        monkeypatch.setattr("gensor_gym.codegen.c.whole_rows.linear", lambda terms: "0")
        monkeypatch.setattr("gensor_gym.codegen.c.whole_rows.at_end", lambda plan: True)
        monkeypatch.setattr("gensor_gym.codegen.c.codegen.at_end", lambda plan: True)
    assert faults([kernel()]) != []
