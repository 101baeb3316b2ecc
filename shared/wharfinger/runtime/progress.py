"""Whether a loop moves: for how long it has completed nothing although it has something to do.

A loop with nothing to do is not stalled, however long that lasts. One that has something to do is
measured from its last completed piece of work, or from when there was something to do, whichever is
later. Times are of the monotonic clock, in seconds: a wall clock that jumps stalls nothing. Written
by the loop's own thread, read by any: `health` reads it from its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """`now`: the monotonic clock, in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None

    def begin(self) -> None:
        """There is something to do. Does nothing where that was known already."""
        if self._since is None:
            self._since = self._now()

    def moved(self, *, more: bool) -> None:
        """A piece of work was completed; `more`: there is more to do."""
        self._since = self._now() if more else None

    def stalled_s(self) -> float:
        """0 while there is nothing to do."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._now() - since)
