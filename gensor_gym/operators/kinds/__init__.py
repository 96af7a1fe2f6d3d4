"""All operators. The modules of this folder register their operators when they are imported; the package imports all modules."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
