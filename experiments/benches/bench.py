"""Benchmarks of the project itself: `python -m experiments.bench suite=env`.

A suite is a module of this package that defines `run(config, emit)`; its settings are under its name in conf/bench.yaml. The
suite of a module called `suite` has the name of the module's folder. `suite=all` runs all suites.
"""

from __future__ import annotations

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.command import command_line, configured
from agents.cli.found import functions_of, loaded
from agents.cli.refusal import refusals
from agents.runs.files import make_folder
from agents.runs.sheets.records import of_records
from experiments.benches.lines import Lines
from gensor_gym.registry import check_known

_CALLS = ("called", "into_out", "bound", "bound_at_lines", "called_with_tensors")
_FUSED = ("into", "called_inner", "into_inner")
TIMES = frozenset(("kernel", "torch", "measured", *_CALLS, *_FUSED, *(f"{name}_adds" for name in _CALLS)))
"""Keys of result lines whose values are times in seconds although the keys do not end in `_s`."""


def suites() -> dict[str, str]:
    """Return, for each suite by name, the path of its function `run`; names are sorted."""
    return dict(sorted(functions_of("run", "experiments.benches").items()))


def bench(config: DictConfig) -> dict[str, Lines]:
    """Run the suite that the configuration names, or all suites, and return each suite's result lines by suite name.

    Result lines and tables are also written to the output folder. Raise ValueError for an unknown suite, or for a folder that
    cannot be written.
    """
    known = suites()
    check_known("suite", config.suite, (*known, "all"))
    chosen = tuple(known) if config.suite == "all" else (config.suite,)
    for suite in chosen:
        if not isinstance(config[suite], DictConfig):
            raise ValueError(f"{suite} is {config[suite]!r}; expected settings, {suite}.NAME=VALUE")
    folder, lines = make_folder(config.output), {}
    for suite in chosen:
        lines[suite] = Lines(folder / f"{suite}.jsonl", suite)
        with lines[suite].journal:
            loaded(known[suite])(config, lines[suite])
        for kind, sheet in of_records(suite, lines[suite].rows, TIMES).items():
            sheet.write(folder / suite / kind.replace(" ", "_"))
    return lines


@configured("bench")
def run(config: DictConfig) -> None:
    """Run the suites that a configuration names; on a terminal, also show their results as tables."""
    with refusals():
        lines = bench(config)
        if (console := Console()).is_terminal:  # a pipe has already received the result lines
            for suite, found in lines.items():
                for sheet in of_records(suite, found.rows, TIMES).values():
                    sheet.show(console)


def main() -> None:
    """Run the command line; its arguments may contain operators as plain text, such as gemm(m=512, n=512, k=512)."""
    command_line(run)
