"""Version of the package, which files that the package writes record."""

from __future__ import annotations

VERSION = "0.1.0"
