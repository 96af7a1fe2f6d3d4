"""A server of the explorer for the tests of a module."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn

from agents.explore.__main__ import listening
from agents.explore.address import Address
from agents.explore.readiness import Readiness
from agents.explore.security import new_token
from agents.explore.server import Explorer, application
from agents.explore.timing import Timer
from gensor_gym.measure.measurement import Measurement, Status

SMALL = Address("gemm(m=64, n=64, k=64)", "h200", "gensor", seed=7)


@dataclass
class Served:
    """A server that runs, and how often it had something measured."""

    port: int
    token: str
    explorer: Explorer
    measured: list[object]

    def ask(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: str | None = None
    ) -> tuple[int, dict[str, str], str]:
        """(status, headers, body) of one request; `Host` is the server's unless `headers` say otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Host": f"127.0.0.1:{self.port}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server whose measurements are made up, so that nothing is compiled."""
    measured: list[object] = []

    def made_up(graph: object, schedule: object) -> Measurement:
        measured.append((graph, schedule))
        return Measurement(Status.OK, samples=(2e-6,) * 9)

    bound = listening(0)
    port, token = bound.getsockname()[1], new_token()
    explorer = Explorer(token, SMALL, Readiness(), Timer(made_up))
    config = uvicorn.Config(application(explorer, port), ws="none", lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    while explorer.readiness.waiting_for(SMALL, 60.0) is not None:
        pass
    yield Served(port, token, explorer, measured)
    server.should_exit = True
    thread.join(10)
    bound.close()
