"""Choose by the model, on a machine without the GPU, among those kernels of a search that trials on a device would not refuse.

A trial on a device refuses a kernel that NVRTC rejects, or whose machine code is not worth timing (`CompiledKernel.loss`): it
spills registers, or its wgmma instructions wait for one another. Without the device the model alone ranks programs and sees
neither fault. Only the best programs are compiled, in the order of predicted times, until one is accepted. NVRTC's cache keeps
them for a later export.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from gensor_gym.codegen.cuda.nvrtc import NvrtcError, compile_cubin, is_available
from gensor_gym.codegen.remembered import remembered
from gensor_gym.codegen.targets import target_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.session import Session

REJECTED = 1 << 60
"""Number of spilled bytes that counts for a kernel that NVRTC rejects, so that it ranks behind all others."""


def is_compiled(session: Session) -> bool:
    """Whether kernels of the session are for CUDA, are not tried on a device, and NVRTC is installed."""
    return not session.backend.stored and target_of(session.task.hardware).name == "cuda" and is_available()


def accepted(session: Session, search_on: Callable[[], None], tries: int) -> tuple[Schedule, Measurement]:
    """Return (best program whose kernel is accepted, its measurement). `search_on` makes one more trial while none is accepted.

    At most `tries` kernels are compiled. If none is accepted, the kernel with the fewest spilled bytes counts, with a
    RuntimeWarning.
    """
    lost: dict[str, tuple[int, str]] = {}
    while len(lost) < tries:
        if _next(session, lost) is None:
            search_on()
        if (next_text := _next(session, lost)) is None:
            break
        lost[next_text] = _loss(session, next_text)
        if not lost[next_text][1]:
            return _tried(session, next_text)
    text = min(lost, key=lambda one: lost[one][0])
    warnings.warn(f"{session.task.operator}: the best of {len(lost)} kernels has {lost[text][1]}", RuntimeWarning, stacklevel=2)
    return _tried(session, text)


def _next(session: Session, lost: dict[str, tuple[int, str]]) -> str | None:
    """Return the text of the fastest program with status OK that was not compiled yet, which means that it is not in `lost`."""
    left = [row for row in session.trace if row.status == Status.OK.value and row.schedule not in lost]
    return min(left, key=lambda row: row.seconds).schedule if left else None


def _tried(session: Session, text: str) -> tuple[Schedule, Measurement]:
    schedule = session.graph.parse(text)
    return schedule, session.measure([schedule])[0]


def _loss(session: Session, text: str) -> tuple[int, str]:
    """Return (spilled bytes, reasons why a trial would refuse a program's kernel); empty reasons if it would not."""
    try:
        made = compile_cubin(remembered(session.task.operator, session.graph.parse(text), session.task.hardware))
    except NvrtcError as error:
        return REJECTED, str(error)
    return made.spill_bytes, made.loss
