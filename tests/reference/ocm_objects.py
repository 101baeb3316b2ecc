"""PlacementDecision objects of a decided placement, as Open Cluster Management writes them, and the
difference to the existing objects.

Consumers find the objects by label; each holds at most a hundred clusters. The objects are values
here; writing them as YAML or to a hub happens elsewhere. The texts of Kubernetes events are OCM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wharfinger.engine.cluster_sets.groups import ClusterGroup
from wharfinger.engine.cluster_sets.select import PLACEMENT_LABEL, SelectionResult, SelectionStatus
from wharfinger.engine.cluster_sets.selectors import NAME_LENGTH_MAX, value_problem

GROUP_NAME_LABEL = "cluster.open-cluster-management.io/decision-group-name"
GROUP_INDEX_LABEL = "cluster.open-cluster-management.io/decision-group-index"

DECISIONS, DECISION_STATUS, PLACEMENT_STATUS = (
    "placementdecisions",
    "placementdecisions/status",
    "placements/status",
)
EVENT_TEXT_MAX = 1000
CUT = "......"


@dataclass(frozen=True, slots=True)
class DecisionObject:
    """One PlacementDecision. `clusters`: in order of name."""

    name: str
    labels: Mapping[str, str]
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A decision group in the status of the placement. `decisions`: names of its objects."""

    index: int
    name: str
    decisions: tuple[str, ...]
    clusters: int


@dataclass(frozen=True, slots=True)
class Write:
    verb: Literal["create", "patch", "delete"]
    resource: str
    name: str


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An event on the placement. `type`: Normal or Warning."""

    type: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """What brings what stands to what was decided. `writes`: in order, the placement's own status
    not among them. `after`: the placement's objects by label, in order of number; `everything`:
    those and all others of its namespace. `refused`: why nothing could be written."""

    writes: tuple[Write, ...] = ()
    events: tuple[ObjectEvent, ...] = ()
    after: tuple[DecisionObject, ...] = ()
    everything: tuple[DecisionObject, ...] = ()
    deleted: tuple[str, ...] = ()
    refused: str = ""


def objects(placement: str, groups: Sequence[ClusterGroup]) -> tuple[DecisionObject, ...]:
    """Numbered from 1 through all groups. `placement`: its name, without the namespace."""
    out: list[DecisionObject] = []
    for group in groups:
        labels = {
            PLACEMENT_LABEL: placement,
            GROUP_NAME_LABEL: group.name,
            GROUP_INDEX_LABEL: str(group.index),
        }
        for clusters in group.slices:
            out.append(DecisionObject(f"{placement}-decision-{len(out) + 1}", labels, clusters))
    return tuple(out)


def group_statuses(placement: str, groups: Sequence[ClusterGroup]) -> tuple[GroupStatus, ...]:
    return tuple(
        [
            GroupStatus(
                group.index,
                group.name,
                tuple(
                    [
                        f"{placement}-decision-{group.first_slice + i}"
                        for i in range(len(group.slices))
                    ]
                ),
                len(group.clusters),
            )
            for group in groups
        ]
    )


def difference(choice: SelectionResult, standing: Sequence[DecisionObject]) -> ObjectChanges:
    """The changes that a reconcile writes. `standing`: all existing objects of the placement's
    namespace, including those of other placements.

    An existing object with a needed name is adopted. As in OCM, one update writes either the
    clusters or the labels of an object, not both; the labels follow in the next reconcile. Objects
    with the placement's label that are not needed are deleted.
    """
    namespace, _, placement = choice.key.partition("/")
    by_name = {o.name: o for o in standing}
    if choice.keeps:
        return _left(placement, by_name)
    wanted = objects(placement, choice.groups)
    if wanted == tuple(standing):
        return ObjectChanges(after=wanted, everything=wanted)
    if len(placement.encode()) > NAME_LENGTH_MAX:
        tried = tuple([Write("create", DECISIONS, o.name) for o in wanted if o.name not in by_name])
        return _left(placement, by_name, tried, refused=value_problem(PLACEMENT_LABEL, placement))
    writes: list[Write] = []
    events: list[ObjectEvent] = []
    told = f"with placement {placement} in namespace {namespace}"
    scores: ObjectEvent | None = None
    for one in wanted:
        before = by_name.get(one.name)
        if before is None:
            writes.append(Write("create", DECISIONS, one.name))
            events.append(
                ObjectEvent("Normal", "DecisionCreate", f"Decision {one.name} is created {told}")
            )
            before = DecisionObject(one.name, one.labels, ())
        if before.clusters != one.clusters:
            writes.append(Write("patch", DECISION_STATUS, one.name))
            scores = scores or ObjectEvent("Normal", "ScoreUpdate", score_text(choice))
            events += [
                _updated(one.name, told, choice.status_trouble),
                *([scores] if scores.note else []),
            ]
            by_name[one.name] = DecisionObject(one.name, before.labels, one.clusters)
            continue
        if before.labels != one.labels:
            writes.append(Write("patch", DECISIONS, one.name))
        by_name[one.name] = one
    needed = {o.name for o in wanted}
    deleted = sorted(o.name for o in _owned(placement, by_name) if o.name not in needed)
    for name in deleted:
        writes.append(Write("delete", DECISIONS, name))
        events.append(ObjectEvent("Normal", "DecisionDelete", f"Decision {name} is deleted {told}"))
        del by_name[name]
    return _left(placement, by_name, tuple(writes), tuple(events), tuple(deleted))


def score_text(choice: SelectionResult) -> str:
    """Every cluster with its total, in order of name, as far as an event holds it."""
    text = ""
    for name, total in choice.total_of.items():
        one = f"{name}:{total} "
        if len(text.encode()) + len(one.encode()) > EVENT_TEXT_MAX:
            return text + CUT
        text += one
    return text


def _updated(name: str, told: str, status: SelectionStatus) -> ObjectEvent:
    if status.code == "Warning":
        note = f"Decision {name} is updated {told}: {status.message} in plugin {status.plugin}"
        return ObjectEvent("Warning", "DecisionUpdate", note)
    return ObjectEvent("Normal", "DecisionUpdate", f"Decision {name} is updated {told}")


def _left(
    placement: str,
    by_name: Mapping[str, DecisionObject],
    writes: tuple[Write, ...] = (),
    events: tuple[ObjectEvent, ...] = (),
    deleted: tuple[str, ...] = (),
    refused: str = "",
) -> ObjectChanges:
    everything = tuple([by_name[name] for name in sorted(by_name)])
    return ObjectChanges(writes, events, _owned(placement, by_name), everything, deleted, refused)


def _owned(placement: str, by_name: Mapping[str, DecisionObject]) -> tuple[DecisionObject, ...]:
    """By label, in order of number; an object of another name comes after them."""
    own = [o for _, o in sorted(by_name.items()) if o.labels.get(PLACEMENT_LABEL) == placement]
    return tuple(sorted(own, key=lambda o: _number(o.name, f"{placement}-decision-")))


def _number(name: str, prefix: str) -> int:
    digits = name.removeprefix(prefix)
    named = name.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 10
    return int(digits) if named else 10**10
