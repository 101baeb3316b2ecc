"""What `doctor` asks of clusters that may be changed: whether it is possible, and whether what was
decided is done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wharfinger.domain.policy import Policy
from wharfinger.domain.time import Micros
from wharfinger.events.streams import POLICIES
from wharfinger.runtime.actuation import known_work
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.examination import missing_writes
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.kube.lease import KubeLease
from wharfinger.runtime.kube.node_pools import wrong_pools
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import Settings
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.plan import decided_at
from wharfinger_cli.connection import opened_ledger
from wharfinger_cli.facts import known_facts
from wharfinger_cli.open_copies import OpenCopy, open_copies
from wharfinger_cli.output import as_seconds, count

ASKED_S_MAX = 10.0
"""Of one cluster."""

OPEN_S_MAX = 300.0
"""What is open for longer is a finding."""


@dataclass(frozen=True, slots=True)
class WriteState:
    """Of one cluster. `why`: it cannot be asked. `missing`: rights. `stopped`: by whom; "": it is
    not. `holder`: of the Lease; "": no process holds it. `open`: effects; `oldest_s`: of those of
    which it is known when they were decided. `copies`: objects that are to be copied there and can
    be; `copies_oldest_s`: as of effects, and `oldest_copy` says which that is. `left`: workloads
    that are to be copied there and cannot be, each with the reason. `absent`: objects that copied
    workloads name and that are not there, `needed`: those of which that is not known; each with
    what is to be done. `kept`: copies that are not decided any more and stay, each with the
    reason. `pools`: by which Karpenter decides about nodes too, each with what is to be done."""

    name: str
    why: str = ""
    missing: tuple[str, ...] = ()
    stopped: str = ""
    holder: str = ""
    open: int = 0
    oldest_s: float = 0.0
    copies: int = 0
    copies_oldest_s: float = 0.0
    oldest_copy: str = ""
    left: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()

    @property
    def ok(self) -> bool | None:
        """None: it is stopped on purpose."""
        undone = self.left or self.absent or self.pools
        if self.why or self.missing or (undone and not self.stopped):
            return False
        if self.stopped:
            return None
        return bool(self.holder) and max(self.oldest_s, self.copies_oldest_s) <= OPEN_S_MAX

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
        if self.open:
            yield f"{count(self.open, 'effect')} open{_oldest(self.oldest_s)}"
        if self.copies:
            yield f"{_copies(self.copies)} open{_oldest(self.copies_oldest_s)}"
        if not self.open and not self.copies:
            yield "nothing is open"
        if self.copies_oldest_s > OPEN_S_MAX and not self.stopped:
            yield (
                f"{self.oldest_copy} is open for more than {as_seconds(OPEN_S_MAX)}: see the answer"
                f" of the API server in `wharfinger effects {self.name} --open`"
            )
        if self.left:
            yield f"not copied: {_first(self.left)}"
        if self.absent:
            yield f"missing: {_first(self.absent)}"
        if self.needed:
            yield f"needed: {_first(self.needed)}"
        if self.kept:
            yield f"kept: {_first(self.kept)}"
        if self.pools:
            yield _first(self.pools)


def _first(lines: Sequence[str]) -> str:
    return f"{lines[0]} (and {len(lines) - 1} more)" if len(lines) > 1 else lines[0]


def _oldest(age_s: float) -> str:
    return f", the oldest for {as_seconds(age_s)}" if age_s else ""


def _copies(number: int) -> str:
    return f"{number:,} copy" if number == 1 else f"{number:,} copies"


async def write_states(settings: Settings) -> list[WriteState]:
    """Of the clusters that may be changed, in order of name. LedgerError."""
    joined = joined_clusters(settings.clusters_dir()).clusters
    asked = [one for one in joined.values() if one.verbs_in_force]
    if not asked:
        return []
    at = wall_clock()
    members = [one for one in asked if not one.hub]
    async with opened_ledger(settings) as ledger:
        work = await known_work(ledger, [one.name for one in members], at)
        copies = await open_copies(ledger, joined, members)
        policies: list[Policy] = []
        if any("claims" in one.verbs_in_force for one in members):
            policies = (await known_facts(ledger, POLICIES.name)).policies
    ages: dict[str, list[Micros]] = {
        one.name: [
            at - decided if (decided := decided_at(work[one.name], effect)) else 0
            for effect in open_effects(work[one.name], one.verbs_in_force, at)
        ]
        for one in members
    }
    states = [
        _state(
            settings,
            one,
            ages.get(one.name, []),
            with_copies(WriteState(one.name), [c for c in copies if c.cluster == one.name], at),
            pool_names(policies, one),
        )
        for one in asked
    ]
    return list(await asyncio.gather(*states))


def pool_names(policies: Sequence[Policy], joined: JoinedCluster) -> frozenset[str]:
    """Of the pools for which NodeClaims may be made in the cluster."""
    if "claims" not in joined.verbs_in_force:
        return frozenset()
    pools = [policy.node_pool for policy in policies if policy.node_pool is not None]
    return frozenset(pool.name for pool in pools if pool.is_of(joined.name))


def with_copies(state: WriteState, copies: Sequence[OpenCopy], at: Micros) -> WriteState:
    """What is said of `copies`, the open ones of its cluster, at the time `at`."""

    def line(copy: OpenCopy) -> str:
        return f"{copy.object} {copy.why}".strip()

    ordered = sorted(copies, key=lambda copy: copy.age_order)
    sent = [copy for copy in ordered if copy.write is not None]
    oldest = next((copy for copy in sent if copy.since), None)
    return replace(
        state,
        copies=len(sent),
        copies_oldest_s=0.0 if oldest is None else max(0, at - oldest.since) / 1_000_000,
        oldest_copy="" if oldest is None else f"{oldest.action} {oldest.object}",
        left=tuple(line(copy) for copy in ordered if copy.write is None and not copy.needed),
        absent=tuple(line(copy) for copy in ordered if copy.needed == "missing"),
        needed=tuple(line(copy) for copy in ordered if copy.needed == "needs"),
        kept=tuple(line(copy) for copy in ordered if copy.needed == "kept"),
    )


async def _state(
    settings: Settings,
    joined: JoinedCluster,
    ages: list[Micros],
    state: WriteState,
    pools: frozenset[str],
) -> WriteState:
    """`state`: what is known of the cluster without asking it. `pools`: names of NodePools."""
    oldest_s = max(ages, default=0) / 1_000_000
    try:
        async with asyncio.timeout(ASKED_S_MAX):
            async with KubeApi(joined.write_access or joined.access, patient=True) as api:
                missing = tuple(
                    await missing_writes(api, joined.verbs_in_force, joined.secrets_in_force)
                )
                stopped = (
                    "paused by WHARFINGER_ACTUATOR_PAUSED"
                    if settings.actuator_paused
                    else ""
                    if missing
                    else await paused(api)
                )
                holder = "" if missing else await KubeLease(api, NAMESPACE, LEASE, "").holder()
                wrong = await wrong_pools(api, pools) if pools and not missing else []
    except TimeoutError:
        return WriteState(joined.name, f"no answer within {ASKED_S_MAX:g} s")
    except AWAY as error:
        return WriteState(joined.name, str(error))
    return replace(
        state,
        missing=missing,
        stopped=stopped,
        holder=holder,
        open=len(ages),
        oldest_s=oldest_s,
        pools=tuple(wrong),
    )
