"""Limits the strategies that ignore capacity (static weights and Duplicated) to the capacity of the
clusters.

These strategies say how many replicas each cluster gets whether they fit there or not. Karmada
(`Placement.strict`) assigns all of them. Here a cluster gets no more than fits, so that it need not
refuse replicas for a reason that was known before. Static weights divide within capacity: replicas
that do not fit into a full cluster go to the others. Duplicated gives each cluster as many as fit.
Replicas that fit nowhere wait.

Example: 6 replicas by weights 2:1 are 4 and 2. If 1 and 9 fit, they are 1 and 5. If 1 and 2 fit,
they are 1 and 2, and 3 wait.

A cluster may get more than its estimate (`Question.beyond`) where nothing is known of it yet, and
where replicas of a lower priority could be preempted. This does not apply in a retry, which the
user did not request: it would assign again what the cluster has just refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from wharfinger.engine.fleet.bounded import bounded_by_weight
from wharfinger.engine.fleet.bounds import ReplicaBounds, Unbounded
from wharfinger.engine.fleet.division import Shares
from wharfinger.engine.fleet.question import Estimates, Question
from wharfinger.engine.fleet.webster import Array

NUMBER_MAX = 2**62
"""With larger numbers of replicas, clusters are cut one by one, because arrays have 64 bits."""


def exceeds(
    question: Question, names: Sequence[str], estimates: Estimates, targets: Mapping[str, int]
) -> bool:
    """Returns whether some cluster would get more replicas than its capacity: the replicas that it
    holds plus the replicas that still fit. Outside of a retry (a decision after clusters refused
    replicas), `question.beyond` may allow more in a cluster, for example where replicas of a lower
    priority could be preempted.

    `names`, `estimates`: the clusters, and how many more replicas fit into each.
    `targets`: cluster -> replicas that it would get.

    Example: A holds 2 replicas and 3 more fit. A target of 5 does not exceed the capacity, a target
    of 6 does.
    """
    if isinstance(estimates, np.ndarray):
        most = max(targets.values(), default=0)
        if len(estimates) and int(estimates.min()) >= most:
            return False
        estimates = estimates.tolist()
    return any(
        (n := targets.get(name, 0)) and n > _most(question, name, int(fits))
        for name, fits in zip(names, estimates, strict=True)
    )


def without_preemption(question: Question) -> Question:
    """Returns the question with the capacity that clusters have without preemption."""
    if question.beyond is None:
        return question
    return msgspec.structs.replace(question, beyond=question.unknown)


def weighed_within_room(
    question: Question,
    names: Sequence[str],
    weights: Sequence[int],
    estimates: Sequence[int],
    replicas: int,
    limits: Sequence[ReplicaBounds],
    *,
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    """Divides `replicas` by static weights with Webster's method, within the capacity of each
    cluster and the limits of the policy. Returns the number of replicas of each cluster. If not all
    replicas fit, as many are divided as fit in all clusters together.

    `names`, `weights`, `estimates`, `limits`: one entry per cluster, in rank order (best first).
      `estimates`: how many more replicas fit. A limit allows either 0 replicas or `least` to `most`
      replicas. If every weight is 0, all clusters get the same weight.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    In a retry (a decision after clusters refused replicas), each cluster keeps at least the
    replicas it holds, unless more are held than wanted. Returns Unbounded if no division satisfies
    the limits.

    Example: 6 replicas by weights 2 and 1 would be 4 and 2. If 1 and 9 fit, the result is 1 and 5.
    If 1 and 2 fit, it is 1 and 2, and 3 replicas are left out.
    """
    kept = [question.held.get(name, 0) for name in names]
    weights = weights if any(weights) else [1] * len(names)
    bounds: list[ReplicaBounds] = []
    stays = question.retry and sum(kept) <= replicas
    for name, now, fits, weight, limit in zip(names, kept, estimates, weights, limits, strict=True):
        most = min(limit.most, _most(question, name, int(fits))) if weight > 0 else 0
        if stays and now:
            bounds.append(ReplicaBounds(max(limit.least, now), max(most, now), True))
        else:
            bounds.append(ReplicaBounds(limit.least, most, limit.due))
    open_to = [min(b.most, replicas) for b in bounds if b.due or b.most >= max(1, b.least)]
    seats = min(replicas, sum(open_to))
    found = bounded_by_weight(
        names, weights, seats, bounds, descending=descending, in_order=in_order
    )
    if isinstance(found, Unbounded):
        return found
    return msgspec.structs.replace(found, case="within room")


def cut_to_room(
    question: Question, names: Sequence[str], estimates: Estimates, targets: Mapping[str, int]
) -> dict[str, int]:
    """Limits each target to the replicas that the cluster holds plus those that fit (`_most`).
    Clusters that are left with no replicas are removed."""
    exceptions = _beyond_where(question)
    in_order = len(targets) == len(names) and [*targets] == [*names]
    if (
        isinstance(estimates, np.ndarray)
        and in_order
        and not question.held
        and exceptions is not None
        and max(targets.values()) <= NUMBER_MAX
    ):
        return _cut_columns(question, names, estimates, targets, exceptions)
    fits = estimates.tolist() if isinstance(estimates, np.ndarray) else estimates
    if in_order and not question.held:
        # Most of a new Duplicated binding: one replica number, and clusters in one order.
        pairs = zip(targets.items(), fits, strict=True)
        cut = [
            (name, n if n <= free else min(n, _most(question, name, free)))
            for (name, n), free in pairs
        ]
        return {name: n for name, n in cut if n > 0}
    most = {
        name: _most(question, name, int(free))
        for name, free in zip(names, fits, strict=True)
        if name in targets
    }
    out = {name: min(n, most.get(name, n)) for name, n in targets.items()}
    return {name: n for name, n in out.items() if n > 0}


def _cut_columns(
    question: Question,
    names: Sequence[str],
    estimates: Array,
    targets: Mapping[str, int],
    exceptions: Collection[str],
) -> dict[str, int]:
    """As `cut_to_room` for a binding that holds nothing and gets replicas in all clusters `names`,
    which are in order. `exceptions`: the only clusters that may get more than their estimate."""
    wanted = np.fromiter(targets.values(), np.int64, len(names))
    cut = np.minimum(wanted, np.maximum(estimates, 0))
    for name in exceptions:
        at = bisect_left(names, name)
        if at < len(names) and names[at] == name and cut[at] < wanted[at]:
            cut[at] = min(targets[name], _most(question, name, int(estimates[at])))
    if cut.all():
        return dict(zip(names, cut.tolist(), strict=True))
    left = cut.nonzero()[0]
    return dict(zip(map(names.__getitem__, left.tolist()), cut[left].tolist(), strict=True))


def _beyond_where(question: Question) -> Collection[str] | None:
    """Returns the only clusters that may get more than their estimate. None: any cluster."""
    if question.retry or question.beyond is None:
        return ()
    return question.uncounted if question.beyond is question.unknown else None


def _most(question: Question, name: str, fits: int) -> int:
    """Returns how many replicas the cluster may have in all: those it holds plus those that fit
    (`fits`). Unless this is a retry, those of `Question.beyond` are added if this is less than the
    wanted number."""
    most = question.held.get(name, 0) + max(0, fits)
    if question.retry or question.beyond is None or most >= question.replicas:
        return most
    return most + question.beyond(name)
