"""C text of a ring of stages in shared memory, which a producer fills through TMA and consumers release.

Each stage has two barriers: `full`, whose phase ends when all bytes of the stage have arrived, and `empty`, whose phase ends when
all consumers have released the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from gensor_gym.codegen.cuda.plan import ProductPlan
from gensor_gym.codegen.cuda.text import Loop, Writer
from gensor_gym.codegen.cuda.wgmma.plan import ATOM_BYTES, BARRIER_BYTES, PRODUCER_REGISTERS
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS

Ring = TypeVar("Ring", bound=ProductPlan)


def with_deepest_ring(plan: Ring, stages: int) -> Ring:
    """Return the plan with as many stages as fit while as many blocks run at a time as with at most `stages` stages."""
    several = [replace(plan, program=plan.program.with_knobs(stages=n)) for n in KNOBS[KNOB_INDEX["stages"]].available]
    fitting = [one for one in several if one.shared_bytes <= plan.program.hardware.shared_per_block]
    least = [one for one in fitting if one.stages <= stages][-1]
    return [one for one in fitting if one.resident >= least.resident][-1]


def declare_ring(out: Writer, before: str = "STAGES * STAGE_BYTES") -> None:
    """Write declarations of the shared addresses of the first stage, which is aligned, and of the barriers behind the stages.

    `before` is C text of the number of bytes from the first stage to the barriers.
    """
    out.line(f"const unsigned tiles = (shared_address(shared_memory) + {ATOM_BYTES - 1}) & ~{ATOM_BYTES - 1}u;")
    out.line(f"const unsigned full = tiles + {before};  // barriers: data is there,")
    out.line(f"const unsigned empty = full + STAGES * {BARRIER_BYTES};  // and is not needed any more")


@contextmanager
def initialised_ring(out: Writer, cluster: int = 1) -> Iterator[None]:
    """Write the initialisation of all barriers by one thread; all threads of the cluster wait for it.

    The lines of the `with` block initialise further barriers. `CONSUMER_WARPS` arrivals release a stage.
    """
    with out.block("if (threadIdx.x == 0)"):
        with out.nest([Loop("stage", "STAGES")]):
            out.line(f"barrier_init(full + stage * {BARRIER_BYTES}, 1);")
            out.line(f"barrier_init(empty + stage * {BARRIER_BYTES}, CONSUMER_WARPS);")
        yield
        out.line("fence_barrier_init();")
    out.line("cluster_sync();" if cluster > 1 else "__syncthreads();")


def write_first_stage(out: Writer, parity: int) -> None:
    """Write declarations of the place in the ring: the first stage, and the parity of the phases that are waited for."""
    out.line("int stage = 0;")
    why = "  // of the phase before the first, which counts as ended: every stage is free" if parity else ""
    out.line(f"unsigned parity = {parity};{why}")


@contextmanager
def only_producer(out: Writer, thread: str, mapped: Sequence[str], exchanges: bool) -> Iterator[None]:
    """Write the text of the threads that do not compute: the lines of the `with` block are those of the producer, one thread.

    `thread` is C text of the producer's number, `mapped` are the names of the tensors with tensor maps. With `exchanges`, the
    threads hand registers to computing threads.
    """
    if exchanges:
        out.line(f"release_registers<{PRODUCER_REGISTERS}>();")
    out.line(f"if (threadIdx.x != {thread}) return;")
    for name in mapped:
        out.line(f"prefetch_map({name}_map);")
    write_first_stage(out, parity=1)
    yield
    out.line("return;")


def write_refill(out: Writer, bytes_name: str) -> None:
    """Write the producer's wait for a free stage, and the announcement of the bytes that its copies bring."""
    out.line(f"const unsigned ready = full + stage * {BARRIER_BYTES};")
    out.line(f"barrier_wait(empty + stage * {BARRIER_BYTES}, parity);")
    out.line(f"barrier_expect_bytes(ready, {bytes_name});")


def write_release(out: Writer, cluster: int, stage: str, condition: str = "") -> None:
    """Write the release of a stage of the ring by one warp to every block of the cluster.

    An empty `condition` means always.
    """
    lanes = "lane < CLUSTER" if cluster > 1 else "lane == 0"
    barrier = f"empty + {stage} * {BARRIER_BYTES}"
    arrive = f"cluster_arrive({barrier}, lane)" if cluster > 1 else f"barrier_arrive({barrier})"
    out.line(f"if ({lanes}{' && ' if condition else ''}{condition}) {arrive};")


def write_next_stage(out: Writer) -> None:
    """Write the step to the next stage of the ring.

    The parity of its barriers changes whenever the ring starts over at its first stage.
    """
    with out.block("if (++stage == STAGES)"):
        out.line("stage = 0;")
        out.line("parity ^= 1;")
