"""Measured time of a network's plan on this machine's CPU, all of its kernels loaded as one function."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.runners import runner_of
from gensor_gym.measure.stats.timing import PROTOCOL, TimingRules, take_samples
from gensor_gym.networks.fusion.prices import program_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.inputs import random_inputs
from gensor_gym.operators.types import Operator

NAME = "cpu"
_CALLS = 3
"""Number of calls, each as long as a network's kernels alone, for which time must be left before the network is loaded."""


class PlanBackend:
    """A `measure.backend.Backend` of networks and plans.

    Each kernel is the program of the constructor `descent` that the plan's price assumes. A worker process verifies it first; the
    whole function is then compared with the network's reference, and timed by the protocol (`measure.stats.timing`).
    """

    name, stored = NAME, True

    def __init__(self, seconds: float = 60.0, seed: int = 0, rules: TimingRules | None = None) -> None:
        """Give each plan `seconds`, then status TIMEOUT, and draw inputs by `seed`. ValueError unless `seconds` is positive."""
        if not seconds > 0:
            raise ValueError(f"seconds={seconds!r}: expected more than 0 seconds to measure a plan")
        self.seconds, self.seed, self.rules = seconds, seed, rules or TimingRules()
        self._known: dict[tuple[Operator | Dataflow, Hardware], tuple[Measurement, Kernel | None]] = {}
        self._drawn: dict[int, tuple[Network, FusedDraw]] = {}
        """id of a network -> (network, inputs with expected outputs). The entry keeps the network alive."""

    def device(self, hw: Hardware) -> str:
        """Return the name of this machine's processor with the number of threads."""
        return get_backend(NAME, hw).device(hw)

    def digest(self, network: Network, plan: Plan, hw: Hardware) -> str:
        """Return a digest of the graph and the plan."""
        return hashlib.sha256(f"{network.graph.digest}\0{plan}".encode()).hexdigest()

    def measure(self, network: Network, plans: Sequence[Plan], hw: Hardware) -> list[Measurement]:
        """Return a measurement of each plan; a plan gets the status of a kernel that fails."""
        return list(self.stream(network, plans, hw))

    def stream(self, network: Network, plans: Sequence[Plan], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure`, each when it is ready."""
        for plan in plans:
            yield self._timed(network, plan, hw, self.digest(network, plan, hw))

    def close(self) -> None:
        """Do nothing: the workers are those of the registered backend."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle or copy, without caches: ids of networks mean nothing in another process."""
        return {**self.__dict__, "_known": {}, "_drawn": {}}

    def _timed(self, network: Network, plan: Plan, hw: Hardware, digest: str) -> Measurement:
        until, kernels, least = time.monotonic() + self.seconds, list[Kernel](), 0.0
        for step in plan.steps:
            found, kernel = self._verified(step.computation, hw)
            if kernel is None:
                return Measurement(found.status, error=f"{step.computation}: {found.error}", digest=digest)
            kernels.append(kernel)
            least += found.samples[0] if found.samples else 0.0
            if time.monotonic() + _CALLS * least > until:
                return Measurement(Status.TIMEOUT, error=f"a plan of {network} in {self.seconds:g} s", digest=digest)
        try:
            function = NetworkFunction(plan, kernels, hw.units)
        except ValueError as error:
            return Measurement(Status.ILLEGAL, error=str(error), digest=digest)
        return self._called(network, function, hw, digest)

    def _called(self, network: Network, function: NetworkFunction, hw: Hardware, digest: str) -> Measurement:
        draw = self._draw(network)
        if fault := draw.fault(function(*draw.inputs)):
            return Measurement(Status.WRONG_ANSWER, error=fault, digest=digest)
        bound = function.bind(*draw.inputs)

        def timer(calls: int) -> float:
            begin = time.perf_counter()
            for _ in range(calls):
                bound()
            return time.perf_counter() - begin

        samples, calls = take_samples(timer, self.rules)
        conditions = {"device": self.device(hw), "threads": hw.units, "protocol": PROTOCOL, "calls": calls, "in_context": True}
        return Measurement(Status.OK, tuple(samples), conditions, digest=digest)

    def _verified(self, computation: Operator | Dataflow, hw: Hardware) -> tuple[Measurement, Kernel | None]:
        """Return (measurement of a kernel alone, the kernel if it is right, else None), cached."""
        key = computation, hw
        if key not in self._known:
            backend: Any = get_backend(NAME, hw)
            assert isinstance(backend, NativeBackend)
            schedule: Any = program_of(computation, hw)[0]
            made = backend.generated(computation, schedule, hw)
            built = made if isinstance(made, Measurement) else backend.compile([made])[0]
            found = backend.trial(built, hw, timed=False)
            right = made if found.status is Status.OK and isinstance(made, Kernel) else None
            self._known[key] = found, None if right is None else remembered(computation, schedule, hw, right)
        return self._known[key]

    def _draw(self, network: Network) -> FusedDraw:
        if id(network) not in self._drawn:
            rng = np.random.default_rng(self.seed)
            drawn = dict(zip((value.name for value in network.graph.inputs), random_inputs(network.graph, rng), strict=True))
            unread = {value.name: np.zeros(value.shape) for value in network.unread.values()}
            inputs = tuple({**unread, **drawn}[value.name] for value in network.inputs)
            self._drawn[id(network)] = network, FusedDraw(inputs, network.reference(*inputs))
        return self._drawn[id(network)][1]


def plan_backend(name: str, hw: Hardware, seconds: float) -> PlanBackend:
    """Return the backend `cpu` or `auto` of plans. ValueError for others, and if the machine's kernels cannot run here."""
    if name not in (NAME, "auto") or hw.kind != "cpu":
        raise ValueError(f"backend {name!r} of {hw.name}: expected 'analytic', or for a CPU 'cpu'")
    if reason := runner_of(hw).absence(hw):
        raise ValueError(f"{hw.name} cannot be timed here: {reason}")
    get_backend(NAME, hw)
    return PlanBackend(seconds)
