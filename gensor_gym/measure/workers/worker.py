"""The worker process: runs kernels on a device, so that a crash does not reach the process that started it.

`isolation/launch.py` starts it with arguments DEVICE READ_FD WRITE_FD PARENT_PID LIBRARIES. It ends when its pipe closes, or when
its parent has ended, even while a kernel hangs, because a thread watches the parent. It writes nothing to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
import warnings
from typing import Any

from gensor_gym.codegen.runtime.compile import take_libraries
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.devices.machine_lock import LockWarning
from gensor_gym.measure.devices.opened import opened_by
from gensor_gym.measure.isolation.launch import ISOLATED_BY, WHOLE
from gensor_gym.measure.workers.compare import run_comparison
from gensor_gym.measure.workers.replies import MOST_TEXT, encoded
from gensor_gym.measure.workers.requests import CompareRequest, CompileRequest, TrialRequest
from gensor_gym.measure.workers.start import COMPILER
from gensor_gym.measure.workers.trial import Announce, Device, DeviceLost, run_trial
from gensor_gym.measure.workers.wire import PipeClosed, receive_request, send_reply
from gensor_gym.plugins import load_named

_WATCH_SECONDS = 0.5
_BEHIND = 5
"""Niceness (low priority) of compilers, so that the timing process does not wait for them."""
_DEVICE_LOST = 70
"""Exit code after a CUDA error that makes the device unusable."""


def make_device(name: str) -> Device | None:
    """Make the device of a backend; None for the worker that only compiles. ValueError names the available devices."""
    return None if name == COMPILER else opened_by(name).device()


def watch_parent(parent: int) -> None:
    """End this process once `parent` is no longer its parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(3)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def serve(device: Device | None, read_fd: int, write_fd: int) -> None:
    """Answer requests until the pipe closes."""
    cache = ExpectationCache() if device is None else ExpectationCache(device.draws, device.draws_limit)

    def announce(stage: str) -> None:
        send_reply(write_fd, "stage", stage)

    while True:
        request = receive_request(read_fd)
        try:
            kind, answer = "answer", encoded(answer_to(request, device, cache, announce))
        except (PipeClosed, DeviceLost):
            raise
        except Exception:  # the harness gets the traceback and raises
            kind, answer = "error", traceback.format_exc()[-MOST_TEXT:]
        send_reply(write_fd, kind, answer)


def answer_to(request: object, device: Device | None, cache: ExpectationCache, announce: Announce) -> object:
    """Compile, run a trial or compare kernels, as the request says. Return the answer; TypeError for an unsupported request."""
    if isinstance(request, CompileRequest):
        from gensor_gym.measure.workers.builders import build_cubin

        announce("load")
        return build_cubin(request.kernel)
    if isinstance(request, TrialRequest) and device is not None:
        return run_trial(device, cache, request, announce)
    if isinstance(request, CompareRequest) and device is not None:
        return run_comparison(device, cache, request, announce)
    raise TypeError(f"unknown request {type(request).__name__}")


class IsolationWarning(RuntimeWarning):
    """Warning that the system cannot isolate a worker, or only in part."""


def warn_of_isolation(bound: str) -> None:
    """Warn if isolation was requested but is missing or incomplete. `bound` is the value of the variable `ISOLATED_BY`."""
    if bound not in ("", WHOLE):
        need = f"expected {WHOLE}: Linux 5.13 or newer, not forbidden by a container"
        text = f"kernels under trial run with more of your rights than they need: isolation is {bound}, {need}"
        warnings.warn(text, IsolationWarning, stacklevel=2)


def pass_warnings_on(write_fd: int) -> None:
    """Replace Python's display of warnings: those of locks and isolation go to the parent process, others to standard error."""
    show = warnings.showwarning

    def send_or_show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, (LockWarning, IsolationWarning)):
            send_reply(write_fd, "warning", str(message))
        else:
            show(message, category, *rest, **named)

    warnings.showwarning = send_or_show


def main(arguments: list[str]) -> None:
    """Run the worker with the arguments that the module's docstring describes."""
    device, read_fd, write_fd, parent = arguments[0], *map(int, arguments[1:4])
    watch_parent(parent)
    pass_warnings_on(write_fd)
    warn_of_isolation(os.environ.get(ISOLATED_BY, ""))
    if device == COMPILER:
        os.nice(_BEHIND)
    take_libraries(json.loads(arguments[4]))
    load_named()
    try:
        serve(make_device(device), read_fd, write_fd)
    except PipeClosed:
        os._exit(0)
    except DeviceLost as error:
        print(f"device lost: {error}", file=sys.stderr, flush=True)  # the harness reads standard error
        os._exit(_DEVICE_LOST)


if __name__ == "__main__":
    main(sys.argv[1:])
