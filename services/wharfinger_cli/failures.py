"""What a command says when the world is not as it should be: lines for people, and an exit code for
scripts.

0 all is well; 1 a difference was found, or the thing asked for does not exist; 2 the command could
not do its work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

DIFFERENCE = 1
FAILURE = 2

# Errors of the layers below that a person can correct, by the module that defines them. A module
# that was not imported cannot have raised an error, so nothing is imported here to recognize them.
EXPECTED: tuple[tuple[str, str], ...] = (
    ("wharfinger.runtime.settings", "SettingsError"),
    ("wharfinger.runtime.plane", "PlaneError"),
    ("wharfinger.runtime.backends", "BackendError"),
    ("wharfinger.runtime.ledger.errors", "LedgerError"),
    ("wharfinger.answers.submit", "WrongFactError"),
    ("wharfinger.runtime.kube.joined", "JoinedError"),
    ("wharfinger.runtime.kube.kubeconfig", "KubeconfigError"),
    ("wharfinger.runtime.kube.credentials", "CredentialsError"),
    ("wharfinger.runtime.kube.api", "UnreachableError"),
    ("wharfinger.runtime.kube.api", "ApiError"),
)

MISSING: tuple[tuple[str, str], ...] = (
    ("wharfinger.history.names", "UnknownNameError"),
    ("wharfinger.history.points", "UnknownPointError"),
    ("wharfinger.runtime.replay_ranges", "RangeError"),
)
"""Those of them that mean: the thing asked for does not exist."""


class CommandError(Exception):
    """Lines for standard error; the command ends with `code` and prints nothing else. Never a
    traceback."""

    def __init__(self, *lines: str, code: int = FAILURE) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


class NotFoundError(CommandError):
    """The plane was asked and has no such thing."""

    def __init__(self, line: str) -> None:
        super().__init__(line, code=DIFFERENCE)


def expected_failure(error: Exception) -> CommandError | None:
    """The same failure as a person reads it; None when it is none of those we expect.

    Of tasks that failed together each distinct line is kept; one failure among them that we do not
    expect is a fault of ours."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, ExceptionGroup):
        return _together([expected_failure(part) for part in error.exceptions])
    if not isinstance(error, _loaded(EXPECTED)):
        return None
    lines = (" ".join(line.split()) for line in str(error).splitlines() if line.strip())
    return CommandError(*lines, code=DIFFERENCE if isinstance(error, _loaded(MISSING)) else FAILURE)


def _together(failures: Sequence[CommandError | None]) -> CommandError | None:
    known = [failure for failure in failures if failure is not None]
    if len(known) < len(failures):
        return None
    lines = dict.fromkeys(line for failure in known for line in failure.lines)
    return CommandError(*lines, code=max(failure.code for failure in known))


def _loaded(errors: tuple[tuple[str, str], ...]) -> tuple[type[Exception], ...]:
    return tuple(
        getattr(sys.modules[module], name) for module, name in errors if module in sys.modules
    )
