"""What the load policies of a plane come to, and for how long a measurement counts.

Several DynamicSchedulerPolicies: a metric is measured at the shortest of its periods and bounded by the lowest of its
limits; weights, and likewise hot windows, are those of the first policy by key that has any, because two lists added
up would be nobody's policy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wharfinger.domain.policy import HotWindow, LoadLimit, LoadPolicy, LoadWeight, SyncPeriod
from wharfinger.engine.load.records import SECOND, Micros, usable

GRACE: Micros = 300 * SECOND
"""How long beyond its period a measurement counts (crane's rule): one that is late is still better than none."""

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
"""The name of a metric, as Prometheus has it."""


def effective(policies: Mapping[str, LoadPolicy]) -> LoadPolicy:
    """One policy out of all, by key. What of them cannot be acted on (a period or window of zero, a name no metric can have)
    is left out."""
    periods: dict[str, int] = {}
    limits: dict[str, int] = {}
    weights: tuple[LoadWeight, ...] = ()
    windows: tuple[HotWindow, ...] = ()
    for _, policy in sorted(policies.items()):
        for entry in policy.sync:
            if askable(entry):
                periods[entry.metric] = min(entry.period_s, periods.get(entry.metric, entry.period_s))
        for limit in policy.limits:
            if limit.limit > 0:  # a limit of zero is none
                limits[limit.metric] = min(limit.limit, limits.get(limit.metric, limit.limit))
        weights = weights or policy.weights
        windows = windows or usable(policy.hot)
    return LoadPolicy(
        tuple(SyncPeriod(metric, period_s) for metric, period_s in periods.items()),
        tuple(LoadLimit(metric, limit) for metric, limit in limits.items()),
        weights,
        windows,
    )


def askable(entry: SyncPeriod) -> bool:
    return entry.period_s > 0 and METRIC.fullmatch(entry.metric) is not None


def active_us(policy: LoadPolicy, metric: str) -> Micros:
    """How long a measurement of `metric` counts: the period of its first entry that has one, and the grace. 0: it is not
    measured at all."""
    return next((e.period_s * SECOND + GRACE for e in policy.sync if e.metric == metric and e.period_s > 0), 0)


def longest_window_us(windows: Sequence[HotWindow]) -> Micros:
    return max((w.window_s for w in windows), default=0) * SECOND
