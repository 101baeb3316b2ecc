"""How far the plane is with what was accepted: the barrier that `--wait` and `POST /v1/barrier`
wait at.

It is asked about facts by their keys, so it can be asked again after an interruption, and about a
change that changed nothing. Each fact must be read by every stream it is for. A binding must be
decided behind the round that read its request, in the order of its fleet stream. Then, by level,
the publisher must have sent these positions of their streams, or the clusters must have the
replicas on nodes. A refusal is an answer, too: nothing more is waited for, and it is named.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from wharfinger.answers.decisions import Plain
from wharfinger.domain.drain import DRAIN
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import SETTLING, ScheduleAnswer, as_decision
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import (
    PolicyApplied,
    PolicyRemoved,
    concerns_every_shard,
    concerns_nodes,
)
from wharfinger.events.registry import types_of
from wharfinger.events.streams import BINDINGS, CLUSTER, FLEET, INTAKE, cluster_stream, fleet_stream
from wharfinger.history.names import UnknownNameError
from wharfinger.runtime.ledger import Ledger, LedgerRow, causality, facts, feed
from wharfinger.runtime.ledger.causality import EventTaken
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.facts import Fact
from wharfinger.runtime.ledger.freshness import PUBLISHER
from wharfinger.runtime.placed_replicas import replicas_on_nodes

Level = Literal["accepted", "decided", "published", "placed"]
LEVELS: tuple[Level, ...] = ("accepted", "decided", "published", "placed")

FactKey = tuple[str, str]
"""(topic, key)."""

REFUSED = "refused"
"""Outcome of a decision that has found no place."""

SHOWN_MAX = 50
EXPLAINED_MAX = 10
"""Requests whose wait is explained at one look; each costs some hundredths of a second."""

CAUSED_MAX = 10_000
POLL_S = 0.2
COST_FACTOR = 4
"""A look is followed by a pause of so many times what it took."""

_SETTLING = types_of(*SETTLING)
_OF_CLUSTER = (
    NodesObserved | NodeImagesObserved | PodsObserved | WaitingPodsObserved | ObjectsObserved
)


@dataclass(frozen=True, slots=True)
class BarrierPending:
    """`state`: what is missing, in words behind the subject."""

    subject: str
    state: str


@dataclass(frozen=True, slots=True)
class BarrierRefused:
    """A binding that was refused. `decision`: its id, "" where none was taken."""

    binding: str
    said: str
    decision: str


@dataclass(frozen=True, slots=True)
class BarrierReport:
    """`bindings`: how many are waited for. `position`: what was accepted and decided has it or an
    earlier one; None: the feed has not come so far. `pending`, `refused`: the first `SHOWN_MAX`;
    `pending_count`, `refused_count`: all."""

    until: Level
    bindings: int
    position: int | None
    pending: tuple[BarrierPending, ...]
    pending_count: int
    refused: tuple[BarrierRefused, ...]
    refused_count: int

    @property
    def reached(self) -> bool:
        return not self.pending_count


def barrier_plain(report: BarrierReport) -> Plain:
    return {
        "until": report.until,
        "reached": report.reached,
        "bindings": report.bindings,
        "position": report.position,
        "pending": [{"subject": p.subject, "state": p.state} for p in report.pending],
        "pending_count": report.pending_count,
        "refused": [
            {"binding": r.binding, "said": r.said, "decision": r.decision or None}
            for r in report.refused
        ],
        "refused_count": report.refused_count,
    }


@dataclass(slots=True)
class Barrier:
    """What is waited for: the latest facts under `keys`, and `bindings` that lose their place by
    them. The facts are those that are the latest at the first look."""

    ledger: Ledger
    until: Level
    keys: Sequence[FactKey]
    bindings: Collection[str] = ()
    _facts: list[Fact] | None = None
    _data: dict[UUID, Value] = field(default_factory=dict)
    _read: dict[UUID, list[EventTaken]] = field(default_factory=dict)
    _scanned: dict[str, int] = field(default_factory=dict)
    _caused: dict[str, int] = field(default_factory=dict)
    """binding -> the seq of the last fleet decision about it that one of the facts caused; 0: it
    was one of a cluster."""

    async def wait(self, seconds: float) -> BarrierReport:
        """When it is reached, at the latest after so long."""
        until = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            report = await self.look()
            now = time.monotonic()
            if report.reached or now >= until:
                return report
            pause = max(POLL_S, COST_FACTOR * (now - began))
            await asyncio.sleep(min(pause, max(0.0, until - now)))

    async def facts(self) -> list[Fact]:
        """Those that are waited for, as they were at the first look."""
        if self._facts is None:
            self._facts = await facts.latest(self.ledger.database, self.keys)
            self._data = {fact.id: event_of(fact).data for fact in self._facts}
        return self._facts

    async def look(self) -> BarrierReport:
        """How far it is now. LedgerError: the ledger is away."""
        found = await self.facts()
        ends = {INTAKE: max((fact.seq for fact in found), default=0)}
        names: set[str] = set()
        pending: list[BarrierPending] = []
        refused: list[BarrierRefused] = []
        if self.until != "accepted":
            pending = await self._unread(found)
            names = await self._concerned(found)
            settled = await self._settled(names, pending, refused)
            for row in settled.values():
                ends[row.stream] = max(row.seq, ends.get(row.stream, 0))
            if self.until == "placed" and not pending:
                pending = await self._unplaced(names, settled, refused)
        position = await self._position(ends)
        if self.until == "published" and not pending:
            pending = await self._unsent(ends)
        if position is None and not pending and self.until in ("accepted", "published"):
            pending = [
                BarrierPending("the feed", "has no position yet for what was accepted and decided")
            ]
        return BarrierReport(
            self.until,
            len(names),
            position,
            tuple(pending[:SHOWN_MAX]),
            len(pending),
            tuple(refused[:SHOWN_MAX]),
            len(refused),
        )

    # --- decided

    async def _unread(self, found: Sequence[Fact]) -> list[BarrierPending]:
        """The facts that a stream has still to read."""
        open_ = [fact for fact in found if fact.id not in self._read]
        streams = [head.stream for head in await self.ledger.heads()]
        shards = [stream for stream in streams if stream.startswith(FLEET)] or [fleet_stream(0)]
        wanted = {fact.id: self._readers(fact, streams, shards) for fact in open_}
        asked: dict[str, set[UUID]] = {}
        for id_, readers in wanted.items():
            for stream in readers:
                asked.setdefault(stream, set()).add(id_)
        known = await self.ledger.known(asked) if asked else {}
        late: list[BarrierPending] = []
        done: list[UUID] = []
        for fact in open_:
            missing = [stream for stream in wanted[fact.id] if fact.id not in known[stream]]
            if fact.topic == BINDINGS.name and len(missing) < len(wanted[fact.id]):
                missing = []  # it is for one of them
            if missing:
                by = "the fleet stage" if fact.topic == BINDINGS.name else ", ".join(missing[:3])
                late.append(BarrierPending(fact.key, f"is not read yet by {by}"))
            else:
                done.append(fact.id)
        for id_ in done:
            self._read[id_] = []
        for taken in await causality.taken_in(self.ledger.database, done) if done else ():
            self._read[taken.event].append(taken)
        return late

    def _readers(self, fact: Fact, streams: Sequence[str], shards: list[str]) -> list[str]:
        match self._data[fact.id]:
            case BindingRequested() | BindingWithdrawn() | ClusterObserved() | ClusterForgotten():
                return shards
            case PolicyApplied() | PolicyRemoved() as policy:
                fleet = shards if concerns_every_shard(policy) else shards[:1]
                nodes = [s for s in streams if s.startswith(CLUSTER)]
                return [*fleet, *(nodes if concerns_nodes(policy) else ())]
            case data if isinstance(data, _OF_CLUSTER):
                return [cluster_stream(data.cluster)]
            case PlanRequested(stream=stream):
                return [stream]
            case _:
                return []

    async def _concerned(self, found: Sequence[Fact]) -> set[str]:
        """The bindings that were requested or withdrawn, those named, and those about which a
        stream has decided because of one of the facts."""
        own = {fact.key for fact in found if fact.topic == BINDINGS.name}
        starts: dict[str, int] = {}
        causes: list[UUID] = []
        for fact in found:
            if fact.topic == BINDINGS.name:
                continue
            causes.append(fact.id)
            for taken in self._read.get(fact.id, ()):
                before = min(taken.seq_before, starts.get(taken.stream, taken.seq_before))
                starts[taken.stream] = before
        heads = {head.stream: head.seq for head in await self.ledger.heads()}
        new = {
            stream: max(before, self._scanned.get(stream, 0)) for stream, before in starts.items()
        }
        new = {stream: before for stream, before in new.items() if heads[stream] > before}
        if new and causes:
            window = max(heads[stream] - before for stream, before in new.items())
            rows = await causality.caused_after(
                self.ledger.database, new.items(), causes, window, CAUSED_MAX
            )
            for row in rows:
                in_fleet = row.seq if row.stream.startswith(FLEET) else 0
                if "/" in row.subject:
                    self._caused[row.subject] = max(in_fleet, self._caused.get(row.subject, 0))
            self._scanned |= {stream: heads[stream] for stream in new}
        return own | set(self.bindings) | set(self._caused)

    async def _settled(
        self, names: set[str], pending: list[BarrierPending], refused: list[BarrierRefused]
    ) -> dict[str, LedgerRow]:
        """binding -> its latest decision, of those that have no open request."""
        found = await self.facts()
        rows = await causality.latest_of(self.ledger.database, sorted(names), _SETTLING, FLEET)
        unread = {one.subject for one in pending}
        requests = {fact.key: fact for fact in found if fact.topic == BINDINGS.name}
        drained = self._drained(found)
        settled: dict[str, LedgerRow] = {}
        explained = 0
        for name in sorted(names - unread):
            row = rows.get(name)
            if name not in requests and name not in self.bindings and row is None:
                continue  # a node or a claim
            if self._answered(name, row, requests.get(name)):
                assert row is not None, "answered by it"
                still = self._still_in(name, row, drained)
                if still:
                    pending.append(BarrierPending(name, f"is still assigned to {still}"))
                    continue
                settled[name] = row
                if row.outcome == REFUSED:
                    said = as_decision(row.data()).sentence()
                    refused.append(BarrierRefused(name, said, str(row.id)))
                continue
            if explained >= EXPLAINED_MAX:
                pending.append(BarrierPending(name, "is not decided yet"))
                continue
            explained += 1
            why = await self._why(name)
            if isinstance(why, BarrierPending):
                pending.append(why)
            elif why is not None:
                refused.append(why)
            elif row is not None:
                settled[name] = row
        return settled

    def _answered(self, name: str, row: LedgerRow | None, request: Fact | None) -> bool:
        """Whether its latest decision came behind what is waited for."""
        if row is None:
            return False
        if request is not None:
            read = [t for t in self._read.get(request.id, ()) if t.stream == row.stream]
            return all(row.seq > taken.seq_before for taken in read)
        return row.seq >= self._caused.get(name, 0)

    def _drained(self, found: Iterable[Fact]) -> set[str]:
        """Clusters that the named bindings leave."""
        data = [self._data[fact.id] for fact in found]
        clusters = [d.cluster for d in data if isinstance(d, ClusterObserved)]
        return {cluster.name for cluster in clusters if DRAIN in cluster.taints}

    def _still_in(self, name: str, row: LedgerRow, drained: set[str]) -> str:
        """The cluster that one of the named bindings has still to leave."""
        if name not in self.bindings:
            return ""
        data = row.data()
        if row.outcome == REFUSED or not isinstance(data, ScheduleAnswer):
            return ""
        return next((t.cluster for t in data.targets if t.cluster in drained), "")

    async def _why(self, name: str) -> BarrierPending | BarrierRefused | None:
        """Why its request is not decided; refused where it will not be; None: none is open."""
        # these need the stages; most waits need neither
        from wharfinger.answers.explanation import waits
        from wharfinger.history.explain import Undecided, account

        try:
            found = await account(self.ledger, name)
        except UnknownNameError:
            return BarrierPending(name, "is not decided yet")
        if found.waiting is not None:
            return BarrierPending(name, waits(found.waiting))
        if isinstance(found, Undecided):
            return BarrierRefused(name, found.rule, "")
        return None

    # --- published, placed

    async def _position(self, ends: Mapping[str, int]) -> int | None:
        """Of the last row that is waited for."""
        found = [
            await feed.position_of(self.ledger.database, stream, seq)
            for stream, seq in ends.items()
            if seq
        ]
        if any(position is None for position in found):
            return None
        return max((position for position in found if position is not None), default=0)

    async def _unsent(self, ends: Mapping[str, int]) -> list[BarrierPending]:
        lives = await self.ledger.lives()
        cursor = await self.ledger.cursors(PUBLISHER, max(lives.values(), default=0))
        return [
            BarrierPending(stream, f"is published through {sent:,}, not yet through {seq:,}")
            for stream, seq in ends.items()
            if (sent := cursor.seqs.get(stream, 0)) < seq
        ]

    async def _unplaced(
        self, names: set[str], settled: Mapping[str, LedgerRow], refused: Sequence[BarrierRefused]
    ) -> list[BarrierPending]:
        """Bindings whose replicas are not on the nodes of their clusters, or still on others."""
        given_up = {one.binding for one in refused}
        on_nodes = Counter(
            (binding, cluster)
            for cluster, binding, _ in await replicas_on_nodes(self.ledger)
            if binding in names
        )
        clusters: dict[str, list[str]] = {}
        for binding, cluster in on_nodes:
            clusters.setdefault(binding, []).append(cluster)
        late: list[BarrierPending] = []
        for name in sorted(names - given_up):
            data = settled[name].data() if name in settled else None
            wanted = (
                {t.cluster: t.replicas for t in data.targets}
                if isinstance(data, ScheduleAnswer)
                else {}
            )
            missing = [
                f"has {on_nodes[name, cluster]} of {replicas} replicas on nodes of {cluster}"
                for cluster, replicas in sorted(wanted.items())
                if on_nodes[name, cluster] < replicas
            ]
            missing += [
                f"still has {on_nodes[name, cluster]} replicas on nodes of {cluster}"
                for cluster in sorted(clusters.get(name, ()))
                if cluster not in wanted
            ]
            if missing:
                late.append(BarrierPending(name, "; ".join(missing)))
        return late
