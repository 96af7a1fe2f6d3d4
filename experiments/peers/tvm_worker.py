"""One MetaSchedule search, run by the Python of TVM's environment: `python -P tvm_worker.py REQUEST.json ANSWER.json`.

It imports nothing of this repository, which is not installed there. `-P` keeps this folder off the path, because the folder
also has a module called tvm. The request has `name`, `arguments` (of the operator), `trials`, `seed`, `threads`, `cores`,
`folder` and `lock`; the answer has the measured fields of a run (see `experiments.peers.tvm`).

TVM's settings are its defaults: evolutionary search, XGBoost cost model, 64 trials an iteration, its local builder and runner.
There are two exceptions, both in TVM's favour. Importing `tvm.s_tir.tensor_intrin` parses the intrinsics of all processors,
which takes 17 to 36 seconds in this process and again in every builder process of every iteration. Here only the intrinsics of
x86 are parsed (no float32 kernel needs even these). And a build may take 120 seconds instead of 30.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()
BUILD_SECONDS = 120.0
FAILED_SECONDS = 1e9
"""Seconds from which on a time means a failure: MetaSchedule records 1e10 s for a failed candidate."""


def few_intrinsics() -> None:
    """Make `import tvm.s_tir.tensor_intrin` register only the intrinsics of x86, which takes seconds less."""
    import importlib
    import importlib.util
    import sys
    import types

    import tvm  # noqa: F401

    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or []) if spec else []
    sys.modules[name] = package
    importlib.import_module(f"{name}.x86")


def workload(name: str, arguments: dict[str, Any]) -> Any:
    """Return an operator as a TensorIR function in float32, with inputs in our order, then the output.

    Arrays are row-major, images NCHW and weights OIHW. Raise ValueError for an operator that is not supported.
    """
    from tvm import te, topi

    if name == "gemm":
        m, n, k = (arguments[axis] for axis in "mnk")
        a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
        axis = te.reduce_axis((0, k), name="k")
        c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
        return te.create_prim_func([a, b, c])
    if name == "conv2d" and arguments.get("groups", 1) == 1:
        x = te.placeholder(tuple(arguments[axis] for axis in "nchw"), name="X")
        w = te.placeholder(tuple(arguments[axis] for axis in "kcrs"), name="W")
        window = (arguments.get("stride", 1), arguments.get("padding", 0), arguments.get("dilation", 1))
        return te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, *window)])
    raise ValueError(f"operator {name!r} with {arguments}: expected gemm, or conv2d with one group")


@contextlib.contextmanager
def held(path: str, waited: list[float]) -> Iterator[None]:
    """Hold the machine's timing lock in the `with` block; append the seconds spent waiting for it to `waited`."""
    place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)  # the file exists, and may belong to another user
    try:
        begin = time.perf_counter()
        fcntl.flock(place, fcntl.LOCK_EX)
        waited.append(time.perf_counter() - begin)
        yield
    finally:
        os.close(place)


def locked_runner(lock: str, waited: list[float]) -> Any:
    """Return TVM's local runner, changed so that it holds the machine's timing lock while it times a batch."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import LocalRunner, PyRunner

    inner = LocalRunner()

    @derived_object
    class LockedRunner(PyRunner):
        def run(self, runner_inputs: list[Any]) -> list[Any]:
            with held(lock, waited):
                return list(inner.run(runner_inputs))

    return LockedRunner()


def target_of(threads: int) -> Any:
    """Return TVM's LLVM target for this processor and a number of threads."""
    from tvm.target import Target
    from tvm.target.codegen import llvm_get_system_cpu

    return Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num-cores": threads})


def search(request: dict[str, Any]) -> dict[str, Any]:
    """Tune the requested operator, save the best kernel as a shared library in the request's folder, and return the answer."""
    few_intrinsics()
    import tvm
    from tvm.s_tir import meta_schedule as ms

    folder = Path(request["folder"])
    waited: list[float] = []
    function, target = workload(request["name"], request["arguments"]), target_of(request["threads"])
    builder = ms.builder.LocalBuilder(
        max_workers=request["cores"], timeout_sec=BUILD_SECONDS, initializer=few_intrinsics
    )
    runner = locked_runner(request["lock"], waited)
    startup = time.perf_counter() - BEGIN
    with ms.Profiler() as profiler:
        database = ms.tir_integration.tune_tir(
            function, target, str(folder), request["trials"], builder=builder, runner=runner,
            num_tuning_cores=request["cores"], seed=request["seed"],
        )  # fmt: skip
    tuning = time.perf_counter() - BEGIN - startup
    times = [_seconds(record) for record in database.get_all_tuning_records()]
    valid = [seconds for seconds in times if seconds < FAILED_SECONDS]
    if not valid:
        raise RuntimeError(f"none of {len(times)} candidates ran; see {folder / 'logs'}")
    schedule = ms.tir_integration.compile_tir(database, function, target)
    module = folder / "best.so"
    tvm.compile(schedule.mod, target).export_library(str(module))
    return {
        "startup_s": startup,
        "tuning_s": tuning - sum(waited),
        "waited_s": sum(waited),
        "best_s": min(valid),
        "tried": len(times),
        "valid": len(valid),
        "target": str(target),
        "parts_s": {str(name): float(seconds) for name, seconds in profiler.get().items()},
    }


def _seconds(record: Any) -> float:
    """Return the mean seconds of a tuning record, by which MetaSchedule ranks it; `FAILED_SECONDS` if it has no samples."""
    runs = [float(seconds) for seconds in record.run_secs or ()]
    return sum(runs) / len(runs) if runs else FAILED_SECONDS


def main(request: Path, answer: Path) -> None:
    """Read the request, search, and write the answer."""
    found = search(json.loads(request.read_text(encoding="utf-8")))
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
