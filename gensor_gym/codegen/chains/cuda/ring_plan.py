"""Layout of a chain's kernel with wgmma: a ring of tiles in shared memory, copied with tensor maps (`chains/gpu/ring.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.gpu.boxes import Boxes, boxes_of
from gensor_gym.chains.gpu.legal import has_wgmma
from gensor_gym.chains.gpu.ring import GROUP, PANEL, ROW_BYTES, registers
from gensor_gym.chains.gpu.tiles import ITEM, is_deep
from gensor_gym.codegen.chains.cuda.plan import Plan
from gensor_gym.codegen.cuda.tensor_map import TensorMap


@dataclass(frozen=True)
class Panels:
    """A tile of an operand in shared memory, as wgmma reads it.

    It consists of panels 64 elements wide, each of `rows` swizzled rows of 128 bytes.
    """

    name: str
    boxes: Boxes
    rows: int
    panels: int
    deep: bool
    """Whether the tile has a row for each element of the reduction, so that wgmma transposes it. False for a left operand."""
    by_keys: bool
    """Whether the tile has a row for each key, or for each row of the left operand. Otherwise keys are contiguous in the tile."""

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel."""
        return self.rows * ROW_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes of a tile."""
        return self.panels * self.panel_bytes

    def map(self, argument: int, dtype: str) -> TensorMap:
        """Return the tensor map with which the operand's panels are copied.

        The operand's tensor is argument `argument` of the kernel.
        """
        boxes = self.boxes
        box = (*(1 for _ in boxes.batch), self.rows, PANEL)
        strides = tuple(ITEM * step for step in boxes.strides)
        return TensorMap(argument, dtype, boxes.shape, strides, box, ROW_BYTES, ITEM * boxes.matrix.offset)


@dataclass(frozen=True)
class RingPlan(Plan):
    """Layout of the kernel of a chain's schedule with wgmma.

    ValueError if tensor maps cannot describe the operands, or the machine is not sm_90.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        about = f"{self.chain.graph.name} on {self.program.hardware.name}, {self.program.schedule}"
        if not has_wgmma(self.chain, self.program.hardware):
            raise ValueError(f"{about}: tensor=2 takes sm_90, and operands with contiguous rows at multiples of 16 bytes")
        if not self.room.fits(self.header)[0]:
            raise ValueError(f"{about}: tensor=2 takes multiples of 4 warps, 64 keys or more, hold=0, and tiles that fit")

    @property
    def defers(self) -> bool:
        """Whether the product of a tile's attention weights with its values runs while the next tile's weights are computed."""
        return bool(self.value("overlap"))

    @property
    def takes_turns(self) -> bool:
        """Whether consumers (multiplying warpgroups) take turns to issue products."""
        return self.value("overlap") == 2

    @property
    def score(self) -> str:
        """CUDA text of a lane's score `i` in the eight keys with index `tile_n`."""
        return "scores[4 * tile_n + i]"

    def sum(self, place: str) -> str:
        """Return the CUDA text of a lane's sum `place` in the eight columns of the output with index `tile_out`."""
        return f"sums[4 * tile_out + {place}]"

    @property
    def threads(self) -> int:
        """Number of threads of a block: those of the consumers and of the producer."""
        return int(self.room.threads(self.header)[0])

    @cached_property
    def registers(self) -> tuple[int, int, int]:
        """Registers of a thread: (at the kernel's start, of the producer, of a consumer).

        The last two are 0 if they stay as at the start.
        """
        return registers(self.value("warps") // GROUP, self.resident, self.program.hardware)

    @cached_property
    def panels(self) -> tuple[Panels, Panels, Panels]:
        """Tiles in shared memory of the left operand and of both right operands."""
        chain, keys, room = self.chain, self.value("keys"), self.room
        boxes = boxes_of(chain)
        assert boxes is not None, "checked"
        first, second = is_deep(chain.first), is_deep(chain.second)
        sizes = (room.inner, keys) if first else (keys, room.inner), (keys, room.out) if second else (room.out, keys)
        return (
            Panels("left", boxes[0], self.rows, -(-room.inner // PANEL), False, True),
            Panels("first", boxes[1], sizes[0][0], -(-sizes[0][1] // PANEL), first, not first),
            Panels("second", boxes[2], sizes[1][0], -(-sizes[1][1] // PANEL), second, second),
        )

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of the left operand and of both right operands."""
        names = [value.name for value in self.chain.graph.inputs]
        return tuple(one.map(names.index(one.boxes.matrix.tensor), self.chain.dtype) for one in self.panels)

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return int(self.room.shared_bytes(self.header)[0])

    @property
    def constants(self) -> dict[str, tuple[int, str]]:
        """Constants that the kernel's text may use, by name: (value, meaning)."""
        left, first, second = self.panels
        return {name: found for name, found in super().constants.items() if name not in ("BUFFER", "BUFFERS")} | {
            "STAGES": (self.value("stages"), "tiles of either right operand in the ring"),
            "LEFT_BYTES": (left.nbytes, "of the block's rows"), "FIRST_BYTES": (first.nbytes, "of a tile"),
            "SECOND_BYTES": (second.nbytes, "of a tile"),
            "LEFT_PANEL": (left.panel_bytes, "bytes of 64 elements of the rows"),
            "FIRST_PANEL": (first.panel_bytes, "bytes of a tile's 64 elements"),
            "SECOND_PANEL": (second.panel_bytes, "bytes of a tile's 64 elements"),
            "CONSUMER_WARPS": (self.value("warps"), "warps that give a tile back"),
            "CONSUMERS": (self.value("warps") // GROUP, "warpgroups of 64 rows"),
        }  # fmt: skip

    @property
    def buffer(self) -> int:
        """Number of bytes of one stage of the ring: a tile of each product's right operand."""
        return sum(one.nbytes for one in self.panels[1:])
