"""Access control: only this server's pages, addressed by a local name, get answers. Other requests are refused in one line.

A page of another origin can send requests to localhost; the browser then names that page in `Origin` or says `cross-site` in
`Sec-Fetch-Site`. A foreign name that resolves to 127.0.0.1 (DNS rebinding) appears in `Host`. A link to a state is a navigation.
It may come from another site, because that site cannot read the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

NAMES = ("127.0.0.1", "localhost", "[::1]")
LONGEST_TARGET = 50_000
"""Maximum number of characters of path and query together."""
TOKEN_HEADER = "x-explore-token"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer. They forbid foreign resources, frames and inline scripts."""


def new_token() -> str:
    """Return a new random token, which a page must send back to request a measurement. Every run of the server has its own."""
    return secrets.token_urlsafe(32)


def refusal(method: str, path: str, length: int, headers: dict[str, str], port: int) -> str:
    """Return the reason to refuse a request; empty if the request is allowed.

    `length` is the number of characters of path and query. Names in `headers` are lower-case.
    """
    hosts = {f"{name}:{port}" for name in NAMES} | (set(NAMES) if port == 80 else set())
    host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site", "none")
    if host.lower() not in hosts:
        return f"host {host[:80]!r} is not this server's: expected one of {', '.join(sorted(hosts))}"
    if origin is not None and origin.lower() not in {f"http://{name}" for name in hosts}:
        return f"a page of {origin[:80]!r} may not ask this server"
    into_a_tab = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    followed = method == "GET" and path == "/" and into_a_tab
    if site not in ("same-origin", "none") and not followed:
        return f"a request that is {site[:20]!r} may not ask this server"
    if method not in ("GET", "POST"):
        return f"method {method[:20]!r}: expected GET or POST"
    if length > LONGEST_TARGET:
        return f"an address of {length} characters: expected at most {LONGEST_TARGET}"
    return ""


class Guard:
    """ASGI application that checks each request before the inner application `app` sees it, and adds `HEADERS` to answers."""

    def __init__(self, app: Application, port: int) -> None:
        self.app, self.port = app, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request to the application; answer any other request with status 403."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", [])}
        length = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        reason = refusal(scope.get("method", "none"), scope["path"], length, headers, self.port)
        if scope["type"] != "http":
            reason = reason or "nothing but HTTP is spoken here"
        if not reason:
            await self.app(scope, receive, sent)
            return
        body = f"refused: {reason}\n".encode()
        start = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await sent({"type": "http.response.start", "status": 403, "headers": start})
        await send({"type": "http.response.body", "body": body})


def is_token(given: str, token: str) -> bool:
    """Return whether `given` equals the token, in constant time, so that timing reveals nothing about the token."""
    return secrets.compare_digest(given.encode(), token.encode())
