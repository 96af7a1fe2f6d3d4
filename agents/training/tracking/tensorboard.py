"""Write rows of numbers as TensorBoard events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writer of TensorBoard scalars by name. One column of the rows is the x axis."""

    def __init__(self, folder: Path, axis: str = "steps") -> None:
        """Write events to `folder`. `axis` names the column of integers on the x axis."""
        self._writer, self._axis = SummaryWriter(str(folder)), axis

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add one point to the curve of every metric that is a number, for each row."""
        for row in rows:
            for name, value in row.items():
                if name != self._axis and isinstance(value, (int, float)):
                    self._writer.add_scalar(name, value, int(row[self._axis]))
        self._writer.flush()

    def text(self, name: str, value: str) -> None:
        """Add a text next to the curves."""
        self._writer.add_text(name, value)

    def close(self) -> None:
        """Write the remaining events and close the writer."""
        self._writer.close()
