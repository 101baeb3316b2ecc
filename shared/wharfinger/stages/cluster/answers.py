"""What is decided about one binding, as drafts: released, placed with the explanation, refused with the reasons and the text that
users know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from uuid import UUID

from wharfinger.domain.reasons import ReplicaReason
from wharfinger.engine.nodes.fit import most_common
from wharfinger.engine.nodes.occupancy import Held, shares_of
from wharfinger.engine.nodes.place import Choice, Diagnosis, Placer, Seen
from wharfinger.events.decisions import Explanation, NodeShare, ReplicasPlaced, ReplicasRefused, ReplicasReleased
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.choosing import REPLICAS_MAX, extenders_of, placer_of, room_kept
from wharfinger.stages.cluster.explain import NAMED, cut, explained
from wharfinger.stages.cluster.state import ClusterState

SHARE_MAX = 10_000
"""Replicas in one decision: it has to fit into one message."""


def in_order(state: ClusterState, bindings: Mapping[str, object]) -> list[str]:
    """Priority first, then arrival."""
    held = state.book.held

    def place_in_queue(binding: str) -> tuple[int, int, str]:
        return (-held[binding].priority, held[binding].arrival, binding)

    return sorted(bindings, key=place_in_queue)


def barred(state: ClusterState, held: Held) -> tuple[ReplicaReason, str] | None:
    """Why the binding is not even tried."""
    traits = held.cls.requirements.traits
    if traits.gates:
        return "Gated", f"it waits for its scheduling gates: {', '.join(traits.gates)}"
    if state.profiles.profile(traits.scheduler) is None:
        return "UnknownScheduler", f"no profile of a scheduler is called {traits.scheduler}"
    if traits.group and extenders_of(state, held):
        return (
            "Extender",
            f"group {traits.group}: extenders have a say about one pod at a time, and a group is placed whole",
        )
    return None


def released(
    state: ClusterState, binding: str, ordinals: Sequence[int], reason: str, cause: UUID | None
) -> Iterator[Draft]:
    """As many decisions as it takes."""
    held = state.book.held[binding]
    for start in range(0, len(ordinals), SHARE_MAX):
        shares = shares_of(held.placed, ordinals[start : start + SHARE_MAX])
        data = ReplicasReleased(state.cluster, binding, held.assignment, shares, reason=reason)
        yield Draft(data, binding, "released", cause)


def placed(state: ClusterState, binding: str, choices: Sequence[Choice], seen: Seen | None = None) -> Iterator[Draft]:
    """The explanation is of the moment before any of them is placed. `seen`: what there was then, where that is known."""
    if not choices:
        return
    held = state.book.held[binding]
    cls, cause = held.cls, uuid_of(held.assignment)
    explanation = _why(state, binding, choices, seen)
    ordinals = lowest_free(held, len(choices))
    for start in range(0, len(choices), SHARE_MAX):
        shares = _shares(choices[start : start + SHARE_MAX], ordinals[start : start + SHARE_MAX])
        data = ReplicasPlaced(state.cluster, binding, held.assignment, shares, cls.requirements, explanation)
        yield Draft(data, binding, "placed", cause)


def _why(state: ClusterState, binding: str, choices: Sequence[Choice], seen: Seen | None) -> Explanation:
    cls, placer = state.book.held[binding].cls, placer_of(state, binding)
    if seen is None:
        with room_kept(state, binding):
            seen = Seen(placer.diagnose(cls), placer.ranked(cls, NAMED + 1))
    return explained(seen.diagnosis, choices, seen.ranked[1:], _unknown_load(state, placer))


def lowest_free(held: Held, wanted: int) -> list[int]:
    if not held.placed:
        return list(range(wanted))
    return list(islice((i for i in count() if i not in held.placed), wanted))


def _shares(choices: Sequence[Choice], ordinals: Sequence[int]) -> tuple[NodeShare, ...]:
    """Nodes in the order in which they were first chosen."""
    if len(choices) == 1:
        (choice,) = choices
        return (NodeShare(choice.row.name, tuple(ordinals), (choice.devices,) if choice.devices else ()),)
    by_node: dict[str, list[int]] = {}
    for at, choice in enumerate(choices):
        by_node.setdefault(choice.row.name, []).append(at)
    return tuple(
        NodeShare(
            name,
            tuple([ordinals[at] for at in chosen]),
            tuple([choices[at].devices for at in chosen]) if choices[chosen[0]].devices else (),
        )
        for name, chosen in by_node.items()
    )


def refused(
    state: ClusterState, binding: str, replicas: int, reason: str, note: str, diagnosis: Diagnosis | None = None
) -> Draft:
    held = state.book.held[binding]
    explanation = explained(diagnosis, note=note) if diagnosis is not None else Explanation(note=cut(note))
    data = ReplicasRefused(
        state.cluster, binding, held.assignment, replicas, held.cls.key, reason, explanation
    )  # fmt: skip
    return Draft(data, binding, "refused", uuid_of(held.assignment))


def does_not_fit(state: ClusterState, binding: str, replicas: int, also: str = "") -> Draft:
    """`also`: what else there is to say, after what is said of the nodes."""
    cls, placer = state.book.held[binding].cls, placer_of(state, binding)
    with room_kept(state, binding):
        diagnosis = placer.diagnose(cls)
        note = _note(diagnosis) or getattr(placer, "message", lambda c: "")(cls)
    unknown = _unknown_load(state, placer)
    note = " ".join([said for said in (note, unknown, also) if said])
    return refused(state, binding, replicas, most_common(diagnosis.refused), note, diagnosis)


def _note(diagnosis: Diagnosis) -> str:
    if not diagnosis.candidates:
        return "the cluster has no nodes"
    if diagnosis.feasible:
        return f"one binding is given at most {REPLICAS_MAX} replicas in a cluster"
    return ""


def _unknown_load(state: ClusterState, placer: Placer) -> str:
    """What was not known of the load of nodes, and of how many; empty where it does not matter or all is known."""
    if state.load.idle:
        return ""
    unknown = state.loads.columns(state.book.table, state.at, placer.profile.arguments.dynamic).unknown
    said = ", ".join([f"{metric} of {n} nodes" for metric, n in unknown.items()])
    return f"Load unknown: {said}." if said else ""
