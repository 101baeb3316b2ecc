"""How far a joined cluster may be changed, and what marks the objects that were.

Mode and verbs narrow each other: a verb is in force only where the mode writes, and only if it was
enabled.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

Mode = Literal["observe", "shadow", "fleet", "act"]
MODES: tuple[Mode, ...] = get_args(Mode)

Verb = Literal["bind", "evict", "nodes", "claims", "copy", "karmada", "ocm", "templates"]
VERBS: tuple[Verb, ...] = get_args(Verb)
"""`bind`: waiting pods are bound to the nodes they were placed on. `evict`: pods are evicted, with
regard to budgets, also those of others that make room for a waiting pod. `nodes`: nodes are
cordoned and uncordoned. `claims`: NodeClaims of Karpenter are made and deleted. `copy`: workloads
are copied into it from a hub.
`karmada`: the clusters of a hub's ResourceBindings are written, `ocm`: its PlacementDecisions.
`templates`: the workloads that are copied are read from this hub; nothing is written to it."""

HUB_VERBS: tuple[Verb, ...] = ("karmada", "ocm", "templates")
"""Those of hubs; all others are those of member clusters."""

VERBS_OF: dict[Mode, tuple[Verb, ...]] = {
    "observe": (),
    "shadow": (),
    "fleet": (*HUB_VERBS, "copy"),
    "act": VERBS,
}
"""Mode -> the verbs that can be enabled in it."""

DEFAULT_VERBS: dict[Mode, tuple[Verb, ...]] = {
    "observe": (),
    "shadow": (),
    "fleet": (),
    "act": ("bind",),
}
"""Mode -> the verbs that are enabled where none is named."""

ANNOTATION = "wharfinger.io/"
"""Prefix of the annotations that a bound pod gets: `binding`, `ordinal`, `decision` (its id) and
`seq` (stream and number, such as `cluster/oslo:1234`)."""

CLOSED_BY = "wharfinger.io/closed-by"
"""Annotation of a node that was cordoned for a decision: its stream and seq, such as
`cluster/oslo:1234`. A node is uncordoned only where this names the stream of its cluster."""


COPIED_FROM = "wharfinger.io/copied-from"
"""Annotation of a copied object: the name of the hub. An object without it is not touched; who
wants one to be taken over sets it."""

COPIED = "wharfinger.io/copied"
"""Annotation of a copied object: a digest of what was copied."""

COPIED_FOR = "wharfinger.io/binding"
"""Annotation of a copied object: the binding by which it is in this cluster."""


def is_ours(closed_by: str, cluster: str) -> bool:
    """Whether this value of `CLOSED_BY` names the stream of the cluster. Example: that of a plane
    which calls the same cluster by another name is not ours."""
    return closed_by.startswith(f"cluster/{cluster}:")


def possible_verbs(mode: Mode, hub: bool) -> tuple[Verb, ...]:
    """Those that can be enabled for a hub or for a member cluster in this mode."""
    return tuple(verb for verb in VERBS_OF[mode] if (verb in HUB_VERBS) is hub)


def default_verbs(mode: Mode, hub: bool) -> tuple[Verb, ...]:
    """Those that are enabled where none is named."""
    return tuple(verb for verb in DEFAULT_VERBS[mode] if (verb in HUB_VERBS) is hub)


def verbs_in_force(mode: Mode, enabled: Collection[Verb], hub: bool) -> tuple[Verb, ...]:
    """In their order. Example: mode `shadow` has none, even where some are enabled."""
    return tuple(verb for verb in possible_verbs(mode, hub) if verb in enabled)
