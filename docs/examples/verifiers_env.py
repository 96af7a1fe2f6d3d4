r"""`Kernel-v0` as an environment of `verifiers` 0.4: each reply of the model is an action.

`KernelEnv` plays an episode with the model, and the trace's reward is the sum of the episode's rewards. The action is the last
code block of a reply, or the whole reply without one. Install it into an environment of its own, without the extra `lab` and
without `constraints.txt`, because it needs another antlr4 than Hydra; and run it in a subprocess, not in a sandbox of others:

    pip install -e . verifiers uv
    PYTHONPATH=docs/examples vf-eval verifiers_env --no-push -m MODEL --client.base-url URL --client.api-key-var NAME \
        --env.player.runtime.type subprocess --env.player.harness.id null
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import gymnasium
import verifiers.v1 as vf

SYSTEM = "You make kernels fast. Reply with one action, in the grammar that the task states, in a code block."


class KernelConfig(vf.TasksetConfig):
    """Operators of the tasks, and the arguments of the environment."""

    operators: list[str] = ["gemm(m=512, n=512, k=512)"]
    hardware: str = "host"
    backend: str = "analytic"
    turns: int = 24


class KernelData(vf.TaskData):
    """The arguments that make the environment of a task."""

    info: dict


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """An operator on a machine."""


class KernelEnvConfig(vf.EnvConfig):
    """The agent that plays."""

    player: vf.AgentConfig = vf.AgentConfig()


def action_of(reply: str) -> str:
    """Return the action in a reply: its last code block, or all of it."""
    blocks = re.findall(r"```\w*\n(.*?)```", reply, re.DOTALL)
    return (blocks[-1] if blocks else reply).strip()


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Plays an episode of `Kernel-v0`: the environment's observations answer the model's actions."""

    async def run(self, task: KernelTask, agents: vf.Agents) -> None:
        """Play the episode of a task, and record its return."""
        env = gymnasium.make("gensor_gym:gensor_gym/Kernel-v0", **task.data.info).unwrapped
        env.reset(seed=0)
        total = 0.0
        try:
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()
                while not segment.terminated:
                    _, reward, ended, _, info = env.step(action_of(segment.last_reply))
                    total += reward
                    if ended:
                        interaction.trace.info["kernel"] = {name: info[name] for name in ("runtime_s", "status", "best")}
                        break
                    segment = await interaction.turn(env.state_text())
        finally:
            env.close()
        interaction.trace.record_reward("return", total, 1.0)


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """A task for each operator."""

    def load(self) -> Iterator[KernelTask]:
        """Yield the tasks. Their prompts are the environment's first observations."""
        for operator in self.config.operators:
            made = {"hardware": self.config.hardware, "backend": self.config.backend, "turns": self.config.turns}
            info = {"operator": operator, **made}
            env = gymnasium.make("gensor_gym:gensor_gym/Kernel-v0", **info)
            prompt = env.reset(seed=0)[0]
            yield KernelTask(KernelData(name=operator, prompt=prompt, system_prompt=SYSTEM, info=info), self.config.task)


__all__ = ["KernelConfig", "KernelEnv", "KernelTaskset"]
