"""Where all loggers come from: the one import of structlog.

structlog imports rich where it is installed, to show tracebacks on a terminal. That takes 3 MB of
each process, with pygments, attrs and pickle, and log lines in JSON use none of it. So rich is
hidden while structlog is imported: `None` in `sys.modules` makes the import system say that there
is no such module. `log_setup` loads rich when it has a traceback to show on a console.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """A module that is loaded already stays: the command line uses it, and hiding saves nothing."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    import structlog

__all__ = ["get_logger", "structlog"]

get_logger = structlog.get_logger
