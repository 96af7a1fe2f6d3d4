"""The process that runs one stage of a GPU run: `python -m experiments.device.child MODULE:FUNCTION CONTEXT ANSWER`."""

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
    """Run a stage's function in this process and write {status, result} or {status, error} to a file.

    `arguments` are MODULE:FUNCTION, the stage's context as JSON, and the file. The number of functions that Numba compiled is
    added. The process ends at once, without waiting for a stage's own threads and processes.
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
    """Return a list to which each function that Numba compiles from now on is added; it stays empty if Numba is not loaded."""
    if "numba" not in sys.modules:
        return []
    from experiments.device.work.makers import watch

    return watch().functions


if __name__ == "__main__":
    main(sys.argv[1:])
