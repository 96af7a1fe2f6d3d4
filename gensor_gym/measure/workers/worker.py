"""The worker process: runs kernels on a device, so that what they do to their process is not done to the harness.

Started as `python -m gensor_gym.measure.workers.worker DEVICE READ_FD WRITE_FD PARENT_PID`. It ends when its pipe closes, or
when its parent is gone, even while a kernel hangs: a thread watches for that. Nothing is written to standard output.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback

from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.runners import runner_named
from gensor_gym.measure.workers.compare import run_comparison
from gensor_gym.measure.workers.requests import CompareRequest, CompileRequest, TrialRequest
from gensor_gym.measure.workers.trial import Announce, Device, DeviceLost, run_trial
from gensor_gym.measure.workers.wire import PipeClosed, receive, send
from gensor_gym.plugins import load_named

COMPILER = "nvrtc"
"""Name of the worker that compiles CUDA kernels and has no device."""
_WATCH_SECONDS = 0.5
_DEVICE_LOST = 70
"""Exit code after a sticky device error."""


def make_device(name: str) -> Device | None:
    """The device of a runner, None for the worker that only compiles; ValueError names the devices there are."""
    return None if name == COMPILER else runner_named(name).device()


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
        send(write_fd, ("stage", stage))

    while True:
        request = receive(read_fd)
        try:
            answer = ("answer", answer_to(request, device, cache, announce))
        except (PipeClosed, DeviceLost):
            raise
        except Exception:  # the harness gets the traceback and raises
            answer = ("error", traceback.format_exc())
        send(write_fd, answer)


def answer_to(request: object, device: Device | None, cache: ExpectationCache, announce: Announce) -> object:
    """What a request asks for; TypeError for one that makes no sense here."""
    if isinstance(request, CompileRequest):
        from gensor_gym.measure.workers.builders import build_cubin

        announce("load")
        return build_cubin(request.kernel)
    if isinstance(request, TrialRequest) and device is not None:
        return run_trial(device, cache, request, announce)
    if isinstance(request, CompareRequest) and device is not None:
        return run_comparison(device, cache, request, announce)
    raise TypeError(f"unknown request {type(request).__name__}")


def main(arguments: list[str]) -> None:
    """Entry point; see the module."""
    device, read_fd, write_fd, parent = arguments[0], *map(int, arguments[1:4])
    watch_parent(parent)
    load_named()
    try:
        serve(make_device(device), read_fd, write_fd)
    except PipeClosed:
        os._exit(0)
    except DeviceLost as error:
        print(f"device lost: {error}", file=sys.stderr, flush=True)  # the harness reads it from there
        os._exit(_DEVICE_LOST)


if __name__ == "__main__":
    main(sys.argv[1:])
