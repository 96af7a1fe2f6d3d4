"""Benchmarks of the project itself: `python -m experiments.bench suite=env`.

The suites are env, construct, kernels, call, measure, repeatability, replay, static, model and start; `suite=all` runs them all.
"""

from __future__ import annotations

import sys
from importlib import import_module

import hydra
from omegaconf import DictConfig

from experiments.benches.lines import Lines
from experiments.commands.arguments import CONF
from experiments.commands.command import command_line
from experiments.common.folders import make_folder

SUITES = ("env", "construct", "kernels", "call", "measure", "repeatability", "replay", "static", "model", "start")
"""Each is a module of `experiments.benches` and a file of conf/bench."""


def bench(config: DictConfig) -> dict[str, Lines]:
    """Run one suite or all; returns the lines by suite. ValueError for an unknown suite or a bad folder."""
    if config.suite not in (*SUITES, "all"):
        raise ValueError(f"suite {config.suite!r}: expected one of {', '.join(SUITES)}, all")
    chosen = SUITES if config.suite == "all" else (config.suite,)
    folder, lines = make_folder(config.output), {}
    for suite in chosen:
        lines[suite] = Lines(folder / f"{suite}.jsonl", suite)
        with lines[suite].journal:
            import_module(f"experiments.benches.{suite}").run(config, lines[suite])
    return lines


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="bench")
def run(config: DictConfig) -> None:
    """One configuration."""
    try:
        bench(config)
    except ValueError as error:
        sys.exit(str(error))


def main() -> None:
    """Command line, with operators as plain text."""
    command_line(run)
