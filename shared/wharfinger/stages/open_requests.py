"""The protocol of deciders that answer requests and may let some of them wait. What waits is a
function of the state."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from wharfinger.domain.open_requests import OpenRequests

S_contra = TypeVar("S_contra", contravariant=True)


@runtime_checkable
class AnswersRequests(Protocol[S_contra]):
    """A decider whose streams answer requests."""

    def open_requests(self, state: S_contra) -> OpenRequests:
        """The requests that the last round left open."""
        ...
