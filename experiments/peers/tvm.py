"""Our search compared with TVM's MetaSchedule on this processor: `python -m experiments.peers.tvm` (conf/peers.yaml).

The comparison is of systems, not of searches: spaces, code generators, compilers and thread pools differ as well. Every search
runs in a fresh process, TVM's in its own environment, with as many threads as our kernels have (GENSOR_GYM_THREADS). A finished
search is recorded at once, and a stopped command resumes. Any part can be run separately: `peers.trials=[64] peers.seeds=[0]
peers.retime=false`. At the end one worker times torch and the winners for each operator together, in interleaved rounds. It calls
TVM's kernels through their C interface.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_whole
from agents.cli.command import command_line, configured
from agents.cli.refusal import refusals
from agents.runs.files import make_folder, write_text
from agents.runs.settings import ROOT, code_digest
from agents.runs.texts import seconds_text
from experiments.benches.lines import machine
from experiments.comparison.retime import Comparison, Retimer
from experiments.peers import tvm_report
from experiments.peers.ours import WARM_UP
from experiments.peers.runs import OURS, TVM, Plan, Run, Runs, Stopped, run_process
from experiments.peers.tvm_environment import PACKAGE, TvmEnvironment, compilers, environment, requirements, tvm_kernel
from gensor_gym import hardware, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.devices.machine_lock import lock_path
from gensor_gym.operators.types import Operator

WORKER = Path(__file__).with_name("tvm_worker.py")
SETTINGS = 1
"""Version of TVM's settings in tvm_worker.py; it is raised with each change of them, so that searches are made again."""


class Study:
    """Settings of the comparison with TVM (conf/peers.yaml), checked, with the operators and the hardware that they name."""

    def __init__(self, config: DictConfig) -> None:
        """Read and check a configuration; raise ValueError that names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        peers, self.hardware = plain["peers"], hardware.get("host")
        self.tasks = tuple(dict.fromkeys(op for text in peers["tasks"] for op in operators.resolve(text)))
        for op in self.tasks:
            if not has_workload(op):
                raise ValueError(f"operator {op}: expected gemm or conv2d of one group, float32, without epilogue")
        check_list(peers, 1, "trials", of="peers.")
        check_list(peers, 0, "seeds", of="peers.")
        check_whole(peers["ours"], 1, "trials", of="peers.ours.")
        check_whole(peers, 1, "rounds", "limit_s", of="peers.")
        self.trials, self.seeds = (tuple(dict.fromkeys(peers[name])) for name in ("trials", "seeds"))
        self.strategy, self.our_trials = peers["ours"]["strategy"], peers["ours"]["trials"]
        self.rounds, self.retime, self.limit_s = peers["rounds"], bool(peers["retime"]), float(peers["limit_s"])
        self.folder, self.results = Path(plain["output"]), plain["results"]
        self.environment, self.pip = Path(peers["environment"] or self.folder / "env"), tuple(map(str, peers["pip"]))
        self.device = get_backend("cpu", self.hardware).device(self.hardware)

    def ours(self, op: Operator, seed: int) -> Plan:
        """Return the plan of our search on an operator."""
        version = f"{self.strategy}, code {code_digest()}"
        return Plan(OURS, str(op), self.our_trials, seed, self.hardware.units, self.device, version)

    def theirs(self, op: Operator, trials: int, seed: int) -> Plan:
        """Return the plan of TVM's search on an operator."""
        packages = requirements()
        version = f"{PACKAGE} {packages[PACKAGE]}, xgboost {packages['xgboost']}, settings {SETTINGS}"
        return Plan(TVM, str(op), trials, seed, self.hardware.units, self.device, version)

    def plans(self, op: Operator) -> list[Plan]:
        """Return the plans of all searches on an operator."""
        mine = [self.ours(op, seed) for seed in self.seeds]
        return mine + [self.theirs(op, trials, seed) for trials in self.trials for seed in self.seeds]


def has_workload(op: Operator) -> bool:
    """Return whether tvm_worker.py can express the operator in TVM."""
    plain = op.dtype == "float32" and not op.epilogue
    return plain and (op.name == "gemm" or (op.name == "conv2d" and dict(op.arguments).get("groups", 1) == 1))


def compile_ours(study: Study) -> None:
    """Run one trial that does not count, so that Numba compiles and caches our code before the searches; may raise Stopped."""
    search_ours(study, str(operators.resolve_one(WARM_UP)), 1, 0, study.folder / "compile")


def search_ours(study: Study, operator: str, trials: int, seed: int, folder: Path) -> dict[str, Any]:
    """Search an operator with our compiler in a new process and return the answer; raise Stopped if it fails."""
    asked = {"operator": operator, "trials": trials, "seed": seed, "strategy": study.strategy}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    start = [sys.executable, "-m", "experiments.peers.ours"]
    return answer_of(start, asked, folder, study.limit_s, {**os.environ, "PYTHONPATH": paths})


def search_tvm(study: Study, op: Operator, plan: Plan, tvm: TvmEnvironment, folder: Path) -> dict[str, Any]:
    """Search an operator with TVM in a new process and return the answer; raise Stopped if it fails."""
    cores = len(os.sched_getaffinity(0))
    asked: dict[str, Any] = {"name": op.name, "arguments": dict(op.arguments), "trials": plan.trials, "seed": plan.seed}
    asked |= {"threads": plan.threads, "cores": cores, "folder": str(folder.absolute()), "lock": str(lock_path())}
    return answer_of([str(tvm.python), "-P", str(WORKER)], asked, folder, study.limit_s, tvm.variables(plan.threads, cores))


def answer_of(
    start: list[str], asked: dict[str, Any], folder: Path, limit_s: float, variables: dict[str, str]
) -> dict[str, Any]:
    """Write a request to the folder, run the program `start` that answers it, and return its answer.

    Raise Stopped if the program fails or takes more than `limit_s` seconds.
    """
    request, answer = ((folder / name).absolute() for name in ("request.json", "answer.json"))
    write_text(request, json.dumps(asked))
    run_process([*start, str(request), str(answer)], folder / "log.txt", limit_s, variables)
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


def searches(study: Study, tvm: TvmEnvironment, runs: Runs, console: Console) -> list[str]:
    """Run the searches that have no result yet; return the errors, each with the name of its search."""
    wrong: list[str] = []
    todo = [(op, plan) for op in study.tasks for plan in study.plans(op) if runs.get(plan) is None]
    if any(plan.system == OURS for _, plan in todo):
        with console.status("compiling our code where that was not done before"):
            compile_ours(study)
    for number, (op, plan) in enumerate(todo, 1):
        name = f"{plan.label} on {op}"
        try:
            with console.status(f"search {number} of {len(todo)}: {name}"):
                run = runs.put(search(study, op, plan, tvm))
        except Stopped as error:
            wrong.append(f"{name}: {error}")
            console.print(f"FAILED {wrong[-1]}", style="yellow", markup=False, soft_wrap=True)
            continue
        costs = f"{seconds_text(run.best_s)} after {run.tried} trials, {run.tuning_s:.1f} s (start-up {run.startup_s:.1f} s)"
        console.print(f"{name}: {costs}", highlight=False, soft_wrap=True)
    return wrong


def search(study: Study, op: Operator, plan: Plan, tvm: TvmEnvironment) -> Run:
    """Run one search in a new process, after removing the files of an interrupted one; raise Stopped if it fails."""
    folder = study.folder / plan.system / plan.key
    shutil.rmtree(folder, ignore_errors=True)
    if plan.system == OURS:
        found = search_ours(study, plan.operator, plan.trials, plan.seed, folder)
        product = found.pop("schedule")
    else:
        found = search_tvm(study, op, plan, tvm, folder)
        product = f"{plan.system}/{plan.key}/best.so"
    measured = {name: found.pop(name) for name in ("startup_s", "tuning_s", "waited_s", "best_s", "tried", "valid")}
    return Run(plan=plan, product=product, conditions={**machine(), **found}, **measured)


def time_together(study: Study, tvm: TvmEnvironment, runs: Runs, console: Console) -> dict[str, Comparison]:
    """Time the best kernels of all searches on an operator together, for each operator; return the samples by operator."""
    backend = get_backend("cpu", study.hardware)
    retimer = Retimer(backend, study.hardware, study.rounds, study.folder / "comparisons")
    found = {}
    for op in study.tasks:
        made = [run for plan in study.plans(op) if (run := runs.get(plan)) is not None]
        schedules = {run.plan.label: Schedule.parse(run.product) for run in made if run.plan.system == OURS}
        kernels, dropped = retimer.kernels(op, schedules)
        kernels |= {
            run.plan.label: tvm_kernel(op, study.folder / run.product, tvm.libraries) for run in made if run.plan.system == TVM
        }
        with console.status(f"timing the winners on {op} together"):
            found[str(op)] = retimer.compare_kernels(op, kernels, dropped)
    return found


def compare(study: Study, console: Console) -> list[str]:
    """Run the missing searches, time their best kernels together, write the page and the lines of results; return the errors."""
    compilers()
    with console.status(f"making the environment of TVM in {study.environment}"):
        tvm = environment(study.environment, arguments=study.pip)
    runs = Runs(make_folder(study.folder))
    wrong = searches(study, tvm, runs, console)
    if not study.retime:
        return wrong
    comparisons = time_together(study, tvm, runs, console)
    pairs = [
        (runs.get(study.ours(op, seed)), runs.get(study.theirs(op, trials, seed)))
        for op in study.tasks for trials in study.trials for seed in study.seeds
    ]  # fmt: skip
    complete = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    summary = tvm_report.summarise(complete, comparisons)
    about = {"versions": requirements(), "strategy": study.strategy, "rounds": study.rounds, "threads": study.hardware.units}
    lines = tvm_report.lines(about | machine(), summary, [run for pair in complete for run in pair], comparisons)
    write_text(Path(f"{study.results}.jsonl"), "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    write_text(Path(f"{study.results}.md"), tvm_report.markdown(about | machine(), summary, wrong))
    tvm_report.pairs(summary).write_csv(Path(f"{study.results}.csv"))
    tvm_report.means(summary).show(console)
    console.print(f"Written: {study.results}.md, .csv and .jsonl", highlight=False, soft_wrap=True)
    return wrong


@configured("peers")
def run(config: DictConfig) -> None:
    """Run the comparison of a configuration and exit: code 1 if a search failed, 2 if nothing could run."""
    console = Console()
    begin = time.perf_counter()
    with refusals(Stopped):
        wrong = compare(Study(config), console)
    console.print(f"{time.perf_counter() - begin:.0f} s", highlight=False)
    sys.exit(1 if wrong else 0)


def main() -> None:
    """Run the comparison with the settings of the command line."""
    command_line(run)


if __name__ == "__main__":
    main()
