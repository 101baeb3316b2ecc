"""Renders facts and decisions about nodes as Karpenter's objects: NodeClaims for the node provider,
node pools and overlays.

The inverse of `manifests.karpenter` and `manifests.node_claims`: they read what is written here as
the same values. A claim has its name as a label, and its node must get the same label: the stream
recognises the node by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    CLAIM_LABEL,
    INSTANCE_TYPE_LABEL,
    OUR_DIGEST,
    POOL_HASH,
    POOL_LABEL,
    ZONE_LABEL,
    NodeBudget,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.resources import quantity_of
from wharfinger.domain.taints import Taint
from wharfinger.domain.text import dollars
from wharfinger.events.decisions import NodeClaim, NodeClaimResult
from wharfinger.events.rendering import Rendered
from wharfinger.manifests.cluster_fact import CLUSTER
from wharfinger.manifests.wharfinger import options

VERSION = "karpenter.sh/v1"
OVERLAY_VERSION = "karpenter.sh/v1alpha1"
COMMAND = options.PREFIX + "command"
"""Annotation of a claim: the disruption it replaces nodes for."""
CEILING = options.PREFIX + "price-below"
"""Annotation of a claim: dollars an hour that its node must cost less than."""


def node_claim(claim: NodeClaim, ended: NodeClaimResult | None = None) -> Rendered:
    """Of any of its instance types, in the order of their prices; Karpenter's provider takes the
    cheapest it can get. `ended`: what came of it, as its status."""
    # Karpenter gives a node the labels of its claim. Of the requirements its providers read only
    # those that choose what is bought.
    one_value = {r.key: r.values[0] for r in claim.requirements if _has_one_value(r)}
    labels = {CLUSTER: claim.cluster, **one_value, **claim.labels, CLAIM_LABEL: claim.claim}
    labels.setdefault(POOL_LABEL, claim.pool)
    annotations = dict(claim.annotations)
    annotations |= _some(
        **{COMMAND: claim.command, CEILING: _dollars(claim.ceiling) if claim.ceiling else ""}
    )
    came = ended if ended is not None and ended.outcome == "registered" else None
    if came is not None:
        labels |= _some(
            **{
                INSTANCE_TYPE_LABEL: came.instance_type,
                ZONE_LABEL: came.zone,
                CAPACITY_TYPE_LABEL: came.capacity_type,
            }
        )
    types = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(claim.instance_types)}
    return {
        "apiVersion": VERSION,
        "kind": "NodeClaim",
        "metadata": {"name": claim.claim, "labels": labels, **_some(annotations=annotations)},
        "spec": {
            "requirements": [
                *_requirements(r for r in claim.requirements if r.key != INSTANCE_TYPE_LABEL),
                types,
            ],
            **_some(resources=_some(requests=_quantities(claim.requests))),
            **_made_by(claim.taints, claim.startup_taints, claim.node_class),
            # Karpenter would delete the claim at that age without a decision. Without the
            # field that age is 30 days.
            **_lives(None, claim.termination_grace_s),
        },
        **({} if ended is None else {"status": _claim_status(ended)}),
    }


def _has_one_value(requirement: PoolRequirement) -> bool:
    """What was bought is said by the provider, once it has."""
    is_bought = requirement.key in (INSTANCE_TYPE_LABEL, ZONE_LABEL, CAPACITY_TYPE_LABEL)
    return requirement.operator == "In" and len(requirement.values) == 1 and not is_bought


def _claim_status(ended: NodeClaimResult) -> Rendered:
    came = ended.outcome == "registered"
    said = [("Launched", "True", "Launched"), ("Registered", "True", "Registered")]
    if not came:
        said = [
            ("Launched", "False", "".join(word.capitalize() for word in ended.outcome.split("-")))
        ]
    return {
        **_some(nodeName=ended.node),
        "conditions": [
            {"type": kind, "status": status, "reason": reason, **_some(message=ended.reason)}
            for kind, status, reason in said
        ],
    }


def node_pool(pool: NodePoolPolicy, cluster: str = "") -> Rendered:
    """`cluster`: of which it is the own."""
    template: Rendered = _some(
        metadata=_some(labels=dict(pool.labels), annotations=dict(pool.annotations))
    )
    template["spec"] = {
        **_some(requirements=_requirements(pool.requirements)),
        **_made_by(pool.taints, pool.startup_taints, pool.node_class),
        **_lives(pool.expire_after_s, pool.termination_grace_s),
    }
    return {
        "apiVersion": VERSION,
        "kind": "NodePool",
        "metadata": {
            "name": pool.name,
            **_some(
                labels=_some(**{CLUSTER: cluster}), annotations=_pool_annotations(pool, cluster)
            ),
        },
        "spec": {
            "template": template,
            "disruption": {
                "consolidationPolicy": pool.consolidation,
                "consolidateAfter": "Never"
                if pool.empty_after_s is None
                else f"{pool.empty_after_s}s",
                "budgets": [_budget(budget) for budget in pool.budgets],
            },
            **_some(limits=_quantities(pool.limits), weight=pool.weight),
            **({} if pool.replicas is None else {"replicas": pool.replicas}),
        },
    }


def _pool_annotations(pool: NodePoolPolicy, cluster: str) -> Mapping[str, str]:
    others = () if pool.clusters == (cluster,) else pool.clusters
    theirs = "" if pool.digest.startswith(OUR_DIGEST) else pool.digest
    catalogue = "" if pool.catalogue == "default" else pool.catalogue
    said = {
        options.INSTANCE_TYPES: catalogue,
        options.CLUSTERS: ",".join(others),
        POOL_HASH: theirs,
    }
    return {**_some(**said), **_options(pool)}


def _options(pool: NodePoolPolicy) -> Mapping[str, str]:
    """Those that are not as usual."""
    usual = NodePoolPolicy(pool.name)
    said = {
        options.MIN_VALUES: (pool.min_values, usual.min_values),
        options.PREFERENCES: (pool.preferences, usual.preferences),
        options.RESERVED: (pool.reserved, usual.reserved),
        options.SPOT_TO_SPOT: ("true" if pool.spot_to_spot else "false", "false"),
        options.PACKING: (pool.packing, usual.packing),
        options.LEAST_SAVING: (_amount(pool.least_saving), _amount(usual.least_saving)),
    }
    return {key: value for key, (value, as_usual) in said.items() if value != as_usual}


def _amount(price: int) -> str:
    """In dollars an hour."""
    return dollars(price).removesuffix(" $/h")


def _budget(budget: NodeBudget) -> Rendered:
    """Durations of budgets are written in minutes."""
    duration = f"{budget.duration_s // 60}m" if budget.schedule else ""
    return {
        "nodes": budget.nodes,
        **_some(reasons=list(budget.reasons), schedule=budget.schedule, duration=duration),
    }


def node_overlay(overlay: NodeOverlay) -> Rendered:
    return {
        "apiVersion": OVERLAY_VERSION,
        "kind": "NodeOverlay",
        "metadata": {"name": overlay.name},
        "spec": {
            "requirements": _requirements(overlay.requirements),
            **_some(
                price=overlay.price,
                priceAdjustment=overlay.price_adjustment,
                capacity=_quantities(overlay.capacity),
                weight=overlay.weight,
            ),
        },
    }


# --- parts


def _requirements(found: Iterable[PoolRequirement]) -> list[Rendered]:
    return [
        {
            "key": r.key,
            "operator": r.operator,
            **_some(values=list(r.values), minValues=r.min_values),
        }
        for r in found
    ]


def _made_by(taints: Iterable[Taint], startup: Iterable[Taint], node_class: str) -> Rendered:
    group, _, rest = node_class.partition("/")
    kind, _, name = rest.partition("/")
    return _some(
        taints=[_taint(taint) for taint in taints],
        startupTaints=[_taint(taint) for taint in startup],
        nodeClassRef={"group": group, "kind": kind, "name": name} if node_class else {},
    )


def _lives(expire_after_s: int | None, termination_grace_s: int | None) -> Rendered:
    grace = (
        {} if termination_grace_s is None else {"terminationGracePeriod": f"{termination_grace_s}s"}
    )
    return {"expireAfter": "Never" if expire_after_s is None else f"{expire_after_s}s", **grace}


def _taint(taint: Taint) -> Rendered:
    return {"key": taint.key, "effect": taint.effect, **_some(value=taint.value)}


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity_of(name, amount) for name, amount in sorted(amounts.items())}


def _dollars(price: int) -> str:
    """All nine digits behind the point that a price may have, without those that are nothing."""
    whole, part = divmod(price, 10**9)
    return f"{whole}.{part:09}".rstrip("0").rstrip(".")


def _some(**fields: object) -> Rendered:
    return {name: value for name, value in fields.items() if value}
