"""Version of the package. Files that the package writes record it."""

from __future__ import annotations

VERSION = "0.1.0"
