"""Handlers of the HTTP requests for the page, its parts, the source and a measurement."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from agents.explore import pages
from agents.explore.address import MOST_CHARACTERS, Address, read
from agents.explore.code import listing_of
from agents.explore.players import next_of
from agents.explore.readiness import Readiness
from agents.explore.security import TOKEN_HEADER, Application, Guard, is_token
from agents.explore.session import Position, position_of
from agents.explore.timing import Timer, absence
from agents.explore.views import View, view_of

_FILES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Explorer:
    """Handlers of the page's HTTP requests. Their only state is the measurements and the progress of compilation."""

    def __init__(self, token: str, first: Address, readiness: Readiness | None = None, timer: Timer | None = None) -> None:
        """Set up the handlers. The page shows `first` if the request has no query.

        `token` permits measurements.
        """
        self.token, self.first = token, first
        self.readiness, self.timer = readiness or Readiness(), timer or Timer()

    def routes(self) -> list[Route]:
        """Return the server's paths with their handlers. Synchronous handlers run on threads."""
        files = [Route(f"/{name}", _file(name), methods=["GET"]) for name in _FILES]
        return [
            Route("/", self.page, methods=["GET"]), Route("/state", self.state, methods=["GET"]),
            Route("/code", self.code, methods=["GET"]), Route("/measure", self.measure, methods=["POST"]), *files,
        ]  # fmt: skip

    def page(self, request: Request) -> Response:
        """Answer with the HTML of the whole page at an address."""
        query = request.url.query or self.first.query()
        try:
            address, _ = read(query)
        except ValueError as error:
            return HTMLResponse(pages.page(self.first, pages.part("refusal", error=str(error)), self.token, []), 400)
        inner, status, players = self._inner(lambda: position_of(address), address)
        return HTMLResponse(pages.page(address, inner, self.token, players), status)

    def state(self, request: Request) -> Response:
        """Answer with the part of the page that shows a state, after one step of `player` if the query names one.

        The status is 204 if that player is at its end.
        """
        try:
            address, others = read(request.url.query, ("player",))
        except ValueError as error:
            return _refused(error)
        name = others["player"]
        inner, status, _ = self._inner(lambda: next_of(address, name) if name else position_of(address), address)
        return HTMLResponse(inner, status) if inner else Response(status_code=204)

    def _inner(self, found: Callable[[], Position | None], address: Address) -> tuple[str, int, list[tuple[str, str]]]:
        """Render the main part of the page; return (HTML, HTTP status, players as pairs of name and description).

        The part shows the state that `found` returns, the progress of compilation, or an error. It is empty if `found` returns
        None.
        """
        try:
            progress = self.readiness.waiting_for(address)
            if progress is not None:
                return pages.part("waiting", progress=progress, address=address), 200, []
            position = found()
            if position is None:
                return "", 204, []
            view = _view(position.address)
        except (ValueError, ImportError) as error:
            return pages.part("refusal", error=str(error)), 400, []
        players = [(player.name, f"{player.name}: {player.about}") for player in view.players]
        return pages.state(view, self.timer.known(position), absence(position)), 200, players

    def code(self, request: Request) -> Response:
        """Answer with the generated source at an address; 204 while rules and model are being compiled."""
        try:
            address, _ = read(request.url.query)
            if self.readiness.waiting_for(address) is not None:
                return Response(status_code=204)
            return HTMLResponse(pages.part("code", listing=listing_of(position_of(address))))
        except ValueError as error:
            return _refused(error)

    async def measure(self, request: Request) -> Response:
        """Measure the program whose address is the request's body; 403 without the token of this server's pages."""
        if not is_token(request.headers.get(TOKEN_HEADER, ""), self.token):
            return Response("refused: a measurement needs the token of a page of this server\n", 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_CHARACTERS:
                return _refused(f"an address of more than {MOST_CHARACTERS} characters", 413)
        return await run_in_threadpool(self._measured, body.decode("latin-1"))

    def _measured(self, query: str) -> Response:
        """Measure the program whose address is `query`, and answer with the result.

        The status is 409 while another measurement or the compilation is running.
        """
        try:
            address, _ = read(query)
            if self.readiness.waiting_for(address) is not None:
                return _refused("rules and model are being compiled: measure once they are there", 409)
            return HTMLResponse(pages.part("measured", timed=self.timer.measure(position_of(address))))
        except ValueError as error:
            return _refused(error)
        except RuntimeError as error:
            return _refused(error, 409)


def application(explorer: Explorer, port: int) -> Application:
    """Return the ASGI application that serves the explorer's routes behind access control."""
    return Guard(Starlette(routes=explorer.routes()), port)


@lru_cache(maxsize=64)
def _view(address: Address) -> View:
    return view_of(position_of(address))


def _refused(error: object, status: int = 400) -> HTMLResponse:
    return HTMLResponse(pages.part("refusal", error=str(error)), status)


def _file(name: str) -> Callable[[Request], Response]:
    return lambda request: FileResponse(pages.FOLDER / "static" / name, media_type=_FILES[name])
