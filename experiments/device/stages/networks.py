"""Stage: whole networks, their kernels chosen by the model beforehand, as one CUDA graph beside eager and compiled torch.

A row of a network has the errors of ours and of torch in float32 against torch in float64, all on the device, and interleaved
samples: ours; torch in float32; torch as users call it, whose convolutions may use tf32. All are replayed as CUDA graphs. Rows of
torch.compile come last, because compiling a network takes longer than all else.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common.journal import read_rows
from experiments.device.archive import networks
from experiments.device.archive.build import FOLDER
from experiments.device.context import Context
from experiments.device.work.beside_torch import Timer, interleaved
from experiments.device.work.trials import compilers, summary_of
from gensor_gym.codegen.deadlines import DEVICE_COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.networks.gpu.function import GpuNetwork

FILE = "networks.jsonl"
ROUNDS = 15
OURS, FLOAT32, DEFAULT, COMPILED = "gensor_gym", "torch, float32", "torch", "torch.compile"
Inputs = tuple[torch.Tensor, ...]


def run(context: Context) -> dict[str, object]:
    """Time each network, then each again with torch.compile; return the digest."""
    archive = networks.read(FOLDER / "carry")
    parts = ((f"{name}{of}", does) for of, does in (("", timed), (" compiled", compiled)) for name in networks.NAMES)
    with closing(context.journal(FILE)) as journal:
        for key, does in parts:
            if context.left > 0 and journal.pending(key):
                journal.begin(key)
                journal.put(key, tried(does, archive, key.split()[0], context.seed))
    return digest(Path(context.out), context.run)


def tried(does: Callable[..., dict[str, Any]], archive: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Row of a network with its seconds; an error is recorded, and the next network runs."""
    begin = time.perf_counter()
    try:
        said = does(archive, name, seed)
    except Exception as error:  # networks are independent, and a failure is a result
        said = {"error": f"{type(error).__name__}: {error}"[-600:], "trace": traceback.format_exc()[-2000:]}
    return {"network": name, **said, "took_s": time.perf_counter() - begin}


def timed(archive: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Errors and interleaved samples of a network, ours and eager torch's."""
    module, inputs, plan, kernels = networks.opened(archive, name)
    compile_together(kernels)
    function = GpuNetwork(plan, kernels)
    given = tuple(one.cuda() for one in inputs)
    reference = _called(module.double().cuda(), tuple(one.double() if one.is_floating_point() else one for one in given))
    module = module.float()
    ours = function(*given)
    found: dict[str, Any] = {
        "model_s": archive["networks"][name]["model_s"], "kernels": len(kernels), "launches": function.launches,
        "workspace_bytes": function.layout.workspace_bytes, "fixed_bytes": function.layout.fixed_bytes,
        "errors": {OURS: distance(ours, reference), FLOAT32: distance(_in(module, given, tf32=False)(), reference)},
    }  # fmt: skip
    timers = {OURS: replayed(function), **{of: _timer(_in(module, given, of == DEFAULT)) for of in (FLOAT32, DEFAULT)}}
    return {**found, **_sampled(timers, seed)}


def compiled(archive: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Interleaved samples of a network, ours and torch.compile's, as users call it."""
    module, inputs, plan, kernels = networks.opened(archive, name)
    function, given = GpuNetwork(plan, kernels), tuple(one.cuda() for one in inputs)
    function(*given)
    faster = torch.compile(module.cuda(), dynamic=False)
    return _sampled({OURS: replayed(function), COMPILED: _timer(_in(faster, given, tf32=True))}, seed)


def compile_together(kernels: list[Kernel]) -> None:
    """Compile different kernels on many cores; they are then in NVRTC's cache. CompileFailed names a kernel that fails."""
    pool = CompilePool(compilers(), seconds=DEVICE_COMPILE_SECONDS)
    with closing(pool), ThreadPoolExecutor(compilers()) as threads:
        list(threads.map(pool, {kernel.digest: kernel for kernel in kernels}.values()))


def distance(found: Any, reference: Any) -> float:
    """Largest error over the largest magnitude of a network's outputs, an array or a tuple of several."""
    several = [tuple(one) if isinstance(one, tuple | list) else (one,) for one in (found, reference)]
    pairs = [(torch.as_tensor(one).double(), wanted) for one, wanted in zip(*several, strict=True)]
    return max(float((one - wanted).abs().max() / wanted.abs().max()) for one, wanted in pairs)


def replayed(function: GpuNetwork) -> Timer:
    """Timer of a network's graph with the inputs of its last call."""
    import cupy

    held = function.loaded()
    stream = cupy.cuda.Stream(non_blocking=True)

    def seconds(calls: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        for _ in range(calls):
            held.graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    return seconds


def _in(module: Any, given: Inputs, tf32: bool) -> Callable[[], Any]:
    """A call of the module, whose convolutions may use tf32 or may not; products may not, as is torch's default."""

    def call() -> Any:
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = tf32, True
        return _called(module, given)

    return call


def _called(module: Any, given: Inputs) -> Any:
    with torch.no_grad():
        return module(*given)


def _timer(call: Callable[[], Any]) -> Timer:
    from gensor_gym.measure.baselines.torch_cuda import Replayed

    return Replayed(call).time


def _sampled(timers: dict[str, Timer], seed: int) -> dict[str, Any]:
    samples = interleaved(timers, ROUNDS, seed)
    return {"samples": samples, "seconds": {name: summary_of(values) for name, values in samples.items()}}


def digest(out: Path, run: str) -> dict[str, object]:
    """Largest errors and the time of torch over ours, by network."""
    rows = [row for row in read_rows(out / FILE) if row.get("run") == run]
    over: dict[str, dict[str, float]] = {}
    for row in rows:
        medians = {name: float(np.median(values)) for name, values in row.get("samples", {}).items()}
        others = {name: value / medians[OURS] for name, value in medians.items() if name != OURS}
        over[row["network"]] = {**over.get(row["network"], {}), **others}
    return {
        "over_ours": over, "errors_to_float64": {row["network"]: row["errors"] for row in rows if "errors" in row},
        "failed": {row["key"]: row["error"] for row in rows if "error" in row},
    }  # fmt: skip
