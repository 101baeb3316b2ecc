"""A limit on warnings and errors that repeat: what is away for hours is not logged each time that
it is tried.

Each kind of line has a token bucket: `AT_ONCE` lines may come together, and after that one every
`EVERY_S`. The next line that passes says in `left_out` how many did not. A kind is the name of a
log event with what it is about (`ABOUT`), or the place in the source of another library where it
was logged. What is logged as information is not limited.

The limit is here and not at each loop that tries again, because most of the lines come from the
Kafka client, whose pauses between attempts are short on purpose.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass

from wharfinger.runtime.logs import structlog

AT_ONCE = 3
EVERY_S = 10.0
LIMITED = frozenset({"warning", "error", "critical"})
LEFT_OUT = "left_out"
ABOUT = ("event", "service", "cluster", "hub", "stream", "webhook")
"""What fails for one cluster hides no other one."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float
    left_out: int = 0


class LogLimit:
    """`passes` says whether a line of that kind may be written now; None: not, else how many lines
    of the kind were left out before it. `clock`: seconds, monotonic."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        at_once: int = AT_ONCE,
        every_s: float = EVERY_S,
    ) -> None:
        self._clock = clock
        self._at_once = at_once
        self._every_s = every_s
        self._buckets: dict[Hashable, _Bucket] = {}

    def passes(self, kind: Hashable) -> int | None:
        now = self._clock()
        bucket = self._buckets.setdefault(kind, _Bucket(self._at_once, now))
        more = (now - bucket.at_s) / self._every_s
        bucket.tokens, bucket.at_s = min(self._at_once, bucket.tokens + more), now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return None
        bucket.tokens -= 1
        left_out, bucket.left_out = bucket.left_out, 0
        return left_out

    def processor(
        self, _logger: object, _method: str, event: MutableMapping[str, object]
    ) -> MutableMapping[str, object]:
        """For lines of structlog; `add_log_level` comes before it."""
        if event.get("level") in LIMITED:
            left_out = self.passes(tuple(str(event.get(name)) for name in ABOUT))
            if left_out is None:
                raise structlog.DropEvent
            if left_out:
                event[LEFT_OUT] = left_out
        return event

    def filter(self, record: logging.LogRecord) -> bool:
        """For lines of the standard library, as a filter of a handler."""
        if record.levelname.lower() in LIMITED:
            left_out = self.passes((record.name, record.lineno))
            if left_out is None:
                return False
            if left_out:
                setattr(record, LEFT_OUT, left_out)
        return True
