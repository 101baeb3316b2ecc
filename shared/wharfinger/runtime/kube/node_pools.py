"""Whether Karpenter decides by itself in a cluster whose nodes are decided about here.

Karpenter has a NodePool of the name of each pool that NodeClaims are made for. By its limits it
creates no node, and by its budget of disruption it removes none (docs/karpenter.md).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from wharfinger.domain.quantities import QuantityError, parse_quantity
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.pages import ObjectPage, listed

PATH = "/apis/karpenter.sh/v1/nodepools"


class _Budget(msgspec.Struct):
    nodes: str = "10%"
    schedule: str | None = None
    reasons: list[str] | None = None


class _Disruption(msgspec.Struct):
    budgets: list[_Budget] = []


class _Spec(msgspec.Struct):
    limits: dict[str, str | int | float] = {}
    disruption: _Disruption = msgspec.field(default_factory=_Disruption)


class _Meta(msgspec.Struct):
    name: str


class KarpenterPool(msgspec.Struct):
    """A NodePool, with what decides whether Karpenter uses it."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def creates(self) -> bool:
        return not any(_is_zero(str(limit)) for limit in self.spec.limits.values())

    @property
    def removes(self) -> bool:
        return not any(
            budget.nodes in ("0", "0%") and not budget.schedule and not budget.reasons
            for budget in self.spec.disruption.budgets
        )


def _is_zero(limit: str) -> bool:
    try:
        return parse_quantity(limit).nanos == 0
    except QuantityError:
        return False


async def wrong_pools(api: KubeApi, names: Collection[str]) -> list[str]:
    """What is to be changed in the NodePools of these names, in order of name. ApiError,
    UnreachableError, CredentialsError."""
    try:
        found = {pool.metadata.name: pool async for pool in listed(api, PATH, _Page)}
    except ApiError as error:
        if error.code != 404:
            raise
        return ["Karpenter is not installed: the kind NodePool of karpenter.sh/v1 is not there"]
    return [line for name in sorted(names) if (line := _wrong(name, found.get(name)))]


_Page = ObjectPage[KarpenterPool]


def _wrong(name: str, pool: KarpenterPool | None) -> str:
    if pool is None:
        return f'there is no NodePool {name}: create it, with the limit `cpu: "0"`'
    if pool.creates:
        return f'Karpenter creates nodes of NodePool {name}: set the limit `cpu: "0"`'
    if pool.removes:
        return f'Karpenter removes nodes of NodePool {name}: set the budget `nodes: "0"`'
    return ""
