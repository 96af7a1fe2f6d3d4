"""The command line: `gensor COMMAND ..` is the same as `python -m experiments COMMAND ..`.

`COMMANDS` has an entry for every command, with its module, its description and two examples. Only `compare`, `reproduce`,
`bench` and `gpu` can also be run by `python -m experiments.COMMAND`; each has a module next to this one. Slow imports run after
the signal handlers are installed. Before that, a signal ends the process with Python's own message.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TextIO

from agents.cli.refusal import DEBUG, whole_output
from agents.cli.stopping import stoppable


@dataclass(frozen=True)
class Command:
    """A command of `gensor`: the function that runs it, its description and examples of its use."""

    target: str
    """The function that runs the command, as module:function; it reads its arguments from sys.argv."""
    about: str
    examples: tuple[str, str]
    """Arguments of two examples of its use, without the command's name."""
    goes_on: bool = True
    """Whether the same command resumes a stopped run. Otherwise it starts again, which mostly takes seconds."""


COMMANDS = {
    "optimize": Command(
        "agents.kernels.optimize:main",
        "find a fast kernel for one operator, and take it away",
        ("'gemm(m=512, n=512, k=512)'", "'gemv(m=512, k=512)' strategy=roller trials=4 export=outputs/gemv"),
    ),
    "export": Command(
        "agents.kernels.export:main",
        "take the kernels of a file of operators away, as one library with a C header",
        ("operators.txt folder=outputs/library", "operators.txt folder=outputs/library trials=16 strategy=markov_ext"),
    ),
    "compare": Command(
        "experiments.comparison.compare:main",
        "strategies under equal budgets on one machine, their winners timed again together",
        ("operator='gemm(m=512, n=384, k=1000)' strategy=[markov,random]", "experiment=smoke seed=0,1 -m"),
    ),
    "collect": Command(
        "agents.recording.collect:main",
        "record the times of programs of many operators on this machine: Measured v1",
        ("output=outputs/measured cpu=1", "operators=20"),
    ),
    "minari": Command(
        "agents.recording.minari_episodes:main",
        "programs of Measured v1 as a Minari data set: episodes with the reward of real times",
        ("operators=100", "machine=zen4_avx2_1c part=validation operators=null"),
        goes_on=False,
    ),
    "adapt": Command(
        "agents.recording.adapt:main",
        "time programs on this machine for ten minutes; Python's searches then learn from the times",
        ("minutes=10", "minutes=10 cpu=1"),
    ),
    "study": Command(
        "experiments.studies.search.study:main",
        "many strategies on recorded tasks, with regrets and their intervals",
        ("experiment=recorded", "experiment=recorded_h100 strategy=[markov,random]"),
    ),
    "cpu_study": Command(
        "experiments.studies.headline.cpu:main",
        "learned cost models and searches on this CPU, on operators that nothing learned from",
        ("cpu=1 output=outputs/cpu_study", "arms=elsewhere deep=0"),
    ),
    "train": Command(
        "agents.training.train:main",
        "train a policy on the analytic cost model",
        ("agent=ppo output=outputs/ppo", "agent=columns env.hardware=h200 output=outputs/columns"),
    ),
    "fine_tune": Command(
        "agents.training.fine_tuning.fine_tune:main",
        "go on training a policy with measured rewards",
        (
            "checkpoint=agents/data/policies/columns_cpu output=outputs/fine_tuned",
            "checkpoint=outputs/ppo output=outputs/ppo_tuned seconds=600",
        ),
    ),
    "train_recorded": Command(
        "agents.training.recorded_spaces:main",
        "train a policy in recorded tuning spaces",
        (
            "'spaces=[gensor_gym/data/spaces/benchmark_hub/gemm/RTX_3090.json.gz]' output=outputs/gemm_3090",
            "spaces=[mine.json] steps=50000",
        ),
        goes_on=False,
    ),
    "learn_correction": Command(
        "agents.training.learn_correction:main",
        "learn a cost model from measured times, which corrects the analytic one",
        (
            "measured=outputs/fine_tuned/measured.jsonl output=outputs/correction",
            "measured=measured.jsonl output=outputs/correction env.space=gensor",
        ),
        goes_on=False,
    ),
    "sweep_table": Command(
        "experiments.tuning.sweep_table:main",
        "what came of a sweep of trainings, a line for every setting",
        ("outputs/sweep", "multirun/shaping"),
        goes_on=False,
    ),
    "generalise": Command(
        "experiments.studies.generalise.study:main",
        "trained policies, and search by the analytic cost model, on operators that nothing was trained on",
        ("evaluations=4096 output=outputs/generalise", "evaluations=512 env.hardware=a100 output=outputs/generalise_a100"),
    ),
    "fused_study": Command(
        "experiments.studies.fused:main",
        "searches of fused operators by the analytic cost model, and a learned policy",
        ("output=outputs/fused", "'parts=[fused/unseen]' 'seeds=[0]' output=outputs/unseen"),
    ),
    "stock": Command(
        "experiments.studies.stock.study:main",
        "stock learners of stable-baselines3 in the environments, a minute each",
        ("output=outputs/stock", "'tested=gemm(m=512, n=32, k=512)' output=outputs/one"),
    ),
    "machines": Command(
        "experiments.studies.machines:main",
        "policies that see the machine, trained on drawn machines, on held-out real ones",
        ("output=outputs/machines", "'machines=[t4]' operators=4 output=outputs/t4"),
    ),
    "cost_models": Command(
        "experiments.studies.cost_models.study:main",
        "learners that rank the recorded programs of Measured v1, and which programs to record next",
        ("output=outputs/cost_models", "operators=100 'seeds=[0]' 'replayed=[zen4_1c]' output=outputs/few"),
    ),
    "transfer_recorded": Command(
        "experiments.studies.transfer_recorded.study:main",
        "policies trained on recordings of one real GPU, tested on others",
        ("output=outputs/transfer_recorded", "output=outputs/transfer_recorded steps=20000"),
    ),
    "tune": Command(
        "experiments.tuning.tune:main",
        "choose the values of a traverser on train and validation operators",
        ("tune=markov", "tune=markov_ext"),
    ),
    "tune_budgets": Command(
        "experiments.tuning.tune_budgets:main",
        "choose the values of a search for what it may spend: evaluations of the cost model, or seconds",
        ("choices=markov", "choices=model_annealing"),
    ),
    "record": Command(
        "agents.recording.record:main",
        "record tables of timings that others can search without this machine",
        (
            "operator='gemm(m=64, n=64, k=64)' space=compact machine=mine",
            "operator='gemv(m=512, k=512)' space=compact machine=mine",
        ),
    ),
    "store": Command(
        "agents.recording.store:main",
        "list, export, import, merge and prune stores of trials",
        ("list outputs/compare/trials.sqlite", "prune outputs/compare/trials.sqlite --older-than 30"),
        goes_on=False,
    ),
    "task_cards": Command(
        "agents.recording.task_cards:main",
        "a card of each task: how large its space is, what is known of it",
        ("'gemm(m=512, n=512, k=512)'", "'gemm(m=512, n=512, k=512)' --space compact"),
        goes_on=False,
    ),
    "certify": Command(
        "agents.exact.certify:main",
        "certify optima of the analytic model",
        ("'gemm(m=512, n=512, k=512)'", "'gemm(m=512, n=512, k=512)' --space gensor"),
        goes_on=False,
    ),
    "check_certificates": Command(
        "agents.exact.check_certificates:main",
        "check certificates",
        ("gensor_gym/data/certificates/h200_gensor.jsonl", "gensor_gym/data/certificates/h200_gensor.jsonl --samples 1000000"),
        goes_on=False,
    ),
    "explain": Command(
        "agents.exact.explain:main",
        "what an episode or a schedule lost against the optimum, step by step",
        (
            "'gemm(m=512, n=512, k=512)' --actions 'tile[4] cache tile[3] stop'",
            "'gemm(m=64, n=64, k=64)' --hardware h100 --actions stop",
        ),
        goes_on=False,
    ),
    "explore": Command(
        "agents.explore.__main__:main",
        "a local page on which a program is constructed, by hand or by a strategy",
        ("'gemm(m=512, n=512, k=512)'", "'gemv(m=4096, k=4096)' --machine h200 --space extended"),
    ),
    "mcp": Command(
        "agents.mcp.server:main",
        "tools for agents that write kernels, by the Model Context Protocol on standard input and output",
        ("", "--machine h200 --backend analytic"),
        goes_on=False,
    ),
    "submit": Command(
        "experiments.board.submit:main",
        "search the tasks of the frozen suite, as an entry of its leaderboard",
        ("markov roller", "--agent my_agent.py:agent --name mine --track few_trials_no_model --output entries"),
    ),
    "leaderboard": Command(
        "experiments.board.leaderboard:main",
        "verify entries of the frozen suite, and say where they stand",
        ("--check", "--folder entries"),
        goes_on=False,
    ),
    "reproduce": Command(
        "experiments.tables.reproduce:main",
        "tables of the papers, with the published numbers",
        ("table=gensor_operators", "table=sim_to_real"),
    ),
    "report": Command(
        "experiments.reports.report:main",
        "one HTML page of everything that was run",
        ("outputs", "outputs results --output report.html"),
        goes_on=False,
    ),
    "bench": Command(
        "experiments.benches.bench:main",
        "benchmarks of the project itself",
        ("suite=env", "suite=kernels"),
    ),
    "gpu": Command(
        "experiments.device.gpu:main",
        "everything that wants an NVIDIA GPU, in one command of ten minutes",
        ("out=outputs/gpu", "stages=correctness,operators deadline_s=300"),
    ),
    "evidence": Command(
        "experiments.evidence.__main__:main",
        "pages and tables from the files of a run on a GPU",
        ("results/h200", "take outputs/lease"),
        goes_on=False,
    ),
    "mutations": Command(
        "experiments.mutations.__main__:main",
        "whether the tests catch planted faults",
        ("now --mode quick", "now --mode named"),
    ),
    "conformance": Command(
        "experiments.conformance.__main__:main",
        "whether compiled functions give the numbers of torch's operator database",
        ("", "--output outputs/conformance"),
    ),
}  # fmt: skip
"""Commands by their names on the command line."""


SECTIONS = {
    "Kernels": ("optimize", "export", "explore", "mcp", "adapt"),
    "Searches": ("compare", "report", "submit", "leaderboard", "study", "reproduce"),
    "Training": ("train", "fine_tune", "train_recorded", "learn_correction", "sweep_table", "tune", "tune_budgets"),
    "Data": ("store", "record", "collect", "minari", "task_cards", "certify", "check_certificates", "explain"),
    "Studies": ("generalise", "machines", "transfer_recorded", "stock", "cpu_study", "cost_models", "fused_study"),
    "For maintainers": ("bench", "gpu", "evidence", "mutations", "conformance"),
}
"""Heading of the overview -> its commands, most used first."""


def main() -> None:
    """Run the command that the command line names, or list all commands without a name; exit code 2 for an unknown command."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        with whole_output():
            print(overview())
        return
    name = words[0]
    if name not in COMMANDS:
        print(_refusal(name), file=sys.stderr)
        sys.exit(2)
    _run(name, words[1:])


def run_as_main(name: str, spec: ModuleSpec | None) -> None:
    """If a module runs as `python -m experiments.COMMAND`, run its command; do nothing if it is only imported.

    `name` and `spec` are the module's `__name__` and `__spec__`.
    """
    if name == "__main__" and spec is not None:
        _run(spec.name.rpartition(".")[2], sys.argv[1:])


def overview() -> str:
    """Return the text that lists all commands by section, one per line."""
    width = max(map(len, COMMANDS))
    lines = [
        line for section, names in SECTIONS.items()
        for line in (f"{section}:", *(f"  {name:{width}}  {COMMANDS[name].about}" for name in names), "")
    ]  # fmt: skip
    last = "gensor COMMAND --help says more of one; every command takes plugins=[NAME,..], and --debug to show errors whole."
    return "\n".join(["usage: gensor COMMAND ARGUMENTS", "", *lines, last])


def help_of(name: str) -> str:
    """Return the help text of a command: its description and its examples."""
    command = COMMANDS[name]
    return "\n".join([f"gensor {name}: {command.about}", *(f"  gensor {name} {words}" for words in command.examples), ""])


def _without_plugins(words: Sequence[str]) -> list[str]:
    """Load the plugins that `plugins=[NAME,..]` and the environment variable name; return the other arguments."""
    chosen = [word.removeprefix("plugins=") for word in words if word.startswith("plugins=")]
    from experiments.device.wheels import use_wheels

    use_wheels()  # a GPU machine lacks gymnasium, which gensor_gym imports
    from gensor_gym.plugins import load_named, load_plugins

    load_named()
    load_plugins(*(name for text in chosen for name in re.findall(r"[^][,\s]+", text)))
    return [word for word in words if not word.startswith("plugins=")]


def _refusal(name: str) -> str:
    from gensor_gym.registry import near

    return f"gensor: no command {name!r}; commands are {', '.join(COMMANDS)}{near(name, COMMANDS)}"


def _run(name: str, words: Sequence[str]) -> None:
    """Run a command with these arguments and exit with its code, which is 2 for a user's error."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra then raises its errors whole, and they are reported like all others
    if "--debug" in words:
        os.environ[DEBUG] = "1"
    words = [word for word in words if word != "--debug"]
    _open_streams()
    with stoppable(how_to_go_on(name, words)), whole_output():
        _in_any_letters(sys.stdout, sys.stderr)
        if set(words) & {"-h", "--help"}:
            print(help_of(name), flush=True)
        sys.argv[1:] = _without_plugins(words)
        module, _, function = COMMANDS[name].target.partition(":")
        code = getattr(import_module(module), function)()
    sys.exit(code)


def _open_streams() -> None:
    """Open standard output and error on the null device if they are closed; otherwise a later file could take their number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", encoding="utf-8"))  # noqa: SIM115


def _in_any_letters(*streams: TextIO) -> None:
    """Make the streams print `?` for a character that a terminal cannot show, so that it does not end the command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def how_to_go_on(name: str, words: Sequence[str]) -> str:
    """Return the message after a command was stopped: the command line that resumes or repeats it."""
    if name == "train":
        words = [word for word in words if not word.startswith("resume=")]  # a training resumes by default
    again = shlex.join(["gensor", name, *words])
    return f"This goes on from there: {again}" if COMMANDS[name].goes_on else f"This begins anew: {again}"
