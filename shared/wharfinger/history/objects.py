"""What was decided, as objects of the systems it is decided for: Placements, PlacementDecisions,
ResourceBindings; and what was measured, as annotations of Nodes.

The ledger is asked for what was decided, `events.rendering` makes objects of it. `get` and the
publisher's pages show the same. What needs the state of a stage imports the stages where it does,
so that who only offers these objects need not load them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy
from wharfinger.events import rendering
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.decisions import SETTLING, ScheduleAnswer
from wharfinger.events.registry import types_of
from wharfinger.events.rendering import (
    PLACEMENT_LABEL,
    Rendered,
    Scheduled,
    placement_decisions,
    resource_binding,
)
from wharfinger.events.streams import BINDINGS as REQUESTS
from wharfinger.events.streams import FLEET
from wharfinger.history.object_kinds import BINDINGS, DECISIONS, LOADS
from wharfinger.history.outcomes import REFUSED, WAITING
from wharfinger.history.points import HistoryPoint
from wharfinger.runtime.ledger import Ledger, LedgerRow, causality
from wharfinger.runtime.ledger.fact_events import event_of

if TYPE_CHECKING:
    from wharfinger.history.plane_at import BindingAt

_SETTLING = types_of(*SETTLING)


@dataclass(frozen=True, slots=True)
class ObjectFilter:
    """Which of them: empty means all. `name`: with or without `<namespace>/` before it; `placement`
    likewise, of decisions. `cluster`: of nodes."""

    name: str = ""
    namespace: str = ""
    placement: str = ""
    cluster: str = ""

    def takes(self, found: Rendered) -> bool:
        metadata = found["metadata"]
        own = metadata.get("namespace", "")
        return (
            (not self.name or self.name in (metadata["name"], full_name(found)))
            and (not self.namespace or self.namespace == own)
            and (
                not self.placement
                or self.placement in (of := metadata["labels"][PLACEMENT_LABEL], f"{own}/{of}")
            )
        )


_ALL = ObjectFilter()


async def rendered(
    ledger: Ledger, what: str, wanted: ObjectFilter = _ALL, point: HistoryPoint | None = None
) -> list[Rendered]:
    """The objects of a kind, in order of name. `point` None: now."""
    if what == LOADS:
        found = await _node_annotations(ledger, point, wanted.cluster)
    else:
        found = await _every(ledger, what, point)
    return [one for one in found if wanted.takes(one)]


async def _every(ledger: Ledger, what: str, point: HistoryPoint | None) -> list[Rendered]:
    if what == BINDINGS:
        return await (_bindings_now(ledger) if point is None else _bindings_then(ledger, point))
    from wharfinger.history.selections import placements_at, selections_at

    placements = await placements_at(ledger, point)
    selections = await selections_at(ledger, placements, point)
    if what == DECISIONS:
        return [
            decision
            for selection in selections.values()
            for decision in placement_decisions(selection)
        ]
    return [
        rendering.placement(_manifest(policy), selections.get(key))
        for key, policy in placements.items()
    ]


async def _node_annotations(
    ledger: Ledger, point: HistoryPoint | None, cluster: str
) -> list[Rendered]:
    """As the cluster streams knew the load of their nodes."""
    from wharfinger.engine.load.annotations import annotated
    from wharfinger.history.plane_at import cluster_states_at
    from wharfinger.history.states import PRESENT

    return [
        rendering.annotated_node(state.cluster, node, texts)
        for state in await cluster_states_at(ledger, point or PRESENT, cluster)
        for node, texts in annotated(state.load, state.book.nodes, state.at).items()
    ]


def _manifest(policy: Policy) -> Rendered:
    """As the user wrote it; of one that came without, what is known of its name."""
    if policy.manifest:
        found: Rendered = msgspec.json.decode(policy.manifest)
        metadata = {**found.get("metadata", {}), "namespace": policy.namespace}
        return {**found, "metadata": metadata}
    metadata = {"name": policy.name, "namespace": policy.namespace}
    return {"apiVersion": rendering.DECISION_VERSION, "kind": policy.kind, "metadata": metadata}


async def _bindings_now(ledger: Ledger) -> list[Rendered]:
    return await _as_decided(ledger, [binding for _, binding in await _requested(ledger)])


async def _requested(ledger: Ledger) -> list[tuple[UUID, Binding]]:
    """The last request for each binding, with its id, in order of name."""
    told = [event_of(fact) async for fact in ledger.facts(REQUESTS.name)]
    return sorted(
        [
            (event.id, event.data.binding)
            for event in told
            if isinstance(event.data, BindingRequested)
        ],
        key=lambda request: request[1].name,
    )


async def _as_decided(ledger: Ledger, bindings: Sequence[Binding]) -> list[Rendered]:
    decided = await causality.latest_of(
        ledger.database, [b.name for b in bindings], _SETTLING, FLEET
    )
    return [resource_binding(b, _scheduled(decided.get(b.name))) for b in bindings]


class DecidedBindings:
    """`bindings`: in order of name. `undecided`: those of them whose last request no fleet stage
    had taken in."""

    def __init__(self) -> None:
        self.bindings: list[Rendered] = []
        self.undecided: frozenset[str] = frozenset()
        self._taken: set[UUID] = set()

    async def read(self, ledger: Ledger) -> None:
        """As of now. Requests that were taken in at an earlier reading are not looked up again."""
        requested = await _requested(ledger)
        open_ = {id_ for id_, _ in requested} - self._taken
        if open_:
            # before the decisions are read: that of a request which is taken in is among them
            streams = [
                head.stream for head in await ledger.heads() if head.stream.startswith(FLEET)
            ]
            known = await ledger.known(dict.fromkeys(streams, open_))
            open_ -= set().union(*known.values())
        self._taken = {id_ for id_, _ in requested} - open_
        self.undecided = frozenset(binding.name for id_, binding in requested if id_ in open_)
        self.bindings = await _as_decided(ledger, [binding for _, binding in requested])


def _scheduled(row: LedgerRow | None) -> Scheduled | None:
    data = None if row is None else row.data()
    if row is None or not isinstance(data, ScheduleAnswer):
        return None
    return Scheduled(
        data.targets, data.refusal(), data.explanation.note, data.affinity, rendering.when(row.at)
    )


async def _bindings_then(ledger: Ledger, point: HistoryPoint) -> list[Rendered]:
    """As the fleet stage held them. When that was decided is in `history`."""
    from wharfinger.history.plane_at import plane_at

    bindings = (await plane_at(ledger, point, FLEET)).bindings.values()
    return [resource_binding(b.spec, _held(b)) for b in bindings]


def _held(binding: BindingAt) -> Scheduled | None:
    if binding.outcome == WAITING:
        return None
    return Scheduled(binding.target_clusters, binding.reason if binding.outcome == REFUSED else "")


def as_list(objects: list[Rendered]) -> Rendered:
    """As `kubectl get` puts several objects together."""
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def full_name(found: Rendered) -> str:
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")
