"""What can go wrong with a call: the server's problem (RFC 9457), or no answer at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WharfingerError(Exception):
    """One line."""


class UnreachableError(WharfingerError):
    """No answer came, or none of an API of Wharfinger."""


class ApiError(WharfingerError):
    """The server answered with a problem. `status`: of HTTP. `kind`: the last part of its `type`.
    `problem`: all of its members; empty where the answer had none."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.kind = str(problem.get("type", "")).rpartition("/")[2]
        self.detail = str(problem.get("detail", ""))
        self.request_id = str(problem.get("request_id", ""))
        super().__init__(self.detail or f"the server answered {status}")


class InvalidError(ApiError):
    """400 or 422: `problem["errors"]` says what was expected where."""


class UnauthenticatedError(ApiError):
    """401: the token is unknown, has ended or was revoked."""


class ForbiddenError(ApiError):
    """403: a grant is missing."""


class NotFoundError(ApiError):
    """404: there is no such thing, or it is not visible to the token."""


class ConflictError(ApiError):
    """409: the state does not allow it."""


class RetiredError(ApiError):
    """410: that part of the history was retired. `earliest`: the first position that is there."""

    @property
    def earliest(self) -> int | None:
        found = self.problem.get("earliest")
        return found if isinstance(found, int) else None


class PreconditionError(ApiError):
    """412 or 428: it has changed since it was read, or `If-Match` is missing."""


class TooManyError(ApiError):
    """429, also after all retries."""


class UnavailableError(ApiError):
    """503, also after all retries."""


BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: RetiredError,
    412: PreconditionError,
    422: InvalidError,
    428: PreconditionError,
    429: TooManyError,
    503: UnavailableError,
}


class ConsumerError(WharfingerError):
    """Reading cannot go on as it was asked for."""


class FilterChangedError(ConsumerError):
    """The cursor was moved under another filter: what that one hid would be missing."""


class GapError(ConsumerError):
    """Events between the cursor and `earliest` were retired before they were read."""

    def __init__(self, line: str, earliest: int | None) -> None:
        super().__init__(line)
        self.earliest = earliest


class RewindError(ConsumerError):
    """The plane's database was set back: what was read last is not there, or is something else."""


class CursorTakenError(ConsumerError):
    """Another copy of this consumer has taken over. Nothing of the transaction was kept."""
