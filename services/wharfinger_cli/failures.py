"""What a command says when the world is not as it should be: lines for people, and an exit code for scripts.

0 all is well; 1 a difference was found, or the thing asked for does not exist; 2 the command could not do its work.
"""

from __future__ import annotations

DIFFERENCE = 1
FAILURE = 2


class CommandError(Exception):
    """Lines for standard error; the command ends with `code` and prints nothing else. Never a traceback."""

    def __init__(self, *lines: str, code: int = FAILURE) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


class NotFoundError(CommandError):
    """The plane was asked and has no such thing."""

    def __init__(self, line: str) -> None:
        super().__init__(line, code=DIFFERENCE)
