"""How many requests are not answered yet, and since when. A stage reports it beside its readiness,
so that an operator sees it without reading the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.time import Micros


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """`since`: when the oldest of them was taken in, in microseconds; 0 where there are none."""

    count: int = 0
    since: Micros = 0

    def plus(self, other: OpenRequests) -> OpenRequests:
        """Those of two streams or processes together."""
        if not (self.count and other.count):
            return self if self.count else other
        return OpenRequests(self.count + other.count, min(self.since, other.since))


NONE_OPEN = OpenRequests()
