"""Positions of the arrays of each step (one kernel) in memory: in the caller's arrays, a call's workspace, or fixed memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.arena import Arena, Life, arena, bound, rounded
from gensor_gym.networks.loops import loops
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.traits import WEIGHTS


class Base(IntEnum):
    """Kind of memory in which an array is: `enum gg_base` of `codegen/runtime/network.c`."""

    INPUT = 0
    OUTPUT = 1
    WORKSPACE = 2
    FIXED = 3


@dataclass(frozen=True)
class Place:
    """Position of an array. `at` is the index of an input or output, or an offset in bytes in workspace or fixed memory.

    `before` is added to that position, in bytes.
    """

    base: Base
    at: int
    before: int = 0
    """Further offset in bytes."""


@dataclass(frozen=True)
class Layout:
    """Positions of all arrays of a network in memory."""

    values: Mapping[str, Place]
    """Name of a value that a kernel reads or writes -> its position. A constant that is only read packed has offset 0."""
    workspaces: tuple[Place, ...]
    """Position of the workspace of each step (kernel)."""
    arena: Arena
    """Offsets of the values between kernels, and the size of their memory."""
    needed: int
    """Lower bound on the size of any arena for the values between kernels, in bytes."""
    workspace_bytes: int
    """Bytes of a call's workspace: first the arena, then space for the kernels' own workspaces, the largest that any loop needs.
    """
    constants: frozenset[str]
    """Names of the constants that kernels read in their original order, and that are therefore in fixed memory."""
    fixed_bytes: int
    """Bytes of fixed memory: constants, packed weights, and workspaces that keep their content between calls."""


def layout_of(plan: Plan, kernels: Sequence[Kernel], mode: str) -> Layout:
    """Lay out memory for a plan whose steps run `kernels`. ValueError for an unknown mode of the arena."""
    network, lives = plan.network, lives_of(plan)
    made = arena(lives, mode)
    values = {value.name: Place(Base.INPUT, number) for number, value in enumerate(network.inputs)}
    values |= {name: Place(Base.OUTPUT, number) for name, number in _returned(network).items()}
    values |= {name: Place(Base.WORKSPACE, offset) for name, offset in made.offsets.items()}
    for name in (*network.joins, *network.cuts):
        holder, before = network.place_of(name)
        values[name] = dataclasses.replace(values[holder], before=before)
    end, read = 0, _read(plan, kernels)
    for name, array in network.constants.items():
        values[name] = Place(Base.FIXED, end if name in read else 0)
        end += rounded(array.nbytes) if name in read else 0
    zeros, cleared = max((kernel.cleared_bytes for kernel in kernels), default=0), end
    end += max((rounded(zeros + one.workspace_bytes - one.cleared_bytes) for one in kernels if one.cleared_bytes), default=0)
    workspaces, scratch, whole = list[Place](), rounded(made.bytes), rounded(made.bytes)
    for numbers in loops(plan.pieces):
        place = scratch  # kernels of one loop compute at the same time
        for kernel in (kernels[number] for number in numbers):
            if kernel.cleared_bytes:  # all share one block; the bytes that each must find zero end at the same offset
                workspaces.append(Place(Base.FIXED, cleared + zeros - kernel.cleared_bytes))
            elif kernel.prepacked:  # other kernels must not write there between two calls
                workspaces.append(Place(Base.FIXED, end))
                end += rounded(kernel.workspace_bytes)
            else:
                workspaces.append(Place(Base.WORKSPACE, place))
                place += rounded(kernel.workspace_bytes)
        whole = max(whole, place)
    return Layout(values, tuple(workspaces), made, bound(lives), whole, read, end)


def _read(plan: Plan, kernels: Sequence[Kernel]) -> frozenset[str]:
    """Return the names of the constants that at least one kernel reads in their original order, not packed."""
    return frozenset(
        name
        for step, kernel in zip(plan.steps, kernels, strict=True)
        for place, name in enumerate(step.reads)
        if name in plan.network.constants and not (kernel.prepacked and place == WEIGHTS)
    )


def _returned(network: Network) -> dict[str, int]:
    """Return for each value that is in an output's memory the index of the output. ValueError if two outputs share one value."""
    roots = [network.root_of(name) for name in network.graph.returns]
    if len(set(roots)) < len(roots):
        raise ValueError(f"{network.graph.name}: two outputs are views of one value, expected memory of its own for each")
    return {root: number for number, root in enumerate(roots)}


def lives_of(plan: Plan) -> list[Life]:
    """Return the lifetimes of the values between steps, in the order in which they are computed.

    A value computed in parts begins with the first part. The steps of one loop count as one step, because all their values are in
    use throughout the loop.
    """
    network, first, last = plan.network, dict[str, int](), dict[str, int]()
    of_loop = [(number, step) for number, some in enumerate(loops(plan.pieces)) for step in (plan.steps[one] for one in some)]
    for number, step in of_loop:
        places = {network.place_of(name)[0]: number for name in (*step.reads, *step.writes)}
        last |= places
        for name in step.writes:
            first.setdefault(network.place_of(name)[0], number)
    returned, sizes = _returned(network), network.graph.values
    made = sorted((number, name) for name, number in first.items() if name not in returned)
    return [Life(name, sizes[name].nbytes, number, last[name]) for number, name in made]
