"""Write pictures that lie here anew with a palette of 256 colours: `python -m docs.pictures.small FILE.png ..`.

What commands draw is written so at once (`experiments.common.style`); this is for what came from elsewhere, as from a browser.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from experiments.common import style


def main(files: Sequence[Path]) -> None:
    """Each in its place; one that would not become smaller stays as it is."""
    for file in files:
        before = file.read_bytes()
        with Image.open(file) as picture:
            picture.load()
            style.small(picture, file)
        if file.stat().st_size >= len(before):
            file.write_bytes(before)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
