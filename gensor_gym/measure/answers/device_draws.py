"""Random inputs of an operator with their expected outputs ("draws"), computed and compared on the device.

`reference.cu` computes references and bounds of the whole output by the rules of `expectation.py`; only the results of
comparisons are copied to the host. At `SPOTS` random elements and at the corners, reference and bound are compared with the
host's. A difference raises ReferenceFault, so that no kernel is judged by a wrong reference. For operators above `MOST_FLOPS` or
the limit on memory, the host computes references of some elements, and the device compares these.

$GENSOR_GYM_REFERENCE is `device` (the default) or `host`. With `host`, NumPy computes all references and compares all outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.measure.answers.downloaded import Downloaded
from gensor_gym.measure.answers.draw import Draw, changed_words, drawn_inputs, unwritten_words, wrong_words
from gensor_gym.measure.answers.expectation import SAMPLES, sampled_draw
from gensor_gym.measure.answers.reference_kernels import Array, ReferenceKernels
from gensor_gym.measure.answers.reference_plan import KNOWN, plan_of
from gensor_gym.measure.workers.trial import DeviceLost
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator

SETTING = "GENSOR_GYM_REFERENCE"
PLACES = ("device", "host")
SPOTS = 256
MOST_FLOPS = 1e13
"""Largest number of operations for references of the whole output. The three draws of such a product take 1 s on an H100, and 20
s on a GPU whose float64 rate is a 64th of its float32 rate."""
_CLOSE, _SAME = 1e-3, 1e-9
"""Largest accepted differences between device and host: of the reference, as a share of its error bound; of the bound, relative.
"""


class ReferenceFault(RuntimeError):
    """The device's reference is wrong or cannot be computed. No kernel is at fault."""


def chosen_place() -> str:
    """Return where references are computed, `device` or `host`, from $GENSOR_GYM_REFERENCE. ValueError for another value."""
    place = os.environ.get(SETTING, PLACES[0])
    if place not in PLACES:
        raise ValueError(f"{SETTING}={place!r}: expected one of {', '.join(PLACES)}")
    return place


@dataclass(frozen=True)
class DeviceDraw:
    """A `draw.Draw` (random inputs with the expected output) whose arrays are on the device. It implements `draw.Expected`.

    The arrays of reference, bound and index have one axis.
    """

    kernels: ReferenceKernels
    op: Operator
    inputs: tuple[Array, ...]
    reference: Array
    bound: Array
    index: Array | None = None
    sums: tuple[int, ...] = field(init=False)
    """Checksums of the arrays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", self._checksums())

    def _arrays(self) -> tuple[Array, ...]:
        return (*self.inputs, self.reference, self.bound, *(() if self.index is None else (self.index,)))

    def _checksums(self) -> tuple[int, ...]:
        return tuple(self.kernels.checksum(array) for array in self._arrays())

    @property
    def nbytes(self) -> int:
        """Return the bytes of device memory that inputs, reference outputs and error bounds take."""
        return sum(array.nbytes for array in self._arrays())

    def changed(self, arrays: Sequence[Array]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not.

        DeviceLost if a kernel overwrote the stored inputs, reference outputs or error bounds.
        """
        if self._checksums() != self.sums:
            raise DeviceLost(f"a kernel wrote over the reference answers of {self.op}, far outside its buffers")
        for i, (array, sent) in enumerate(zip(arrays, self.inputs, strict=True)):
            if self.kernels.differ(array, sent):
                return changed_words(i)
        return ""

    def fault(self, output: Array) -> str:
        """Compare an output with the reference. Return a message about wrong elements; empty if all are right.

        `output` has the kernel's storage format.
        """
        kernels, written = self.kernels, self.op.output
        if self.index is not None and (missing := kernels.missing(output, written.dtype)):
            return unwritten_words(missing, written.size)
        count, first = kernels.wrong(output, written.dtype, self.reference, self.bound, self.index)
        if count == 0:
            return ""
        place = first if self.index is None else int(kernels.at(self.index, [first])[0])
        value = decode(kernels.at(output, [place]), written.dtype)[0]
        reference, bound = (float(kernels.at(array, [first])[0]) for array in (self.reference, self.bound))
        where = np.unravel_index(place, written.shape)
        return wrong_words(count, self.reference.size, where, value, reference, bound)

    def distance(self, output: Array) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), both 2-norms. `output` has the kernel's storage format."""
        return self.kernels.distance(output, self.op.output.dtype, self.reference, self.index)


def downloaded(draw: Draw, op: Operator, download: Callable[[Array], np.ndarray]) -> Downloaded:
    """Wrap a draw (random inputs with the expected output) that stays on the host, for comparison with outputs on a device.

    The result downloads and decodes an output before it compares.
    """
    return Downloaded(draw, download, lambda output: decode(download(output), op.output.dtype).reshape(op.output.shape))


def whole_bytes(op: Operator) -> int:
    """Return the bytes of device memory that an operator's three draws take if they have references of the whole output.

    A draw consists of the inputs, the reference and its error bound.
    """
    return 3 * (sum(tensor.nbytes for tensor in op.inputs) + 2 * 8 * op.output.size)


Alone = Callable[[], AbstractContextManager[None]]
"""Function that makes the context inside which the device is used, such as the timing lock."""


def device_draws(
    kernels: ReferenceKernels, op: Operator, seed: int, limit: int, alone: Alone = nullcontext
) -> tuple[DeviceDraw, ...]:
    """Make an operator's three draws (random inputs with expected outputs) on the device.

    The inputs are those of `make_draws`, bit for bit. The host computes its part first, then the device computes inside the
    context that `alone` makes, such as the timing lock. `limit` is the number of bytes of device memory that references of whole
    outputs may use; beyond it, only some elements have a reference. ReferenceFault if device and host disagree.
    """
    whole = op.body in KNOWN and op.flops <= MOST_FLOPS and whole_bytes(op) <= limit
    drawn = drawn_inputs(op, seed)
    count = SPOTS if whole else SAMPLES
    with ThreadPoolExecutor(len(drawn)) as threads:
        on_host = list(threads.map(lambda pair: sampled_draw(op, pair[0], pair[1], count), drawn))
    with alone():
        uploaded = [tuple(kernels.upload(array) for array in inputs) for inputs, _ in drawn]
        if not whole:
            return tuple(_from_host(kernels, op, arrays, spot) for arrays, spot in zip(uploaded, on_host, strict=True))
        plan, dtypes = plan_of(op), [tensor.dtype for tensor in op.inputs]
        draws = [
            DeviceDraw(kernels, op, arrays, *kernels.expected(plan, arrays, dtypes, op.output.size)) for arrays in uploaded
        ]
        for number, (draw, spot) in enumerate(zip(draws, on_host, strict=True)):
            check_spots(draw, spot, f"draw {number} of {op}, seed {seed}")
    return tuple(draws)


def _from_host(kernels: ReferenceKernels, op: Operator, inputs: tuple[Array, ...], draw: Draw) -> DeviceDraw:
    assert draw.index is not None
    return DeviceDraw(kernels, op, inputs, *map(kernels.upload, (draw.reference, draw.bound, draw.index)))


def check_spots(draw: DeviceDraw, spot: Draw, what: str) -> None:
    """Compare a device's reference and bound with the host's at the elements of `spot`.

    ReferenceFault names the draw, by the text `what`, and the first element that differs.
    """
    assert spot.index is not None
    places = [int(place) for place in spot.index]
    references, bounds = (draw.kernels.at(array, places) for array in (draw.reference, draw.bound))
    near = np.abs(references - spot.reference) <= _CLOSE * spot.bound  # NaN fails
    near &= np.abs(bounds - spot.bound) <= _SAME * spot.bound
    if near.all():
        return
    first = int(np.argmin(near))
    where = tuple(map(int, np.unravel_index(places[first], draw.op.output.shape)))
    raise ReferenceFault(
        f"the device's reference is wrong ({what}) at {int((~near).sum())} of {len(places)} places: at {where} it is "
        f"{references[first]:.12g} with accepted error {bounds[first]:.6g}, the host's {spot.reference[first]:.12g} with "
        f"{spot.bound[first]:.6g}. {SETTING}=host measures with the host's (slow)"
    )
