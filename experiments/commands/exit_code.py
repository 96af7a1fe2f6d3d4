"""How a command without Hydra ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

from experiments.commands.refusal import CODE, debugging, one_line, users_errors
from experiments.commands.stopping import of_a_stop


def exit_code(work: Callable[[], int | None]) -> int:
    """What the work of a command returns, 0 for None; 2 where it raises an error of the user's, which is printed as a line."""
    try:
        return work() or 0
    except users_errors() as error:
        if debugging() or of_a_stop(error):
            raise
        print(one_line(error), file=sys.stderr, flush=True)
        return CODE
