"""RebalancePolicy, a kind of ours: when replicas change clusters though nobody asked and nothing failed.

    apiVersion: wharfinger.io/v1alpha1
    kind: RebalancePolicy
    metadata: {name: evenly}
    spec:
      objective: load
      target: {labelSelector: {matchLabels: {tier: home}}}
      every: 2m
      gainPercent: 10
      budget: {percent: 10, window: 15m}
      unschedulableAfter: 5m

All but the objective has a default; without an objective replicas are only taken back from where they found no node.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from wharfinger.domain.placement import ClusterAffinity as AnyCluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalanceObjective
from wharfinger.domain.rebalancing import RebalancePolicy as Rebalancing
from wharfinger.manifests.karmada_placement import ClusterAffinity
from wharfinger.manifests.karpenter import Span, seconds
from wharfinger.manifests.model import Carried, ExpectedError, Int32, Model, Object, within

API_VERSION = "wharfinger.io/v1alpha1"
KIND = "RebalancePolicy"
USUAL = Rebalancing()

Percent = Annotated[Int32, within(0, 100)]


class RebalanceBudget(Model):
    """Of a cluster's replicas so many per cent, rounded up, may leave it in `window`; a binding is moved once in it at most."""

    percent: Annotated[Int32, within(1, 100)] = USUAL.budget_percent
    window: Span | None = None


class RebalancePolicySpec(Model):
    objective: RebalanceObjective | None = None
    target: ClusterAffinity | None = None
    every: Span | None = None
    gain_percent: Percent = USUAL.gain_percent
    budget: RebalanceBudget = RebalanceBudget()
    unschedulable_after: Span | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RebalancePolicySpec:
        if self.objective is None and self.unschedulable_after is None:
            raise ExpectedError("an objective (cost, load or spread), or unschedulableAfter", "objective")
        for name in ("every", "unschedulable_after"):
            if getattr(self, name) is not None and not seconds(getattr(self, name)):
                raise ExpectedError("a duration above 0", "every" if name == "every" else "unschedulableAfter")
        return self


class RebalancePolicy(Object):
    spec: RebalancePolicySpec
    status: Carried = None

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError where the target clusters cannot be told."""
        spec = self.spec
        if spec.target is not None:
            spec.target.refuse(("spec", "target"))
        rebalancing = Rebalancing(
            spec.objective,
            spec.target.to_domain() if spec.target else AnyCluster(),
            _seconds(spec.every, USUAL.every_s),
            spec.gain_percent,
            spec.budget.percent,
            _seconds(spec.budget.window, USUAL.window_s),
            seconds(spec.unschedulable_after) if spec.unschedulable_after else None,
        )
        return Policy(self.kind, self.name, rebalancing=rebalancing, manifest=manifest)


def _seconds(text: str | None, usual: int) -> int:
    said = None if text is None else seconds(text)
    return usual if said is None else said
