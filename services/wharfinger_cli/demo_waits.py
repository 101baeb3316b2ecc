"""How the demonstration waits: for something that has a name, for as long as the plane works, and
no longer.

Time is counted in rounds of the fleet stage. Heartbeats come twice a second, so an idle plane makes
about two rounds a second, and a slow or busy one makes fewer: patience that is counted in rounds is
as long as the machine is slow. What does not change while rounds go on is stuck; a plane that makes
no round at all is stuck, too. Either ends the wait with a line that says what was waited for and
what of it was there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wharfinger.events.streams import FLEET, INTAKE
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.failures import CommandError

POLL_S = 0.2
PATIENCE_ROUNDS = 120  # without a change in what is waited for
PATIENCE_S = (
    120.0  # and not before so long: rounds that have much to do may follow each other quickly
)
STANDSTILL_S = 300.0  # without any round
QUIET_ROUNDS = 4  # without a new decision: what was decided has gone round and caused no more
QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """What there is of something that is waited for. `so_far`: in words, for a person; it changes
    when there is progress."""

    done: bool
    so_far: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a wait lasts without progress. The defaults are for people; tests have less."""

    rounds: int = PATIENCE_ROUNDS
    seconds: float = PATIENCE_S
    standstill_s: float = STANDSTILL_S


@dataclass(slots=True)
class PlaneWaits:
    """Waits on one plane. `failure`: why what keeps the plane busy has ended, "" while it has
    not."""

    ledger: Ledger
    failure: Callable[[], str] = lambda: ""
    patience: Patience = Patience()

    async def until(
        self,
        what: str,
        look: Callable[[], Awaitable[WaitProgress]],
        tick: Callable[[int], None] | None = None,
    ) -> None:
        """Look until it is done. `tick` gets every whole second that has passed. CommandError:
        there is no progress."""
        began = moved = changed = time.monotonic()
        rounds, changed_at, before, ticks = -1, 0, "", 0
        while not (seen := await look()).done:
            now = time.monotonic()
            if failure := self.failure():
                raise CommandError(f"demo: while waiting for {what} ({seen.so_far}): {failure}")
            if (reached := await self._rounds()) != rounds:
                rounds, moved = reached, now
            if seen.so_far != before:
                before, changed, changed_at = seen.so_far, now, rounds
            if now - moved > self.patience.standstill_s:
                raise CommandError(
                    f"demo: waited for {what}: {before}; the plane has not moved for "
                    f"{now - moved:.0f} s"
                )
            if rounds - changed_at > self.patience.rounds and now - changed > self.patience.seconds:
                raise CommandError(
                    f"demo: waited for {what}: {before}; nothing has changed in "
                    f"{rounds - changed_at} rounds"
                    f" ({now - changed:.0f} s)"
                )
            if tick is not None and int(now - began) > ticks:
                tick(int(now - began) - ticks)
                ticks = int(now - began)
            await asyncio.sleep(POLL_S)

    async def until_quiet(
        self, what: str, rounds: int = QUIET_ROUNDS, seconds: float = QUIET_S
    ) -> None:
        """Until nothing has been decided in so many rounds, and for so many seconds: on a busy
        machine counts of clusters make many rounds in little time."""
        last, last_round, since = -1, 0, time.monotonic()

        async def quiet() -> WaitProgress:
            nonlocal last, last_round, since
            decided = sum(head.seq for head in await self.ledger.heads() if head.stream != INTAKE)
            now_round = await self._rounds()
            if decided != last:
                last, last_round, since = decided, now_round, time.monotonic()
            passed = now_round - last_round
            return WaitProgress(
                passed >= rounds and time.monotonic() - since >= seconds, f"{decided:,} decisions"
            )

        await self.until(what, quiet)

    async def _rounds(self) -> int:
        return sum(head.round for head in await self.ledger.heads(FLEET))
