"""What `doctor` asks of clusters that may be changed: whether it is possible, and whether what was
decided is done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from wharfinger.domain.time import Micros
from wharfinger.runtime.actuation import known_work
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.examination import missing_writes
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import Settings
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.plan import decided_at
from wharfinger_cli.connection import opened_ledger
from wharfinger_cli.output import as_seconds, count

ASKED_S_MAX = 10.0
"""Of one cluster."""

OPEN_S_MAX = 300.0
"""What is open for longer is a finding."""


@dataclass(frozen=True, slots=True)
class WriteState:
    """Of one cluster. `why`: it cannot be asked. `missing`: rights. `stopped`: by whom; "": it is
    not. `holder`: of the Lease; "": no process holds it. `open`: effects; `oldest_s`: of those of
    which it is known when they were decided."""

    name: str
    why: str = ""
    missing: tuple[str, ...] = ()
    stopped: str = ""
    holder: str = ""
    open: int = 0
    oldest_s: float = 0.0

    @property
    def ok(self) -> bool | None:
        """None: it is stopped on purpose."""
        if self.why or self.missing:
            return False
        if self.stopped:
            return None
        return bool(self.holder) and self.oldest_s <= OPEN_S_MAX

    @property
    def said(self) -> str:
        return self.why or "; ".join(self._said())

    def _said(self) -> Iterator[str]:
        if self.missing:
            yield f"the right to {', '.join(self.missing)} is missing"
        if self.stopped:
            yield self.stopped
        elif self.holder:
            yield f"the Lease is held by {self.holder}"
        else:
            yield "no actuator holds the Lease: none is running, or it may not write"
        oldest = f", the oldest for {as_seconds(self.oldest_s)}" if self.oldest_s else ""
        yield f"{count(self.open, 'effect')} open{oldest}" if self.open else "nothing is open"


async def write_states(settings: Settings) -> list[WriteState]:
    """Of the clusters that may be changed, in order of name. LedgerError."""
    found = joined_clusters(settings.clusters_dir()).clusters.values()
    asked = [one for one in found if one.verbs_in_force]
    if not asked:
        return []
    at = wall_clock()
    members = [one for one in asked if not one.hub]
    async with opened_ledger(settings) as ledger:
        work = await known_work(ledger, [one.name for one in members], at)
    ages: dict[str, list[Micros]] = {
        one.name: [
            at - decided if (decided := decided_at(work[one.name], effect)) else 0
            for effect in open_effects(work[one.name], one.verbs_in_force, at)
        ]
        for one in members
    }
    states = [_state(settings, one, ages.get(one.name, [])) for one in asked]
    return list(await asyncio.gather(*states))


async def _state(settings: Settings, joined: JoinedCluster, ages: list[Micros]) -> WriteState:
    oldest_s = max(ages, default=0) / 1_000_000
    try:
        async with asyncio.timeout(ASKED_S_MAX):
            async with KubeApi(joined.write_access or joined.access) as api:
                missing = tuple(await missing_writes(api, joined.verbs_in_force))
                stopped = (
                    "paused by WHARFINGER_ACTUATOR_PAUSED"
                    if settings.actuator_paused
                    else ""
                    if missing
                    else await paused(api)
                )
                holder = "" if missing else await KubeLease(api, NAMESPACE, LEASE, "").holder()
    except TimeoutError:
        return WriteState(joined.name, f"no answer within {ASKED_S_MAX:g} s")
    except AWAY as error:
        return WriteState(joined.name, str(error))
    return WriteState(joined.name, "", missing, stopped, holder, len(ages), oldest_s)
