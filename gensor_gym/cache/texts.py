"""Results that are kept as texts in the cache, each in a file under a hash of everything that it depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from gensor_gym.cache.folders import private_dir
from gensor_gym.cache.owned import read_own
from gensor_gym.files import write_whole

T = TypeVar("T")


def kept(
    folder: str, depends: Sequence[str], read: Callable[[str], T], make: Callable[[], T], text: Callable[[T], str] = str
) -> T:  # fmt: skip
    """Return the result that `read` reads from its text in `folder` of the cache, or else the one that `make` makes.

    `depends` has all that the result depends on, the package's sources too. If there is no text, or `read` raises ValueError for
    it, the result is made and its text is stored. Errors of `make` pass.
    """
    path = private_dir(folder) / f"{hashlib.sha256(chr(0).join(depends).encode()).hexdigest()}.txt"
    try:
        return read(read_own(path).decode())
    except ValueError:  # it is missing, or cannot be read
        made = make()
    write_whole(path, text(made).encode(), 0o600)
    return made
