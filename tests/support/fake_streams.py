"""Streams and graphs as CuPy has them, over Python: what is captured runs when its graph is launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Work = list[Callable[[], None]]


class Graph:
    """Captured work."""

    launches = 0
    """Of all graphs."""

    def __init__(self, work: Work) -> None:
        self.work, self.launched = work, 0

    def upload(self, stream: Stream) -> None:
        pass

    def launch(self, stream: Stream) -> None:
        self.launched += 1
        Graph.launches += 1
        for call in self.work:
            call()


class Stream:
    """A stream; `current` is CuPy's current one, None for the default stream."""

    current: Stream | None = None

    def __init__(self, non_blocking: bool = False) -> None:
        self.captured: Work | None = None
        self.waited: list[object] = []

    def __enter__(self) -> None:
        self._before, type(self).current = type(self).current, self

    def __exit__(self, *error: object) -> None:
        type(self).current = self._before

    def begin_capture(self) -> None:
        assert self.captured is None
        self.captured = []

    def end_capture(self) -> Graph:
        work, self.captured = self.captured, None
        assert work is not None
        return Graph(work)

    def synchronize(self) -> None:
        assert self.captured is None, "synchronising a stream that is captured"

    def wait_event(self, event: Any) -> None:
        assert event.recorded, "nothing was recorded"
        self.waited.append(event)

    def _enqueue(self, work: Callable[[], None]) -> None:
        """Now, or when the graph is launched that this stream captures."""
        if self.captured is None:
            work()
        else:
            self.captured.append(work)
