"""The example for `verifiers`: its tasks load, and a scripted player plays an episode to its end."""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="pip install verifiers")

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "verifiers_env.py"
REPLIES = ["I begin.\n```\napply tile[m] tile[n]\n```", "```text\nmeasure\n```", "nonsense", "stop"]


class Player:
    """An agent that sends prepared replies, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.rewards: list[tuple[str, float, float]] = []
        self.trace = SimpleNamespace(info={}, record_reward=lambda *reward: self.rewards.append(reward))

    @asynccontextmanager
    async def interaction(self, task: Any) -> Any:
        self.told.append(task.data.prompt)
        yield self

    async def turn(self, text: str = "") -> Any:
        self.told.append(text)
        return SimpleNamespace(terminated=False, last_reply=REPLIES[len(self.told) - 2])


def test_a_scripted_player_plays_to_the_end() -> None:
    spec: Any = importlib.util.spec_from_file_location("verifiers_env", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (task,) = module.KernelTaskset(module.KernelConfig(id="kernel", operators=["gemm(m=64, n=48, k=80)"], turns=6)).load()
    player = Player()
    asyncio.run(module.KernelEnv.run(SimpleNamespace(), task, SimpleNamespace(player=player)))
    assert player.told[0].startswith("# Task") and [text[:7] for text in player.told[1:]] == ["", "# State", "# State", "# State"]
    assert "no verb 'nonsense'" in player.told[-1]
    ((name, total, weight),) = player.rewards
    assert (name, weight) == ("return", 1.0) and total > 1.0 and player.trace.info["kernel"]["status"] == "OK"
