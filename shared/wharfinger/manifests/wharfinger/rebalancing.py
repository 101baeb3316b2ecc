"""RebalancePolicy, a kind of ours: when replicas move to other clusters without a request and
without a failure.

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

Every field but the objective has a default. Without an objective, replicas are moved only away from
clusters in which they got no node.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from wharfinger.domain.placement import ClusterAffinity as AnyCluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalanceObjective
from wharfinger.domain.rebalancing import RebalancePolicy as Rebalancing
from wharfinger.manifests.karmada.placement import ClusterAffinityManifest
from wharfinger.manifests.karpenter.pools import Span, seconds
from wharfinger.manifests.model import ExpectedError, Int32, Model, Object, within

API_VERSION = "wharfinger.io/v1alpha1"
KIND = "RebalancePolicy"
USUAL = Rebalancing()

Percent = Annotated[Int32, within(0, 100)]


class RebalanceBudget(Model):
    """`percent` of a cluster's replicas, rounded up, may leave it in one `window`. A binding is
    moved at most once in a window."""

    percent: Annotated[Int32, within(1, 100)] = USUAL.budget_percent
    window: Span | None = None


class RebalancePolicySpec(Model):
    objective: RebalanceObjective | None = None
    target: ClusterAffinityManifest | None = None
    every: Span | None = None
    gain_percent: Percent = USUAL.gain_percent
    budget: RebalanceBudget = RebalanceBudget()
    unschedulable_after: Span | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RebalancePolicySpec:
        if self.objective is None and self.unschedulable_after is None:
            raise ExpectedError(
                "an objective (cost, load or spread), or unschedulableAfter", "objective"
            )
        for name in ("every", "unschedulable_after"):
            if getattr(self, name) is not None and not seconds(getattr(self, name)):
                raise ExpectedError(
                    "a duration above 0", "every" if name == "every" else "unschedulableAfter"
                )
        return self


class RebalancePolicyManifest(Object, carried="status"):
    spec: RebalancePolicySpec

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError if the selector of the target clusters is invalid."""
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
