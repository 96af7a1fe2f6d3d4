"""Compile a torch module for inputs of changing sizes: one network for each of several sizes, called buckets.

A call runs the smallest bucket that holds its inputs. Smaller inputs are padded at the end of their axes, and the results are cut
to the sizes that the module would return.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.modules import FALLBACKS
from agents.networks import CompiledNetwork, check_settings, compile_network
from gensor_gym.cycles import uncollected
from gensor_gym.frontends.forms import Examples
from gensor_gym.networks.forms import taken_apart
from gensor_gym.networks.network import Network
from gensor_gym.networks.sizes import Axes, Shape, axes_of, check_sizes, cut, holds, padded, shapes_of, shapes_text
from gensor_gym.registry import check_known


@dataclass(frozen=True, eq=False)
class CompiledBuckets:
    """A torch module that is compiled for several sizes of its inputs, smallest first. It is called like the module."""

    networks: tuple[CompiledNetwork, ...]
    padding: Mapping[str, float]
    """Name of an input -> value that pads it; other inputs are padded with 0."""
    axes: tuple[Axes, ...]
    """For each output, the axes of the inputs that determine its sizes."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the smallest bucket that holds the inputs (NumPy, torch or CuPy arrays) and return the module's results.

        ValueError if no bucket holds the inputs.
        """
        first = self.networks[0].plan.network
        given = taken_apart(str(first), first.takes, inputs, named)
        shapes = [tuple(array.shape) for array in given]
        chosen = self.networks[self.bucket(shapes)]
        if shapes == shapes_of(chosen.plan.network):
            return chosen(*inputs, **named)
        made = chosen._typed(chosen.function(*padded(given, chosen.plan.network, self.padding)), checked=True)
        found = cut(made if len(self.axes) > 1 else (made,), self.axes, shapes)
        return chosen._formed(found if len(found) > 1 else found[0])

    def bucket(self, shapes: Sequence[Shape]) -> int:
        """Return the index of the smallest bucket that holds inputs of these shapes. ValueError if no bucket does."""
        known = [shapes_of(network.plan.network) for network in self.networks]
        check_sizes(known, shapes, self.axes)
        for number, largest in enumerate(known):
            if holds(largest, shapes):
                return number
        raise ValueError(f"inputs of {shapes_text(shapes)}: expected no more than a bucket: {'; '.join(map(shapes_text, known))}")

    def __repr__(self) -> str:
        return f"<{self.networks[0].plan.network} in {len(self.networks)} buckets on {self.networks[0].hardware.name}>"


def compile_buckets(
    module: Any, examples: Sequence[Examples], padding: Mapping[str, float] | None = None, seconds: float = math.inf,
    **options: Any,
) -> CompiledBuckets:  # fmt: skip
    """Compile a torch module once for each of several input sizes (buckets), and return one function for all of them.

    `examples` has the example inputs of each bucket, and `options` are those of `compile`. Inputs that are smaller than their
    bucket are padded with `padding` (name of an input -> value; others with 0). The results must not depend on padding: the
    module is causal, or has a mask that is padded with 0. The two smallest examples are run in torch to check it. `seconds` are
    shared evenly among buckets. Every bucket keeps its own weights.

    Raises:
        Unsupported, NoKernel: like `compile`.
        ValueError: for fewer than two examples, for examples that do not hold one another, if the size of an output changes but
            not with an input's, if `padding` names no input, or if the results depend on the padding.
    """
    from gensor_gym.frontends.cached.networks import cached_network
    from gensor_gym.frontends.padding import check_padding

    if not isinstance(examples, Sequence) or len(examples) < 2:
        said = f"{len(examples)} examples" if isinstance(examples, Sequence) else f"examples of {type(examples).__name__}"
        raise ValueError(f"{said}: expected a list of two or more, one for each bucket")
    if "fallback" in options:
        raise ValueError(f"fallback={options['fallback']!r} of {FALLBACKS}: buckets have no fallback; expected none")
    check_settings(seconds=seconds, **options)
    with uncollected():
        networks = [cached_network(module, example) for example in examples]
        order = sorted(range(len(networks)), key=lambda place: sum(map(math.prod, shapes_of(networks[place]))))
        networks = [networks[place] for place in order]
        values, axes = _checked(dict(padding or {}), networks[0]), axes_of(networks)
        for smaller, larger in zip(networks, networks[1:], strict=False):
            if not holds(shapes_of(larger), shapes_of(smaller)):
                known = f"{shapes_text(shapes_of(smaller))} and {shapes_text(shapes_of(larger))}"
                raise ValueError(f"buckets of {known}: expected the larger one to hold the other")
        check_padding(module, networks, examples[order[0]], values, axes)
        made = [compile_network(network, seconds=seconds / len(networks), **options) for network in networks]
    return CompiledBuckets(tuple(made), values, axes)


def _checked(padding: dict[str, float], network: Network) -> dict[str, float]:
    for name in padding:
        check_known("padding of", name, [value.name for value in network.inputs])
    return padding
