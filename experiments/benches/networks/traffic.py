"""Cache traffic of a call by memory layout: `python -m experiments.benches.networks.traffic NAME..`.

The traffic is simulated, not measured: an LRU cache with pieces of 4 KB, over a second call of the plan `cut_all`. A kernel goes
through all its inputs and outputs once, in parallel, and every piece is loaded before it is written.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from gensor_gym import hardware
from gensor_gym.codegen.c.text import ceil_div
from gensor_gym.networks.arena import MODES, arena
from gensor_gym.networks.layout import lives_of
from gensor_gym.networks.plan import Plan

PIECE = 4096
Streams = list[tuple[str, int, int]]
"""(kind, first piece, number of pieces) of each value that a kernel reads or writes."""


def traffic(plan: Plan, mode: str, capacity: int) -> dict[str, int]:
    """Bytes that a call brings into a cache of `capacity` bytes, by kind: `read`, `written` and `constants`."""
    cache: OrderedDict[int, None] = OrderedDict()
    steps = _steps(plan, mode)
    for _ in range(2):
        brought = {"read": 0, "written": 0, "constants": 0}
        for streams in steps:
            for kind, piece in _side_by_side(streams):
                if piece in cache:
                    cache.move_to_end(piece)
                    continue
                brought[kind] += PIECE
                cache[piece] = None
                if len(cache) > capacity // PIECE:
                    cache.popitem(last=False)
    return brought


def _steps(plan: Plan, mode: str) -> list[Streams]:
    """Streams of every kernel; values outside the arena have their own addresses behind it."""
    network, values = plan.network, plan.network.graph.values
    made = arena(lives_of(plan), mode)
    places = {name: offset // PIECE for name, offset in made.offsets.items()}
    end = ceil_div(made.bytes, PIECE)

    def stream(kind: str, name: str) -> tuple[str, int, int]:
        nonlocal end
        holder, before = (name, 0) if name in network.constants else network.place_of(name)
        if holder not in places:
            places[holder] = end
            end += ceil_div(values[holder].nbytes, PIECE)
        return kind, places[holder] + before // PIECE, ceil_div(values[name].nbytes, PIECE)

    return [
        [stream("constants" if name in network.constants else "read", name) for name in step.reads]
        + [stream("written", name) for name in step.writes]
        for step in plan.steps
    ]


def _side_by_side(streams: Streams) -> Iterator[tuple[str, int]]:
    """(kind, piece) of all streams, interleaved in proportion to their lengths."""
    steps = max(count for _, _, count in streams)
    for step in range(steps):
        for kind, first, count in streams:
            for piece in range(step * count // steps, (step + 1) * count // steps):
                yield kind, first + piece


def main(names: Sequence[str]) -> None:
    """Print the traffic for each network and memory layout, with a cache as large as this machine's L2."""
    from experiments.networks.suite import inputs_of, module_of
    from gensor_gym.frontends.torch_export import from_torch
    from gensor_gym.networks.folding import folded
    from gensor_gym.networks.fusion.rules import plan_of

    capacity = next(level.capacity for level in hardware.get("host").memory if level.name == "l2")
    for name in names:
        plan = plan_of(folded(from_torch(module_of(name), inputs_of(name))), "cut_all")
        for mode in MODES:
            brought = traffic(plan, mode, capacity)
            parts = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in brought.items())
            print(f"{name}, {mode}: {sum(brought.values()) / 1e6:.1f} MB into {capacity / 2**20:g} MB ({parts})")


if __name__ == "__main__":
    main(sys.argv[1:])
