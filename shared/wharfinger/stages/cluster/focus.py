"""A reduced cluster state for one decision about one binding: a fast path of explanations.

A decision depends on what is free on the nodes. Of other bindings only the sum is needed, and their
decisions say how it changed: placements with their requirements, releases with their nodes. So the
rounds since a snapshot are charged to the nodes without recording bindings, at about a tenth of the
cost of folding them.

This is valid while nodes and their pods do not change, no taint evicts, and no measured load is
used. Otherwise there is no focus (None), and the whole state is loaded and folded. The same happens
when the decision, taken again, gives other bytes, because who preempted whom is only known with all
bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from wharfinger.domain.value import Value, json_decoder
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Taken
from wharfinger.engine.nodes.occupancy import Replica, ReplicaKey, sane
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import ON_NODES, NodeShare
from wharfinger.events.envelope import Event
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.registry import LATEST, types_of
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.state import ClusterStageState, SavedHeld, load_apart, load_held

ASSIGNMENTS = LATEST[AssignmentsDecided].type
"""Inputs of this type need not be read where they do not name the binding."""

SKIMMED = types_of(*ON_NODES)
"""Types of decisions whose data may be left unread where they are about others."""

_NODES = LATEST[NodesObserved].type

_FOLLOWED = frozenset(
    (ASSIGNMENTS, *(LATEST[t].type for t in (Ticked, PolicyApplied, PolicyRemoved)))
)


class _OtherChange(msgspec.Struct, frozen=True):
    """Decodes the needed part of a decision about another binding. A release does not contain the
    requirement class; it is known from the placement."""

    placed: tuple[NodeShare, ...] = ()
    requirements: msgspec.Raw = msgspec.Raw(b"{}")
    released: tuple[NodeShare, ...] = ()


_change = json_decoder(_OtherChange)
_requirements = json_decoder(Requirements)


class ClusterFocus:
    """Maintains a reduced cluster state that folds rounds in full for `binding` only. It charges
    the replicas of other bindings to their nodes without recording the bindings. `state` holds that
    one binding, or none. `focused` creates it."""

    def __init__(
        self,
        decider: ClusterDecider,
        state: ClusterStageState,
        binding: str,
        held: Mapping[str, SavedHeld],
        classes: Mapping[str, Requirements],
    ) -> None:
        self.state, self.binding = state, binding
        self._decider = decider
        self._held, self._classes = held, classes
        self._since: dict[ReplicaKey, Replica] = {}
        self._gone: set[ReplicaKey] = set()
        self._read: dict[bytes, PodClass] = {}
        state.besides = self.others

    def fold(
        self, at: Micros, events: Iterable[Event[Value]], decisions: Iterable[Decision]
    ) -> None:
        """Folds one round, or the first decisions of a round, into the reduced state. The reduced
        state records one binding (`self.binding`), and only sums for all other bindings.

        `events`: the inputs of the round. Only nodes, policies, and assignments of the one binding
        are folded. `decisions`: those about the one binding are folded in full. Those about other
        bindings only change the free resources of nodes, and the number of replicas that the round
        has processed.
        """
        self.state.spent = 0
        for event in events:
            if isinstance(event.data, NodesObserved | PolicyApplied | PolicyRemoved):
                self._decider.fold_input(self.state, event, at)
            elif isinstance(event.data, AssignmentsDecided):
                own = [
                    i
                    for i in event.data.items
                    if isinstance(i, Assigned) and i.binding == self.binding
                ]
                narrowed = msgspec.structs.replace(event.data, items=tuple(own))
                self._decider.fold_input(
                    self.state, msgspec.structs.replace(event, data=narrowed), at
                )
        for decision in decisions:
            if decision.subject == self.binding:
                self._decider.fold_decision(self.state, decision, at)
            else:
                change = _change.decode(decision.body)
                self._release(decision.subject, change)
                if change.placed:
                    self._place(decision.subject, change, at)
                else:
                    self.state.spent += 1

    @property
    def sound(self) -> bool:
        """Returns whether the reduced state is still valid: there are no NoExecute taints, no lost
        nodes, no node that became smaller, and no load policy."""
        book = self.state.book
        return not (book.taint_since or book.lost or self.state.shrunk) and self.state.load.idle

    def others(self) -> Iterator[tuple[str, int, Replica]]:
        """Yields the placed replicas of all bindings but the one that the reduced state records, as
        (binding, ordinal, replica). First come the replicas of the snapshot that were not released
        later. Then come the replicas that were placed after the snapshot."""
        for name, held in self._held.items():
            for p in held.placed:
                if (name, p.ordinal) not in self._gone:
                    yield (
                        name,
                        p.ordinal,
                        Replica(
                            p.node,
                            self.state.book.class_of(self._classes[p.class_key]),
                            p.devices,
                            p.at,
                        ),
                    )
        for (name, ordinal), replica in self._since.items():
            yield name, ordinal, replica

    def _place(self, binding: str, took: _OtherChange, at: Micros) -> None:
        raw = bytes(took.requirements)
        cls = self._read.get(raw)
        if cls is None:
            cls = self._read[raw] = self.state.book.class_of(_requirements.decode(raw))
        for share in took.placed:
            self._charge(share, cls, 1)
            self.state.spent += len(share.ordinals)
            for place, ordinal in enumerate(share.ordinals):
                taken = share.devices[place] if place < len(share.devices) else ()
                self._since[binding, ordinal] = Replica(share.node, cls, taken, at)

    def _release(self, binding: str, change: _OtherChange) -> None:
        for share in change.released:
            self.state.spent += len(share.ordinals)
            for place, ordinal in enumerate(share.ordinals):
                taken = share.devices[place] if place < len(share.devices) else ()
                cls = self._class_of(binding, ordinal)
                self._charge(NodeShare(share.node, (ordinal,), (taken,)), cls, -1)

    def _class_of(self, binding: str, ordinal: int) -> PodClass:
        replica = self._since.pop((binding, ordinal), None)
        if replica is not None:
            return replica.cls
        self._gone.add((binding, ordinal))
        key = next(p.class_key for p in self._held[binding].placed if p.ordinal == ordinal)
        return self.state.book.class_of(self._classes[key])

    def _charge(self, share: NodeShare, cls: PodClass, sign: int) -> None:
        table = self.state.book.table
        devices = [(index, sign * milli) for taken in share.devices for index, milli in sane(taken)]
        table.charge(table.rows[share.node], cls, sign * len(share.ordinals), devices)


def focused(
    decider: ClusterDecider, stream: str, sections: Mapping[str, bytes] | None, binding: str
) -> ClusterFocus | None:
    """Builds from a snapshot a reduced state for the decisions about one binding. Returns None if
    the reduced state would not suffice for these decisions; the caller then has to load the whole
    state.

    The replicas of all other bindings are only subtracted from the free resources of their nodes,
    one sum for each node and class. This does not suffice if a load policy is in use, a replica is
    on an unknown node, or the snapshot has observed pods, NoExecute taints, or an incomplete or
    half-received set of nodes.

    `sections`: the parts of the snapshot, name -> bytes; None: there is no snapshot, and the
    reduced state is that of the beginning of the stream.
    """
    if sections is None:
        return ClusterFocus(decider, decider.initial(stream), binding, {}, {})
    apart = load_apart(decider.initial(stream), sections)
    if apart is None or not apart.state.load.idle:
        return None
    state, classes = apart.state, apart.classes
    held = {h.binding: h for h in apart.held}
    own = held.pop(binding, None)
    if own is not None:
        load_held(state.book, own, classes)
    focus = ClusterFocus(decider, state, binding, held, classes)
    rows = state.book.table.rows
    used: dict[tuple[str, str], list[Taken]] = {}
    for h in held.values():
        for p in h.placed:
            if p.node not in rows:
                return None
            used.setdefault((p.node, p.class_key), []).append(p.devices)
    for (node, key), taken in used.items():
        devices = [pair for one in taken for pair in sane(one)]
        cls = state.book.class_of(classes[key])
        state.book.table.charge(rows[node], cls, len(taken), devices)
    return focus


def follows(rounds: Iterable[tuple[Collection[str], Sequence[Decision]]]) -> bool:
    """Returns whether a reduced state can follow these rounds. `rounds`: (types of the inputs,
    decisions) of each round. Facts about nodes are allowed only up to the first round with
    decisions."""
    followed = _FOLLOWED | {_NODES}
    for types, decisions in rounds:
        if not followed.issuperset(types) or not all(d.type in SKIMMED for d in decisions):
            return False
        if decisions:
            followed = _FOLLOWED
    return True
