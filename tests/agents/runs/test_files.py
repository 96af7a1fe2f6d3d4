"""Files are written as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from gensor_gym.files import whole


def test_a_file_is_whole_or_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "card.json"
    whole(path, lambda temporary: temporary.write_text("first"))

    def broken(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        whole(path, broken)
    assert path.read_text() == "first" and list(path.parent.iterdir()) == [path]
