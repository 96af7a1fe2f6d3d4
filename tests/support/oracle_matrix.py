"""Rules of tensor-core programs as the design states them, written a second time; see `tests/support/oracle.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

if TYPE_CHECKING:
    from tests.support.oracle import Oracle, State

ITEM = {"float16": 2, "bfloat16": 2, "int8": 1, "float8_e4m3fn": 1, "tf32": 4, "tf32x3": 4}


def roles(op: Operator) -> tuple[int, int, int, int, int] | None:
    """(read A, read B, axis m, axis n, axis k) of a gemm, batched_gemm or conv2d; None for other operators."""
    names = [axis.name for axis in op.axes]
    if op.name in ("gemm", "batched_gemm"):
        return 0, 1, names.index("m"), names.index("n"), names.index("k")
    if op.name == "conv2d":
        return 1, 0, names.index("k"), names.index("q"), names.index("c")
    return None


def names_of(op: Operator) -> list[str]:
    """Names of the axes."""
    return [axis.name for axis in op.axes]


def instruction(op: Operator, hw: Hardware) -> int:
    """Elements of axis k in one instruction; 0 where the hardware has none for the data type."""
    if hw.kind == "cpu" or hw.arch == "sm_70":
        return 0
    if hw.arch == "sm_75":
        return {"float16": 8, "int8": 16}.get(op.dtype, 0)
    if op.dtype == "float8_e4m3fn":
        return 32 if hw.arch in ("sm_89", "sm_90") else 0
    return {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32}.get(op.dtype, 0)


def widened(op: Operator, hw: Hardware) -> bool:
    """Whether mma.sync multiplies float16 made of operands of 8 bits: two instructions, and registers for what they become."""
    return op.dtype == "float8_e4m3fn" and hw.arch == "sm_90"


def choices(op: Operator, hw: Hardware) -> tuple[int, ...]:
    """Values of knob tensor_core."""
    found, step = roles(op), instruction(op, hw)
    if found is None or step == 0:
        return (0,)

    def longest(axis: int) -> int:
        extent = op.axes[axis].extent
        return 2 ** math.ceil(math.log2(extent)) if extent < 8 else math.ceil(extent / 8) * 8

    _, _, m, n, k = found
    cores = (0, 1) if longest(m) >= 16 and longest(n) >= 8 else (0,)  # zeros fill up what is missing along k
    if hw.arch != "sm_90" or op.dtype == "tf32x3":
        return cores
    size = ITEM[op.dtype]
    if op.name == "conv2d":
        stride = dict(op.arguments).get("stride", 1)
        rows = "g" not in names_of(op) and max(stride if isinstance(stride, tuple) else (stride,)) <= 8
    else:  # B of tf32, int8 and floats of 8 bits is transposed first: rows of any length
        rows = op.axes[k].extent * size % 16 == 0 and (size != 2 or op.axes[n].extent % 8 == 0)
    whole = longest(k) >= 128 // size or filled_up(op)
    taken = [n] if op.name != "conv2d" else [a for a in range(4) if a != m]  # pixels of any other axis fill up sixteens
    wide = longest(n) >= 8 and math.prod(longest(a) for a in taken) >= across(op)
    return (*cores, 2) if rows and wide and whole else cores


def filled_up(op: Operator) -> bool:
    """Whether a step of wgmma of 128 bytes of channels may be partly zeros: of a convolution by copies, half of it at most.

    All of it counts as channels where it is rows of the window.
    """
    if op.name != "conv2d" or "g" in names_of(op) or in_place(op):
        return False
    channels = math.ceil(dict(op.arguments)["c"] / 8) * 8
    return in_window_rows(op) or channels * ITEM[op.dtype] >= 64


def in_window_rows(op: Operator) -> bool:
    """Whether the channels at all places of a row of a convolution's window, of 16 bits, make a step of wgmma of up to 64.

    For fewer than 57 channels that do not lie as a product; a single row has to have a single place.
    """
    if op.name != "conv2d" or ITEM.get(op.dtype) != 2 or "g" in names_of(op) or in_place(op):
        return False
    given = dict(op.arguments)
    return given["c"] <= 56 and given["c"] * given["s"] <= 64 and (given["r"] > 1 or given["s"] == 1)


def least_tile(op: Operator, hw: Hardware, axis: int) -> int:
    """How long tiles of an axis may be however short it is: of k as long as what tensor cores take at once."""
    found, cores = roles(op), choices(op, hw)
    if found is None or axis != found[4] or cores == (0,):
        return 1
    return 128 // ITEM[op.dtype] if 2 in cores and filled_up(op) else instruction(op, hw)


def least_rows(op: Operator) -> int:
    """What rows of a wgmma's tile are a multiple of: 64; where m is shorter 16, or under 16 all of them."""
    extent = op.axes[roles(op)[2]].extent
    if extent > 56:
        return 64
    return 16 if extent > 8 else 2 ** math.ceil(math.log2(extent)) if extent < 8 else 8


def across(op: Operator) -> int:
    """What the columns of a wgmma are a multiple of."""
    return 16 if op.dtype == "int8" else 8


def in_place(op: Operator) -> bool:
    """Whether a convolution of 16 bits is a product of its operands as they lie: window of one, channels and pixels in eights."""
    if op.name != "conv2d" or "g" in names_of(op) or ITEM[op.dtype] != 2:
        return False
    given = dict(op.arguments)
    plain = given["r"] == given["s"] == 1 and given.get("stride", 1) == 1 and given.get("padding", 0) == 0
    return plain and given["c"] % 8 == 0 and given["h"] * given["w"] % 8 == 0


def clusters(op: Operator, hw: Hardware, blocks: int) -> bool:
    """Whether an axis m has a tile of 64 rows for every block of a cluster."""
    return 2 in choices(op, hw) and math.ceil(op.axes[roles(op)[2]].extent / 64) >= blocks


def fragment(oracle: Oracle, state: State, axis: int) -> int:
    """What a register tile is a multiple of along an axis."""
    _, _, m, n, k = roles(oracle.op)
    step = 8 if oracle.op.name == "conv2d" else across(oracle.op)
    rows, columns = {1: (16, 8), 2: (least_rows(oracle.op), step)}[state.knob("tensor_core")]
    return {m: rows, n: columns, k: instruction(oracle.op, oracle.hw)}.get(axis, 1)


def pixels(oracle: Oracle, state: State, axis: int) -> bool:
    """Whether one wgmma takes several indices along the axis, as it does along all spatial axes of a convolution but m.

    Of a convolution that is a product as it lies, along rows and columns of one image, and along images where each has whole 64s.
    """
    convolution = oracle.op.name == "conv2d" and state.knob("tensor_core") == 2
    if not convolution or axis not in oracle.spatial or axis == roles(oracle.op)[2]:
        return False
    return not in_place(oracle.op) or names_of(oracle.op)[axis] != "n" or of_an_image(oracle, state, 0) % 64 == 0


def of_an_image(oracle: Oracle, state: State, level: int) -> int:
    """Pixels of an image in a tile of a convolution."""
    return math.prod(state.tiles[level][names_of(oracle.op).index(name)] for name in ("p", "q"))


def instructions(oracle: Oracle, state: State) -> int:
    """Tensor-core instructions in the body of a worker."""
    _, _, m, n, k = roles(oracle.op)
    tile = state.tiles[0]
    repeats = math.prod(t for a, t in enumerate(tile) if a not in (m, n, k) and not pixels(oracle, state, a))
    steps = tile[k] // instruction(oracle.op, oracle.hw)
    if state.knob("tensor_core") == 2:
        return repeats * steps * math.ceil(tile[m] / 64)
    each = 3 if oracle.op.dtype == "tf32x3" else 2 if widened(oracle.op, oracle.hw) else 1
    return repeats * steps * (tile[m] // 16) * (tile[n] // 8) * each


def shared_bytes(oracle: Oracle, state: State) -> int:
    """Tiles of A (rows along k) and B (rows along n), as many as there are stages; wgmma: B in panels of 128 bytes.

    Pixels of a convolution, and B of other than 16 bits, are rows along k for wgmma, like A.
    """
    a, b, m, n, k = roles(oracle.op)
    size, total = ITEM[oracle.op.dtype], 0
    for read, row in ((oracle.op.reads[a], k), (oracle.op.reads[b], n)):
        count = math.prod(t for axis, t in enumerate(state.tiles[1]) if oracle.depends(read, axis))
        rows = count // state.tiles[1][row]
        lies = oracle.op.name != "conv2d" or in_place(oracle.op)
        if state.knob("tensor_core") == 2 and row == n and size == 2 and lies:
            own, together, images = state.tiles[0][n], state.tiles[1][n], 1
            if "p" in names_of(oracle.op):
                own, together = (of_an_image(oracle, state, level) for level in (0, 1))
                images = state.tiles[1][names_of(oracle.op).index("n")]
            panels = images * (together // own) * math.ceil(own * size / 128)
            total += panels * 128 * state.tiles[1][k] + 8
        elif state.knob("tensor_core") == 2:
            count = count // state.tiles[1][m] * max(64, state.tiles[1][m]) if row == k else count
            total += math.ceil(count * size / 1024) * 1024 + 8
        else:
            padding = 16 if state.knob("shared_layout") == 1 and rows > 1 else 0
            total += math.ceil((count * size + rows * padding) / 16) * 16
    return total * state.knob("stages") + (1024 if state.knob("tensor_core") == 2 else 0)


def accepts(oracle: Oracle, state: State) -> bool:
    """Whether the tiles are whole fragments and knobs without a meaning stand at their first value."""
    cores = state.knob("tensor_core")
    if cores < 2 and (state.knob("persistent"), state.knob("cluster")) != (0, 1):
        return False
    if cores == 0:
        return True
    if state.knob("persistent") == 2 and state.knob("split_k") > 1:
        return False
    _, _, m, n, k = roles(oracle.op)
    first = {"reduce_threads": 1, "warp_tile": 0, "lane_map": 0, "convolution": 0}
    first |= {"register_buffer": 1} if cores == 2 else {}
    if any(state.knob(name) != value for name, value in first.items()) or max(state.vthread) > 1:
        return False
    if any(state.tiles[0][axis] % fragment(oracle, state, axis) for axis in (m, n, k)):
        return False
    if any(state.tiles[0][axis] != 1 for axis in oracle.reduce if axis != k):
        return False
    if cores == 1:
        return True
    if math.ceil(oracle.op.axes[m].extent / state.tiles[1][m]) < state.knob("cluster"):
        return False
    if least_rows(oracle.op) < 64 and state.tiles[1][m] != state.tiles[0][m]:
        return False
    alone = all(state.tiles[1][axis] == 1 for axis in oracle.axes if axis not in (m, n, k) and not pixels(oracle, state, axis))
    columns = math.prod(state.tiles[0][axis] for axis in oracle.spatial if axis != m)
    if columns % across(oracle.op):
        return False
    return alone and columns <= 256 and state.tiles[1][k] * ITEM[oracle.op.dtype] == 128 and oracle.registers(state) <= 240
