"""Language-specific parts of a GPU kernel's text; all other text is the same in CUDA and HIP."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.codegen.cuda.ptx import FUNCTIONS


class Dialect:
    """The CUDA language. A subclass for a similar language overrides the differences."""

    language = "cuda"
    """Value of a kernel's `language`, the name of its target."""
    title = "CUDA"
    """Name of the language in messages."""
    head = ""
    """Text before the device functions."""
    shared_memory = "extern __shared__ __align__(16) unsigned char shared_memory[];"
    """Declaration of a block's shared memory."""
    functions: Mapping[str, str] = FUNCTIONS
    """Device functions by name. A kernel's text contains only the functions that it calls."""
    mistakes_bytes = True
    """Whether the compiler may take bytes of memory for 16-bit numbers (`bytes.py`)."""
    names_lanes = True
    """Whether a shuffle has a mask of the participating lanes. Without a mask all lanes of a warp participate."""

    def shuffle_down(self, lanes: str, value: str, distance: str, team: int) -> str:
        """C text of the value of the lane `distance` positions later in its team, or of the own value past the team's end."""
        return f"__shfl_down_sync({lanes}, {value}, {distance}, {team})"

    def launch_bounds(self, threads: int, warp: int, resident: int | None = None) -> str:
        """C text of the arguments of `__launch_bounds__`: threads of a block and, unless None, number of resident blocks.

        `warp` is the number of threads in a warp.
        """
        return str(threads) if resident is None else f"{threads}, {resident}"


CUDA = Dialect()
