"""Compile a torch module to one function for ranges of sizes, such as a batch of 1 to 64 or a sequence of up to 512 tokens.

The range is cut into buckets. A bucket has the kernels of its largest size. When a size is called for the first time,
`networks.dynamic` proves that these compute the smaller network, with masks where reductions need them. A size without such a
proof gets kernels of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.arena import DEFAULTS
from gensor_gym.networks.dynamic.axes import NotRestricted
from gensor_gym.networks.dynamic.function import Bucket, SizedFunction
from gensor_gym.networks.dynamic.opened import Opened, opened
from gensor_gym.networks.dynamic.restriction import restriction
from gensor_gym.networks.dynamic.weights import SharedWeights
from gensor_gym.networks.forms import taken_apart
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan

Sizes = tuple[int, ...]
CompiledNetwork = Any
"""An `agents.networks.CompiledNetwork`. That module imports this one, and passes its function that makes them."""
BUCKETS = {1: 10, 2: 2}
"""Number of sizes that change -> default number of buckets of each; 1 for more sizes."""
MOST_BUCKETS = 32
"""Largest number of networks that are compiled ahead."""
MOST_OWN = 16
"""Number of sizes with kernels of their own that are kept: those compiled last."""
MOST_SIZES = 128
"""About the largest number of sizes above `ROUND` among which the largest ones of buckets are chosen."""
ROUND = 16
"""Largest sizes of buckets are multiples of this where they are larger, so that register tiles fill them: a vector of AVX-512."""


def bounds(least: int, most: int, count: int) -> list[int]:
    """Return the largest sizes of at most `count` buckets of a range, with the least padding on average.

    Padding is the bucket's largest size over the size that is called. A size counts by its reciprocal, as if the logarithms of
    called sizes were uniform. So small sizes get narrow buckets.
    """
    shares = [0.0, *itertools.accumulate(size**-2.0 for size in range(least, most + 1))]
    step = ROUND * (1 + (most - least) // (ROUND * MOST_SIZES))
    sizes = [*(size for size in range(least, most) if size <= ROUND or size % step == 0 or size == least), most]
    shared = [shares[size - least + 1] for size in sizes]
    # Of each size that may be a bucket's largest: padding of all sizes up to it, and the buckets.
    found = [(size * share, (size,)) for size, share in zip(sizes, shared, strict=True)]
    for _ in range(count - 1):
        found = [
            min(found[place], *(
                (found[other][0] + size * (shared[place] - shared[other]), (*found[other][1], size)) for other in range(place)
            )) if place else found[0]
            for place, size in enumerate(sizes)
        ]  # fmt: skip
    return list(found[-1][1])


@dataclass(frozen=True)
class _Compiled:
    """The compiled network of a bucket with its memory."""

    opened: Opened
    network: CompiledNetwork
    memory: Bucket


class DynamicNetwork:
    """A torch module that is compiled for ranges of sizes. It is called like the module."""

    def __init__(
        self, program: Any, buckets: int, compile_one: Callable[[Network], CompiledNetwork], arena: str | None = None
    ) -> None:
        """Compile all buckets of a `frontends.dynamic.DynamicProgram`; RuntimeWarning if sizes need kernels of their own.

        `compile_one` compiles one network with this `arena`.
        """
        self._program, self._compile, self._arena, self.symbols = program, compile_one, arena, program.symbols
        self._places = [(symbol.place, symbol.axis) for symbol in self.symbols]
        self._lock = threading.RLock()
        self._called: dict[Sizes, CompiledNetwork] = {}
        self._own: list[Sizes] = []
        self._in_torch: Callable[..., Any] | None = None
        self.limits = tuple(bounds(symbol.least, symbol.most, buckets) for symbol in self.symbols)
        """Largest sizes of the buckets, for each size that changes."""
        if (count := math.prod(map(len, self.limits))) > MOST_BUCKETS:
            said = f"buckets={buckets} of {len(self.symbols)} sizes"
            raise ValueError(f"{said} are {count} networks: expected at most {MOST_BUCKETS}")
        self._first: Network = program.network([symbol.most for symbol in self.symbols])  # for names and forms of arguments
        self._is_flat = all(isinstance(form, int) for form in self._first.takes.values())
        self._weights = SharedWeights(count)
        self._buckets: dict[Sizes, _Compiled | str] = {}
        for largest in reversed(list(itertools.product(*self.limits))):
            self._buckets[largest] = self._bucket(largest)

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Compute the module's results; inputs, outputs and errors are those of `CompiledNetwork`.

        ValueError also for a size outside of its range.
        """
        return self.of(*inputs, **named)(*inputs, out=out, **named)

    def of(self, *inputs: Any, **named: Any) -> CompiledNetwork:
        """Return the function for the sizes of these inputs. The first call for new sizes proves or compiles it."""
        if named or not self._is_flat:
            inputs = tuple(taken_apart(str(self._first), self._first.takes, inputs, named))
        return self._sized(inputs)

    def _sized(self, tensors: Sequence[Any]) -> CompiledNetwork:
        try:
            return self._called[tuple([tensors[place].shape[axis] for place, axis in self._places])]
        except (KeyError, IndexError, AttributeError):
            return self._at(tensors)

    def at(self, *sizes: int) -> CompiledNetwork:
        """Return the function for one value of each size that changes. ValueError if one is outside of its range."""
        for symbol, size in zip(self.symbols, sizes, strict=True):
            if not symbol.least <= size <= symbol.most:
                raise ValueError(f"{symbol.called} has size {size}: expected {symbol.least} to {symbol.most}")
        with self._lock:
            if sizes not in self._called:
                self._called[sizes] = self._made(sizes)
            return self._called[sizes]

    def as_torch(self) -> Callable[..., Any]:
        """Return the network as a torch operator for torch.compile and torch.export, also with sizes that they do not know.

        See `CompiledNetwork.as_torch`.
        """
        from gensor_gym.codegen.runtime.torch_operator import refuse_compiling, torch_operator

        if self._in_torch is None:
            refuse_compiling()
            shown = self.at(*(symbol.most for symbol in self.symbols))

            def run(*tensors: Any) -> Any:
                return self._sized(tensors).function(*tensors)

            def shapes(*tensors: Any) -> list[list[Any]]:
                return self._program.returned([tensors[place].shape[axis] for place, axis in self._places])  # type: ignore[no-any-return]

            operator = torch_operator(shown.plan.network.called, self.digest, run, shapes)

            def call(*inputs: Any, **named: Any) -> Any:
                return shown._formed(shown._typed(operator(*shown._given(inputs, named))))

            self._in_torch = call
        return self._in_torch

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all buckets."""
        known = [one.network.digest if isinstance(one, _Compiled) else one for one in self._buckets.values()]
        return hashlib.sha256("\0".join([repr(self.symbols), *known]).encode()).hexdigest()

    def _at(self, inputs: Sequence[Any]) -> CompiledNetwork:
        sizes = []
        for symbol in self.symbols:
            shape = getattr(inputs[symbol.place], "shape", ()) if symbol.place < len(inputs) else ()
            if len(shape) <= symbol.axis:
                raise ValueError(f"{self._first}: {symbol.called} is missing: expected size {symbol.least} to {symbol.most}")
            sizes.append(int(shape[symbol.axis]))
        return self.at(*sizes)

    def _bucket(self, largest: Sizes) -> _Compiled | str:
        """Compile the network of the largest sizes of a bucket. Return the reason if it serves no smaller sizes."""
        big = self._program.network(largest)
        try:
            proof = restriction(self._program.network(self._probe(largest)), big)
            made = opened(big, proof)
        except NotRestricted as error:
            warnings.warn(f"{big}: sizes get kernels of their own, because {error}", RuntimeWarning, stacklevel=4)
            return str(error)
        network = self._compile(made.network)
        mode = DEFAULTS["cpu"] if self._arena is None else self._arena
        own = NetworkFunction(network.plan, network.kernels, network.hardware.units, mode, self._weights.place)
        first = next((one.memory for one in self._buckets.values() if isinstance(one, _Compiled)), None)
        return _Compiled(made, dataclasses.replace(network, function=own), Bucket(own, first))

    def _probe(self, largest: Sizes) -> Sizes:
        """Return sizes below the largest ones of a bucket, each by another number, so that a proof tells the sizes apart."""
        return tuple(
            max(symbol.least, most - 1 - number) for number, (symbol, most) in enumerate(zip(self.symbols, largest, strict=True))
        )

    def _made(self, sizes: Sizes) -> CompiledNetwork:
        small = self._program.network(sizes)
        largest = tuple(next(most for most in limits if most >= size) for size, limits in zip(sizes, self.limits, strict=True))
        bucket = self._buckets[largest]
        if isinstance(bucket, _Compiled):
            try:
                return _sized(small, bucket)
            except NotRestricted as error:
                said = ", ".join(f"{one.called} of {size}" for one, size in zip(self.symbols, sizes, strict=True))
                warnings.warn(f"{small}: {said} gets kernels of its own, because {error}", RuntimeWarning, stacklevel=5)
        compiled = self._compile(small)
        self._own.append(sizes)
        if len(self._own) > MOST_OWN:
            del self._called[self._own.pop(0)]
        return compiled

    def __repr__(self) -> str:
        ranges = ", ".join(f"{one.called} {one.least} to {one.most}" for one in self.symbols)
        return f"<{self._first}: {ranges} in {len(self._buckets)} buckets>"


def _sized(small: Network, bucket: _Compiled) -> CompiledNetwork:
    """Return a bucket's kernels as the function of smaller sizes. NotRestricted without a proof."""
    proof = restriction(small, bucket.opened.big)
    given = bucket.opened.arrays(proof)
    known, called = bucket.network.plan.network.limits, small.called
    limits = {name: min(limit, called.limits.get(name, limit)) for name, limit in known.items()}
    called = dataclasses.replace(called, limits={**called.limits, **limits})
    function = SizedFunction(called, bucket.memory, given, proof.returned)
    return dataclasses.replace(bucket.network, plan=Plan(small, ()), function=function)


def compile_dynamic(
    module: Any, example_inputs: Sequence[Any] | Mapping[str, Any], dynamic_shapes: Any, buckets: int | None, hw: Hardware,
    compile_one: Callable[[Network], CompiledNetwork], arena: str | None,
) -> DynamicNetwork:  # fmt: skip
    """Compile a module for ranges of sizes on a checked machine. See `agents.modules.compile_module`.

    Raises:
        Unsupported, NoKernel: as `compile_module`.
        ValueError: for a GPU, a wrong number of buckets, and sizes without a range.
    """
    from gensor_gym.frontends.dynamic import DynamicProgram

    if buckets is not None and (not isinstance(buckets, int) or buckets < 1):
        raise ValueError(f"buckets={buckets!r}: expected a whole number above 0")
    if hw.kind != "cpu":
        raise ValueError(f"dynamic_shapes on {hw.name}: expected a CPU; compile_buckets pads to several sizes on a GPU")
    program = DynamicProgram(module, example_inputs, dynamic_shapes)
    count = BUCKETS.get(len(program.symbols), 1) if buckets is None else buckets
    return DynamicNetwork(program, count, compile_one, arena)
