"""Decides whether a placement has changed since the decision that used it, by Karmada's rules. The
fleet stage adds other reasons for a new decision (`stages.fleet.queue`)."""

from __future__ import annotations

import msgspec

from wharfinger.domain.placement import ANY_CLUSTER, ClusterAffinity, Placement

SCHEDULER = "default-scheduler"
"""The scheduler name of the bindings that we decide. An empty name means the same."""

OURS = "wharfinger"
"""The scheduler name of the bindings that Karmada's own scheduler leaves to us."""


def ours(scheduler: str) -> bool:
    return scheduler in ("", SCHEDULER, OURS)


def observed_term(placement: Placement, observed: str) -> ClusterAffinity | None:
    """Returns the active affinity term: the one named `observed`, or the only one if it has no
    name. A placement without terms has the term for any cluster. None: the named term no longer
    exists, so the placement has changed."""
    if not placement.affinities:
        return ANY_CLUSTER
    if len(placement.affinities) == 1 and not placement.affinities[0].name:
        return placement.affinities[0]
    return next((a for a in placement.affinities if a.name == observed), None)


def placement_changed(applied: Placement, placement: Placement, observed: str) -> bool:
    """Returns whether `placement` (the present one) differs from `applied` in a way that requires a
    new decision, by Karmada's rules.

    `applied`: the placement that the last decision used.
    `observed`: the name of the affinity term that the last decision used (the active one).

    A new decision is required if the active affinity term differs or no longer exists, or if
    anything else that decides where replicas go differs, such as weights, spread constraints or
    tolerations. If both placements have named affinity terms, adding, editing or reordering terms
    that are not active has no effect. Changes of failover settings have no effect either.
    """
    if applied == placement:
        return False
    before, after = observed_term(applied, observed), observed_term(placement, observed)
    if before is None or after is None or before != after:
        return True
    if (
        not (_alternatives(applied) and _alternatives(placement))
        and applied.affinities != placement.affinities
    ):
        return True
    return _where(applied) != _where(placement)


def _where(placement: Placement) -> Placement:
    """Returns the placement without its affinities and without its failover settings: the rest
    decides where replicas go."""
    return msgspec.structs.replace(
        placement, affinities=(), application=None, cluster_purge="Directly"
    )


def _alternatives(placement: Placement) -> bool:
    return any(term.name for term in placement.affinities)
