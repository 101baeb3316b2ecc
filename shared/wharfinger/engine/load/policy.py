"""The load policies of a plane merged into one, and how long a measurement is valid.

With several DynamicSchedulerPolicies: a metric is measured at the shortest of its periods and
limited by the lowest of its limits. Weights, and likewise hot windows, come from the first policy
by key that has any, because adding up two lists would match neither policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wharfinger.domain.policy import HotWindow, LoadLimit, LoadPolicy, LoadWeight, SyncPeriod
from wharfinger.domain.time import SECOND
from wharfinger.engine.load.records import Micros, usable

GRACE: Micros = 300 * SECOND
"""How long a measurement is valid beyond its period (crane's rule): a late one is better than
none."""

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
"""The name of a metric, as Prometheus has it."""


def effective(policies: Mapping[str, LoadPolicy]) -> LoadPolicy:
    """Merges all load policies into one. `policies`: key -> policy.

    For each metric the shortest period and the lowest limit are used. All weights are taken from
    one policy: the first, by key, that has weights. All hot windows (periods over which recent
    placements are counted) are taken from the first policy that has valid ones. Invalid entries are
    left out: a period or limit of 0 or less, a period whose metric name is invalid, and a window
    whose length or `count` is 0 or less.

    Example: policy a has a cpu limit of 80 % and no weights, policy b has a cpu limit of 70 % and
    weights. The result has the limit of 70 % and the weights of b.
    """
    periods: dict[str, int] = {}
    limits: dict[str, int] = {}
    weights: tuple[LoadWeight, ...] = ()
    windows: tuple[HotWindow, ...] = ()
    for _, policy in sorted(policies.items()):
        for entry in policy.sync:
            if askable(entry):
                periods[entry.metric] = min(
                    entry.period_s, periods.get(entry.metric, entry.period_s)
                )
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
    """Returns how long a measurement of `metric` is valid, in microseconds: the period of the first
    entry for the metric, plus the grace. 0: the metric is not measured."""
    return next(
        (e.period_s * SECOND + GRACE for e in policy.sync if e.metric == metric and e.period_s > 0),
        0,
    )


def longest_window_us(windows: Sequence[HotWindow]) -> Micros:
    return max((w.window_s for w in windows), default=0) * SECOND
