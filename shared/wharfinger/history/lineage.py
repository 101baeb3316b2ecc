"""`lineage`: what led to a decision and what it led to, from service to service.

    policy told -> binding requested -> fleet decision -> assignments -> placed on nodes
                                                                      -> refused -> outcomes -> next
                                                                      fleet decision
    cluster silenced -> failover proposed -> fleet decision -> ...

Causes are recorded: a decision names its cause, a proposal the decision or event that led to it, a
request its policy. Effects are searched for: among the decisions about the same binding, and in a
limited number of rounds after the one that took the cause in. Effects in later rounds are not
found. Every level costs a few queries, independent of its number of links. The depth and the number
of links are bounded.

Streams send each other messages that carry many decisions at once. Such a message is shown between
a decision and its effect if the effect's own round took it in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from wharfinger.domain.binding import Binding
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.decisions import as_decision
from wharfinger.events.envelope import Event, uuid_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import INTAKE
from wharfinger.history.names import UnknownNameError, full_name
from wharfinger.history.timeline import asked_before
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, LedgerRow, causality

T = TypeVar("T")

DEPTH_MAX = 16
"""Steps from what was asked about, in each direction. A failover, refused and placed again, is
eight."""

LINKS_MAX = 500
"""A policy may have requested ten thousand bindings: the first so many links of a level, and then
it is said."""

DECISIONS_LATEST = 20
"""Of a binding: where a lineage begins."""

DECISIONS_AFTER = 5_000
"""How far behind the taking in of an event its effects are looked for, where they are about
something else."""

INPUTS_AFTER = 5_000
"""And how far behind it the events that came of it are looked for."""

_PROPOSALS = tuple(
    LATEST[t].type
    for t in (FailoverProposed, EvictionProposed, RescheduleProposed, NodeRemovalProposed)
)
_MESSAGES = (LATEST[AssignmentsDecided].type, LATEST[OutcomesDecided].type)
_REQUESTS = (LATEST[BindingRequested].type,)


@dataclass(frozen=True, slots=True)
class Link:
    """A decision or an event. `at`: when it was decided, accepted, or first taken in by what is
    shown under it; None: that is not known. `before`: for a request, what was asked for until then.
    `children`: what it led to, in order of time."""

    id: UUID
    at: Micros | None
    decision: LedgerRow | None = None
    event: Event[Value] | None = None
    before: Binding | None = None
    children: tuple[Link, ...] = ()

    def walk(self) -> Iterator[Link]:
        """This link and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Lineage:
    """`subject`: what was asked about, in words. `asked`: the ids of it. `roots`: where it all
    began, in order of time.

    `cut`: there is more than is shown.
    """

    subject: str
    asked: frozenset[UUID]
    roots: tuple[Link, ...]
    cut: bool = False

    def links(self) -> Iterator[Link]:
        for root in self.roots:
            yield from root.walk()


def lineage_within(found: Lineage, sees: Callable[[str], bool]) -> Lineage:
    """Without what is said of subjects that are not seen: of these only the ids are left."""

    def link(one: Link) -> Link:
        children = tuple(link(child) for child in one.children)
        shown = one.decision or one.event
        if shown is None or "/" not in shown.subject or sees(shown.subject):
            return replace(one, children=children)
        return Link(one.id, None, children=children)

    return replace(found, roots=tuple(link(root) for root in found.roots))


async def lineage_of_binding(ledger: Ledger, binding: str) -> Lineage:
    """Around the latest decisions about a binding. UnknownNameError: there are none."""
    name = await full_name(ledger, binding)
    rows = await causality.latest_about(ledger.database, name, DECISIONS_LATEST)
    search = _LineageSearch(ledger)
    search.add_decisions(rows)
    return await search.run(name, [row.id for row in rows])


async def lineage_of_decision(ledger: Ledger, id_: UUID) -> Lineage:
    """Around one decision. UnknownNameError: there is none with this id."""
    found = await causality.decisions_named(ledger.database, [id_])
    if not found:
        raise UnknownNameError(f"no decision has the id {id_}")
    search = _LineageSearch(ledger)
    search.add_decisions(found.values())
    return await search.run(f"decision {id_}", [id_])


async def lineage_of_event(ledger: Ledger, id_: UUID) -> Lineage:
    """Around one event. UnknownNameError: no stream has taken in any with this id."""
    found = await causality.events_named(ledger.database, [id_])
    if not found:
        raise UnknownNameError(f"no event has the id {id_}")
    search = _LineageSearch(ledger)
    event = found[id_]
    if isinstance(event.data, AssignmentsDecided | OutcomesDecided):
        # it lies between what it carries and what came of it
        carried = {
            carried for item in event.data.items if (carried := uuid_of(item.decision)) is not None
        }
        search.add_decisions((await causality.decisions_named(ledger.database, carried)).values())
        return await search.run(f"event {id_}", [id_], carried)
    search.add_events([event])
    return await search.run(f"event {id_}", [id_])


@dataclass(slots=True)
class _LineageSearch:
    """What has been found so far: decisions and events by id, and the parent of each.

    `unrecorded`: parents of which the ledger has no record, such as a run that proposed something.
    `policies`: requests whose policy was looked for.
    """

    ledger: Ledger
    decisions: dict[UUID, LedgerRow] = field(default_factory=dict)
    events: dict[UUID, Event[Value]] = field(default_factory=dict)
    parents: dict[UUID, UUID] = field(default_factory=dict)
    accepted: dict[UUID, Micros] = field(default_factory=dict)
    unrecorded: set[UUID] = field(default_factory=set)
    policies: set[UUID] = field(default_factory=set)
    cut: bool = False

    async def run(
        self, subject: str, asked: Collection[UUID], start: Collection[UUID] | None = None
    ) -> Lineage:
        """Of all trees found those with something in them that was `asked` for. `start`: what to
        descend from."""
        await self._climb()
        await self._descend(set(asked if start is None else start))
        await self._accept()
        forest = _Forest(
            self, await asked_before(self.ledger, self.events.values()), await self._carriers()
        )
        roots = tuple(
            root for root in forest.roots() if any(link.id in asked for link in root.walk())
        )
        return Lineage(subject, frozenset(asked), roots, self.cut)

    # --- what is found

    def add_decisions(self, rows: Iterable[LedgerRow]) -> set[UUID]:
        new: set[UUID] = set()
        for row in rows:
            if row.stream != INTAKE and row.id not in self.decisions:
                self.decisions[row.id] = row
                new.add(row.id)
                if row.cause is not None:
                    self.parents[row.id] = row.cause
        return new

    def add_events(self, events: Iterable[Event[Value]]) -> set[UUID]:
        new: set[UUID] = set()
        for event in events:
            if event.id not in self.events:
                self.events[event.id] = event
                new.add(event.id)
                if (cause := uuid_of(event.causation)) is not None:
                    self.parents[event.id] = cause
        return new

    # --- upwards

    async def _climb(self) -> None:
        for _ in range(DEPTH_MAX):
            await self._find_policies(self.events.keys())
            missing = {p for p in self.parents.values() if not self._known(p)}
            if not missing:
                return
            found = await causality.decisions_named(self.ledger.database, missing)
            self.add_decisions(found.values())
            self.add_events(
                (
                    await causality.events_named(self.ledger.database, missing - found.keys())
                ).values()
            )
            self.unrecorded |= {id_ for id_ in missing if not self._known(id_)}
        self.cut = True

    def _known(self, id_: UUID) -> bool:
        return id_ in self.decisions or id_ in self.events or id_ in self.unrecorded

    async def _find_policies(self, ids: Collection[UUID]) -> None:
        """The parent of a request is its policy: the last `PolicyApplied` that the intake accepted
        before the request."""
        under: dict[UUID, str] = {}
        for id_ in set(ids) - self.policies:
            data = self.events[id_].data
            if (
                isinstance(data, BindingRequested)
                and data.binding.policy
                and id_ not in self.parents
            ):
                under[id_] = data.binding.policy
        self.policies |= under.keys()
        accepted = await causality.accepted(self.ledger.database, under) if under else {}
        places = {id_: (under[id_], taken.round + 1) for id_, taken in accepted.items()}
        told = (
            await causality.told_before(self.ledger.database, set(places.values()))
            if places
            else {}
        )
        for id_, place in places.items():
            self.accepted[id_] = accepted[id_].at
            if place in told and isinstance(told[place][0].data, PolicyApplied):
                policy, at = told[place]
                self.add_events([policy])
                self.accepted[policy.id] = at
                self.parents[id_] = policy.id

    # --- downwards

    async def _descend(self, frontier: set[UUID]) -> None:
        for _ in range(DEPTH_MAX):
            if not frontier:
                return
            new = await self._effects_about_bindings(frontier)
            new |= await self._effects_of_facts(frontier)
            new |= await self._requests_of_policies(frontier)
            frontier = new
        self.cut = bool(frontier) or self.cut

    async def _effects_about_bindings(self, frontier: set[UUID]) -> set[UUID]:
        subjects = {self.decisions[id_].subject for id_ in frontier if id_ in self.decisions}
        subjects |= {
            name
            for id_ in frontier
            if id_ in self.events and (name := _binding_of(self.events[id_].data))
        }
        if not subjects:
            return set()
        return self.add_decisions(
            self._first(
                await causality.caused_about(self.ledger.database, subjects, frontier, LINKS_MAX)
            )
        )

    async def _effects_of_facts(self, frontier: set[UUID]) -> set[UUID]:
        """Of what is about a cluster, a node or the fleet: decisions and proposals about anything,
        soon after."""
        starts = {
            (row.stream, row.seq, row.round)
            for row in self._frontier_decisions(frontier)
            if _is_wide(row.data())
        }
        facts = {
            id_ for id_ in frontier if id_ in self.events and not _binding_of(self.events[id_].data)
        }
        if facts:
            taken = await causality.taken_in(self.ledger.database, facts)
            starts |= {(t.stream, t.seq_before, t.round) for t in taken}
        if not starts:
            return set()
        causes = facts | (frontier & self.decisions.keys())
        after = {(stream, seq) for stream, seq, _ in starts}
        rows = await causality.caused_after(
            self.ledger.database, after, causes, DECISIONS_AFTER, LINKS_MAX
        )
        rounds = {(stream, number) for stream, _, number in starts}
        inputs = await causality.inputs_after(
            self.ledger.database, rounds, _PROPOSALS, INPUTS_AFTER, LINKS_MAX
        )
        proposals = [
            event for _, event in self._first(inputs) if uuid_of(event.causation) in causes
        ]
        return self.add_decisions(self._first(rows)) | self.add_events(proposals)

    async def _requests_of_policies(self, frontier: set[UUID]) -> set[UUID]:
        policies = {
            id_
            for id_ in frontier
            if id_ in self.events and isinstance(self.events[id_].data, PolicyApplied)
        }
        if not policies:
            return set()
        accepted = await causality.accepted(self.ledger.database, policies)
        places = {(INTAKE, taken.round) for taken in accepted.values()}
        found = await causality.inputs_after(
            self.ledger.database, places, _REQUESTS, INPUTS_AFTER, LINKS_MAX
        )
        requests = {event.id: event for _, event in self._first(found)}
        new = self.add_events(requests.values())
        await self._find_policies(requests)
        return {id_ for id_ in new if self.parents.get(id_) in policies}

    def _frontier_decisions(self, frontier: set[UUID]) -> Iterator[LedgerRow]:
        return (self.decisions[id_] for id_ in frontier if id_ in self.decisions)

    def _first(self, found: list[T]) -> list[T]:
        self.cut = self.cut or len(found) >= LINKS_MAX
        return found

    # --- what is said of each

    async def _accept(self) -> None:
        ids = self.events.keys() - self.accepted.keys()
        if ids:
            found = await causality.accepted(self.ledger.database, ids)
            self.accepted |= {id_: taken.at for id_, taken in found.items()}

    async def _carriers(self) -> dict[UUID, Event[Value]]:
        """Decision -> the message through which its stream received its cause, if the cause is a
        decision of another stream."""
        heard = [row for row in self.decisions.values() if self._is_heard(row)]
        places = {(row.stream, row.round) for row in heard}
        messages: dict[tuple[str, int, str], Event[Value]] = {}
        found = await causality.inputs_of(self.ledger.database, places, _MESSAGES) if places else []
        for place, event in found:
            if isinstance(event.data, AssignmentsDecided | OutcomesDecided):
                messages |= {(*place, item.decision): event for item in event.data.items}
        carried = {row.id: messages.get((row.stream, row.round, str(row.cause))) for row in heard}
        return {id_: message for id_, message in carried.items() if message is not None}

    def _is_heard(self, row: LedgerRow) -> bool:
        cause = None if row.cause is None else self.decisions.get(row.cause)
        return cause is not None and cause.stream != row.stream


class _Forest:
    """Links with their children, made of what a search has found."""

    def __init__(
        self,
        found: _LineageSearch,
        before: Mapping[UUID, Binding],
        carriers: Mapping[UUID, Event[Value]],
    ) -> None:
        self._found = found
        self._before = before
        self._carriers = carriers
        self._children: dict[UUID, list[UUID]] = {}
        for child, parent in found.parents.items():
            if child in found.decisions or child in found.events:
                self._children.setdefault(parent, []).append(child)

    def roots(self) -> tuple[Link, ...]:
        found = self._found
        ids = [id_ for id_ in (*found.decisions, *found.events) if id_ not in found.parents]
        return _in_order(self._link(id_) for id_ in (*ids, *found.unrecorded) if self._shown(id_))

    def _shown(self, id_: UUID) -> bool:
        return id_ not in self._found.unrecorded or id_ in self._children

    def _link(self, id_: UUID) -> Link:
        found = self._found
        children = self._below(id_)
        row = found.decisions.get(id_)
        if row is not None:
            return Link(id_, row.at, decision=row, children=children)
        at = found.accepted.get(id_, children[0].at if children else None)
        return Link(
            id_, at, event=found.events.get(id_), before=self._before.get(id_), children=children
        )

    def _below(self, id_: UUID) -> tuple[Link, ...]:
        """The children, those that came by one message under that message."""
        links: list[Link] = []
        carried: dict[UUID, list[Link]] = {}
        for child in self._children.get(id_, ()):
            message = self._carriers.get(child)
            (links if message is None else carried.setdefault(message.id, [])).append(
                self._link(child)
            )
        messages = {message.id: message for message in self._carriers.values()}
        for message_id, below in carried.items():
            ordered = _in_order(below)
            links.append(
                Link(message_id, ordered[0].at, event=messages[message_id], children=ordered)
            )
        return _in_order(links)


def _in_order(links: Iterable[Link]) -> tuple[Link, ...]:
    """By time; what was accepted together in the order of what it led to."""
    return tuple(sorted(links, key=lambda link: (link.at or 0, _first_decision(link), link.id)))


def _first_decision(link: Link) -> tuple[str, int]:
    return next(
        ((below.decision.stream, below.decision.seq) for below in link.walk() if below.decision),
        ("", 0),
    )


def _binding_of(data: Value) -> str:
    """The binding an event is about; empty: none."""
    match data:
        case BindingRequested(binding=binding):
            return binding.name
        case BindingWithdrawn(name=name):
            return name
        case FailoverProposed() | EvictionProposed() | RescheduleProposed():
            return data.binding
        case _:
            return ""


def _is_wide(data: Value) -> bool:
    """Whether a decision is about more than its binding, and leads to others."""
    kind = as_decision(data)
    return kind.ABOUT in ("cluster", "fleet", "plan") and not kind.refusal()
