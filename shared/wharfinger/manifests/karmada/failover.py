"""How a Karmada policy wants failed workloads and clusters to be left (`spec.failover`), and how
workloads fare (`status.aggregatedStatus`).

Both purge modes have older names, which mean the same. Where the policy says nothing of clusters,
nothing waits: a NoExecute taint is an order to go. What of a workload's state is to be carried
along (`statePreservation`) is not acted on: nothing is written into clusters here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from pydantic import model_validator

from wharfinger.domain.placement import ApplicationFailover, Placement
from wharfinger.manifests.model import ExpectedError, Int32, Model

Purge = Literal["Directly", "Gracefully", "Never"]

TOLERATION_S = 300
GRACE_S = 600

_OLDER: Mapping[str, Purge] = {"Immediately": "Directly", "Graciously": "Gracefully"}


class DecisionConditions(Model):
    toleration_seconds: Int32 = TOLERATION_S


class ApplicationFailoverBehavior(Model, unacted="statePreservation"):
    decision_conditions: DecisionConditions = DecisionConditions()
    purge_mode: Literal["Directly", "Gracefully", "Never", "Immediately", "Graciously"] = (
        "Gracefully"
    )
    grace_period_seconds: Int32 | None = None

    @model_validator(mode="after")
    def _admitted(self) -> ApplicationFailoverBehavior:
        if self.decision_conditions.toleration_seconds < 0:
            raise ExpectedError(
                "a number of seconds, 0 or more", "decisionConditions", "tolerationSeconds"
            )
        if self.grace_period_seconds is not None:
            if self.grace_period_seconds <= 0:
                raise ExpectedError("a number of seconds above 0", "gracePeriodSeconds")
            if self.purge != "Gracefully":
                raise ExpectedError(
                    "no gracePeriodSeconds unless purgeMode is Gracefully", "gracePeriodSeconds"
                )
        return self

    @property
    def purge(self) -> Purge:
        if self.purge_mode == "Immediately" or self.purge_mode == "Graciously":
            return _OLDER[self.purge_mode]
        return self.purge_mode

    def to_domain(self) -> ApplicationFailover:
        grace = GRACE_S if self.grace_period_seconds is None else self.grace_period_seconds
        return ApplicationFailover(self.decision_conditions.toleration_seconds, self.purge, grace)


class ClusterFailoverBehavior(Model, unacted="statePreservation"):
    purge_mode: Literal["Directly", "Gracefully"] = "Gracefully"


class FailoverBehavior(Model):
    application: ApplicationFailoverBehavior | None = None
    cluster: ClusterFailoverBehavior | None = None

    def onto(self, placement: Placement) -> Placement:
        """The placement, left as it says."""
        return msgspec.structs.replace(
            placement,
            application=None if self.application is None else self.application.to_domain(),
            cluster_purge="Directly" if self.cluster is None else self.cluster.purge_mode,
        )


class AggregatedStatusItem(Model, carried="applied appliedMessage"):
    """What one cluster says of the workload. `status`: the workload's own, of which the number of
    ready replicas is read."""

    cluster_name: str
    status: dict[str, object] = {}
    health: Literal["Healthy", "Unhealthy", "Unknown", ""] = ""

    @property
    def ready(self) -> int:
        """Under whichever name the kind has it; 0: it does not say."""
        found = [self.status.get(name) for name in ("readyReplicas", "numberReady", "ready")]
        return max([n for n in found if isinstance(n, int) and not isinstance(n, bool)], default=0)
