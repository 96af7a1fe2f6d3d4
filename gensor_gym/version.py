"""The version of the package, for files that record their writer."""

from __future__ import annotations

VERSION = "0.1.0"
