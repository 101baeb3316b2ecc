"""Derives taints from a cluster's reported conditions, by ClusterTaintPolicy. Two thresholds with
hysteresis.

A policy's taints are added when all of `add_on` hold and removed when all of `remove_on` hold; if
both hold, they are removed. Otherwise they stay as they are, so the present taints are part of the
state: without it, a cluster between the two thresholds starts without the taints. When a policy is
deleted, or does not select the cluster any more, its taints are removed.

The fleet stage and the descheduler fold the same facts with this code, and so derive the same
taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import ConditionMatch, ConditionTaints
from wharfinger.domain.taints import Taint
from wharfinger.rules.clusters.affinity import matches


def stands(rule: ConditionTaints, cluster: Cluster, stood: bool) -> bool:
    """Returns whether the cluster has the rule's taints now. `stood`: whether it had them until
    now. If the conditions to add and to remove them both hold, the taints are removed. [Karmada's
    ClusterTaintPolicy]"""
    if not matches(rule.target, cluster) or all_hold(rule.remove_on, cluster.conditions):
        return False
    return stood or all_hold(rule.add_on, cluster.conditions)


def all_hold(wanted: Iterable[ConditionMatch], conditions: Mapping[str, str]) -> bool:
    """Returns whether all conditions in `wanted` match. An empty list does not match. A condition
    that the cluster does not report does not match, with any operator."""
    wanted = tuple(wanted)
    return bool(wanted) and all(_holds(match, conditions) for match in wanted)


def _holds(match: ConditionMatch, conditions: Mapping[str, str]) -> bool:
    status = conditions.get(match.type)
    if status is None:
        return False
    return (status in match.statuses) == (match.operator == "In")


def with_taints(cluster: Cluster, taints: Iterable[Taint]) -> Cluster:
    """Returns the cluster with the given taints added to its own taints. Two taints are the same if
    their key and effect are equal; values do not count. If the cluster has the same taint, its own
    is kept. If `taints` has the same taint twice, the first is used.

    Example: the cluster has `gpu=a:NoSchedule`. `gpu=b:NoSchedule` is not added; `gpu=b:NoExecute`
    is added.
    """
    own = {(t.key, t.effect) for t in cluster.taints}
    more: dict[tuple[str, str], Taint] = {}
    for taint in taints:
        if (taint.key, taint.effect) not in own:
            more.setdefault((taint.key, taint.effect), taint)
    return (
        msgspec.structs.replace(cluster, taints=(*cluster.taints, *more.values()))
        if more
        else cluster
    )


@dataclass(slots=True)
class Tainting:
    """Holds the clusters as reported, and the taints that policies derive from their conditions.

    `told`: cluster -> the facts it reported.
    `rules`: policy key -> rule, in order of key.
    `standing`: cluster -> keys of the policies whose taints it has, in order. Clusters without such
      taints are left out. Only this field depends on history.
    """

    told: dict[str, Cluster] = field(default_factory=dict)
    rules: dict[str, ConditionTaints] = field(default_factory=dict)
    standing: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tell(self, cluster: Cluster) -> Cluster:
        """Stores the facts that a cluster reports and updates its derived taints. Returns the
        cluster with them."""
        self.told[cluster.name] = cluster
        return self.judge(cluster.name)

    def forget(self, name: str) -> None:
        self.told.pop(name, None)
        self.standing.pop(name, None)

    def set(self, key: str, rule: ConditionTaints | None) -> bool:
        """Adds or replaces a policy's rule, or removes it (None). Returns whether anything changed;
        then the caller must call `judge` for every cluster."""
        if self.rules.get(key) == rule:
            return False
        if rule is None:
            del self.rules[key]
        else:
            self.rules[key] = rule
            self.rules = dict(sorted(self.rules.items()))
        return True

    def judge(self, name: str) -> Cluster:
        """Updates the taints that policies (ClusterTaintPolicy) derive from the conditions of the
        cluster `name`, and returns the cluster with its own and the derived taints.

        For each policy: the taints are removed if the policy does not select the cluster or if all
        conditions for removal hold. Otherwise they are added if all conditions for adding hold.
        Otherwise the cluster keeps the taints of the policy if it had them until now (hysteresis).
        The keys of the policies whose taints the cluster has are stored in `standing`.

        Example: a policy adds a taint on Ready=False and removes it on Ready=True. Ready becomes
        False: the taint is added. Then Ready becomes Unknown: the taint stays.
        """
        cluster = self.told[name]
        if not self.rules:
            self.standing.pop(name, None)
            return cluster
        before = self.standing.get(name, ())
        now = tuple(
            [key for key, rule in self.rules.items() if stands(rule, cluster, key in before)]
        )
        if now:
            self.standing[name] = now
        else:
            self.standing.pop(name, None)
        return self.effective(name)

    def effective(self, name: str) -> Cluster:
        """Returns the cluster with the derived taints that it has now, without updating them."""
        keys = self.standing.get(name, ())
        return with_taints(
            self.told[name], [taint for key in keys for taint in self.rules[key].taints]
        )

    def copy(self) -> Tainting:
        return Tainting(self.told.copy(), self.rules.copy(), self.standing.copy())
