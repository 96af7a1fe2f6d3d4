"""The order of test files, and which of two workers runs which: the first takes them from the front, the others from the end.

In front stand the tests of rules, model and environment, for which Numba compiles for minutes where its cache is empty; at
the end those of generated code, for which C compilers do. So two workers hardly ever compile the same at the same time.
In the middle, where they meet, stand quick ones.
"""

from __future__ import annotations

import pytest

FOLDERS = (
    "graph", "exact", "env", "agents", "", "experiments", "spaces", "cost", "operators", "dataflow", "rows", "gir", "chains",
    "winograd", "networks", "frontends", "hardware", "measure", "codegen",
)  # fmt: skip
"""Folders of tests from the front to the end; "" stands for the files beside them."""


def place(path: str) -> int:
    """The place among FOLDERS of a file tests/[folder/..]test_name.py."""
    folder = path.split("/")[1] if path.count("/") > 1 else ""
    return FOLDERS.index(folder) if folder in FOLDERS else FOLDERS.index("")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of their folders; as collected within a folder."""
    items.sort(key=lambda item: place(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole files, from both ends; None, for what pytest-xdist has, where something other than files is asked for."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FromBothEnds(LoadFileScheduling):
        """Files go to the first worker from the front, to others from the end."""

        def _assign_work_unit(self, node: object) -> None:
            if node is not self.nodes[0]:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False  # which would begin with the files of the most tests
    return FromBothEnds(config, log)
