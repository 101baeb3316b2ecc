"""A package whose names are imported when somebody asks for them (PEP 562).

A package that imports everything it offers makes each of its users load all of it: a command that
reads one table would load what commits, migrates and verifies. The names stand twice in such a
package, under `TYPE_CHECKING` for people and type checkers, and as a table for `lazily`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazily(package: str, offered: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package. `offered`: module below the package -> the names it has of
    those that are offered."""
    module_of = {name: module for module, names in offered.items() for name in names}

    def attribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, found)  # asked for once
        return found

    return attribute
