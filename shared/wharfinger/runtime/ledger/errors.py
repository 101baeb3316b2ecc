"""What can go wrong with the ledger, by what the caller should do about it.

A fenced writer and an event already known are answers, not errors. Errors are one line, fit for a
person, and never hold the database's password.
"""

from __future__ import annotations

from asyncpg.exceptions import InterfaceError, InternalClientError, PostgresError

from wharfinger.domain.text import one_line, printable


class LedgerError(Exception):
    """The ledger refuses, and would refuse again: a broken call or a broken database."""


class LedgerUnavailable(LedgerError):  # noqa: N818  (named after what is the case)
    """There is no ledger to work with: no server, no such database, no schema, or a schema of
    another version."""


class ChangedSinceError(LedgerError):
    """What was to be changed as it had been seen was changed by somebody else after that. Nothing
    was accepted."""

    def __init__(self, topic: str, key: str) -> None:
        super().__init__(f"{printable(key)} was changed by another request in the meantime")
        self.topic = topic
        self.key = key


class WriterReplacedError(LedgerError):
    """Another writer of the same facts has begun since. Nothing was accepted."""

    def __init__(self, name: str, epoch: int, newest: int) -> None:
        super().__init__(f"{printable(name)}: session {epoch} was replaced by {newest}")


class CorruptLedger(LedgerError):  # noqa: N818
    """A row does not say what the chain says it must: somebody or something has changed history."""

    def __init__(self, stream: str, round: int, seq: int, what: str) -> None:
        super().__init__(f"{stream}: round {round}: {what}")
        self.stream = stream
        self.round = round
        self.seq = seq
        self.what = what


class LedgerWentBackError(LedgerError):
    """The database has not what was published, or not what this process has committed: it was
    restored, or a standby that lagged has taken over. Only a new start is right: it begins the
    ledger's next incarnation and reads again what is missing."""


class Transient(LedgerError):  # noqa: N818
    """The same call may work later: a lost connection, a deadlock, a server that is starting or
    stopping."""

    def __init__(self, message: str, retry_after_s: float = 0.1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(Transient):
    """The server did not answer in time. Whether the call took place is not known; the connection
    is closed."""


DATABASE_ERRORS = (PostgresError, InterfaceError, InternalClientError, OSError)
"""All that asyncpg raises when a statement or a connection fails. TimeoutError is an OSError."""

# A transaction could not begin because an earlier one is still open on the connection.
_STILL_OPEN = "25001"
# Serialisation failure, deadlock, lock timeout, and a COPY or statement cancelled by the server on
# its way down.
_TRANSIENT_STATES = frozenset(
    {"40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "25P03", "57P05", _STILL_OPEN}
)
# Connection exceptions; insufficient resources (too many connections, disk full, out of memory).
_TRANSIENT_CLASSES = ("08", "53")


def translate(error: BaseException) -> LedgerError:
    """The same failure as one of ours."""
    if isinstance(error, TimeoutError) and error.errno is None:
        # with a number it is the network's, and says what it is
        return DeadlineExceeded("database: no answer in time")
    message = one_line(error)
    state = getattr(error, "sqlstate", None)
    if state is None:  # no answer came from the server: the connection is the fault
        transient = isinstance(error, OSError | InterfaceError | InternalClientError)
    else:
        transient = state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)
    return Transient(f"database: {message}") if transient else LedgerError(f"database: {message}")


def reported(error: BaseException) -> bool:
    """Whether the server reported the error, and what the connection does next begins afresh.
    asyncpg raises some of the server's errors itself (an argument of a wrong type); only those that
    came from the server have a severity."""
    return (
        getattr(error, "severity", None) is not None
        and getattr(error, "sqlstate", None) != _STILL_OPEN
    )
