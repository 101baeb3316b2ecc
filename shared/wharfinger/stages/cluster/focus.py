"""A cluster state with one binding in its book, brought to the moment of one decision about that binding.

What a decision depends on is what is free on the nodes. Of the other bindings only the sum of what they hold is needed, and
their decisions say by how much it changed: what was placed with its requirements, what was released with its nodes. So the
rounds since a snapshot are charged to the nodes and written into no book, which is a tenth of the work of folding them.

That holds while the nodes and their pods stay as they are and drive nobody away, and while nothing goes by measured load. Wherever
something else happened there is no focus (None), and the whole state is loaded and folded instead; so it is, too, where the
decision is taken again and its bytes come out otherwise: who made room for whom is only known with all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Taken
from wharfinger.engine.nodes.occupancy import Replica, ReplicaKey, sane
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import NodeShare, ReplicasPlaced, ReplicasRefused, ReplicasReleased
from wharfinger.events.envelope import Event
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.registry import LATEST
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.state import ClusterState, SavedHeld, load_apart, load_held

ASSIGNMENTS = LATEST[AssignmentsDecided].type
"""Inputs of this type need not be read where they do not name the binding."""

_PLACED, _REFUSED, _RELEASED = (LATEST[t].type for t in (ReplicasPlaced, ReplicasRefused, ReplicasReleased))

SKIMMED = (_PLACED, _REFUSED, _RELEASED)
"""Types of decisions whose data may be left unread where they are about others."""

_NODES = LATEST[NodesObserved].type

_FOLLOWED = frozenset((ASSIGNMENTS, *(LATEST[t].type for t in (Ticked, PolicyApplied, PolicyRemoved))))


class _Placed(msgspec.Struct, frozen=True):
    """What is read of another binding's placing."""

    placed: tuple[NodeShare, ...]
    requirements: msgspec.Raw = msgspec.Raw(b"{}")


class _Released(msgspec.Struct, frozen=True):
    """And of its letting go. Which class it was of is known from its placing."""

    released: tuple[NodeShare, ...] = ()


_placed = msgspec.json.Decoder(_Placed)
_released = msgspec.json.Decoder(_Released)
_requirements = msgspec.json.Decoder(Requirements)


class Focus:
    """`state` has of the bindings `binding` at most. Made by `focused`."""

    def __init__(
        self,
        decider: ClusterDecider,
        state: ClusterState,
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

    def fold(self, at: Micros, events: Iterable[Event[Value]], decisions: Iterable[Decision]) -> None:
        """A round, or of its decisions the first ones."""
        for event in events:
            if isinstance(event.data, NodesObserved | PolicyApplied | PolicyRemoved):
                self._decider.fold_input(self.state, event, at)
            elif isinstance(event.data, AssignmentsDecided):
                own = [i for i in event.data.items if isinstance(i, Assigned) and i.binding == self.binding]
                narrowed = msgspec.structs.replace(event.data, items=tuple(own))
                self._decider.fold_input(self.state, msgspec.structs.replace(event, data=narrowed), at)
        for decision in decisions:
            if decision.subject == self.binding:
                self._decider.fold_decision(self.state, decision, at)
            elif decision.type == _PLACED:
                self._place(decision, at)
            elif decision.type == _RELEASED:
                self._release(decision)

    @property
    def sound(self) -> bool:
        """Nobody is driven away, of whom the book would have to know more, and nothing is measured."""
        return not self.state.book.taint_since and not self.state.book.lost and self.state.load.idle

    def others(self) -> Iterator[tuple[str, int, Replica]]:
        """What all other bindings hold: (binding, ordinal, replica)."""
        for name, held in self._held.items():
            for p in held.placed:
                if (name, p.ordinal) not in self._gone:
                    yield (
                        name,
                        p.ordinal,
                        Replica(p.node, self.state.book.class_of(self._classes[p.class_key]), p.devices, p.at),
                    )
        for (name, ordinal), replica in self._since.items():
            yield name, ordinal, replica

    def _place(self, decision: Decision, at: Micros) -> None:
        took = _placed.decode(decision.body)
        raw = bytes(took.requirements)
        cls = self._read.get(raw)
        if cls is None:
            cls = self._read[raw] = self.state.book.class_of(_requirements.decode(raw))
        for share in took.placed:
            self._charge(share, cls, 1)
            for place, ordinal in enumerate(share.ordinals):
                taken = share.devices[place] if place < len(share.devices) else ()
                self._since[decision.subject, ordinal] = Replica(share.node, cls, taken, at)

    def _release(self, decision: Decision) -> None:
        for share in _released.decode(decision.body).released:
            for place, ordinal in enumerate(share.ordinals):
                taken = share.devices[place] if place < len(share.devices) else ()
                cls = self._class_of(decision.subject, ordinal)
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


def focused(decider: ClusterDecider, stream: str, sections: Mapping[str, bytes] | None, binding: str) -> Focus | None:
    """At a snapshot; `sections` None: at the beginning. None: what is held there cannot be summed up."""
    if sections is None:
        return Focus(decider, decider.initial(stream), binding, {}, {})
    apart = load_apart(decider.initial(stream), sections)
    if apart is None or not apart.state.load.idle:
        return None
    state, classes = apart.state, apart.classes
    held = {h.binding: h for h in apart.held}
    own = held.pop(binding, None)
    if own is not None:
        load_held(state.book, own, classes)
    focus = Focus(decider, state, binding, held, classes)
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
    """Whether nothing happened but what a focus can follow: of each round the types of its inputs, and its decisions. Nodes may
    come while nothing has been placed on them."""
    followed = _FOLLOWED | {_NODES}
    for types, decisions in rounds:
        if not followed.issuperset(types) or not all(d.type in SKIMMED for d in decisions):
            return False
        if decisions:
            followed = _FOLLOWED
    return True
