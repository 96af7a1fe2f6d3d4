"""An agent without a language model plays Kernel-v0: random primitives, a measurement, then the generated source as its own.

    python docs/examples/kernel_agent.py [OPERATOR] [analytic | auto]

A language model takes the place of `actions`: it reads an observation and writes the next action.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import gymnasium
import numpy as np


def actions(observed: list[str], seed: int, sources: bool) -> Iterator[str]:
    """Yield the actions of one episode. `observed` holds the last observation when the next action is due."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        legal = observed[0].partition("## Legal primitives")[2].partition("## Source")[0]
        growing = re.findall(r"\btile\[\w+\]|\braise\[unroll\]", legal)
        yield f"apply {' '.join(rng.choice(sorted(set(growing)), 2, replace=False))}"
    yield "measure"
    if sources:
        options, source = re.findall(r"accepts it with: (.*?)\n(.*)\n# Answer", observed[0], re.DOTALL)[0]
        yield f"source {options}\n{source}"
    schedule = re.findall(r"## Schedule\n(.*)\n", observed[0])[0]
    yield f"schedule {schedule}"
    yield "stop"


def play(operator: str = "gemm(m=96, n=80, k=64)", backend: str = "analytic", seed: int = 0) -> tuple[float, dict]:
    """Play one episode to its end. Return (sum of rewards, last info)."""
    env = gymnasium.make("gensor_gym:gensor_gym/Kernel-v0", operator=operator, backend=backend)
    observation, _ = env.reset(seed=seed)
    observed, total, info = [observation], 0.0, {}
    for action in actions(observed, seed, backend != "analytic"):
        observed[0], reward, ended, _, info = env.step(action)
        total += float(reward)
        answer = observed[0].rpartition("# Answer\n")[2]
        print(f"{action.splitlines()[0][:60]:60}  reward {float(reward):+.3f}  {answer.splitlines()[0][:100]}")
        if ended:
            break
    env.close()
    return total, info


if __name__ == "__main__":
    total, info = play(*sys.argv[1:3])
    print(f"return {total:.3f}, best {info['runtime_s'] * 1e6:.1f} us, status {info['status']}")
