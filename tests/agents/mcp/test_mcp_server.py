"""The server of tools: each tool on one environment, driven by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agents.mcp.desk import MOST_LISTED, Desk
from agents.mcp.server import main
from gensor_gym.env.kernel.env import KernelEnv

GEMM = "gemm(m=64, n=48, k=80)"


def test_tools_return_the_environments_texts() -> None:
    """No second logic: what a tool says is what the environment says after the same actions."""
    desk, env = Desk("host", "analytic", "extended", 4), KernelEnv(GEMM, turns=4)
    for early in (desk.state, desk.best, lambda: desk.act("stop")):
        with pytest.raises(ValueError, match="call start_task first"):
            early()
    assert desk.start_task(GEMM) == env.reset()[0]
    for action in ("apply tile[m] tile[n]", "nonsense", "measure"):
        answer, (_, reward, _, _, _) = desk.act(action), env.step(action)
        assert answer == f"reward {reward:+.4f}\n{env.said}\n\n{env.state_text()}" and desk.state() == env.state_text()
    assert env.best is not None and desk.best().endswith(env.best.text)
    assert "The episode has ended" in desk.act("apply tile[k]") and desk.best().startswith("best: schedule")
    with pytest.raises(ValueError, match="call start_task first"):
        desk.state()
    with pytest.raises(ValueError, match="tensors of 2.9 GiB: at most 1 GiB"):
        desk.start_task("gemm(m=16000, n=16000, k=16000)")
    desk.close()


def test_tasks_are_listed() -> None:
    desk = Desk("host", "analytic", "extended", 4)
    lines = desk.list_tasks(containing="conv2d", most=3).splitlines()
    assert lines[0].endswith("3 shown") and all("conv2d" in line for line in lines[1:4]) and "gemm" in lines[-1]
    assert len(desk.list_tasks(most=10**6).splitlines()) <= MOST_LISTED + 2
    with pytest.raises(ValueError, match="operator 'nothing'"):
        desk.list_tasks("nothing")


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main([]) == 2 and "pip install 'gensor_gym[mcp]'" in capsys.readouterr().err
    assert main(["--space", "none"]) == 2 and "no space 'none'" in capsys.readouterr().err


async def play(words: list[str], calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[tuple[bool, str]]]:
    """Start the command, call its tools in order; return the tools' names, and (whether it is an error, text) of each answer."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    code = "from experiments.entry import main; main()"
    command = StdioServerParameters(command=sys.executable, args=["-c", code, "mcp", *words], env=dict(os.environ))
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        found = []
        for name, arguments in calls:
            answer = await session.call_tool(name, arguments)
            found.append((bool(answer.is_error), answer.content[0].text))
    return names, found


def test_the_sdks_client_plays_to_the_end() -> None:
    pytest.importorskip("mcp")
    says: list[tuple[str, dict[str, Any], bool, Callable[[str], bool]]] = [
        ("state", {}, True, lambda text: "call start_task first" in text),
        ("list_tasks", {"table": "roller", "most": 2}, False, lambda text: text.count("\n") == 3),
        ("start_task", {"operator": "gemm(m=0)"}, True, lambda text: "gemm" in text),
        ("start_task", {"operator": GEMM}, False, lambda text: text.startswith("# Task") and "# State" in text),
        ("act", {"action": "apply tile[m] tile[n]"}, False, lambda text: text.startswith("reward +1.")),
        ("act", {"action": "measure"}, False, lambda text: "OK: the schedule takes" in text),
        ("act", {"action": "source\nint x;"}, False, lambda text: "times no sources" in text),
        ("act", {"action": "stop"}, False, lambda text: "The episode has ended" in text),
        ("best", {}, False, lambda text: text.startswith("best: schedule")),
    ]
    names, found = asyncio.run(play(["--backend", "analytic"], [(name, arguments) for name, arguments, _, _ in says]))
    assert names == ["list_tasks", "start_task", "state", "act", "best"]
    for (name, _, fails, holds), (failed, text) in zip(says, found, strict=True):
        assert failed is fails and holds(text), (name, text[:400])
