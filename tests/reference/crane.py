"""crane-scheduler's own arithmetic: sequential float operations and 64-bit integers that overflow.

What is compared with: a plane places by `engine.load.node_loads`, which does the same sums exactly
and does not fail where crane does. Everything here reads annotations, as crane's scheduler does,
and its policy as it is written, unchecked.

Where crane's program would panic (a count of zero, a bound of zero), `CraneFault` is raised.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from wharfinger.engine.load.annotations import NANOS, Fault, Nanos, parted, share_of
from wharfinger.engine.load.node_loads import HOT_COST, HOT_VALUE, clamp
from wharfinger.manifests.crane import DynamicSpec, HotValue

GRACE_NS: Nanos = 300 * NANOS
HOT_ACTIVE_NS: Nanos = 300 * NANOS
INT64_MIN = -(2**63)


@dataclass(frozen=True, slots=True)
class LoadValue:
    """`share`: of the whole, 0.65 for 65 %; may be infinite, or NaN."""

    share: float


def usage(text: str, active_ns: Nanos, now_ns: Nanos, zone: tzinfo = UTC) -> LoadValue | Fault:
    """What an annotation says now, or the first reason why it says nothing. It counts strictly
    before its time + `active_ns`; a time that is still to come counts."""
    found = parted(text, zone)
    if isinstance(found, str):
        return found
    if not now_ns < found.at_ns + active_ns:
        return "expired-or-bad-timestamp"
    share = share_of(found.number)
    return share if isinstance(share, str) else LoadValue(share)


class CraneFault(Exception):  # noqa: N818  (the broken world of another program)
    """crane's program would have ended here. One line."""


@dataclass(frozen=True, slots=True)
class CraneVerdict:
    """`refused_by`: the metric, empty when the node passes. `load`, `score`: as crane computes
    them."""

    refused_by: str
    load: int
    hot: float
    score: int


def active_duration_ns(spec: DynamicSpec, metric: str) -> Nanos | None:
    """How long a measurement counts: period of the first entry of that name that is not zero, and
    five minutes. None: no such entry. What comes to 0 makes the metric unusable."""
    for entry in spec.sync_policy:
        if entry.name == metric and entry.period != 0:
            return entry.period + GRACE_NS
    return None


def judge(
    spec: DynamicSpec,
    annotations: Mapping[str, str],
    owners: Collection[str],
    now_ns: Nanos,
    zone: tzinfo = UTC,
) -> CraneVerdict:
    """One node for one pod. `owners`: the kinds of the pod's owners."""
    refused = "" if "DaemonSet" in owners else _refused_by(spec, annotations, now_ns, zone)
    load = _load(spec, annotations, now_ns, zone)
    read = usage(annotations.get(HOT_VALUE, ""), HOT_ACTIVE_NS, now_ns, zone)
    hot = read.share if isinstance(read, LoadValue) else 0.0
    return CraneVerdict(refused, load, hot, clamp(wrapped(load - truncated(hot * HOT_COST))))


def _refused_by(
    spec: DynamicSpec, annotations: Mapping[str, str], now_ns: Nanos, zone: tzinfo
) -> str:
    for limit in spec.predicate:
        found = _usage(spec, limit.name, annotations, now_ns, zone)
        if found is not None and limit.max_limit_pecent != 0 and found > limit.max_limit_pecent:
            return limit.name
    return ""


def _load(spec: DynamicSpec, annotations: Mapping[str, str], now_ns: Nanos, zone: tzinfo) -> int:
    """In the order of the policy: sums of floats depend on it."""
    if not spec.priority:
        return 0
    score = whole = 0.0
    for weight in spec.priority:
        whole += weight.weight
        found = _usage(spec, weight.name, annotations, now_ns, zone)
        if found is not None:
            score += ((1 - found) * weight.weight) * 100
    return truncated(_divided(score, whole))


def _usage(
    spec: DynamicSpec, metric: str, annotations: Mapping[str, str], now_ns: Nanos, zone: tzinfo
) -> float | None:
    active_ns = active_duration_ns(spec, metric)
    if not active_ns or metric not in annotations:
        return None
    found = usage(annotations[metric], active_ns, now_ns, zone)
    return found.share if isinstance(found, LoadValue) else None


def _divided(dividend: float, divisor: float) -> float:
    """As IEEE 754 has it: a division by zero is an answer too."""
    if divisor != 0:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def truncated(value: float) -> int:
    """A double to a 64-bit integer as amd64 does it: what is no number, or out of range, becomes
    the lowest."""
    if math.isfinite(value) and -(2.0**63) <= value < 2.0**63:
        return int(value)
    return INT64_MIN


def wrapped(value: int) -> int:
    """Into 64 bits with a sign, as an overflow leaves it."""
    return (value + 2**63) % 2**64 - 2**63


# Recent bindings.


@dataclass(slots=True)
class BindingRecords:
    """The bindings of a whole cluster that crane's annotator keeps. `size`: at this length the
    oldest is dropped before the next is added; negative: unbounded. Times in seconds since 1970."""

    size: int
    records: list[tuple[int, str]] = field(default_factory=list)

    def add(self, node: str, at_s: int) -> None:
        if self.size == 0:
            raise CraneFault("records of size 0: there is no oldest one to drop")
        if len(self.records) == self.size:
            del self.records[0]
        insort(self.records, (at_s, node))

    def collect(self, range_ns: Nanos, now_s: int) -> None:
        """Drop what is `range_ns` old or older; a range of 0 never does."""
        if range_ns != 0:
            line = now_s - _seconds(range_ns)
            del self.records[: bisect_right(self.records, line, key=lambda record: record[0])]

    def count(self, node: str, range_ns: Nanos, now_s: int) -> int:
        line = now_s - _seconds(range_ns)
        return sum(1 for at, on in self.records if on == node and at > line)

    def hot_value(self, node: str, windows: Collection[HotValue], now_s: int) -> int:
        hot = 0
        for window in windows:
            if window.count == 0:
                raise CraneFault("hotValue: a count of 0 divides by zero")
            n = self.count(node, window.time_range, now_s)
            hot += n // window.count if window.count > 0 else -(n // -window.count)
        return hot


def _seconds(range_ns: Nanos) -> int:
    return range_ns // NANOS if range_ns >= 0 else -(-range_ns // NANOS)


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pod came to a node, as a cluster's event tells it."""

    namespace: str
    pod: str
    node: str
    at_s: int


_ASSIGNED = re.compile(r"Successfully[ \t]+assigned[ \t]+(\S+)[ \t]+to[ \t]+(\S+)")


def bound(message: str, count: int, event_time_s: int, last_s: int) -> PodBound | None:
    """A scheduler's event `Successfully assigned NAMESPACE/POD to NODE` as a binding; None: it is
    none. What follows the node is not looked at. An event of a series (`count` above zero) happened
    last at `last_s`."""
    found = _ASSIGNED.match(message)
    if found is None or found[1].count("/") > 1:
        return None
    namespace, _, pod = found[1].rpartition("/")
    return PodBound(namespace, pod, found[2], event_time_s if count == 0 else last_s)
