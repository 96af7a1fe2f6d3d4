"""Language-specific parts of a GPU kernel's text; all other text is the same in CUDA and HIP."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.codegen.cuda.ptx import FUNCTIONS


class Dialect:
    """CUDA; a similar language overrides its differences."""

    language = "cuda"
    """Name of its target."""
    title = "CUDA"
    """Its name in messages."""
    head = ""
    """Lines before all others."""
    shared_memory = "extern __shared__ __align__(16) unsigned char shared_memory[];"
    """Declaration of a block's shared memory."""
    functions: Mapping[str, str] = FUNCTIONS
    """Device functions by name; a kernel's text contains those that it calls."""
    mistakes_bytes = True
    """Whether its compiler takes bytes of memory for 16-bit numbers (`bytes.py`)."""
    names_lanes = True
    """Whether a shuffle says which lanes of the warp take part; else all that the warp has do."""

    def shuffle_down(self, lanes: str, value: str, distance: str, team: int) -> str:
        """The value of the lane `distance` further in a team; its own value past the end of the team."""
        return f"__shfl_down_sync({lanes}, {value}, {distance}, {team})"

    def launch_bounds(self, threads: int, warp: int, resident: int | None = None) -> str:
        """Arguments of `__launch_bounds__`: threads of a block and, where that is asked for, resident blocks.

        `warp` is how many threads run together.
        """
        return str(threads) if resident is None else f"{threads}, {resident}"


CUDA = Dialect()
