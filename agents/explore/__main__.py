"""Explore construction graphs on a local page: `gensor explore ['gemm(m=512, n=512, k=512)'] [--machine NAME] [--space NAME]`.

The server listens on 127.0.0.1 only and answers only requests of its own pages (`agents.explore.security`).
"""

from __future__ import annotations

import argparse
import socket
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from gensor_gym import hardware, operators
from gensor_gym.graph.actions import space_actions

PORT = 8484


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and serve the page; return the exit code."""
    parser = Parser(prog="gensor explore", description="A local page on which a program is constructed.")
    parser.add_argument("operator", nargs="?", default="gemm(m=512, n=512, k=512)")
    parser.add_argument("--machine", default="host", help="whose programs: host, or a name such as h200")
    parser.add_argument("--space", default="gensor", help="which primitives: gensor, extended, ..")
    parser.add_argument("--seed", type=int, default=0, help="of what strategies draw")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    args = parser.parse_args(arguments)
    return exit_code(lambda: serve(args))


def serve(args: argparse.Namespace) -> int:
    """Serve the page until interrupted. A bad argument raises ValueError, OSError or ImportError before the server starts."""
    try:
        import uvicorn

        from agents.explore.address import read
        from agents.explore.security import new_token
        from agents.explore.server import Explorer, application
    except ModuleNotFoundError as error:
        raise ImportError(f"the explorer needs {error.name}: pip install 'gensor_gym[explore]'") from error
    from agents.explore.address import Address

    first, _ = read(Address(str(operators.resolve_one(args.operator)), args.machine, args.space, args.seed).query())
    space_actions(first.space)
    if first.machine != "host":
        hardware.get(first.machine)  # the page itself examines the host, in the background, because that may take seconds
    with listening(args.port) as bound:
        port = bound.getsockname()[1]
        explorer = Explorer(new_token(), first)
        explorer.readiness.waiting_for(first, 0.0)
        address = f"http://127.0.0.1:{port}/?{first.query()}"
        print(f"{address}\nEnd with Ctrl+C.", flush=True)
        if not args.no_browser:
            webbrowser.open(address)
        config = uvicorn.Config(
            application(explorer, port), ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False,
            limit_concurrency=64, proxy_headers=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        with suppress(KeyboardInterrupt):  # Ctrl+C ends the server
            uvicorn.Server(config).run(sockets=[bound])
    return 0


def listening(port: int) -> socket.socket:
    """Open a socket that listens on this machine's loopback address only.

    OSError if the port is taken, ValueError if it is not a port number.
    """
    if not 0 <= port < 65536:
        raise ValueError(f"port {port}: expected 0 to 65535")
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen()  # a browser may connect before the server runs, and then waits
    except OSError as error:
        bound.close()
        raise OSError(f"port {port} cannot be had ({error.strerror}): --port 0 takes a free one") from error
    return bound


if __name__ == "__main__":
    sys.exit(main())
