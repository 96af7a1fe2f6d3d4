"""Rows of numbers as TensorBoard shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Scalars by their names, over one of them."""

    def __init__(self, folder: Path, axis: str = "steps") -> None:
        """Events go to this folder; `axis` is the name of the whole number on the x axis."""
        self._writer, self._axis = SummaryWriter(str(folder)), axis

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """A point of every metric that is a number."""
        for row in rows:
            for name, value in row.items():
                if name != self._axis and isinstance(value, (int, float)):
                    self._writer.add_scalar(name, value, int(row[self._axis]))
        self._writer.flush()

    def text(self, name: str, value: str) -> None:
        """Words next to the curves."""
        self._writer.add_text(name, value)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()
