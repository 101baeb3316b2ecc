"""The decisions about one binding, as drafts: released; placed, with the explanation; refused, with
reasons and kube-scheduler's message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from uuid import UUID

import msgspec

from wharfinger.domain.ids import PodUid
from wharfinger.domain.reasons import ReplicaReason, ReplicasRefusal
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.fit import most_common
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.occupancy import HeldBinding, shares_of
from wharfinger.engine.nodes.place import Diagnosis, NodeChoice, PlacementContext, Placer
from wharfinger.events.decisions import (
    Explanation,
    NodeShare,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.displaced import displaced_among
from wharfinger.stages.cluster.explain import RANKED, cut, explained
from wharfinger.stages.cluster.node_search import REPLICAS_MAX, extenders_of, placer_of, room_kept
from wharfinger.stages.cluster.state import ClusterStageState

SHARE_MAX = 10_000
"""Maximum number of replicas in one decision, so that it fits into one message."""


def in_order(state: ClusterStageState, bindings: Mapping[str, object]) -> list[str]:
    """Returns the bindings sorted by priority, highest first, then by arrival."""
    held = state.book.held

    def place_in_queue(binding: str) -> tuple[int, int, str]:
        return (-held[binding].priority, held[binding].arrival, binding)

    return sorted(bindings, key=place_in_queue)


def barred(state: ClusterStageState, held: HeldBinding) -> tuple[ReplicaReason, str] | None:
    """Returns (reason, sentence) if the binding has to be refused before any node is searched.
    None: nodes may be searched.

    A binding is refused in three cases: its pods have scheduling gates; no scheduler profile has
    the name of its scheduler; or it belongs to a pod group and uses scheduler extenders, which look
    at one pod at a time, while a group is placed as a whole. `held`: the binding.
    """
    traits = held.cls.requirements.traits
    if traits.gates:
        return "Gated", f"it waits for its scheduling gates: {', '.join(traits.gates)}"
    if state.profiles.profile(traits.scheduler) is None:
        return "UnknownScheduler", f"no profile of a scheduler is called {traits.scheduler}"
    if traits.group and extenders_of(state, held):
        return (
            "Extender",
            (
                f"group {traits.group}: extenders have a say about one pod at a time, "
                "and a group is placed whole"
            ),
        )
    return None


def released(
    state: ClusterStageState, binding: str, ordinals: Sequence[int], reason: str, cause: UUID | None
) -> Iterator[Draft]:
    """Drafts the decisions that release the replicas with these `ordinals` from their nodes. One
    decision has at most `SHARE_MAX` (10,000) replicas, so that it fits into one message. Example:
    25,000 ordinals give 3 decisions.

    `reason`: why the replicas are released. `cause`: the event or decision that led to the release.
    """
    held = state.book.held[binding]
    for start in range(0, len(ordinals), SHARE_MAX):
        yield released_draft(
            state,
            binding,
            shares_of(held.placed, ordinals[start : start + SHARE_MAX]),
            reason,
            cause,
        )


def released_draft(
    state: ClusterStageState,
    binding: str,
    shares: tuple[NodeShare, ...],
    reason: str,
    cause: UUID | None,
    preemptor: str = "",
    short: Mapping[str, int] | None = None,
) -> Draft:
    """Drafts the release of replicas from their nodes. `preemptor`, `short`: as in
    `ReplicasReleased`."""
    assignment = state.book.held[binding].assignment
    data = ReplicasReleased(
        state.cluster,
        binding,
        assignment,
        shares,
        reason=reason,
        preemptor=preemptor,
        short=dict(short or {}),
    )
    return Draft(data, binding, "released", cause)


def released_in_place(
    state: ClusterStageState,
    binding: str,
    shares: Iterable[NodeShare],
    reason: str,
    cause: UUID | None,
    short: Mapping[str, int] | None = None,
) -> Draft:
    """Drafts the release of replicas whose pods are gone or are to stay: without the uids, because
    a release that names pods is an order to evict them. `short`: as in `ReplicasReleased`."""
    unnamed = tuple([msgspec.structs.replace(share, pods=()) for share in shares])
    return released_draft(state, binding, unnamed, reason, cause, short=short)


def placed(
    state: ClusterStageState,
    binding: str,
    choices: Sequence[NodeChoice],
    seen: PlacementContext | None = None,
) -> Iterator[Draft]:
    """Drafts the decisions that place replicas of the binding, one replica for each node in
    `choices`. The replicas get the lowest free ordinals. Example: ordinals 0 and 2 are placed; two
    more replicas get 1 and 3. One decision has at most `SHARE_MAX` (10,000) replicas.

    All these decisions have the same explanation: why nodes were infeasible, and which nodes were
    next best. The explanation describes the nodes before the first of the replicas is placed.
    `seen`: the diagnosis and the node scores for the explanation, if they were recorded when the
    nodes were chosen; None: they are computed now.
    """
    if not choices:
        return
    held = state.book.held[binding]
    cause = uuid_of(held.assignment)
    explanation = _why(state, binding, choices, seen)
    ordinals = lowest_free(held, len(choices))
    for start in range(0, len(choices), SHARE_MAX):
        shares = shares_on(choices[start : start + SHARE_MAX], ordinals[start : start + SHARE_MAX])
        yield placed_draft(state, binding, shares, explanation, cause)


def placed_draft(
    state: ClusterStageState,
    binding: str,
    shares: tuple[NodeShare, ...],
    why: Explanation,
    cause: UUID | None,
    requirements: Requirements | None = None,
) -> Draft:
    """Drafts the placement of replicas. `requirements`: of the pods that they are, for a binding
    that need not be known yet; None: those of the binding."""
    held = state.book.held.get(binding)
    assignment = "" if held is None else held.assignment
    if requirements is None:
        requirements = state.book.held[binding].cls.requirements
    data = ReplicasPlaced(state.cluster, binding, assignment, shares, requirements, why)
    return Draft(data, binding, "placed", cause)


def nominated_draft(
    state: ClusterStageState, binding: str, node: str, replicas: int, until: Micros
) -> Draft:
    """Drafts the decision that reserves room for `replicas` of the binding until `until`. `node`:
    an existing node, or the name of the claim whose node is still to come."""
    assignment = state.book.held[binding].assignment
    data = ReplicasNominated(state.cluster, binding, assignment, node, replicas, until)
    return Draft(data, binding, "nominated", uuid_of(assignment))


def _why(
    state: ClusterStageState,
    binding: str,
    choices: Sequence[NodeChoice],
    seen: PlacementContext | None,
) -> Explanation:
    cls, placer = state.book.held[binding].cls, placer_of(state, binding)
    if seen is None:
        with room_kept(state, binding):
            seen = PlacementContext(placer.diagnose(cls), placer.ranked(cls, RANKED))
    return explained(seen.diagnosis, choices, seen.ranked, unknown_load(state, placer))


def lowest_free(held: HeldBinding, wanted: int) -> list[int]:
    if not held.placed:
        return list(range(wanted))
    return list(islice((i for i in count() if i not in held.placed), wanted))


def shares_on(
    choices: Sequence[NodeChoice], ordinals: Sequence[int], pods: Sequence[PodUid] = ()
) -> tuple[NodeShare, ...]:
    """Groups chosen nodes by node. Returns one `NodeShare` for each node: the ordinals of the
    replicas on it and, if the pods use devices, the devices of each replica. `choices[i]` is the
    node for the replica with `ordinals[i]`. Nodes are in the order in which they are chosen first.
    `pods`: uid of the pod that each replica is; empty: they are not known. Example: choices (a, b,
    a) and ordinals (0, 1, 2): a with (0, 2), b with (1)."""
    if len(choices) == 1:
        (choice,) = choices
        return (
            NodeShare(
                choice.row.name,
                tuple(ordinals),
                (choice.devices,) if choice.devices else (),
                tuple(pods),
            ),
        )
    by_node: dict[str, list[int]] = {}
    for at, choice in enumerate(choices):
        by_node.setdefault(choice.row.name, []).append(at)
    return tuple(
        NodeShare(
            name,
            tuple([ordinals[at] for at in chosen]),
            tuple([choices[at].devices for at in chosen]) if choices[chosen[0]].devices else (),
            tuple([pods[at] for at in chosen]) if pods else (),
        )
        for name, chosen in by_node.items()
    )


def refused(
    state: ClusterStageState,
    binding: str,
    replicas: int,
    reason: ReplicasRefusal,
    note: str,
    diagnosis: Diagnosis | None = None,
) -> Draft:
    held = state.book.held[binding]
    explanation = (
        explained(diagnosis, note=note) if diagnosis is not None else Explanation(note=cut(note))
    )
    data = ReplicasRefused(
        state.cluster,
        binding,
        held.assignment,
        replicas,
        held.cls.key,
        reason,
        explanation,
        displaced_among(state, binding, replicas),
    )
    return Draft(data, binding, data.outcome, uuid_of(held.assignment))


def does_not_fit(state: ClusterStageState, binding: str, replicas: int, also: str = "") -> Draft:
    """Drafts the refusal of `replicas` that fit on no node. It carries the diagnosis, the most
    common reason and a message. `also`: text appended to the message."""
    cls, placer = state.book.held[binding].cls, placer_of(state, binding)
    with room_kept(state, binding):
        diagnosis = placer.diagnose(cls)
        note = _note(diagnosis) or message(placer, cls)
    unknown = unknown_load(state, placer)
    note = " ".join([said for said in (note, unknown, also) if said])
    return refused(state, binding, replicas, most_common(diagnosis.refused), note, diagnosis)


def _note(diagnosis: Diagnosis) -> str:
    if not diagnosis.candidates:
        return "the cluster has no nodes"
    if diagnosis.feasible:
        return f"one binding is given at most {REPLICAS_MAX} replicas in a cluster"
    return ""


def unknown_load(state: ClusterStageState, placer: Placer) -> str:
    """Returns a sentence with the metrics whose load is unknown and on how many nodes. Empty if all
    loads are known, or no load policy is in use."""
    if state.load.idle:
        return ""
    unknown = state.loads.columns(
        state.book.table, state.at, placer.profile.arguments.dynamic
    ).unknown
    said = ", ".join([f"{metric} of {n} nodes" for metric, n in unknown.items()])
    return f"Load unknown: {said}." if said else ""
