"""Asks a cluster from time to time which of its objects we may still read.

An open watch goes on for minutes after its right was taken away, and the pause before the next
attempt of a broken one hides that the right is there again. The server answers reviews of our own
rights at once and stores nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.examination import refused_kinds, served_kinds
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.watched import WatchedKind
from wharfinger.runtime.logs import get_logger
from wharfinger_collector.watched_kinds import LOOK_S

log = get_logger(__name__)


class RightsReview:
    """`kinds`: that are read where the server has them. `every_s`: seconds between two reviews, and
    up to a tenth more. `reviewed`: takes the names of the kinds that were refused, `HEALTH` among
    them."""

    def __init__(
        self,
        name: str,
        kinds: Sequence[WatchedKind],
        every_s: float,
        reviewed: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        self._name = name
        self._kinds = kinds
        self._every_s = every_s
        self._reviewed = reviewed
        self._why = ""

    async def run(self, api: KubeApi) -> None:
        """Until cancelled. A server that does not answer, or has no reviews for us, is asked again
        later; then rights are known by the watches alone."""
        now = asyncio.get_running_loop().time
        served = [kind for kind in self._kinds if not kind.group]
        look_at = 0.0
        while True:
            try:
                if now() >= look_at:
                    served = await self._served(api, served)
                    look_at = now() + LOOK_S
                refused = await refused_kinds(api, served)
            except AWAY as error:
                self._unanswered(one_line(error))
            else:
                self._why = ""
                await self._reviewed(refused)
            await asyncio.sleep(self._every_s * (1.0 + random.random() / 10))

    async def _served(self, api: KubeApi, before: list[WatchedKind]) -> list[WatchedKind]:
        """Of our kinds those that the server has. Where it does not say which it has: those that
        were known before, which are at first the kinds of the core group."""
        try:
            found = await served_kinds(api, self._kinds)
        except ApiError as error:
            if error.code != 403:
                raise
            return before
        return [kind for kind in self._kinds if kind in found]

    def _unanswered(self, why: str) -> None:
        """Logged once for each cause."""
        if why != self._why:
            log.info("rights.unanswered", cluster=self._name, why=why)
        self._why = why
