"""What can go wrong with the ledger, by what the caller should do about it.

A fenced writer and an event already known are answers, not errors. Errors are one line, fit for a person, and never hold
the database's password.
"""

from __future__ import annotations

from asyncpg.exceptions import InterfaceError, InternalClientError, PostgresError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError


class LedgerError(Exception):
    """The ledger refuses, and would refuse again: a broken call or a broken database."""


class LedgerUnavailable(LedgerError):  # noqa: N818  (named after what is the case)
    """There is no ledger to work with: no server, no such database, no schema, or a schema of another version."""


class CorruptLedger(LedgerError):  # noqa: N818
    """A row does not say what the chain says it must: somebody or something has changed history."""

    def __init__(self, stream: str, round: int, seq: int, what: str) -> None:
        super().__init__(f"{stream}: round {round}: {what}")
        self.stream = stream
        self.round = round
        self.seq = seq
        self.what = what


class Transient(LedgerError):  # noqa: N818
    """The same call may work later: a lost connection, a deadlock, a server that is starting or stopping."""

    def __init__(self, message: str, retry_after_s: float = 0.1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


DATABASE_ERRORS = (SQLAlchemyError, PostgresError, InterfaceError, InternalClientError, OSError)
"""All that SQLAlchemy and asyncpg raise when a statement or a connection fails. TimeoutError is an OSError."""

# Serialisation failure, deadlock, lock timeout, and a COPY or statement cancelled by the server on its way down.
_TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "25P03", "57P05"})
# Connection exceptions; insufficient resources (too many connections, disk full, out of memory).
_TRANSIENT_CLASSES = ("08", "53")


def translate(error: BaseException) -> LedgerError:
    """The same failure as one of ours."""
    cause = _driver_error(error)
    message = " ".join(str(cause).split()) or type(cause).__name__
    state = getattr(cause, "sqlstate", None)
    if state is None:  # no answer came from the server: the connection is the fault
        transient = isinstance(cause, OSError | InterfaceError | InternalClientError)
    else:
        transient = state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)
    if transient or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return Transient(f"database: {message}")
    return LedgerError(f"database: {message}")


def _driver_error(error: BaseException) -> BaseException:
    """SQLAlchemy wraps asyncpg's error twice; the innermost has the server's own words."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error
