"""A fused operator's kernel in this process, compared with eager torch, compiled torch, and a copy of as many bytes.

All are timed as graphs of many calls on warm caches, in rounds of random order, like `measure/workers/compare.py` times kernels
of one loop nest. The copy transfers as many bytes as the operator must: half of them read, half written.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow

SAMPLE_SECONDS = 2e-3
OURS, EAGER, COMPILED, COPY = "gensor_gym", "torch", "torch.compile", "copy"

Timer = Callable[[int], float]
"""Function from a number of calls to the seconds that they take together."""


def beside_torch(kernel: Kernel, rounds: int, seed: int) -> dict[str, list[float]]:
    """Time a fused operator's kernel, torch's functions and a copy; return the seconds per call of each in every round.

    A worker has verified the kernel, so inputs are drawn here but no references. Rounds run under the device's timing lock. Raise
    ValueError if the kernel does not compile.
    """
    from gensor_gym.measure.answers.draw import Draw, drawn_inputs
    from gensor_gym.measure.devices.cuda import CudaDevice
    from gensor_gym.measure.devices.machine_lock import timing_lock
    from gensor_gym.measure.workers.builders import build_cubin

    assert isinstance(kernel.operator, Dataflow)
    built = build_cubin(kernel)
    if isinstance(built, str):
        raise ValueError(f"{kernel.operator}: {built}")
    inputs, _ = drawn_inputs(kernel.operator, seed)[0]
    device = CudaDevice()
    functions = _of_torch(kernel.operator, inputs)
    with timing_lock(device.lock):
        loaded = device.load(built, 1)
        try:
            loaded.write(Draw(inputs, np.empty(0), np.empty(0)))
            return interleaved({OURS: loaded.time, **{name: timer() for name, timer in functions.items()}}, rounds, seed)
        finally:
            loaded.close()


def interleaved(timers: dict[str, Timer], rounds: int, seed: int) -> dict[str, list[float]]:
    """Time calls in rounds, each round in random order; return the seconds per call of each timer in every round.

    A sample makes as many calls as take about `SAMPLE_SECONDS`.
    """
    calls = {name: max(1, int(SAMPLE_SECONDS / max(timer(8) / 8, 1e-9))) for name, timer in timers.items()}
    order, names = np.random.default_rng(seed), list(timers)
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for place in order.permutation(len(names)):
            name = names[place]
            found[name].append(timers[name](calls[name]) / calls[name])
    return found


def _of_torch(graph: Dataflow, inputs: tuple[np.ndarray, ...]) -> dict[str, Callable[[], Timer]]:
    """Return, by name, functions that make timers: of the copy and, if torch's function is known, of this, eager and compiled.

    Compiling takes seconds and happens before this process has the device to itself.
    """
    import torch

    from experiments.benches.fused.eager import EAGER as KNOWN
    from experiments.benches.fused.eager import function_of
    from gensor_gym.measure.baselines.torch_cuda import Replayed

    half = torch.empty(graph.compulsory_bytes // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(half)
    found: dict[str, Callable[[], Timer]] = {COPY: lambda: Replayed(lambda: target.copy_(half)).time}
    if graph.name in KNOWN:
        given = [torch.from_numpy(array).cuda() for array in inputs]
        function = function_of(graph)
        compiled = torch.compile(function, dynamic=False)
        with torch.no_grad():
            compiled(*given)
        found[EAGER] = lambda: Replayed(lambda: function(*given)).time
        found[COMPILED] = lambda: Replayed(lambda: compiled(*given)).time
    return found
