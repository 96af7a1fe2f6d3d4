"""Exact paths, and the commands that certify and check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.cli.arguments import compose
from agents.exact import certify, check_certificates
from agents.recording import task_cards
from agents.runs.settings import settings_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.paths import actions_to
from gensor_gym.exact.states import explore
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.analytic import program_key


def walked(graph: ConstructionGraph, actions: list[int]) -> Schedule:
    """Where legal actions lead to."""
    schedule = graph.initial()
    for action in actions:
        assert action != STOP and graph.action_mask(schedule)[action]
        schedule = graph.transition(schedule, action)
    return schedule


@pytest.mark.parametrize(
    ("operator", "hardware", "space"),
    [
        ("gemm(m=16, n=8, k=32)", "h200", "compact"),
        ("gemm(m=4, n=4, k=2)", "h200", "gensor"),
        ("gemm(m=4, n=4, k=2)", "h200", "tree"),
        ("gemv(m=12, k=8)", "cascade_lake", "gensor"),
    ],
)
def test_no_path_is_longer_than_need_be(operator: str, hardware: str, space: str) -> None:
    graph = ConstructionGraph(operator, hardware, space)
    states = explore(graph)
    least: dict[bytes, int] = {}
    for row, depth in zip(states.rows, states.depth.tolist(), strict=True):
        key = program_key(Schedule(row))
        least[key] = min(depth, least.get(key, depth))
    for at in np.random.default_rng(0).integers(0, len(states.rows), size=60):
        schedule = Schedule(states.rows[at])
        actions = actions_to(graph, schedule)
        assert program_key(walked(graph, actions)) == program_key(schedule)
        assert len(actions) == least[program_key(schedule)]


@pytest.mark.parametrize(
    ("operator", "hardware", "space"),
    [
        ("conv2d(n=1, c=256, h=14, w=14, k=256, r=3, s=3, padding=1)", "h200", "gensor"),
        ("gemm(m=128, n=3072, k=768)", "cascade_lake", "gensor"),
        ("gemm(m=512, n=512, k=512)", "h200", "extended"),
    ],
)
def test_paths_in_large_spaces_lead_to_the_program_within_the_horizon(operator: str, hardware: str, space: str) -> None:
    graph, rng = ConstructionGraph(operator, hardware, space), np.random.default_rng(1)
    for _ in range(10):
        schedule = graph.random_schedule(rng)
        actions = actions_to(graph, schedule)
        assert program_key(walked(graph, actions)) == program_key(schedule)
        assert len(actions) < graph.horizon


def test_what_cannot_be_reached_is_refused() -> None:
    graph = ConstructionGraph("gemm(m=16, n=8, k=32)", "h200", "compact")
    with pytest.raises(ValueError, match="is not legal"):
        actions_to(graph, ConstructionGraph("gemm(m=7, n=7, k=7)", "h200").random_schedule(np.random.default_rng(0)))
    whole = ConstructionGraph("gemm(m=16, n=8, k=32)", "h200", "gensor")
    threaded = next(s for s in (whole.random_schedule(np.random.default_rng(i)) for i in range(50)) if s.vthread.max() > 1)
    fewer = ConstructionGraph("gemm(m=16, n=8, k=32)", "h200", "gensor_no_vthread")
    with pytest.raises(ValueError, match="no path to"):
        actions_to(fewer, threaded)
    with pytest.raises(ValueError, match="among"):
        actions_to(whole, threaded, most=1)


@pytest.mark.parametrize("words", [["gemm(m=64"], ["nosuch"], ["gemm(m=8, n=8, k=8)", "--hardware", "h201"]])
def test_what_is_no_task_is_said_in_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in (certify.main, task_cards.main):
        with pytest.raises(SystemExit) as ended:
            command(words)
        said = capsys.readouterr().err
        assert ended.value.code == 2 and words[-1].split("(")[0] in said and "Traceback" not in said


def test_files_without_certificates_are_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check_certificates.main([str(tmp_path / "nofile")])
    assert ended.value.code == 2 and "nofile" in capsys.readouterr().err
    path = tmp_path / "one.jsonl"
    assert certify.main(["gemm(m=4, n=4, k=4)", "--output", str(path)]) == 0
    assert check_certificates.main([str(path), "--samples", "100"]) == 0
    assert "1 of 1 right" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        check_certificates.main([str(path), "--match", "conv2d"])


def test_a_budget_has_three_fields(tmp_path: Path) -> None:
    words = ["strategy=random_walk", "operator=gemm(m=24, n=20, k=28)", "backend=analytic", "hardware=h200", "+budget.trails=3"]
    with pytest.raises(ValueError, match="budget has no trails; it has trials, evaluations, seconds"):
        settings_of(compose([*words, f"output={tmp_path}"]))
