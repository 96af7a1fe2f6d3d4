"""Serve the tools over standard input and output, by the official SDK: `gensor mcp [--backend auto] [--machine NAME]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.mcp.desk import Desk
from gensor_gym import hardware
from gensor_gym.graph.actions import space_actions
from gensor_gym.version import VERSION

INSTRUCTIONS = (
    "Make a kernel of a tensor operator fast. Call start_task, read the task and its grammar of actions, and call act, once per "
    "turn, until the episode ends. best returns the fastest program so far."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and serve until the client closes standard input; return the exit code."""
    parser = Parser(prog="gensor mcp", description="Tools of Kernel-v0 for a client of the Model Context Protocol.")
    parser.add_argument("--machine", default="host", help="whose programs: host, or a name such as h200")
    parser.add_argument("--backend", default="auto", help="auto runs kernels, sources of the agent among them; analytic predicts")
    parser.add_argument("--space", default="extended", help="which primitives: extended, gensor, ..")
    parser.add_argument("--turns", type=int, default=24, help="actions of an episode")
    args = parser.parse_args(arguments)
    return exit_code(lambda: serve(args))


def serve(args: argparse.Namespace) -> int:
    """Serve until the input ends. A bad argument or a missing package raises ValueError or ImportError before that."""
    space_actions(args.space)
    if args.machine != "host":
        hardware.get(args.machine)
    desk = Desk(args.machine, args.backend, args.space, args.turns)
    server = server_of(desk)
    try:
        server.run("stdio")
    finally:
        desk.close()
    return 0


def server_of(desk: Desk) -> Any:
    """Return the SDK's server with the tools of a desk. ImportError says what to install where the SDK is missing."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise ImportError(f"gensor mcp needs the SDK ({error}): pip install 'gensor_gym[mcp]'") from error

    def answering(tool: Callable[..., str]) -> Callable[..., str]:
        """Return the tool with its ValueErrors as answers to the client."""

        @wraps(tool)
        def answer(**arguments: Any) -> str:
            try:
                return tool(**arguments)
            except ValueError as error:
                raise ToolError(str(error)) from error

        return answer

    server = MCPServer("gensor_gym", instructions=INSTRUCTIONS, version=VERSION)
    for tool in (desk.list_tasks, desk.start_task, desk.state, desk.act, desk.best):
        server.tool(structured_output=False)(answering(tool))
    return server


if __name__ == "__main__":
    sys.exit(main())
