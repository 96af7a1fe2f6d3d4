"""Compile a torch module to one function: its network is looked up or converted, then compiled by `agents.networks`.

This file imports little, so that a new process hashes the weights while another thread imports the rest (half a second).
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from gensor_gym.cycles import uncollected
from gensor_gym.frontends.forms import Examples
from gensor_gym.frontends.unsupported import Unsupported

if TYPE_CHECKING:
    from agents.dynamic import DynamicNetwork
    from agents.networks import CompiledNetwork
    from gensor_gym.networks.network import Network

FALLBACKS = ("error", "torch")
"""Values of `fallback`: raise an error for a module that is not covered, or let torch run it."""
COMPILES = "agents.networks"
TURN = 5e-5
"""Seconds after which Python's threads change turns while modules are imported; Python's default is 5e-3."""
_ONE = threading.RLock()
"""Held in the block of `_importing`, so that no other thread takes TURN for the interval to restore."""


@overload
def compile_module(
    module: Any, example_inputs: Examples, fallback: Literal["error"] = "error", seconds: float = math.inf,
    dynamic_shapes: None = None, **options: Any,
) -> CompiledNetwork: ...  # fmt: skip
@overload
def compile_module(
    module: Any, example_inputs: Examples, fallback: str = "error", seconds: float = math.inf, dynamic_shapes: Any = None,
    buckets: int | None = None, **options: Any,
) -> CompiledNetwork | DynamicNetwork | FallenBack: ...  # fmt: skip
def compile_module(
    module: Any, example_inputs: Examples, fallback: str = "error", seconds: float = math.inf, dynamic_shapes: Any = None,
    buckets: int | None = None, **options: Any,
) -> CompiledNetwork | DynamicNetwork | FallenBack:  # fmt: skip
    """Compile a torch module to one function.

    `compile_network` describes `options`, `frontends.torch_export` the covered modules. `seconds` include torch's export. With
    `fallback="torch"`, a module that cannot be compiled is returned as a function that calls it; a RuntimeWarning says why.

    With `dynamic_shapes`, those of `torch.export.export`, the function serves ranges of sizes on a CPU. Each range has `buckets`
    parts, with kernels of the largest size of the part (`agents.dynamic`). `seconds` are for each part.

    Raises:
        Unsupported: if the module is not covered.
        NoKernel: if no kernel of a piece runs correctly.
        ValueError: if `fallback` is unknown, and for sizes without a range.
    """
    from gensor_gym.frontends.cached.networks import looked_up

    if fallback not in FALLBACKS:
        raise ValueError(f"fallback={fallback!r}: expected one of {', '.join(FALLBACKS)}")
    if dynamic_shapes is None and buckets is not None:
        raise ValueError(f"buckets={buckets}: expected dynamic_shapes with them")
    begin = time.monotonic()
    with uncollected():
        with _importing() as wait:  # torch's threads would take turns with the import, so the module runs after it
            known = (None, None) if dynamic_shapes is not None else looked_up(module, example_inputs, wait)
        from agents.optimizer import NoKernel

        try:
            return _compiled(module, example_inputs, known, begin, seconds, dynamic_shapes, buckets, options)
        except (Unsupported, NoKernel) as error:
            if fallback == "error":
                raise
            warnings.warn(f"{type(module).__name__} is run by torch: {error}", RuntimeWarning, stacklevel=2)
            return FallenBack(module, str(error))


def _compiled(
    module: Any, example_inputs: Examples, known: tuple[Path | None, Network | None], begin: float, seconds: float,
    dynamic_shapes: Any, buckets: int | None, options: Mapping[str, Any],
) -> CompiledNetwork | DynamicNetwork:  # fmt: skip
    """Compile a module whose network is `known`, as `looked_up` returns it, within `seconds` from the time `begin`."""
    from agents.dynamic import compile_dynamic
    from agents.networks import LEAST_SECONDS, check_settings, compile_network
    from agents.pieces import start_worker
    from gensor_gym.frontends.cached.networks import converted
    from gensor_gym.measure.records.tuned import tuned_path

    hw = check_settings(seconds=seconds, **options)  # checked before torch's export, which takes longer
    if options.get("reuse", True) and options.get("store") is None and not tuned_path().exists():
        start_worker(hw, options.get("backend", "auto"))  # while torch exports the module
    if dynamic_shapes is not None:
        compile_one = functools.partial(compile_network, seconds=seconds, **options)
        return compile_dynamic(module, example_inputs, dynamic_shapes, buckets, hw, compile_one, options.get("arena"))
    path, network = known
    network = network or converted(module, example_inputs, path)
    return compile_network(network, seconds=max(seconds - (time.monotonic() - begin), LEAST_SECONDS), **options)


@contextmanager
def _importing() -> Iterator[Callable[[], None]]:
    """Import the modules that compile networks in another thread. The block gets a function that waits for it.

    Python's threads then change turns often, because a thread that ends a call into C, such as hashing, waits for its turn.
    """

    def load() -> None:
        with suppress(Exception):  # the import after the block raises it again
            import_module(COMPILES)

    with _ONE:
        if COMPILES in sys.modules:
            yield lambda: None
            return
        thread, interval = threading.Thread(target=load, daemon=True), sys.getswitchinterval()
        sys.setswitchinterval(TURN)
        thread.start()
        try:
            yield thread.join
        finally:
            thread.join()
            sys.setswitchinterval(interval)


@dataclass(frozen=True, eq=False)
class FallenBack:
    """A module that torch runs, as before, because it could not be compiled."""

    module: Any
    reason: str
    """Text of the error why the module was not compiled, such as the unsupported operation and its position in the module."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the module by torch, without gradients, and return its result."""
        torch: Any = sys.modules["torch"]  # imported already, because the module is torch's
        with torch.no_grad():
            return self.module(*inputs, **named)
