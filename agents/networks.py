"""Compile a network to one function. Every kernel of the network's plan is searched once and then stored."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from agents.optimizer import Asked, Result, check_seed, watched
from agents.pieces import OnTask, in_loop, search_pieces
from agents.progress import shown
from agents.quality import Effort
from agents.strategy import OtherSearch
from gensor_gym import hardware as machines
from gensor_gym.codegen.export import Exported
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.codegen.targets import target_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.unsupported import refusing
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import check_size
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tuned import tuned_path
from gensor_gym.networks.arena import DEFAULTS, MODES
from gensor_gym.networks.folding import folded
from gensor_gym.networks.forms import check_whole, is_flat, put_together, taken_apart, typed
from gensor_gym.networks.fusion.rules import check_rule, plan_of
from gensor_gym.networks.gpu.emulated import EmulatedNetwork
from gensor_gym.networks.gpu.function import GpuNetwork
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.loops import task_rows
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import Operator
from gensor_gym.registry import check_known

LEAST_SECONDS = 1e-3
"""Seconds that the search of pieces gets if the budget was spent before it began. Each piece is then tried once."""
ANY = ("elementwise(name='relu', shape=(64,))", "softmax(m=4, n=16)")
"""Texts of one operator and one fused operator. A network accepts those options that the search of either accepts."""
OF_EVERY_STRATEGY = ("backend", "store", "reuse", "on_trial")
"""Options of `optimize` that are not hyperparameters of a strategy."""
TARGETS = ("c", "cuda")
"""Languages of the kernels that a network may have (`codegen.targets`)."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A compiled network: a callable function with one kernel for each step of the network's plan."""

    plan: Plan
    hardware: Hardware
    results: tuple[Result, ...]
    """Search result of each step of the plan. Steps with equal computations share a result."""
    kernels: tuple[Kernel, ...]
    """The kernel of each step of the plan."""
    function: NetworkFunction | GpuNetwork | EmulatedNetwork
    """The compiled network as one function, loaded into this process or, on a GPU, at the first call."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the plan, the kernels' source texts and the weights."""
        found = hashlib.sha256("\0".join([str(self.plan), *(kernel.digest for kernel in self.kernels)]).encode())
        for name, array in sorted(self.plan.network.constants.items()):  # fixed memory also has sums that kernels leave
            found.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def as_torch(self) -> Callable[..., Any]:
        """Return the network as a torch operator for torch.compile and torch.export; see `codegen.runtime.torch_operator`.

        RuntimeError if the first call of this method is in compiled code.
        """
        from gensor_gym.codegen.runtime.torch_operator import refuse_compiling, torch_operator

        if getattr(self, "_in_torch", None) is None:
            refuse_compiling()
            operator = torch_operator(self.plan.network.called, self.digest, self.function)
            network = self.plan.network
            flat = self._is_flat and len(network.takes) == len(network.inputs)
            plain = flat and network.form is None and not network.types
            self.__dict__["_in_torch"] = operator if plain else _as_called(self, operator)
        made: Callable[..., Any] = self.__dict__["_in_torch"]
        return made

    def export(self, folder: str | Path, library: str = "gensor_network") -> Exported:
        """Export the network to a folder that needs no Python, with weights, C or C++ header, sources, example and manifest.

        For a CPU the folder has a library, for a GPU cubins. Outputs are those of the kernels, not cast as by `Network.types`. It
        raises the errors of `networks.export.export_network` and `networks.gpu.export`, and ValueError for a size of a dynamic
        network that has no kernels of its own.
        """
        if not self.plan.pieces:
            raise ValueError(f"{self.plan.network} runs kernels of a larger size: expected one compiled for its size alone")
        known = [result.known for result in self.results]
        if not isinstance(self.function, NetworkFunction):
            from gensor_gym.networks.gpu.export import export_gpu_network

            return export_gpu_network(self.plan, self.kernels, self.function.tasks, folder, known, library)
        from gensor_gym.networks.export import export_network

        return export_network(self.plan, self.kernels, self.function, folder, self.hardware.units, known, library)

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Compute the module's results for inputs of NumPy, torch or another library with DLPack.

        Inputs may be named like the module's arguments, and nested in tuples, lists and dicts like the example inputs. `out` is
        one array or a tuple of all outputs, even if the module returns a list or dict; if an input is named `out`, the argument
        is that input. See `codegen.runtime.c.NativeFunction`.

        Raises:
            TypeError: for inputs of other names or another form, and for `out` if an output is cast at the end.
            ValueError: for integers of a limited input (`Network.limits`), and if a value that is not a tensor differs from the
                example's.
        """
        network = self.plan.network
        if out is not None and "out" in network.takes:  # an input named `out`
            named, out = {**named, "out": out}, None
        if out is not None and network.types:
            kinds = ", ".join(names[-1] for names in network.types.values())
            raise TypeError(f"{network}: out= is given, expected none where outputs are of {kinds}")
        return self._formed(self._typed(self.function(*self._given(inputs, named), out=out), checked=True))

    def _formed(self, made: Any) -> Any:
        network = self.plan.network
        return made if network.form is None else put_together(network.form, made if len(network.outputs) > 1 else (made,))

    def _typed(self, made: Any, checked: bool = False) -> Any:
        """Convert outputs (one array or a tuple of all) to the module's data types.

        With `checked`, their values are checked too, with the ValueError of `check_whole`.
        """
        network = self.plan.network
        if not network.types:
            return made
        every = made if len(network.outputs) > 1 else (made,)
        if checked:
            check_whole(str(network), network.types, every)
        found = typed(network.types, every)
        return found if len(network.outputs) > 1 else found[0]

    def _given(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        network = self.plan.network
        if self._is_flat and not named and len(network.inputs) in (len(inputs), len(network.takes)):
            return inputs
        return taken_apart(str(network), network.takes, inputs, named)

    @cached_property
    def _is_flat(self) -> bool:
        return is_flat(self.plan.network.takes)

    def picture(self) -> Figure:
        """Draw the plan as a Matplotlib figure: a box around each kernel's nodes, and the sizes of values between kernels."""
        from gensor_gym.networks.drawing.picture import figure_of

        return figure_of(self.plan)

    def __repr__(self) -> str:
        distinct = len({id(result) for result in self.results})
        return f"<{self.plan.network} on {self.hardware.name}: {len(self.kernels)} kernels, {distinct} distinct>"


def _as_called(compiled: CompiledNetwork, operator: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any, **named: Any) -> Any:
        return compiled._formed(compiled._typed(operator(*compiled._given(inputs, named))))

    return call


def compile_network(
    network: Network, hardware: Hardware | str = "host", quality: str | None = None, trials: int | None = None,
    seconds: float = math.inf, seed: int = 0, plan: Callable[[Network], Plan] | str = "fine", arena: str | None = None,
    on_task: OnTask | Literal["bar"] | None = None, reuse: bool = True, winograd: bool = True, **options: Any,
) -> CompiledNetwork:  # fmt: skip
    """Find a kernel for every piece of a network's plan (nodes that one kernel computes), and return the compiled network.

    Each distinct computation is searched with the effort of a `quality` (`agents.quality`), or with exactly `trials` measured
    programs, unless a search with at least that many is stored (`optimize(.., reuse=True)`). `seconds` are shared among pieces by
    their expected gains (`agents.pieces`). `on_task` is called with (pieces done, number of pieces, computation) when searches
    begin and continue. Without it a terminal shows a bar with the seconds left; with `on_task="bar"` any stream gets lines of
    progress. `plan` is a rule or its name (`networks.fusion.rules.PLANS`). `options` are those of `optimize`; pieces that a
    `strategy` does not search have their default strategy. Without `winograd`, all convolutions are plain sums.

    `arena` says how values between kernels are placed (`networks.arena.MODES`; None is the default of the machine's kind). The
    function's memory holds the plan's constants, except weights that kernels keep packed.
    On a GPU the function is a CUDA graph (`networks.gpu`). Without a GPU, `backend="analytic"` chooses kernels by the model.
    `backend="emulated"` checks them and returns a function that the emulator runs.
    RuntimeWarning if `seconds` are too few for one program of each piece, or if other processes used the timed cores.

    Raises:
        Unsupported: if a piece of the plan has no kernel, or is too large to be verified.
        ValueError: if the caller's own plan is not legal, `hardware` is another GPU, or the budget is not positive.
        NoKernel: if no program of a piece runs correctly.
    """
    begin, others = time.monotonic(), {"winograd": winograd, **options}
    hw = check_settings(hardware, quality, trials, seconds, plan, arena, seed, **others)
    chosen, options["store"] = _planned(network, plan, hw, winograd), _opened(options.get("store"), reuse)
    counts = Counter(step.computation for step in chosen.steps)
    effort, left = Effort.of(quality, trials, seconds), max(seconds - (time.monotonic() - begin), LEAST_SECONDS)
    with refusing(), shown(on_task) as told:
        asked = effort.searches(_searches(counts, hw, reuse=reuse, **options))
        with watched(asks.task for asks in asked.values() if effort.timed):
            found = search_pieces(asked, counts, effort.trials, left, seed, told, effort.timed, effort.loss)
        results = tuple(found[step.computation] for step in chosen.steps)
        kernels = _kernels(chosen, results, asked, effort.trials)
        function = _function(chosen, kernels, hw, arena, options.get("backend", "auto"))
    held = dataclasses.replace(chosen.network, constants={**chosen.network.constants, **function.constants})
    return CompiledNetwork(Plan(held, chosen.pieces), hw, results, kernels, function)


def _opened(store: Any, reuse: bool) -> Any:
    of_path = isinstance(store, str | Path) or (reuse and store is None)
    return Store(tuned_path() if store is None else store) if of_path else store


def _function(
    plan: Plan, kernels: tuple[Kernel, ...], hw: Hardware, arena: str | None, backend: str | Backend
) -> NetworkFunction | GpuNetwork | EmulatedNetwork:
    mode = arena or DEFAULTS[hw.kind]
    if hw.kind == "cpu":
        return NetworkFunction(plan, kernels, hw.units, mode)
    return (EmulatedNetwork if get_backend(backend, hw).name == "emulated" else GpuNetwork)(plan, kernels, mode)


def _searches(computations: Iterable[Operator | Dataflow], hw: Hardware, **options: Any) -> dict[Operator | Dataflow, Asked]:
    """Choose the search of each computation: the given strategy if it can search it, otherwise the default strategy.

    ValueError if the given strategy can search none of them.
    """
    found: dict[Operator | Dataflow, Asked | OtherSearch] = {}
    for computation in computations:
        try:
            found[computation] = Asked.of(computation, hw, **options)
        except OtherSearch as error:
            found[computation] = error
    if (refused := [asked for asked in found.values() if isinstance(asked, OtherSearch)]) and len(refused) == len(found):
        raise refused[0]
    others = {name: options[name] for name in OF_EVERY_STRATEGY if name in options}
    return {
        computation: Asked.of(computation, hw, **others) if isinstance(asked, OtherSearch) else asked
        for computation, asked in found.items()
    }


def _planned(network: Network, plan: Callable[[Network], Plan] | str, machine: Hardware, winograd: bool) -> Plan:
    """Divide the network into kernels by the rule `plan`.

    ValueError if the plan is not legal, Unsupported if a computation is too large to be verified.
    """
    with nullcontext() if callable(plan) else refusing():  # errors of the caller's rule are not `Unsupported`
        chosen = plan_of(ordered(folded(network), machine, winograd=winograd), plan, machine)
        if fault := chosen.fault:
            raise ValueError(f"a plan of {network.graph.name}: {fault}")
        for computation in {step.computation for step in chosen.steps}:
            check_size(computation)
    return chosen


def check_settings(
    hardware: Hardware | str = "host", quality: str | None = None, trials: int | None = None, seconds: float = math.inf,
    plan: Callable[[Network], Plan] | str = "fine", arena: str | None = None, seed: int = 0,
    on_task: OnTask | Literal["bar"] | None = None, reuse: bool = True, winograd: bool = True, **others: Any,
) -> Hardware:  # fmt: skip
    """Check those arguments of `compile_network` that do not depend on the network, and return the machine.

    ValueError if an argument is invalid.
    """
    if not isinstance(seconds, Real) or not seconds > 0:
        raise ValueError(f"seconds={seconds!r}: expected a number above 0")
    Effort.of(quality, trials, seconds)
    check_rule(plan)
    if not isinstance(winograd, bool):
        raise ValueError(f"winograd={winograd!r}: expected True or False")
    if arena is not None:
        check_known("arena", arena, MODES)
    if (target := target_of(hw := machines.get(hardware)).name) not in TARGETS:
        raise ValueError(f"{hw.name} has kernels in {target}: networks are compiled to {' or '.join(TARGETS)}")
    if hw.kind != "cpu":
        get_backend(others.get("backend", "auto"), hw)  # without the GPU, the error names the backends that need none
    check_seed(seed)
    _check_search(hw, reuse=reuse, **others)
    return hw


def _check_search(hw: Hardware, **options: Any) -> None:
    said: list[ValueError] = []
    for computation in ANY:
        try:
            Asked.of(computation, hw, **options)
        except ValueError as error:
            said.append(error)
    if len(said) == len(ANY):
        raise said[0]


def _kernels(
    plan: Plan, results: Sequence[Result], asked: Mapping[Operator | Dataflow, Asked], trials: int
) -> tuple[Kernel, ...]:
    """Generate the kernel of each step of the plan from its search result.

    If several steps share a loop over rows, the schedule is the fastest one near the result whose tasks have the loop's rows.
    """
    texts: dict[tuple[object, int], Kernel] = {}
    rows = task_rows(plan.pieces)
    for step, result, count in zip(plan.steps, results, rows, strict=True):
        if (step.computation, count) not in texts:
            schedule = in_loop(asked[step.computation], result.schedule, count, trials) if count else result.schedule
            texts[step.computation, count] = remembered(step.computation, schedule, result.task.hardware)
    return tuple(texts[step.computation, count] for step, count in zip(plan.steps, rows, strict=True))
