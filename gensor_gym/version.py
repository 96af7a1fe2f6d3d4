"""The version of the package, for files that say what wrote them."""

from __future__ import annotations

VERSION = "0.1.0"
