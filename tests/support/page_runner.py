"""Run the Python of pages, each page in a module and a folder of its own, all in this one process.

`python page_runner.py PAGE ..` prints a JSON object: of every page the traceback of what failed, or an empty text.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import traceback
import types
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs(page: Path) -> list[str]:
    """Blocks of Python, each behind as many empty lines as stand before it: tracebacks name lines of the page."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


def run(page: Path) -> str:
    """What a page's blocks raise, one after the other in one namespace."""
    module = types.ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module  # where dataclasses look for the types of fields
    try:
        for block in programs(page):
            exec(compile(block, str(page), "exec"), module.__dict__)
    except Exception:
        return traceback.format_exc()
    return ""


def main(pages: list[str]) -> None:
    """Run all pages; what they print goes to the standard error."""
    failed = {}
    for page in map(Path, pages):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            os.chdir(folder)
            failed[str(page)] = run(page)
            os.chdir("/")
    print(json.dumps(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
