"""Time to compile a network whose kernels are known: first in a new process, then again in the same process.

`python -m experiments.networks.again ASKED` is the new process. It imports torch and gensor_gym, builds the network, and only
then starts to time. ASKED is JSON: `network`, `batch`, `seed`, `rounds`, `options` of `gensor_gym.compile`. The process prints
a list of (seconds of a compilation, seconds of torch's export within them), the first compilation first. The module is not in a
package of a benchmark, which would import the timed modules.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SECONDS = 600.0
"""Time limit of the new process in seconds."""


def compiled_again(network: str, batch: int, seed: int, rounds: int, options: Mapping[str, Any]) -> dict[str, float]:
    """Compile a network in a new process, then `rounds` times more in that process; return the seconds.

    The result has the seconds of the first compilation and the median of the later ones, and for both the part that torch's
    export took. Raise RuntimeError with the process's error output if it fails.
    """
    asked = {"network": network, "batch": batch, "seed": seed, "rounds": rounds, "options": dict(options)}
    line = [sys.executable, "-m", "experiments.networks.again", json.dumps(asked)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"{network} was not compiled again:\n{done.stderr.strip()}")
    (new, new_export), *others = json.loads(done.stdout.splitlines()[-1])
    same, same_export = (statistics.median(times) for times in zip(*others, strict=True))
    return {"again_s": same, "again_export_s": same_export, "new_process_s": new, "new_process_export_s": new_export}


def _times(network: str, batch: int, seed: int, rounds: int, options: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Compile a network 1 + `rounds` times in this process; return (seconds, seconds in torch's export) of each, in order."""
    import torch  # noqa: F401  (which a user's process has, too)

    import gensor_gym
    from experiments.networks.suite import inputs_of, module_of

    module, inputs, times = module_of(network, seed), inputs_of(network, batch, seed), list[tuple[float, float]]()
    for _ in range(1 + rounds):
        with _timed_exports() as exports:
            begin = time.perf_counter()
            gensor_gym.compile(module, inputs, **options)
            times.append((time.perf_counter() - begin, sum(exports)))
    return times


@contextmanager
def _timed_exports() -> Iterator[list[float]]:
    """Record the seconds of each call of `torch.export.export` within the `with` block, which gets the growing list."""
    import torch

    export, found = torch.export.export, list[float]()

    def timed(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return export(*arguments, **named)
        finally:
            found.append(time.perf_counter() - begin)

    torch.export.export = timed
    try:
        yield found
    finally:
        torch.export.export = export


if __name__ == "__main__":
    print(json.dumps(_times(**json.loads(sys.argv[1]))))
