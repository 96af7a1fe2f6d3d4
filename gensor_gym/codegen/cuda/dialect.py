"""Parts of a GPU kernel's text that differ between CUDA and HIP; all other text is the same."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.codegen.cuda.ptx import FUNCTIONS


class Dialect:
    """The CUDA language, as far as it differs from similar languages.

    A subclass for such a language overrides the differences.
    """

    language = "cuda"
    """Value of `Kernel.language` for kernels in this language."""
    title = "CUDA"
    """Name of the language in error messages."""
    head = ""
    """Text before the device functions of a kernel, such as includes."""
    shared_memory = "extern __shared__ __align__(16) unsigned char shared_memory[];"
    """Text of the declaration of a block's shared memory."""
    functions: Mapping[str, str] = FUNCTIONS
    """Device functions by name. A kernel's text contains only the functions that it calls."""
    mistakes_bytes = True
    """Whether the compiler may take bytes of memory for 16-bit numbers, a fault of NVRTC (`bytes.py`)."""
    names_lanes = True
    """Whether a shuffle has a mask of the participating lanes. Without a mask, all lanes of a warp participate."""

    def shuffle_down(self, lanes: str, value: str, distance: str, team: int) -> str:
        """Return the C text of a shuffle: the value of the lane `distance` positions later in the team.

        Past the team's end, it is the lane's own value. A team is `team` adjacent lanes; `lanes` is the mask of participating
        lanes.
        """
        return f"__shfl_down_sync({lanes}, {value}, {distance}, {team})"

    def launch_bounds(self, threads: int, warp: int, resident: int | None = None) -> str:
        """Return the C text of the arguments of `__launch_bounds__`.

        They are the threads of a block and, unless None, the blocks that run on a multiprocessor at the same time. `warp` is the
        number of threads in a warp.
        """
        return str(threads) if resident is None else f"{threads}, {resident}"


CUDA = Dialect()
