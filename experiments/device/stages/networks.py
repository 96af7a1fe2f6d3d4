"""Stage that compares whole networks, each as one CUDA graph, with eager and compiled torch.

The model chose the kernels beforehand.

A network's row has two errors against torch in float64 on the device: ours, and torch's error in the same data type. It also has
interleaved samples of ours, of torch in float32, and of torch as users call it, whose convolutions may use tf32. For bfloat16,
the samples of torch in float32 are missing. All are replayed as CUDA graphs. Rows of torch.compile come later, because compiling
a network takes longest. Last are rows of our kernels with dependent launches, and of kernels whose consumers take turns where
that is faster, with the distance of their outputs from the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import torch

from experiments.device.archive import networks
from experiments.device.archive.packed import CARRY
from experiments.device.context import Context
from experiments.device.work.beside_torch import Timer, interleaved
from experiments.device.work.prebuilt import Compilers, summary_of, timed_or_error
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.gpu.function import GpuNetwork

FILE = "networks.jsonl"
ROUNDS = 15
OURS, FLOAT32, DEFAULT, COMPILED = "gensor_gym", "torch, float32", "torch", "torch.compile"
DEPENDENT, PINGPONG = "gensor_gym, dependent launches", "gensor_gym, ping-pong"
LEAST, COMPILED_LEAST = 15.0, 40.0
"""Least seconds that must remain to begin a network, and to begin it with torch.compile."""
WARM = 0.15
"""Seconds for which each contestant runs before the rounds, because the GPU idles while networks are exported."""
FAR = {"float32": 1e-3, "bfloat16": 0.1}
"""Error above which a network counts as wrong, by data type, relative to the largest magnitude of the output.

It is large because errors grow over 50 layers.
"""
Inputs = tuple[torch.Tensor, ...]
Opened = tuple[Any, Inputs, GpuNetwork]


def run(context: Context) -> dict[str, object]:
    """Time each network, then each again with torch.compile; return the results.

    After an error the device is tested: if it is lost, this process ends, and the next process resumes.
    """
    archive, held = networks.read(CARRY), dict[str, Opened]()
    stages = ("", timed), (" compiled", compiled), (" dependent", dependent), (" pingpong", pingpong)
    parts = ((f"{name}{of}", does) for of, does in stages for name in networks.NAMES)
    with closing(context.journal(FILE)) as journal:
        for key, does in parts:
            if context.left > (COMPILED_LEAST if does is compiled else LEAST) and journal.pending(key):
                journal.once(key, tried, does, archive, key.split()[0], held, context.seed)
                if "error" in journal.done[key] and torch.cuda.is_available():
                    torch.cuda.synchronize()
    return digest(context)


def tried(does: Callable[..., dict[str, Any]], archive: dict[str, Any], name: str, *more: Any) -> dict[str, Any]:
    """Run `does` for a network and return its row with the seconds that it took.

    An error is recorded in the row, so that the next network runs.
    """
    return {"network": name, **timed_or_error(does, archive, name, *more, error="error", seconds="took_s")}


def opened(archive: dict[str, Any], name: str, held: dict[str, Opened]) -> Opened:
    """Return a network as (module on the device, inputs on the device, our function), made once and then kept in `held`."""
    if name not in held:
        module, inputs, plan, kernels = networks.opened(archive, name)
        compile_together(kernels)
        held[name] = module.cuda(), tuple(one.cuda() for one in inputs), GpuNetwork(plan, kernels)
    return held[name]


def timed(archive: dict[str, Any], name: str, held: dict[str, Opened], seed: int) -> dict[str, Any]:
    """Compare a network in our kernels with eager torch; return its errors and the samples of interleaved rounds."""
    module, given, function = opened(archive, name, held)
    ours = function(*given)
    torch.backends.cudnn.benchmark = False
    exact = tuple(one.double() if one.is_floating_point() else one for one in given)
    reference = _called(module.double(), exact)
    module.to(getattr(torch, dtype := networks.dtype_of(name)))
    plain = FLOAT32 if dtype == "float32" else DEFAULT
    found: dict[str, Any] = {
        "model_s": archive["networks"][name]["model_s"], "kernels": len(function.tasks.listed), "launches": function.launches,
        "workspace_bytes": function.layout.workspace_bytes, "fixed_bytes": function.layout.fixed_bytes,
        "errors": {OURS: distance(ours, reference), plain: distance(_in(module, given, tf32=False)(), reference)},
    }  # fmt: skip
    others = dict.fromkeys((plain, DEFAULT))
    timers = {OURS: replayed(function), **{of: _timer(_in(module, given, of == DEFAULT)) for of in others}}
    return {**found, **_sampled(timers, seed)}


def compiled(archive: dict[str, Any], name: str, held: dict[str, Opened], seed: int) -> dict[str, Any]:
    """Time a network in our kernels and in torch.compile as users call it; return the samples of interleaved rounds."""
    module, given, function = opened(archive, name, held)
    function(*given)
    faster = torch.compile(module, dynamic=False)
    return _sampled({OURS: replayed(function), COMPILED: _timer(_in(faster, given, tf32=True))}, seed)


def dependent(archive: dict[str, Any], name: str, held: dict[str, Opened], seed: int) -> dict[str, Any]:
    """Time a network in our kernels with and without dependent launches; return the samples and the outputs' distance."""
    _, given, function = opened(archive, name, held)
    other = function.dependent()
    apart = _apart(function, other, given)
    return {"distance": apart, **_sampled({OURS: replayed(function), DEPENDENT: replayed(other)}, seed)}


def pingpong(archive: dict[str, Any], name: str, held: dict[str, Opened], seed: int) -> dict[str, Any]:
    """Time a network with kernels whose consumers take turns, of all that can those that are faster so.

    Return the outputs' distance with all of them, the seconds of each with and without, and samples of the network as it is and
    with the faster ones. There are no samples where no kernel has consumers that could take turns.
    """
    _, given, function = opened(archive, name, held)
    kernels = [task.kernel for task in function.tasks.listed]
    turns = networks.pingpong(archive, name, kernels)
    pairs = {kernel.digest: place for place, kernel in enumerate(kernels) if turns[place] is not None}
    if not pairs:
        return {"turns": []}
    every = function.with_kernels([turn or kernel for kernel, turn in zip(kernels, turns, strict=True)])
    apart, found = _apart(function, every, given), dict[str, dict[str, Any]]()
    for digest, place in pairs.items():
        timers = {OURS: replayed(function, place), PINGPONG: replayed(every, place)}
        seconds = {of: float(np.median(values)) for of, values in interleaved(timers, ROUNDS, seed).items()}
        found[digest] = {"operator": str(kernels[place].operator), "seconds": seconds}
    faster = {digest for digest, row in found.items() if row["seconds"][PINGPONG] < row["seconds"][OURS]}
    chosen = [turn if turn and kernel.digest in faster else kernel for kernel, turn in zip(kernels, turns, strict=True)]
    best = function.with_kernels(chosen)
    best(*given)
    samples = _sampled({OURS: replayed(function), PINGPONG: replayed(best)}, seed)
    return {"distance": apart, "turns": list(found.values()), **samples}


def _apart(function: GpuNetwork, other: GpuNetwork, given: Inputs) -> float:
    """Compile the kernels of `other` and return the distance of its outputs from those of `function`."""
    ours = function(*given)
    compile_together([task.kernel for task in other.tasks.listed])
    return distance(other(*given), tuple(torch.as_tensor(one).double() for one in (ours if isinstance(ours, tuple) else (ours,))))


def compile_together(kernels: list[Kernel]) -> None:
    """Compile the distinct kernels that NVRTC's cache lacks, on many cores, including kernels that a search would prune."""
    with closing(Compilers()) as compilers:
        for waiting in [compilers.submit(kernel) for kernel in {kernel.digest: kernel for kernel in kernels}.values()]:
            waiting.result()  # a kernel that spills, or is refused, fails here without an error, and again when it is loaded


def distance(found: Any, reference: Any) -> float:
    """Return the largest error of a network's outputs, relative to the largest magnitude of the output; NaN if one is NaN.

    The outputs are an array or a tuple. Raise ValueError for an output of another shape.
    """
    several = [tuple(one) if isinstance(one, tuple | list) else (one,) for one in (found, reference)]
    pairs = [(torch.as_tensor(one).double(), wanted) for one, wanted in zip(*several, strict=True)]
    if shapes := [(tuple(one.shape), tuple(wanted.shape)) for one, wanted in pairs if one.shape != wanted.shape]:
        raise ValueError(f"an output of shape {shapes[0][0]}, expected {shapes[0][1]}")
    return float(np.max([float((one - wanted).abs().max() / wanted.abs().max()) for one, wanted in pairs]))


def replayed(function: GpuNetwork, only: int | None = None) -> Timer:
    """Return a timer that captures calls of a network in one CUDA graph and replays it, with the inputs of its last call.

    With `only`, the calls are of the kernel of this place alone.
    """
    import cupy

    held, graphs = function.loaded(), dict[int, Any]()
    stream = cupy.cuda.Stream(non_blocking=True)

    def seconds(calls: int) -> float:
        graph = graphs[calls] = graphs.get(calls) or held.captured(calls, only)
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    return seconds


def _in(module: Any, given: Inputs, tf32: bool) -> Callable[[], Any]:
    """Return a call of the module; `tf32` says whether its convolutions may use tf32. Matrix products may not, as by default."""

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
    for timer in timers.values():
        begin = time.perf_counter()
        while time.perf_counter() - begin < WARM:
            timer(8)
    samples = interleaved(timers, ROUNDS, seed)
    return {"samples": samples, "seconds": {name: summary_of(values) for name, values in samples.items()}}


def digest(context: Context) -> dict[str, object]:
    """Return torch's time over ours by network, the largest errors, and the wrong networks, whose times do not count.

    Rows of variants whose outputs are far from those of the network are wrong too. `turns` has, by network, the numbers of
    kernels whose consumers can take turns and of those that are faster so.
    """
    rows = context.rows(FILE)
    errors = {row["network"]: row["errors"] for row in rows if "errors" in row}
    apart = {row["key"]: row["distance"] for row in rows if "distance" in row} | {name: of[OURS] for name, of in errors.items()}
    wrong = sorted(key for key, far in apart.items() if not far <= FAR[networks.dtype_of(key.split()[0])])
    over: dict[str, dict[str, float]] = {}
    for row in (row for row in rows if row["network"] not in wrong and row["key"] not in wrong):
        medians = {name: float(np.median(values)) for name, values in row.get("samples", {}).items()}
        others = {name: value / medians[OURS] for name, value in medians.items() if name != OURS}
        over[row["network"]] = {**over.get(row["network"], {}), **others}
    failed = {row["key"]: row["error"] for row in rows if "error" in row}
    turns = {row["network"]: _counted(row["turns"]) for row in rows if "turns" in row}
    return {"over_ours": over, "wrong": wrong, "errors_to_float64": errors, "failed": failed, "turns": turns}


def _counted(turns: list[dict[str, Any]]) -> tuple[int, int]:
    return len(turns), sum(row["seconds"][PINGPONG] < row["seconds"][OURS] for row in turns)
