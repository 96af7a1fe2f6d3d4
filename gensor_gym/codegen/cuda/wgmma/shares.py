"""C text for blocks that compute equal shares of all reduction steps of all tiles, `persistent=2` (stream-K, arXiv 2301.03598).

All steps of the reduction, tile after tile, form one sequence that is cut into as many shares as blocks (or clusters) run at a
time. A share is the end of a tile that the previous share began, whole tiles, and the beginning of another tile. A block with
part of a tile stores its sums in the workspace in quads; quads of consecutive threads are contiguous. Each warp then increments a
counter. The last warp to do so adds the parts up, always in the order of the steps, so that every run has the same result. No
warp waits. The counters are at the workspace's beginning and wrap around to 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, total
from gensor_gym.codegen.cuda.wgmma.plan import WARPGROUP, WgmmaPlan
from gensor_gym.codegen.cuda.wgmma.store import write_store
from gensor_gym.graph.matrices.choices import WGMMA_ROWS

QUAD = 4
"""Number of sums that a thread stores in the workspace at once: 16 bytes."""
_PLACE = f"(rows * QUADS + quad) * {WARPGROUP}"
"""C text of the position of four sums (a quad) among those of a consumer. Quads of consecutive threads are contiguous."""


def share_constants(plan: WgmmaPlan) -> dict[str, tuple[int, str]]:
    """Return the constants of the kernel's text for shares of steps and their workspace, by name: (value, meaning)."""
    quads = plan.tile[0] * plan.tile[1] // QUAD
    return {
        "SHARES": (plan.shares, "clusters that share out all steps" if plan.cluster > 1 else "blocks that share out all steps"),
        "ALL_STEPS": (plan.tiles * plan.steps, "steps of all tiles"),
        "PART": (plan.cluster * plan.num_consumers * quads, f"quads of a tile{'s of a cluster' if plan.cluster > 1 else ''}"),
        "QUADS": (plan.tile[1] // 2 // QUAD, f"quads of a thread in {WGMMA_ROWS} rows"),
    }


@contextmanager
def over_share(out: Writer, plan: WgmmaPlan) -> Iterator[str]:
    """Write a loop over the tiles of this block's share of steps around the `with` block, and yield C text of the tile's index.

    `first_step` and `last_step` are the range of the share's steps in the tile.
    """
    out.line(f"const int share = blockIdx.x{' / CLUSTER' if plan.cluster > 1 else ''};")
    out.line("const int end = (share + 1ll) * ALL_STEPS / SHARES;")
    out.line("int next;")
    with out.block("for (int at = 1ll * share * ALL_STEPS / SHARES; at < end; at = next)"):
        out.line("const int first_step = at % STEPS;")
        out.line("const int last_step = STEPS - first_step < end - at ? STEPS : first_step + end - at;")
        out.line("next = at - first_step + last_step;")
        yield "at / STEPS"


def write_shared_store(out: Writer, plan: WgmmaPlan) -> None:
    """Write the store of a tile, or of the part of a tile that this block's share of steps has computed.

    The last warp to arrive adds the parts up.
    """
    quad = f"{SCALARS[plan.op.accumulator].vector}{QUAD}"
    with out.block("if (last_step - first_step == STEPS)"):
        write_store(out, plan)
    with out.block("else"):
        out.line("const int first_share = ((at - first_step + 1ll) * SHARES - 1) / ALL_STEPS;")
        out.line("const int last_share = ((at - first_step + 0ll + STEPS) * SHARES - 1) / ALL_STEPS;")
        place = _of_consumer(plan, plan.tile[0] * plan.tile[1] // QUAD, "thread")
        out.line("// Of every share the tile that it ends, and the one that it begins.")
        out.line(f"{quad} *const parts = reinterpret_cast<{quad} *>(workspace + {plan.cleared_bytes // 4}) + {place};")
        out.line(f"{quad} *const own = parts + (2 * share + (share == first_share)) * PART;")
        with out.nest([Loop("rows", "ROW_BLOCKS"), Loop("quad", "QUADS")]):
            elements = ", ".join(f"acc[rows][quad * {QUAD} + {i}]" for i in range(QUAD))
            out.line(f"own[{_PLACE}] = {quad}{{{elements}}};")
        out.line("__threadfence();")
        out.line("__syncwarp(0xffffffffu);")
        out.line("unsigned arrived = 0;")
        counter = f"first_share * {4 * plan.cluster * plan.num_consumers} + {_of_consumer(plan, 4, 'thread / 32')}"
        count = f"atomicInc(reinterpret_cast<unsigned *>(workspace) + {counter}, last_share - first_share)"
        out.line(f"if (lane == 0) arrived = {count};")
        with out.block("if (__shfl_sync(0xffffffffu, arrived, 0) == last_share - first_share)"):
            out.line("__threadfence();")
            write_store(out, plan, "whole", _write_sum)


def _write_sum(out: Writer, plan: WgmmaPlan) -> None:
    """Write the declaration of `whole`: all shares' parts of a block of rows, added up in the order of their steps."""
    kind = SCALARS[plan.op.accumulator]
    out.line(f"{kind.name} whole[{QUAD} * QUADS] = {{}};")
    out.line("#pragma unroll 1")
    with out.block("for (int each = first_share; each <= last_share; ++each)"):
        out.line(f"const {kind.vector}{QUAD} *part = parts + (2 * each + (each == first_share)) * PART;")
        with out.nest([Loop("quad", "QUADS")]):
            out.line(f"const {kind.vector}{QUAD} sums = __ldcg(part + {_PLACE});")
            for i, name in enumerate("xyzw"):
                out.line(f"whole[quad * {QUAD} + {i}] += sums.{name};")


def _of_consumer(plan: WgmmaPlan, each: int, own: str) -> str:
    """Return the C text of the index of a consumer's element `own`, counted over all consumers of a cluster.

    `each` is the number of elements per consumer.
    """
    ranks = [(each * plan.num_consumers, "rank")] if plan.cluster > 1 else []
    consumers = [(each, "(warpgroup - 1)")] if plan.num_consumers > 1 else []
    return total([*ranks, *consumers, (1, own)])
