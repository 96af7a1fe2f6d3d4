"""The process of one stage: `python -m experiments.device.child MODULE:FUNCTION CONTEXT ANSWER`."""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

from agents.runs.files import write_text
from experiments.device.context import Context
from experiments.device.wheels import use_wheels


def main(arguments: list[str]) -> None:
    """Run the function and write {status, result} or {status, error}, with the number of functions that Numba compiled.

    The process ends at once, without waiting for a stage's own threads and processes.
    """
    target, told, answer = arguments
    context = Context(**json.loads(told))
    use_wheels()
    module, _, name = target.partition(":")
    compiled: list[str] = []
    try:
        function = getattr(import_module(module), name)
        compiled = _watched()
        said = {"status": "done", "result": function(context)}
    except Exception:  # the runner records it and continues
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        said = {"status": "failed", "error": text[-3000:]}
    write_text(Path(answer), json.dumps({**said, "compiled": len(compiled)}, default=str))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _watched() -> list[str]:
    """List that grows with the functions compiled from now on; without Numba loaded, an empty list."""
    if "numba" not in sys.modules:
        return []
    from experiments.device.work.makers import watch

    return watch().functions


if __name__ == "__main__":
    main(sys.argv[1:])
