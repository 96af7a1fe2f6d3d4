"""Study of learned models and policies on this CPU: `gensor cpu_study [arms=NAME] [output=FOLDER] [cpu=N]`.

Plans and pages are in results/cpu_study. The arms (strategies with seeds) propose programs without measurements, as on a leased
GPU (`experiments.device.archive.arms`). Every different kernel of an operator is verified and timed once. Then the fastest of
each arm's first four programs, and torch, are timed in interleaved rounds. Every row is written to its journal before the next is
measured, and the same command resumes after any stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_some, check_whole
from agents.cli.command import command
from agents.recording.ahead import alone_on, prepared
from agents.runs.files import make_folder, write_text
from agents.runs.journal import Journal, Row, append_row, read_rows
from agents.runs.lines import with_bar
from agents.training.operators.chosen import ADDED, PARTS, added, chosen
from experiments.benches.lines import machine
from experiments.device.archive.arms import Study, proposed, study_of, winners
from experiments.studies.headline import page
from experiments.studies.headline.scores import FIRST, read
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.cpuinfo import WITHOUT_AVX512
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend, cpu_backend, make_kernel
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators import parse
from gensor_gym.registry import check_known

KINDS = {"columns": "policies", "learned": "models of time", "in_turn": "policies and models of time"}
"""Learned arm -> noun for it in the page's title."""


@dataclass(frozen=True)
class Ready:
    """Proposals of all arms (strategies with seeds) for one operator, and its kernels by digest: compiled, or why not."""

    proposals: list[Row]
    built: dict[str, Built | Measurement]


class CpuStudy:
    """The study's measurements in a folder: proposals, trials and interleaved rounds."""

    def __init__(self, study: Study, backend: NativeBackend, proposals: Journal, trials: Journal, together: Journal) -> None:
        """Keep the journals to which rows are written.

        `proposals` is keyed by operator, arm, seed and rank, `trials` by operator and digest, `together` by operator.
        """
        self.study, self.backend, self.hardware = study, backend, hardware.get(study.hardware)
        self.proposals, self.trials, self.together = proposals, trials, together

    def ready(self, place: int) -> Ready:
        """Return every arm's proposals for the operator at index `place`, and compile their kernels unless all timing is done."""
        text = self.study.operators[place]
        rows = [row for arm in self.study.arms for row in self._proposed(text, place, arm)]
        if text in self.together.rows:
            return Ready(rows, {})
        made = (make_kernel(parse(text), Schedule.parse(row["schedule"]), self.hardware) for row in rows if row["digest"])
        kernels = {kernel.digest: kernel for kernel in made if isinstance(kernel, Kernel)}
        built = self.backend.compile(list(kernels.values()))
        return Ready(rows, dict(zip(kernels, built, strict=True)))

    def _proposed(self, text: str, place: int, arm: Any) -> list[Row]:
        """Return an arm's proposals for an operator from the journal, or make and record them."""
        known = [self.proposals.rows.get((text, arm.name, arm.seed, rank)) for rank in range(1, self.study.wanted(place) + 1)]
        if known[0] is not None:
            return [row for row in known if row is not None]
        rows = [row for row, _ in proposed(text, arm, self.study.hardware, self.study.wanted(place))]
        self.proposals.add(*rows)
        return rows

    def timed(self, place: int, ready: Ready) -> None:
        """Time the operator's kernels that have no trial yet, then the winners in interleaved rounds; record both."""
        text = self.study.operators[place]
        if text in self.together.rows:
            return
        for digest, built in ready.built.items():
            if (text, digest) not in self.trials.rows:
                found = self.backend.trial(built, self.hardware)
                samples = [float(f"{second:.4g}") for second in found.samples]
                row = {"status": found.status.value, "samples": samples, "error": found.error[:200]}
                self.trials.add({"operator": text, "digest": digest, **row})
        self.together.add({"operator": text, **self._rounds(text, ready)})

    def _rounds(self, text: str, ready: Ready) -> Row:
        """Time every arm's fastest program and torch in interleaved rounds; return a row with their samples.

        `samples` are by digest and for `torch`; they are empty, with an `error`, if the timing fails.
        """
        best = winners(ready.proposals, self.trials.rows, FIRST)  # type: ignore[arg-type]
        kernels = {digest: built.kernel for digest in best if isinstance(built := ready.built[digest], Built)}
        try:
            found = self.backend.compare(kernels, self.hardware, self.study.rounds, torch=True) if kernels else {}
        except (RuntimeError, ValueError, WorkerLost) as error:
            return {"samples": {}, "error": f"{type(error).__name__}: {error}"[:200]}
        return {"samples": {name: [float(f"{second:.4g}") for second in samples] for name, samples in found.items()}}


def operators_of(parts: Sequence[str], most: int | None) -> list[str]:
    """Return at most `most` operators of the named parts of Measured v1 or `ADDED`, in random order, those of `ADDED` last."""
    listed = [*chosen(), *(added() if set(parts) & set(ADDED) else ())]
    return [str(one.operator) for one in listed if one.part in parts][:most]


@command("cpu_study")
def main(config: DictConfig, console: Console) -> Path:
    """Run the study: make missing proposals, time missing kernels, write the page, and return the folder."""
    check_whole(config, 1, "programs", "deep_programs", "rounds", "operators", null=("operators",))
    check_whole(config, 0, "deep", "cpu")
    check_some(config, "arms", "parts")
    for part in config.parts:
        check_known("part", part, (*PARTS, *ADDED))
    others = alone_on(config.cpu)
    folder, content = make_folder(Path(config.output)), OmegaConf.to_container(config, resolve=True)
    study = study_of(content, operators_of(config.parts, config.operators))  # type: ignore[arg-type]
    fields = {"proposals": ("operator", "arm", "seed", "rank"), "trials": ("operator", "digest"), "together": ("operator",)}
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal(folder / f"{name}.jsonl", of)) for name, of in fields.items()]
        backend = stack.enter_context(closing(cpu_backend()))
        whole, count = CpuStudy(study, backend, *journals), len(study.operators)
        for place, ready in with_bar(console, "operators", prepared(range(count), whole.ready, others), count):
            whole.timed(place, ready)
    append_row(folder / "facts.jsonl", {**machine(), "arch": hardware.get(study.hardware).arch})
    write_page(folder)
    return folder


def write_page(folder: Path) -> None:
    """Write the page `study.md` and its figures from the rows in a folder."""
    page.draw(folder, folder / "cpu")
    facts = read_rows(folder / "facts.jsonl")[-1]
    unused = ", AVX-512 left unused" if facts.get("arch") == WITHOUT_AVX512 else ""
    about = f"{facts['processor']}{unused}, one thread, {facts['date']}. Code {facts['code']}."
    head = [f"# Learned {KINDS[read(folder).learned]} on this CPU", "", about, ""]
    write_text(folder / "study.md", "\n".join([*head, *page.lines_of(folder, "cpu", "../README.md"), ""]))

