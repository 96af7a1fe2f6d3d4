"""Profiles of networks: `python -m experiments.bench suite=profile profile.names=[resnet50]` (conf/bench.yaml).

Each network is compiled, verified and timed in its own process. The result is a line for each kernel, one for the whole, a table
that groups equal kernels, and a figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_whole
from agents.runs.sheets.cells import percent, seconds
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.race import Lost, Side
from experiments.benches.lines import Lines, Steal, machine
from experiments.benches.networks.profiled import by_kernel
from experiments.benches.networks.suite import check_names
from gensor_gym.hardware.cpuinfo import usable_cores

PROCESS = "experiments.benches.networks.process"
SIDE = "profiled"


def run(config: DictConfig, emit: Lines) -> None:
    """Profile each network: emit its lines, show its table and draw its figure."""
    settings, folder = config.profile, Path(config.output)
    check_names(settings, "profile")
    check_whole(settings, 1, "trials", "calls", "batch", "threads", of="profile.", null=("threads",))
    threads = settings.threads or usable_cores()
    emit(kind="machine", threads=threads, calls=settings.calls, **machine())
    for name in settings.names:
        row: dict[str, Any] = {"network": name, "batch": settings.batch, "threads": threads, "plan": settings.plan}
        asked = {key: settings[key] for key in ("plan", "batch", "trials", "calls", "arena")}
        steal = Steal()
        try:
            found = _profiled({**asked, "network": name, "threads": threads, "seed": config.seed}, settings.limit_s, folder)
        except Lost as error:
            emit(kind="network", **row, error=str(error))
            continue
        steps = found.pop("steps")
        emit(kind="network", **row, **found, stolen=steal.share())
        for step in steps:
            emit(kind="step", network=name, threads=threads, **step)
        sheet(name, steps, found).show(Console())
        if config.figures:
            from experiments.benches.networks.profile_figure import draw

            plural = "s" * (threads > 1)
            draw(steps, f"{name}, batch {settings.batch}, {threads} thread{plural}", folder / f"profile_{name}_{threads}.png")


def _profiled(asked: dict[str, Any], limit: float, cache: Path) -> dict[str, Any]:
    """Profile of one network from its own process; Lost if it fails, takes too long or returns wrong outputs."""
    side = Side(SIDE, asked["threads"], cache, PROCESS)
    try:
        side.hear(limit)
        answer = side.ask(asked, limit)
    finally:
        side.close()
    if wrong := answer.pop("wrong"):
        raise Lost(f"our outputs are wrong: {wrong}")
    del answer["ways"]
    return answer


def sheet(name: str, steps: list[dict[str, Any]], whole: dict[str, Any]) -> Sheet:
    """Table of a network's kernels, with equal kernels together, slowest first."""
    head = ("kernel", "times", "share", "in context", "alone", "floor by flops", "floor by bytes", "first")
    rows = [
        (row["computation"], str(row["times"]), percent(row["share"]), seconds(row["in_context_s"]),
         seconds(row["isolated_s"]), seconds(row["flops_floor_s"]), seconds(row["bytes_floor_s"]), row["first"])
        for row in by_kernel(steps)
    ]  # fmt: skip
    found = [seconds(whole[key]["median"]).text for key in ("in_context_s", "plain_s")]
    sums = [seconds(whole[key]).text for key in ("sum_of_isolated_s", "sum_of_floors_s")]
    notes = [
        f"a call takes {found[0]} with the clock between kernels, {found[1]} without",
        f"kernels alone add up to {sums[0]}, floors to {sums[1]}: these are no times of a network",
    ]
    return Sheet.of(f"{name}: where the time goes", head, rows, notes)
