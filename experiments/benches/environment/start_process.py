"""One start of an environment in a fresh process: `python -m experiments.benches.environment.start_process ARGUMENTS CACHE`.

ARGUMENTS are the environment's arguments as JSON. With CACHE `waited` every function is compiled before it runs.
`experiments.benches.environment.start` reads the last line of standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from contextlib import nullcontext
from typing import Any

from numba.core import event

PHASES = ("imports", "make", "reset", "step", "episode")
"""Phases of a start that are timed: imports, `gymnasium.make`, `reset`, the first step, the rest of the episode."""


class Compilations(event.Listener):  # type: ignore[misc]
    """Numba listener that sums each function's own compile time, and counts the signatures it was compiled for."""

    def __init__(self) -> None:
        self._running: list[list[float]] = []
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def on_start(self, event: Any) -> None:
        """Record the time at which a compilation begins."""
        self._running.append([time.process_time(), 0.0])

    def on_end(self, event: Any) -> None:
        """Add a function's own compile time: the whole time without the compilations of functions that it calls."""
        begin, inside = self._running.pop()
        whole = time.process_time() - begin
        if self._running:
            self._running[-1][1] += whole
        function = event.data["dispatcher"].py_func
        self._seconds[f"{function.__module__}.{function.__qualname__}"].append(whole - inside)

    def table(self) -> list[dict[str, object]]:
        """Return a row for each function with its name, number of signatures and seconds, longest time first."""
        longest = sorted(self._seconds.items(), key=lambda item: -sum(item[1]))
        return [{"function": name, "signatures": len(each), "own_s": sum(each)} for name, each in longest]


def main() -> None:
    """Import the package, make the environment, play a random episode, and print the seconds of each phase as JSON."""
    event.register("numba:compile", compilations := Compilations())
    import gymnasium

    from gensor_gym.graph.compiling.early import waiting

    with waiting() if sys.argv[2] == "waited" else nullcontext():
        took = _episode(gymnasium, json.loads(sys.argv[1]))
    print(json.dumps(took | {"functions": compilations.table()}))


def _episode(gymnasium: Any, arguments: dict[str, Any]) -> dict[str, float]:
    """Start an environment and play an episode; return each phase's processor seconds, their sum, and the number of steps."""
    marks = [0.0, time.process_time()]
    env = gymnasium.make("gensor_gym/Construct-v0", **arguments)
    marks.append(time.process_time())
    _, info = env.reset(seed=0)
    marks.append(time.process_time())
    env.action_space.seed(0)
    ended, steps = False, 0
    while not ended:
        _, _, ended, _, info = env.step(env.action_space.sample(mask=info["action_mask"]))
        steps += 1
        if steps == 1:
            marks.append(time.process_time())
    marks.append(time.process_time())
    env.close()
    took = {f"{name}_s": after - before for name, before, after in zip(PHASES, marks, marks[1:], strict=False)}
    return took | {"processor_s": marks[-1], "steps": steps}


if __name__ == "__main__":
    main()
