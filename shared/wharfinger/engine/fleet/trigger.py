"""Whether a binding is to be scheduled at all: the rules by which Karmada finds that something has changed.

A steady binding is left alone, however much the fleet around it changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.domain.placement import ClusterAffinity, Placement

ANY_CLUSTER = ClusterAffinity()


def observed_term(placement: Placement, observed: str) -> ClusterAffinity | None:
    """The affinity in force: the one named `observed` where there are several, the only one where there is one.

    None: the named one is gone, so the placement has changed.
    """
    if not placement.affinities:
        return ANY_CLUSTER
    if len(placement.affinities) == 1 and not placement.affinities[0].name:
        return placement.affinities[0]
    return next((a for a in placement.affinities if a.name == observed), None)


def placement_changed(applied: Placement, placement: Placement, observed: str) -> bool:
    """Of alternatives, only the one in force counts: editing or reordering the others moves nothing."""
    if applied == placement:
        return False
    before, after = observed_term(applied, observed), observed_term(placement, observed)
    if before is None or after is None or before != after:
        return True
    return msgspec.structs.replace(applied, affinities=()) != msgspec.structs.replace(placement, affinities=())


def replicas_changed(held: Mapping[str, int], replicas: int, *, duplicated: bool) -> bool:
    """Divided: what is held does not sum to what is wanted. Duplicated: some cluster does not hold all of it."""
    if duplicated:
        return any(n != replicas for n in held.values())
    return sum(held.values()) != replicas
