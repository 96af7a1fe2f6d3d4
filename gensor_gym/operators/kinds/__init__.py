"""All operators. Each module of this folder registers its operators when it is imported; the package imports all modules."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
