"""The process of one stage: `python -m experiments.gpu_stages.child MODULE:FUNCTION CONTEXT ANSWER`."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

from experiments.gpu_stages.context import Context, write_whole
from experiments.gpu_stages.wheels import use_wheels


def main(arguments: list[str]) -> None:
    """Run the function and write {status, result} or {status, error}."""
    target, told, answer = arguments
    context = Context.from_json(json.loads(told))
    use_wheels()
    module, _, name = target.partition(":")
    try:
        said = {"status": "done", "result": getattr(import_module(module), name)(context)}
    except Exception:  # the runner records it and goes on
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        said = {"status": "failed", "error": text[-3000:]}
    write_whole(Path(answer), json.dumps(said, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
