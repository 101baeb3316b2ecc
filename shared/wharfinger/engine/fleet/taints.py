"""Taints that follow from what a cluster says of its condition, by the policies that turn the one into the other.

A policy is a pair of thresholds: its taints come when all of `add_on` hold and go when all of `remove_on` hold; where both do, they
go. Between the two they stay as they are, so what stands has to be remembered: whoever begins in between, with nothing
remembered, begins without the taints. A policy that is gone, or does not mean the cluster any more, takes its taints with it.

The fleet stage and the descheduler both fold the same facts through this, and so see the same taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import ConditionMatch, ConditionTaints
from wharfinger.domain.taints import Taint
from wharfinger.engine.fleet.filters import matches


def stands(rule: ConditionTaints, cluster: Cluster, stood: bool) -> bool:
    """Whether the rule's taints are on the cluster, given whether they were until now. Source: Karmada's ClusterTaintPolicy."""
    if not matches(rule.target, cluster) or all_hold(rule.remove_on, cluster.conditions):
        return False
    return stood or all_hold(rule.add_on, cluster.conditions)


def all_hold(wanted: Iterable[ConditionMatch], conditions: Mapping[str, str]) -> bool:
    """No conditions never hold, and neither does one that the cluster says nothing about, whatever the operator."""
    wanted = tuple(wanted)
    return bool(wanted) and all(_holds(match, conditions) for match in wanted)


def _holds(match: ConditionMatch, conditions: Mapping[str, str]) -> bool:
    status = conditions.get(match.type)
    if status is None:
        return False
    return (status in match.statuses) == (match.operator == "In")


def with_taints(cluster: Cluster, taints: Iterable[Taint]) -> Cluster:
    """The cluster with these taints, too. Key and effect name a taint: what it says of itself comes first."""
    own = {(t.key, t.effect) for t in cluster.taints}
    more: dict[tuple[str, str], Taint] = {}
    for taint in taints:
        if (taint.key, taint.effect) not in own:
            more.setdefault((taint.key, taint.effect), taint)
    return msgspec.structs.replace(cluster, taints=(*cluster.taints, *more.values())) if more else cluster


@dataclass(slots=True)
class Tainting:
    """What clusters said of themselves, and what the policies make of it.

    `told`: facts by cluster, as they came. `rules`: by policy key, in order of key. `standing`: cluster -> the keys of the rules
    whose taints it has, in order; clusters that have none are left out. Only `standing` is more than what was last told.
    """

    told: dict[str, Cluster] = field(default_factory=dict)
    rules: dict[str, ConditionTaints] = field(default_factory=dict)
    standing: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tell(self, cluster: Cluster) -> Cluster:
        """What a cluster says of itself now; with the taints that it has."""
        self.told[cluster.name] = cluster
        return self.judge(cluster.name)

    def forget(self, name: str) -> None:
        self.told.pop(name, None)
        self.standing.pop(name, None)

    def set(self, key: str, rule: ConditionTaints | None) -> bool:
        """A policy came, changed or (None) went. Whether that is anything new: then every cluster is to be judged again."""
        if self.rules.get(key) == rule:
            return False
        if rule is None:
            del self.rules[key]
        else:
            self.rules[key] = rule
            self.rules = dict(sorted(self.rules.items()))
        return True

    def judge(self, name: str) -> Cluster:
        """The cluster with its taints as the rules are now. Takes down which of them stand."""
        cluster = self.told[name]
        if not self.rules:
            self.standing.pop(name, None)
            return cluster
        before = self.standing.get(name, ())
        now = tuple([key for key, rule in self.rules.items() if stands(rule, cluster, key in before)])
        if now:
            self.standing[name] = now
        else:
            self.standing.pop(name, None)
        return self.effective(name)

    def effective(self, name: str) -> Cluster:
        """The cluster with the taints that stand."""
        keys = self.standing.get(name, ())
        return with_taints(self.told[name], [taint for key in keys for taint in self.rules[key].taints])

    def copy(self) -> Tainting:
        return Tainting(self.told.copy(), self.rules.copy(), self.standing.copy())
