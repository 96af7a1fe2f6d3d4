"""A product whose rows of B are not whole 16 bytes apart, as a tensor map wants them: 14 x 14 pixels of float16 are 392 bytes.

Eight such rows are, whatever their length. So the map has them as one row, and a box takes the same pixels of every eighth
channel: it begins 0, 1, .. 7 lengths of a row further on. What sticks out of a row is the beginning of the next one, in columns
that are not stored. In shared memory the 64 rows of a step then lie as 8 x 8 turned: row 8 j + i has channel 8 i + j. The order
of a sum's terms is free as long as A has the same one, so three warps of the producer, which have nothing else to do, turn the
columns of A's tile before the consumers get it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.cuda.text import Loop, Writer, total
from gensor_gym.codegen.cuda.wgmma.plan import ATOM_BYTES, WARPGROUP, WgmmaPlan, check_batch, check_wgmma
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import GROUP, SWIZZLE_BYTES

WARPS = WARPGROUP // 32 - 1
"""Warps that turn: all of the producer but the one that copies."""
_LANES = 4
"""Lanes for a row of A: each takes a word of all eight units of 16 bytes, two columns of the matrix that is turned."""


@dataclass(frozen=True)
class GroupedPlan(WgmmaPlan):
    """A product of 16-bit elements with B's rows taken in groups of eight."""

    @property
    def barrier_bytes(self) -> int:
        """One barrier more: A is turned."""
        return super().barrier_bytes + 8

    @property
    def row_length(self) -> int:
        """Elements from a row of B to the next."""
        return self.op.reads[self.roles.b].axis_strides()[self.roles.k]

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A as it lies, and of B as rows of a group each."""
        left = self._map(self.op.reads[self.roles.a], (self.box_rows, self.step))
        right = self.op.reads[self.roles.b]
        *batch, k, n = right.view
        grouped = replace(right, view=(*batch, k // GROUP, GROUP * n))
        return left, self._map(grouped, (self.step // GROUP, self.panel))


def make_grouped_plan(program: Program) -> GroupedPlan:
    """The plan of a product with tensor_core=2 whose B is read in groups; ValueError names what cannot be generated."""
    plan = GroupedPlan(program)
    check_wgmma(plan)
    check_batch(plan)
    return plan


def write_groups(out: Writer, plan: GroupedPlan, panels: Iterable[tuple[int, str, list[str]]]) -> None:
    """Copies of B: of every panel, where it lies, first column and matrix, eight boxes of a swizzle atom each.

    Blocks of a cluster take them in turn and send them to all. The loop is not unrolled: its coordinates would each be kept in a
    register, of which the producer has few.
    """
    name, rank = plan.mapped[1], len(plan.maps[1].shape)
    step = f"step * {plan.step // GROUP}" if plan.steps > 1 else "0"
    copy, to_all, first, by = f"load_box_{rank}d", "", "0", "++group"
    if plan.cluster > 1:
        copy, to_all, first, by = f"multicast_box_{rank}d", "EVERY_BLOCK, ", "rank", "group += CLUSTER"
    out.line("#pragma unroll 1")
    with out.block(f"for (int group = {first}; group < {GROUP}; {by})"):
        for at, column, batch in panels:
            to = total([(1, "b_tile"), (ATOM_BYTES, "group")], at)
            place = ", ".join([total([(1, column), (plan.row_length, "group")]), step, *batch])
            out.line(f"{copy}({to}, {name}_map, ready, {to_all}{place});")


def write_turn(out: Writer, plan: GroupedPlan) -> None:
    """A warp's share of turning A in the stage `stage`, eight rows at a time, and its word that it has.

    Lane 4 r + w reads word w of all units of row r, and writes the two units that have its elements: no two lanes of a phase meet
    in a bank. The tensor cores see what was written once the asynchronous proxy is fenced.
    """
    out.line("barrier_wait(full + stage * 8, parity);")
    eights = math.ceil(plan.block[plan.roles.m] / 8)
    with out.block(f"for (int eight = warp; eight < {eights}; eight += {WARPS})"):
        place = f"tiles + stage * STAGE_BYTES + eight * {ATOM_BYTES} + own * {SWIZZLE_BYTES}"
        out.line(f"unsigned char *const row = shared_pointer({place});")
        out.line(f"unsigned words[{GROUP}];")
        with out.nest([Loop("i", str(GROUP))]):
            out.line("words[i] = *reinterpret_cast<const unsigned *>(row + ((i ^ own) * 16 + word * 4));")
        out.line("__syncwarp(0xffffffffu);")
        for half, selector in (("", "0x5410"), (" + 1", "0x7632")):
            pairs = ", ".join(f"__byte_perm(words[{i}], words[{i + 1}], {selector})" for i in range(0, GROUP, 2))
            out.line(f"*reinterpret_cast<uint4 *>(row + (2 * word{half} ^ own) * 16) = uint4{{{pairs}}};")
    out.line("fence_async();")
    out.line("__syncwarp(0xffffffffu);")
    out.line("if (lane == 0) barrier_arrive(turned + stage * 8);")


def write_turner(out: Writer) -> None:
    """What a warp that turns A knows of itself."""
    out.line(f"const int warp = threadIdx.x / 32 - 1, lane = threadIdx.x % 32, own = lane / {_LANES}, word = lane % {_LANES};")
    out.line("int stage = 0;")
    out.line("unsigned parity = 0;")
