"""Which items of a list are asked for: by namespace, cluster, policy, state and labels.

Commands and the HTTP API apply the same selection to the same values, so `get --server` prints what
`get` prints over the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wharfinger.answers.facts import BindingShown, ClusterShown, NodeShown
from wharfinger.domain.policy import Policy
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.history.outcomes import REFUSED, SCHEDULED, WAITING

T = TypeVar("T")

PENDING = "pending"
READY, SILENT, LEAVING, CORDONED = "ready", "silent", "leaving", "cordoned"

BINDING_STATES = (WAITING, SCHEDULED, REFUSED, "released", PENDING)
"""The outcome of the latest request; `pending`: fewer replicas are on nodes than were assigned."""
CLUSTER_STATES = (READY, SILENT, LEAVING)
NODE_STATES = (READY, CORDONED)


class ListSelectionError(ValueError):
    """One line: what was expected, and what was given."""


@dataclass(frozen=True, slots=True)
class ListSelection:
    """Empty means all. Of `namespaces`, `clusters`, `policies` (name or key) and `states` an item
    has any; of `labels` (`key=value`, `key!=value`, `key`, `!key`) it meets all."""

    namespaces: Collection[str] = ()
    clusters: Collection[str] = ()
    policies: Collection[str] = ()
    states: Collection[str] = ()
    labels: Sequence[str] = ()

    @property
    def everything(self) -> bool:
        return not (self.namespaces or self.clusters or self.policies or self.states or self.labels)

    def bindings(self, items: Sequence[BindingShown]) -> Sequence[BindingShown]:
        """ListSelectionError: a state or a label that cannot be."""
        if self.everything:
            return items
        _check("state", self.states, BINDING_STATES)
        labels = selector_of(self.labels)
        return [
            item
            for item in items
            if _any(self.namespaces, [item.binding.name.rpartition("/")[0]])
            and _any(self.clusters, [target.cluster for target in item.targets])
            and _any(self.policies, _policy_names(item.binding.policy))
            and _any(self.states, _binding_states(item))
            and labels.matches(item.binding.labels)
        ]

    def cluster_list(self, items: Sequence[ClusterShown]) -> Sequence[ClusterShown]:
        """ListSelectionError: as `bindings`."""
        _check("state", self.states, CLUSTER_STATES)
        return self._of_fleet(
            items, lambda c: c.cluster.name, cluster_state, lambda c: c.cluster.labels
        )

    def nodes(self, items: Sequence[NodeShown]) -> Sequence[NodeShown]:
        """ListSelectionError: as `bindings`."""
        _check("state", self.states, NODE_STATES)
        return self._of_fleet(
            items,
            lambda n: n.cluster,
            lambda n: CORDONED if n.node.unschedulable else READY,
            lambda n: n.node.labels,
        )

    def policy_list(self, items: Sequence[tuple[Policy, int]]) -> Sequence[tuple[Policy, int]]:
        return [
            (policy, used)
            for policy, used in items
            if _any(self.namespaces, [policy.namespace])
            and _any(self.policies, [policy.name, policy.key])
        ]

    def _of_fleet(
        self,
        items: Sequence[T],
        cluster: Callable[[T], str],
        state: Callable[[T], str],
        labels: Callable[[T], Mapping[str, str]],
    ) -> Sequence[T]:
        if self.everything:
            return items
        wanted = selector_of(self.labels)
        return [
            item
            for item in items
            if _any(self.clusters, [cluster(item)])
            and _any(self.states, [state(item)])
            and wanted.matches(labels(item))
        ]


def cluster_state(shown: ClusterShown) -> str:
    if shown.silent:
        return SILENT
    return LEAVING if shown.cluster.deleting else READY


def selector_of(labels: Sequence[str]) -> LabelSelector:
    """All of them together. ListSelectionError: one that says nothing of a label."""
    return LabelSelector(match_expressions=tuple(map(_requirement, labels)))


def _requirement(text: str) -> Requirement:
    key, separator, value = text.partition("=")
    unequal = key.endswith("!") if separator else key.startswith("!")
    name = key.strip("!")
    if not name or " " in text or (separator and key.startswith("!")):
        raise ListSelectionError(
            f"label: expected key=value, key!=value, key or !key, got {text!r}"
        )
    if separator:
        return Requirement(name, "NotIn" if unequal else "In", (value.removeprefix("="),))
    return Requirement(name, "DoesNotExist" if unequal else "Exists")


def _any(wanted: Collection[str], has: Collection[str]) -> bool:
    return not wanted or any(value in wanted for value in has)


def _check(what: str, given: Collection[str], known: Sequence[str]) -> None:
    for value in given:
        if value not in known:
            raise ListSelectionError(f"{what}: expected {', '.join(known)}, got {value!r}")


def _policy_names(key: str) -> list[str]:
    return [key, key.rpartition("/")[2]] if key else []


def _binding_states(shown: BindingShown) -> list[str]:
    assigned = sum(target.replicas for target in shown.targets)
    return [shown.outcome, *([PENDING] if assigned > shown.placed else [])]
