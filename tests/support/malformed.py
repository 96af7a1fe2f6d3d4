"""Inputs that are no good: files of every format that the commands read, and words on the command line.

A case is (words of the command, file or files that are there). `{here}` in a word is the folder of the case.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.results import FIELDS

BRACKETS = b"[" * 200_000
GEMM = "gemm(m=4, n=16, k=4)"
MODEL = ["hardware=cascade_lake", "backend=analytic", "strategy=random_walk", "trials=1"]
SCHEDULE = "tile[1x1x1x1x1x1x1x1 1x1x1x1x1x1x1x1 1x1x1x1x1x1x1x1 1x1x1x1x1x1x1x1] vthread[1x1x1x1x1x1x1x1] level=0"
CERTIFICATE: dict[str, Any] = {
    "operator": GEMM, "hardware": "h200", "space": "compact", "fingerprint": "0", "method": "enumeration", "latency": "0x1p-20",
    "schedule": SCHEDULE, "optima": 1, "candidates": 1, "visited": 1, "evaluated": 1, "pruned": 0, "bound": "0x1p-20",
    "seconds": 1.0,
}  # fmt: skip
RECORD: dict[str, Any] = {
    "operator": GEMM, "schedule": SCHEDULE, "status": "OK", "samples": [1e-6], "device": "d", "conditions": {}, "digest": "1",
}  # fmt: skip
CARD: dict[str, Any] = {
    "agent": "columns", "config": {"agent": {"width": 8}, "env": {"hardware": "h200", "space": "gensor"}}, "layout": 1,
    "sees": 2, "operators": [GEMM], "training_seconds": 1.0,
}  # fmt: skip
Files = dict[str, bytes]


def text(value: object, **changed: object) -> bytes:
    """A JSON value, of an object with other values."""
    return json.dumps({**value, **changed} if isinstance(value, dict) else value).encode()


def without(value: dict[str, Any], name: str) -> bytes:
    """An object that lacks a key."""
    return text({key: part for key, part in value.items() if key != name})


@cache
def bomb(size: int) -> bytes:
    """Gzip data that unfold to so many spaces: a member of a mebibyte, again and again."""
    return gzip.compress(b" " * (1 << 20), 1, mtime=0) * (size >> 20)


def archive(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return made.getvalue()


def tensors(**arrays: np.ndarray) -> bytes:
    """A safetensors file."""
    from safetensors.numpy import save

    return save(arrays)


class Canary:
    """What unpickling of it does is seen: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.path,)


def canary(path: Path) -> bytes:
    """A pickle that makes a file when it is read."""
    return pickle.dumps(Canary(path))


TRAIN = [
    "train", "agent=a2c", "agent.net_arch=[8]", "num_envs=2", "steps=32", "operators=['gemm(m=4, n=16, k=8)']",
    "env.hardware=h200", "env.space=gensor", "eval_operators=['gemm(m=4, n=16, k=4)']", "wandb.mode=disabled",
    "output={here}/out",
]  # fmt: skip
TUNED = [
    "fine_tune", "checkpoint=agents/data/policies/columns_cpu", "operators=['gemm(m=256, n=128, k=128)']",
    "env.hardware=cascade_lake", "env.backend=analytic", "measurements=1", "store={here}/s.sqlite", "output={here}/out",
]  # fmt: skip
COLUMNS = [
    "optimize", GEMM, "hardware=h200", "backend=analytic", "trials=1", "strategy=columns",
    "strategies.columns.checkpoint={here}",
]  # fmt: skip
PPO = [*COLUMNS[:-2], "strategy=ppo", "strategies.ppo.checkpoint={here}", "strategies.ppo.episodes=2"]
COMPARE = [
    "compare", f"operator={GEMM}", "strategy=random_walk", "backend=analytic", "hardware=h200", "wandb.mode=disabled",
    "output={here}/out",
]  # fmt: skip
CHECK, ENTRIES = ["check_certificates", "{here}/a.jsonl"], ["leaderboard", "--folder", "{here}"]
LEARN = ["train_recorded", "output={here}/out"]
IMPORT = ["store", "import", "{here}/s.sqlite"]
SPACE, ZIPPED = "spaces=[{here}/a.json]", "spaces=[{here}/a.json.gz]"
CORRECT = ["learn_correction", "measured={here}/m.jsonl", "output={here}/out"]
STORE = ["store", "list", "{here}/a.sqlite"]
FROZEN = ["submit", "--frozen", "v1", "--track", "few_trials_no_model", "--output", "{here}/out"]
PPO_CARD = {**CARD, "agent": "ppo", "config": {"agent": {"net_arch": [8], "learning_rate": 1e-3}, "env": CARD["config"]["env"]}}

CASES: dict[str, tuple[list[str], Files]] = {
    # words
    "an operator in other letters": (["compare", "operator=гемм(m=4)", "strategy=random"], {}),
    "an operator that is none": (["compare", "operator=гемм", "strategy=random"], {}),
    "a machine that is none": (["compare", f"operator={GEMM}", "hardware=H9000"], {}),
    "a bracket that is open": (["optimize", "gemm(m=4"], {}),
    "a negative size": (["optimize", "gemm(m=-4, n=16, k=4)"], {}),
    "a size beyond all": (["optimize", f"gemm(m={10**30}, n=16, k=4)"], {}),
    "a setting that is none": (["compare", f"operator={GEMM}", "nothing=1"], {}),
    "a setting that does not read": (["compare", f"operator={GEMM}", "seed=[0"], {}),
    "a setting of another type": (["compare", f"operator={GEMM}", "budget.trials=many", "strategy=random"], {}),
    "a graph nested 500 deep": (["optimize", "def f(x: float32[4, 4]):\n    y = " + "-" * 500 + "x\n    return y\n"], {}),
    "a graph nested 200,000 deep": (["optimize", "def f(x: float32[4, 4]):\n    y = " + "(" * 200_000 + "x\n    return y\n"], {}),
    "a graph of values beyond all": (["optimize", f"def f(x: float32[{10**30}]):\n    y = exp(x)\n    return y\n", *MODEL], {}),
    "a graph of nothing": (["optimize", "def f(x: float32[4, 4]):\n    y = concat(axis=0)\n    return y\n", *MODEL], {}),
    "a fused operator of negative rows": (["optimize", "softmax(m=-4, n=16)", *MODEL], {}),
    "a truth value that is none": (["optimize", GEMM, *MODEL, "reuse=maybe"], {}),
    "a source that is a folder": (["optimize", GEMM, *MODEL, "source={here}"], {}),
    "a store that is a folder": (["optimize", GEMM, *MODEL, "store={here}"], {}),
    "a seed that is no number": (["train", "seed=x", "output={here}/out"], {}),
    "a rate of learning that is none": ([*TRAIN, "agent.learning_rate=fast"], {}),
    "a rate of learning beyond all": ([*TRAIN, "agent.learning_rate=1e999"], {}),
    "layers of less than nothing": ([*TRAIN, "agent.net_arch=[-8]"], {}),
    "a training that goes on perhaps": ([*TRAIN, "resume=maybe"], {}),
    "days that are none": (["store", "prune", "{here}/a.sqlite", "--older-than", "nan"], {"a.sqlite": b""}),
    "rungs that are none": (["tune", "rungs=3", "output={here}/out"], {}),
    "threads that are no number": (["train", "torch_threads=a", "output={here}/out"], {}),
    "a sweep over a strategy that is none": (["compare", "-m", f"operator={GEMM}", "strategy=[nobody],[markov]"], {}),
    "a plugin that is none": (["certify", GEMM, "plugins=[nobody]"], {}),
    "an output that is a file": (["compare", f"operator={GEMM}", "strategy=random", "output={here}/file/x"], {"file": b""}),
    "two operators": (["optimize", GEMM, GEMM, *MODEL], {}),
    "an operator that is called": (["optimize", "gemm(m=4).freeze()", *MODEL], {}),
    "a size that is a word": (["optimize", "gemm(m=nan, n=16, k=4)"], {}),
    "settings that are a number": (["compare", f"operator={GEMM}", "strategy=random", "measure=3"], {}),
    "a fine-tuning without an output": (["fine_tune", "checkpoint=nowhere"], {}),
    "an export that cannot be written": (["optimize", GEMM, *MODEL, "export={here}/file/x"], {"file": b""}),
    "steps of a rollout that are none": ([*TRAIN, "agent.n_steps=0"], {}),
    "settings of a strategy that are a number": (["optimize", GEMM, *MODEL, "strategies.random_walk=3"], {}),
    "settings of a study's strategy that are a number": (["generalise", "strategies.markov=3", "output={here}/out"], {}),
    "settings of a suite that are a number": (["bench", "suite=env", "env=3", "output={here}/out"], {}),
    "figures that may be": ([*COMPARE, "figures=maybe"], {}),
    "a study of no parts": (["fused_study", "parts=[]", "output={here}/out"], {}),
    "a study of no seeds": (["fused_study", "seeds=[]", "output={here}/out"], {}),
    "a study of no agents": (["stock", "seeds=[]", "output={here}/out"], {}),
    "a study of no machines": (["machines", "machines=[]", "output={here}/out"], {}),
    "a study of no operators": (["machines", "operators=0", "output={here}/out"], {}),
    # certificates
    "certificates: brackets": (CHECK, {"a.jsonl": BRACKETS}),
    "certificates: a field missing": (CHECK, {"a.jsonl": without(CERTIFICATE, "bound")}),
    "certificates: a field of another type": (CHECK, {"a.jsonl": text(CERTIFICATE, latency=1)}),
    "certificates: a negative count": (CHECK, {"a.jsonl": text(CERTIFICATE, visited=-3)}),
    "certificates: no number": (CHECK, {"a.jsonl": text(CERTIFICATE, latency="fast")}),
    # stores and tables of timings
    "timings: text as samples": ([*IMPORT, "{here}/a.jsonl"], {"a.jsonl": text(RECORD, samples=["fast"])}),
    "timings: negative seconds": ([*IMPORT, "{here}/a.jsonl"], {"a.jsonl": text(RECORD, samples=[-1.0])}),
    "timings: conditions that are a list": ([*IMPORT, "{here}/a.jsonl"], {"a.jsonl": text(RECORD, conditions=[1])}),
    "timings: a schedule of negative tiles": (
        [*IMPORT, "{here}/a.jsonl"], {"a.jsonl": text(RECORD, schedule=SCHEDULE.replace("tile[1x", "tile[-1x"))}),
    "timings: no gzip": ([*IMPORT, "{here}/a.jsonl.gz"], {"a.jsonl.gz": b"\x1f\x8b\x08nothing"}),
    "timings: no Parquet": ([*IMPORT, "{here}/a.parquet"], {"a.parquet": b"PAR1" + b"\0" * 40 + b"PAR1"}),
    "timings: another ending": ([*IMPORT, "{here}/a.txt"], {"a.txt": b""}),
    "a store that is text": (STORE, {"a.sqlite": b"not a database, though it is long enough to have been one" * 20}),
    "a store that is empty": (STORE, {"a.sqlite": b""}),
    "certificates: no file": (CHECK, {}),
    "a search of no seconds": (["certify", GEMM, "--space", "compact", "--output", "{here}/a.jsonl", "--seconds", "-1"], {}),
    "an episode that goes on behind its end": (["explain", GEMM, "--space", "compact", "--actions", "stop stop"], {}),
    "an entry of no seeds": ([*FROZEN, "random", "--seeds", "0"], {}),
    "an entry of more seeds than there are": ([*FROZEN, "random", "--seeds", "11"], {}),
    "an entry of a strategy that is none": ([*FROZEN, "nobody"], {}),
    "an entry: brackets": (ENTRIES, {"v1/me/few_trials.jsonl": BRACKETS}),
    "an entry: a header that is a list": (ENTRIES, {"v1/me/few_trials.jsonl": b"[]"}),
    "an entry: no UTF-8": (ENTRIES, {"v1/me/few_trials.jsonl": b"\xff\xfe{}"}),
    "an entry: a key twice": (ENTRIES, {"v1/me/few_trials.jsonl": b'{"id": 1, "id": 2}'}),
    "a store that is cut off": (STORE, {"a.sqlite": b"SQLite format 3\0" + b"\x10\0" * 60}),
    # recorded spaces
    "a space: numbers as a cache": ([*LEARN, SPACE], {"a.json": b'{"cache": 7, "tune_params_keys": 3}'}),
    "a space: results that are text": ([*LEARN, SPACE], {"a.json": b'{"results": "many"}'}),
    # policies
    "a policy: a card that lacks all": (COLUMNS, {"card.json": b"{}", "policy.safetensors": b""}),
    "a policy: a card of another layout": (COLUMNS, {"card.json": text(CARD, layout=99), "policy.safetensors": b""}),
    "a policy: a card without settings": (COLUMNS, {"card.json": text(CARD, config=[1]), "policy.safetensors": b""}),
    "a policy: no card": (COLUMNS, {"policy.safetensors": b""}),
    "a policy: no tensors": (COLUMNS, {"card.json": text(CARD), "policy.safetensors": b"\xff" * 64}),
    "a policy: tensors of another network": (COLUMNS, {"card.json": text(CARD), "policy.safetensors": tensors(a=np.zeros(3))}),
    "a policy: numbers that are not finite": (
        COLUMNS, {"card.json": text(CARD), "policy.safetensors": tensors(a=np.full(3, np.nan))}),
    "a policy: a width beyond all": (
        COLUMNS, {"card.json": text(CARD, config={**CARD["config"], "agent": {"width": 10**9}}), "policy.safetensors": b""}),
    "a policy that walks: no widths": (PPO, {"card.json": text(PPO_CARD), "policy.safetensors": tensors(a=np.zeros(3))}),
    "a policy that walks: layers beyond all": (
        PPO, {"card.json": text(PPO_CARD, config={"agent": {"net_arch": [10**9]}, "env": CARD["config"]["env"]}),
              "policy.safetensors": tensors()}),
    "a policy of stable-baselines3": (PPO, {"card.json": text(PPO_CARD), "policy.zip": archive({"data": b"{}"})}),
    # trainings
    "a checkpoint: no archive": (TRAIN, {"out/last.zip": b"nothing"}),
    "a checkpoint: cut off": (TRAIN, {"out/last.zip": archive({"begun.json": b"{}" * 99})[:-30]}),
    "a checkpoint: of an earlier version": (TRAIN, {"out/last.zip": archive({"state.pkl": b"", "model.zip": b""})}),
    "a checkpoint: compressed": (
        TRAIN, {"out/last.zip": archive(dict.fromkeys(("begun.json", "state.json", "arrays.safetensors"), b"{}"), 8)}),
    "a checkpoint: of another configuration": (
        TRAIN, {"out/last.zip": archive(dict.fromkeys(("begun.json", "state.json", "arrays.safetensors"), b"{}"))}),
    "a fine-tuning: its checkpoint of brackets": (
        TUNED, {"out/last.zip": archive({"begun.json": b"{}", "state.json": BRACKETS, "arrays.safetensors": tensors()})}),
    "a fine-tuning: a measurement without a kernel": (TUNED, {"out/measured.jsonl": b'{"operator": "gemm(m=4, n=4, k=4)"}\n'}),
    "a curve of a training: no steps": (TRAIN, {"out/curve.jsonl": b'{"mean_return": 1.0}\n'}),
    "a card of a training: no configuration": (TRAIN, {"out/card.json": text(CARD, config=3), "out/policy.safetensors": b""}),
    "trials: a row of something else": (COMPARE, {"out/results.jsonl": b'{"job": "1", "trial": 0}\n'}),
    "trials: a number that is text": (
        COMPARE, {"out/results.jsonl": text(dict.fromkeys(FIELDS, "x"))}),
    "trials: a name that is a list": (COMPARE, {"out/results.jsonl": text(dict.fromkeys(FIELDS, []))}),
    "measurements: a field missing": (CORRECT, {"m.jsonl": b'{"operator": "gemm(m=4, n=4, k=4)"}'}),
    "measurements: a field of another type": (CORRECT, {"m.jsonl": b'{"operator": 7, "seconds": 1.0}'}),
    "measurements: no object": (CORRECT, {"m.jsonl": b'{"seconds": null}\n3\n'}),
    # results
    "a sweep: cards without a configuration": (["sweep_table", "{here}"], {"a/card.json": b'{"evaluation": {}}'}),
    "results: no folder": (["report", "{here}/nowhere"], {}),
    "results: facts of brackets": (["evidence", "{here}"], {"raw/facts.json": BRACKETS}),
    "results: facts of others": (["evidence", "{here}"], {"raw/facts.json": b'{"nothing": 1}'}),
    # operators
    "operators: a folder": (["export", "{here}", "folder={here}/out"], {}),
    "operators: none": (["export", "{here}/ops.txt", "folder={here}/out"], {"ops.txt": b"# nothing\n"}),
    "operators: not as operators": (["export", "{here}/ops.txt", "folder={here}/out"], {"ops.txt": b"import os\n"}),
}  # fmt: skip

SAID = {
    "two operators": "expected a setting, as in NAME=VALUE",
    "an operator that is called": "does not read: expected NAME=VALUE",
    "a size that is a word": "expected literals as arguments: numbers, strings in quotes, pairs",
    "settings that are a number": "measure is 3; expected settings, as in measure.pool=VALUE",
    "a fine-tuning without an output": "no output: name it, as in output=VALUE",
    "an export that cannot be written": "cannot be written",
    "a study of no machines": "machines is []; expected a list or mapping of one entry or more",
    "a study of no operators": "operators is 0; expected a whole number, 1 or more",
    "certificates: no file": "no file",
    "an episode that goes on behind its end": "expected nothing behind stop",
    "steps of a rollout that are none": "agent.n_steps is 0; expected a whole number, 1 or more",
    "settings of a strategy that are a number": "strategies.random_walk is 3; expected settings",
    "an entry of no seeds": "--seeds 0: expected 1 to 10",
    "measurements: no object": "m.jsonl, line 2 does not read",
    "operators: a folder": "is a folder: expected a file",
}
"""Of some cases what the line says."""


def put(here: Path, files: Files) -> None:
    """Write the files of a case."""
    for name, data in files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
