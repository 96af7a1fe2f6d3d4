"""CUDA text of a chain's kernel with wgmma, in the style of FlashAttention-3 (Shah and others, arXiv 2407.08608).

A thread of one warpgroup, the producer, copies the block's rows and then tiles of both right operands into a ring of buffers,
each as soon as its buffer is free. The other warpgroups, the consumers, have 64 rows of the block each. They compute a tile's
scores from shared memory, turn them into weights in registers, and use these as the left operand of the second product.

With `overlap`, the second product of a tile is issued after the first product of the next tile, and runs while that tile's scores
become weights. Consumers may also take turns to issue both (ping-pong), so that one computes products while another computes
powers. A lane's scores and sums have the layout of mma.sync (`products.py`) in the 16 rows of its warp.
"""

from __future__ import annotations

from gensor_gym.chains.gpu.ring import ATOM_BYTES, GROUP, PANEL, ROW_BYTES
from gensor_gym.chains.gpu.tiles import DEPTH, HEIGHT, ITEM, WARP
from gensor_gym.codegen.chains.cuda.between import Between
from gensor_gym.codegen.chains.cuda.output import write_element, write_output, write_start
from gensor_gym.codegen.chains.cuda.ring_plan import Panels, RingPlan
from gensor_gym.codegen.cuda.text import Loop, Writer, total
from gensor_gym.codegen.cuda.wgmma.text import FUNCTIONS, load_box, multiply_add, multiply_name, multiply_weights

_SETTLE = """\
// What is computed of the sums stays behind the wait before: the compiler does not know that they arrive there.
template <int COUNT>
__device__ __forceinline__ void settle(float (&sums)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
"""


def ring_functions(plan: RingPlan) -> dict[str, str]:
    """Return the device functions that a wgmma kernel of a chain may call, by name."""
    _, first, second = plan.panels
    dtype = plan.chain.dtype
    boxes = {f"load_box_{rank}d": load_box(rank) for rank in sorted({len(one.boxes.shape) for one in plan.panels})}
    products = {
        multiply_name(dtype, not first.deep): multiply_add(dtype, plan.value("keys"), not first.deep),
        multiply_name(dtype, not second.deep, "weights_"): multiply_weights(dtype, plan.room.out, not second.deep),
    }
    return {**FUNCTIONS, **boxes, **products, "settle": _SETTLE}


def ring_body(plan: RingPlan) -> str:
    """Return the CUDA text of the body of a chain's kernel with wgmma."""
    out = Writer(depth=1)
    _write_barriers(out, plan)
    write_element(out, plan)
    with out.block(f"if (threadIdx.x < {GROUP * WARP})"):
        _write_producer(out, plan)
    _write_consumer(out, plan)
    return out.text


def _write_barriers(out: Writer, plan: RingPlan) -> None:
    out.line(f"const unsigned tiles = (shared_address(shared_memory) + {ATOM_BYTES - 1}) & ~{ATOM_BYTES - 1}u;")
    out.line("const unsigned firsts = tiles + LEFT_BYTES, seconds = firsts + STAGES * FIRST_BYTES;")
    out.line("const unsigned left_full = seconds + STAGES * SECOND_BYTES;  // barriers: data is there,")
    out.line("const unsigned first_full = left_full + 8;")
    out.line("const unsigned second_full = first_full + STAGES * 8, first_empty = second_full + STAGES * 8;")
    out.line("const unsigned second_empty = first_empty + STAGES * 8;  // and is not needed any more")
    if plan.takes_turns:
        out.line("const unsigned turns = second_empty + STAGES * 8;  // of consumers")
    with out.block("if (threadIdx.x == 0)"):
        out.line("barrier_init(left_full, 1);")
        if plan.takes_turns:
            with out.nest([Loop("consumer", "CONSUMERS")]):
                out.line(f"barrier_init(turns + consumer * 8, {GROUP});")
        with out.nest([Loop("stage", "STAGES")]):
            for name in ("first", "second"):
                out.line(f"barrier_init({name}_full + stage * 8, 1);")
                out.line(f"barrier_init({name}_empty + stage * 8, CONSUMER_WARPS);")
        out.line("fence_barrier_init();")
    out.line("__syncthreads();")


def _write_ring(out: Writer, parity: int) -> None:
    for name in ("first", "second"):
        out.line(f"int {name}_stage = 0;")
        out.line(f"unsigned {name}_parity = {parity};")


def _write_advance(out: Writer, name: str) -> None:
    """Write the step to the next buffer of the ring for operand `name`.

    The parity of its barrier changes whenever the ring starts over at its first buffer.
    """
    with out.block(f"if (++{name}_stage == STAGES)"):
        out.line(f"{name}_stage = 0;")
        out.line(f"{name}_parity ^= 1;")


def _write_producer(out: Writer, plan: RingPlan) -> None:
    _, own, consumer = plan.registers
    if consumer:
        out.line(f"release_registers<{own}>();")
    out.line("if (threadIdx.x != 0) return;")
    left, first, second = plan.panels
    for tile in plan.panels:
        out.line(f"prefetch_map({tile.name}_map);")
    out.line("barrier_expect_bytes(left_full, LEFT_BYTES);")
    _write_boxes(out, left, "tiles", "left_full", "first_row")
    out.line("// The phase before the first counts as ended: every place is free.")
    _write_ring(out, 1)
    for place in range(plan.stream.passes):
        out.line("#pragma unroll 1")
        with out.block(f"for (int tile = 0; tile < {plan.tiles_of_block}; ++tile)"):
            for one in (first, second) if place == plan.stream.passes - 1 else (first,):
                name = one.name
                with out.block(""):
                    out.line(f"const unsigned to = {name}s + {name}_stage * {name.upper()}_BYTES;")
                    out.line(f"const unsigned ready = {name}_full + {name}_stage * 8;")
                    out.line(f"barrier_wait({name}_empty + {name}_stage * 8, {name}_parity);")
                    out.line(f"barrier_expect_bytes(ready, {name.upper()}_BYTES);")
                    _write_boxes(out, one, "to", "ready", "tile * KEYS")
                _write_advance(out, name)
    out.line("return;")


def _write_boxes(out: Writer, tile: Panels, to: str, ready: str, position: str) -> None:
    """Write the copies of a tile by TMA.

    `position` is its start along the keys or, for the left operand, along the block's rows. `to` is the target address and
    `ready` the barrier that signals the end of the copies.
    """
    rank = len(tile.boxes.shape)
    batch = [
        f"element{f' / {below}' if below > 1 else ''} % {extent}" for below, extent in reversed(tile.boxes.batch)
    ]
    for panel in range(tile.panels):
        row, column = (position, "0") if tile.by_keys else ("0", position)
        place = ", ".join([total([(1, column)], panel * PANEL), row, *batch])
        at = f"{to} + {panel} * {tile.name.upper()}_PANEL" if panel else to
        out.line(f"load_box_{rank}d({at}, {tile.name}_map, {ready}, {place});")


def _write_consumer(out: Writer, plan: RingPlan) -> None:
    if plan.registers[2]:
        out.line(f"request_registers<{plan.registers[2]}>();")
    between = Between(plan)
    out.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP} - {GROUP};")
    write_start(out, plan, "made", plan.chain.out)
    _write_descriptors(out, plan)
    between.begin(out)
    out.line("float sums[OUT_TILES * 4] = {};")
    _write_ring(out, 0)
    out.line("barrier_wait(left_full, 0);")
    last = plan.stream.passes - 1
    for place in range(plan.stream.passes):
        between.begin_pass(out, place)
        if place == last:
            out.line("unsigned weights[KEY_TILES / 2][4];")
        if place == last and plan.defers:
            _write_overlapped(out, plan, between)
        else:
            _write_pass(out, plan, between, place)
        between.end_pass(out, place)
    write_output(out, plan, between)


def _write_descriptors(out: Writer, plan: RingPlan) -> None:
    """Write declarations of the matrix descriptors without addresses, and of the address of the consumer's rows.

    The layout of a descriptor is in `codegen/cuda/wgmma/codegen.py`.
    """
    word, swizzled, stride = "constexpr unsigned long long", "1ull << 62", f"{ATOM_BYTES // 16}ull << 32"
    out.line(f"{word} IN_ROWS = {swizzled} | {stride} | 1ull << 16;  // rows of the reduction, eight to an atom of the swizzle")
    for tile in plan.panels:
        if tile.deep:
            leading = f"{tile.panel_bytes // 16}ull << 16"
            out.line(f"{word} {tile.name.upper()}_DEEP = {swizzled} | {stride} | {leading};  // rows of columns, {PANEL} a panel")
    out.line(f"const unsigned rows = tiles + warp / {GROUP} * {GROUP * HEIGHT * ROW_BYTES};")


def _write_pass(out: Writer, plan: RingPlan, between: Between, place: int) -> None:
    out.line("#pragma unroll 1")
    with out.block(f"for (int tile = 0; tile < {plan.tiles_of_block}; ++tile)"):
        out.line("const int key = tile * KEYS;")
        _write_first(out, plan)
        _write_wait(out, 0, "scores", "first")
        between.step(out, place)
        if place == plan.stream.passes - 1:
            _write_weights(out, plan)
            _write_second(out, plan)
            _write_wait(out, 0, "sums", "second")


def _write_overlapped(out: Writer, plan: RingPlan, between: Between) -> None:
    """Write the last pass over the keys with overlap.

    The second product of a tile is issued after the first product of the next tile.
    """
    place = plan.stream.passes - 1
    with out.block(""):
        out.line("const int key = 0;")
        _write_first(out, plan)
        _write_wait(out, 0, "scores", "first")
        between.step(out, place)
        _write_weights(out, plan)
    if plan.takes_turns:
        out.line(f"const int consumer = warp / {GROUP};")
        out.line("unsigned turn = consumer == 0;  // its parity; the first consumer begins")
    out.line("#pragma unroll 1")
    with out.block(f"for (int tile = 1; tile < {plan.tiles_of_block}; ++tile)"):
        out.line("const int key = tile * KEYS;")
        if plan.takes_turns:
            out.line("barrier_wait(turns + consumer * 8, turn);")
            out.line("turn ^= 1;")
        _write_first(out, plan)
        _write_second(out, plan)
        if plan.takes_turns:
            out.line("if (lane == 0) barrier_arrive(turns + (consumer + 1) % CONSUMERS * 8);")
        _write_wait(out, 1, "scores")
        between.step(out, place)
        # The assembler moves powers below the wait, unless an instruction before the wait needs them.
        _write_release(out, "first", between.known)
        _write_wait(out, 0, "sums", "second")
        between.rescale(out)
        _write_weights(out, plan)
    _write_second(out, plan)
    _write_wait(out, 0, "sums", "second")


def _write_first(out: Writer, plan: RingPlan) -> None:
    left, first, _ = plan.panels
    out.line("float scores[KEY_TILES * 4];")
    out.line("barrier_wait(first_full + first_stage * 8, first_parity);")
    out.line("wgmma_fence();")
    with out.nest([Loop("point", "POINTS")]):
        out.line(f"const unsigned a = rows + {_in_row('LEFT_PANEL')};")
        out.line(f"const unsigned b = firsts + first_stage * FIRST_BYTES + {_point(first)};")
        name = multiply_name(plan.chain.dtype, not first.deep)
        out.line(f"{name}(scores, {_described('IN_ROWS', 'a')}, {_described(_kind(first), 'b')}, point > 0);")
    out.line("wgmma_commit();")


def _write_second(out: Writer, plan: RingPlan) -> None:
    second = plan.panels[2]
    out.line("barrier_wait(second_full + second_stage * 8, second_parity);")
    out.line("wgmma_fence();")
    with out.nest([Loop("point", "KEY_TILES / 2")]):
        out.line(f"const unsigned b = seconds + second_stage * SECOND_BYTES + {_point(second)};")
        name = multiply_name(plan.chain.dtype, not second.deep, "weights_")
        out.line(f"{name}(sums, weights[point], {_described(_kind(second), 'b')}, true);")
    out.line("wgmma_commit();")


def _write_weights(out: Writer, plan: RingPlan) -> None:
    with out.nest([Loop("point", "KEY_TILES / 2"), Loop("i", "4")]):
        out.line("const float *const two = &scores[4 * (2 * point + i / 2) + i % 2 * 2];")
        out.line(f"weights[point][i] = pack_{plan.chain.dtype}(two[0], two[1]);")


def _write_wait(out: Writer, left: int, sums: str, name: str = "") -> None:
    """Write the wait until all except the last `left` issued products are done.

    Then release the tile of the operand `name`, unless `name` is empty.
    """
    out.line(f"wgmma_wait<{left}>();")
    out.line(f"settle({sums});")
    if name:
        _write_release(out, name)


def _write_release(out: Writer, name: str, condition: str = "") -> None:
    """Write the release of the current tile of the operand `name` for the producer.

    `condition`, if given, always holds. It depends on values that are computed before, so the release comes after them.
    """
    out.line(f"if (lane == 0{' && ' if condition else ''}{condition}) barrier_arrive({name}_empty + {name}_stage * 8);")
    _write_advance(out, name)


def _in_row(panel: str) -> str:
    """Return the offset in bytes of point `point` of the reduction, as CUDA text, in a tile whose rows go along the reduction."""
    return f"point / {PANEL // DEPTH} * {panel} + point % {PANEL // DEPTH} * {DEPTH * ITEM}"


def _point(tile: Panels) -> str:
    """Return the offset in bytes of point `point` of the reduction, as CUDA text, in a right operand's tile."""
    return f"point * {DEPTH * ROW_BYTES}" if tile.deep else _in_row(f"{tile.name.upper()}_PANEL")


def _kind(tile: Panels) -> str:
    return f"{tile.name.upper()}_DEEP" if tile.deep else "IN_ROWS"


def _described(kind: str, address: str) -> str:
    return f"{kind} | ({address} >> 4 & 0x3fff)"
