"""One search of our compiler in a new process: `python -m experiments.peers.ours REQUEST.json ANSWER.json`.

The request has `operator`, `strategy`, `trials` and `seed`. The search uses neither a store of timings nor the cache of compiled
kernels: every candidate is compiled and timed. The answer has the measured fields of a run (see `experiments.peers.tvm`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()
WARM_UP = "gemm(m=16, n=16, k=16)"


def search(request: dict[str, Any]) -> dict[str, Any]:
    """Search the requested operator and return the answer; a search of one trial on a tiny operator warms up first."""
    from agents import get_strategy
    from agents.optimizer import run
    from experiments.benches.lines import empty_cache
    from gensor_gym import hardware
    from gensor_gym.measure.backend import get_backend
    from gensor_gym.measure.session import Budget, Session, Task

    hw = hardware.get("host")
    backend = get_backend("cpu", hw)
    strategy = get_strategy(request["strategy"])
    run(strategy, Session(Task.of(WARM_UP, hw, backend, strategy.space), Budget(trials=1)), seed=0)
    session = Session(Task.of(request["operator"], hw, backend, strategy.space), Budget(trials=request["trials"]))
    startup = time.perf_counter() - BEGIN
    with empty_cache():
        run(strategy, session, request["seed"])
    tuning = time.perf_counter() - BEGIN - startup
    if session.best is None:
        raise RuntimeError(f"no kernel ran well: {[row.status for row in session.trace]}")
    return {
        "startup_s": startup,
        "tuning_s": tuning,
        "waited_s": None,
        "best_s": session.best[1].seconds,
        "tried": session.trials,
        "valid": sum(row.status == "OK" for row in session.trace),
        "schedule": str(session.best[0]),
        "parts_s": {"measure": session.measuring},
    }


def main(request: Path, answer: Path) -> None:
    """Read the request, search, and write the answer."""
    found = search(json.loads(request.read_text(encoding="utf-8")))
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
