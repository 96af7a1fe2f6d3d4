"""How a command without Hydra ends."""

from __future__ import annotations

import sys
from collections.abc import Callable


def exit_code(work: Callable[[], int | None], *kinds: type[Exception]) -> int:
    """What the work of a command returns, 0 for None; 2 where it raises an error of these kinds, which is printed as it reads."""
    try:
        return work() or 0
    except kinds as error:
        print(error, file=sys.stderr)
        return 2
