"""The measured loads of the nodes of one cluster, and the resulting verdicts and scores.

Three sources: measurements of the annotator (`NodeLoadObserved`), annotations on the nodes as
crane's annotator writes them, and the recent placements of the cluster's own stream, which no
measurement includes yet.

A missing value is neither zero nor infinite. A metric without a measurement, or with one that is
too old, is *unknown* for the node, and `DynamicArgs.stale` says what follows:

- `open`: the node passes the filter and is scored by the known metrics. A node without any counts
  as the average of the nodes that have some, so that missing data neither attracts nor repels pods.
- `closed`: it is refused while any metric of the policy is unknown.
- `crane`: as in crane-scheduler, it passes, and a missing metric counts as fully loaded.

Scores are exact: loads are 1/100,000, weights 1/1,000, and the quotient is computed once, truncated
towards zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from wharfinger.domain.policy import LoadPolicy
from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.engine.load.policy import GRACE, active_us, effective, longest_window_us
from wharfinger.engine.load.records import HotRecords, Micros, Replica
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved

WHOLE = 100_000
"""Loads are in hundred-thousandths of the whole."""

LOAD_MAX = 2**31 - 1
"""Higher loads are clipped: about 21,000 times the whole comes from a broken exporter."""

SCORE_MAX = 100
NEUTRAL = SCORE_MAX // 2
"""The free share of every node if no node has a known load, or no metric has a weight. It is in the
middle, so that hot nodes still rank behind others."""
HOT_COST = 10
"""Each unit of the hot value reduces the score by this (crane's factor)."""

HOT_VALUE = "node_hot_value"
"""The annotation in which crane's annotator writes the hot value of a node."""

HOT_ACTIVE: Micros = 300_000_000
"""How long a hot value in a node annotation is valid (crane's rule)."""

TOUCHED_MAX = 4096
"""How many changes of records are logged before the log is cleared and a reader has to recount all
nodes."""

PASSES, LOAD_TOO_HIGH, LOAD_UNKNOWN = 0, 1, 2
"""Verdicts of the filter."""


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """The load rule's verdict on one node, and what its score is computed from.

    `metric`: the metric that refuses the node; empty: it passes. `load`: the weighted free share in
    percent (not the load), 0..100, negative for an overloaded node; `hot`: the hot value;
    `unknown`: metrics of the policy without a valid measurement.
    """

    verdict: int = PASSES
    metric: str = ""
    load: int = 0
    hot: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def score(self) -> int:
        return clamp(self.load - HOT_COST * self.hot)

    def message(self, node: str) -> str:
        said = "too high" if self.verdict == LOAD_TOO_HIGH else "unknown"
        return f"Load[{self.metric}] of node[{node}] is {said}"


def clamp(score: int) -> int:
    return max(0, min(SCORE_MAX, score))


@dataclass(slots=True)
class Written:
    """The loads in the annotations of one node. `loads`: metric -> (load in 1/100,000, time of
    measurement); `hot`: (hot value, time)."""

    loads: Mapping[str, tuple[int, Micros]]
    hot: tuple[int, Micros] | None = None


@dataclass(slots=True)
class LoadBook:
    """Collects the measured loads, node annotations and recent placements of one cluster, and
    judges nodes by them (`judge`).

    `policy`: all load policies merged. `version` grows with every change except placements and the
    passing of time. `touched`: nodes in the order in which their placements changed; its first
    `forgotten` entries were dropped.
    """

    policies: dict[str, LoadPolicy] = field(default_factory=dict)
    policy: LoadPolicy = field(default_factory=LoadPolicy)
    measured: dict[str, NodeLoadObserved] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    hot: HotValueObserved | None = None
    records: dict[str, HotRecords] = field(default_factory=dict)
    version: int = 0
    touched: list[str] = field(default_factory=list)
    forgotten: int = 0

    # Inputs.

    def policy_applied(self, key: str, policy: LoadPolicy | None) -> bool:
        """Adds, replaces or removes one load policy and merges them again. `policy` None: it was
        removed or has no load part. Returns whether anything changed."""
        if self.policies.get(key) == policy:
            return False
        if policy is None:
            del self.policies[key]
        else:
            self.policies[key] = policy
        self.policy = effective(self.policies)
        self.version += 1
        return True

    def observe(self, told: NodeLoadObserved | HotValueObserved) -> bool:
        """Stores one measurement of the annotator: the loads of all nodes for one metric, or the
        hot values of all nodes. Returns whether it was stored. Nothing is stored if a measurement
        of the same metric (or of hot values) with a later time is known. Loads are clipped to
        0..`LOAD_MAX`."""
        if isinstance(told, HotValueObserved):
            if self.hot is not None and told.measured_at_us < self.hot.measured_at_us:
                return False
            self.hot = told
        else:
            known = self.measured.get(told.metric)
            if known is not None and told.measured_at_us < known.measured_at_us:
                return False
            self.measured[told.metric] = _sound(told)
        self.version += 1
        return True

    def written_on(self, node: str, written: Written | None) -> None:
        """Replaces the loads from the annotations of a node; None: the node has none, or was
        removed."""
        if self.written.get(node) == written:
            return
        if written is None:
            del self.written[node]
        else:
            self.written[node] = written
        self.version += 1

    def placed(self, node: str, replica: Replica, at: Micros) -> None:
        if self.records.setdefault(node, HotRecords()).add(replica, at):
            self._touch(node)

    def released(self, node: str, replica: Replica) -> None:
        records = self.records.get(node)
        if records is not None and records.remove(replica):
            self._touch(node)
            if not records.placed:
                del self.records[node]

    def _touch(self, node: str) -> None:
        if len(self.touched) >= TOUCHED_MAX:
            self.forgotten += len(self.touched)
            self.touched.clear()
        self.touched.append(node)

    def tidy(self, now: Micros, retain_us: Micros = 0) -> None:
        """Drops the records of placements that are older than every hot window and older than
        `retain_us`."""
        until = now - max(longest_window_us(self.policy.hot), retain_us)
        for node in [
            node for node, records in self.records.items() if records.placed[0][0] <= until
        ]:
            records = self.records[node]
            records.forget_until(until)
            if not records.placed:
                del self.records[node]

    # Queries.

    @property
    def idle(self) -> bool:
        """Whether no policy has limits, weights or hot windows, so that load influences nothing."""
        return not (self.policy.limits or self.policy.weights or self.policy.hot)

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics with a limit or weight above 0 in the policy, in its order."""
        policy = self.policy
        weighed = (w.metric for w in policy.weights if w.weight > 0)
        return tuple(
            dict.fromkeys((*(limit.metric for limit in policy.limits if limit.limit > 0), *weighed))
        )

    def load(self, metric: str, node: str, now: Micros) -> int | None:
        """Returns the load of a node for one metric at time `now`, in 1/100,000 of the whole: 65000
        is 65 %. None: there is no valid load, because none was measured or it is too old.

        There are two sources: the annotator's measurement and the annotation on the node. A load is
        valid for the period of the metric in the load policy plus 5 minutes. If both sources are
        valid, the newer one is used; at equal times the measurement.
        """
        active = active_us(self.policy, metric)
        found, newest = None, now - active
        measured = self.measured.get(metric)
        if (
            measured is not None
            and counts(measured.measured_at_us, active, now)
            and node in measured.loads
        ):
            found, newest = measured.loads[node], measured.measured_at_us
        own = self.written.get(node)
        if own is not None and metric in own.loads:
            load, at = own.loads[metric]
            if at > newest and counts(at, active, now):
                found = load
        return found

    def hot_value(self, node: str, now: Micros, damped: bool) -> int:
        """Returns the hot value of a node at time `now`. `damped` True: it is computed from this
        cluster's own placements. False: it is the value that was reported last (`told_hot`)."""
        if damped:
            records = self.records.get(node)
            return records.value(self.policy.hot, now)[0] if records is not None else 0
        return self.told_hot(node, now)

    def told_hot(self, node: str, now: Micros) -> int:
        """Returns the hot value (a measure of recent placements) that was reported for a node; 0 if
        no report is valid at time `now`.

        There are two sources. The annotator's report is valid for the length of the longest hot
        window (a period of the load policy over which placements are counted). The annotation on
        the node is valid for five minutes. If both are valid, the newer one is used; at equal times
        the annotator's report. A valid annotator's report that does not name the node means 0.
        """
        own = self.written.get(node)
        hot, newest = 0, None
        if (
            self.hot is not None
            and now - longest_window_us(self.policy.hot) < self.hot.measured_at_us
        ):
            hot, newest = self.hot.hot.get(node, 0), self.hot.measured_at_us
        if own is not None and own.hot is not None and counts(own.hot[1], HOT_ACTIVE, now):
            hot = own.hot[0] if newest is None or own.hot[1] > newest else hot
        return hot

    def judge(
        self, node: str, now: Micros, args: DynamicArgs, average: int | None = None
    ) -> LoadVerdict:
        """Decides whether one node passes the load filter at time `now`. Returns the verdict, the
        metric that refuses the node, what the score is computed from (the free share of the node in
        percent and the hot value), and the metrics without a valid load.

        `args`: the profile's arguments of the load rule. `average`: the mean free share of all
        nodes in percent, used for a node without any known weighted metric; None: it is computed by
        `average_load`.
        """
        loads = {metric: self.load(metric, node, now) for metric in self.named}
        unknown = tuple(metric for metric, load in loads.items() if load is None)
        verdict, metric = self._filtered(loads, unknown, args)
        load = self.weighed(loads, args.stale)
        if load is None:
            load = self.average_load(now) if average is None else average
        return LoadVerdict(verdict, metric, load, self.hot_value(node, now, args.damped), unknown)

    def _filtered(
        self, loads: Mapping[str, int | None], unknown: Sequence[str], args: DynamicArgs
    ) -> tuple[int, str]:
        """Returns (verdict, name of the metric that refuses the node). A load above its limit is
        reported before an unknown load."""
        for limit in self.policy.limits:
            load = loads.get(limit.metric)
            if load is not None and load > limit.limit > 0:
                return LOAD_TOO_HIGH, limit.metric
        if unknown and args.stale == "closed":
            return LOAD_UNKNOWN, unknown[0]
        return PASSES, ""

    def weighed(self, loads: Mapping[str, int | None], stale: str) -> int | None:
        """Returns the weighted mean of the free shares of one node in percent, truncated towards
        zero. The free share of a metric is 1 - load. The mean is negative for an overloaded node.
        The weights come from the load policy; weights of 0 or less are ignored.

        `loads`: metric -> load in 1/100,000, None: unknown. `stale`: the profile's setting for
        unknown loads. With `crane` an unknown load counts as 100 % used. Otherwise an unknown load
        is left out of the mean; if the loads of all weighted metrics are unknown, the result is
        None.

        Example: cpu is 20 % used and has weight 2, memory is 50 % used and has weight 1: (2 * 80 +
        1 * 50) / 3 = 70. If memory is unknown, the result is 80, or with `crane` (2 * 80 + 1 * 0) /
        3 = 53.
        """
        free = known = whole = 0
        for weight in self.policy.weights:
            if weight.weight <= 0:
                continue
            whole += weight.weight
            load = loads[weight.metric]
            if load is not None:
                known += weight.weight
                free += (WHOLE - load) * weight.weight
        if stale == "crane":
            return towards_zero(SCORE_MAX * free, WHOLE * whole) if whole else 0
        if not known:
            return None
        return towards_zero(SCORE_MAX * free, WHOLE * known)

    def average_load(self, now: Micros) -> int:
        """Returns the mean free share in percent over the nodes with a known weighted metric;
        `NEUTRAL` if there are none."""
        shares = [
            share for node in self.known_nodes() if (share := self._share(node, now)) is not None
        ]
        return towards_zero(sum(shares), len(shares)) if shares else NEUTRAL

    def _share(self, node: str, now: Micros) -> int | None:
        return self.weighed({m: self.load(m, node, now) for m in self.named}, "open")

    def known_nodes(self) -> list[str]:
        """Returns all nodes with a measurement of a weighted metric, of any age, sorted by name."""
        weighed = {w.metric for w in self.policy.weights if w.weight > 0}
        names = {
            node
            for metric in weighed & self.measured.keys()
            for node in self.measured[metric].loads
        }
        return sorted(
            names | {node for node, own in self.written.items() if weighed & own.loads.keys()}
        )

    def unknown(self, nodes: Iterable[str], now: Micros) -> dict[str, int]:
        """Returns metric -> number of `nodes` on which it has no valid value. Metrics that are
        known on all nodes are left out."""
        counts = dict.fromkeys(self.named, 0)
        for node in nodes:
            for metric in counts:
                counts[metric] += self.load(metric, node, now) is None
        return {metric: n for metric, n in counts.items() if n}

    def next_change(self, now: Micros) -> Micros | None:
        """Returns the next time at which a verdict or score may change by the passing of time
        alone: a measurement becomes valid or too old, or a placement leaves a window. None: never.
        Node annotations are not considered."""
        ages = [
            at
            for metric, m in self.measured.items()
            if metric in self.named
            for at in (m.measured_at_us - GRACE, m.measured_at_us + active_us(self.policy, metric))
        ]
        falls = [records.value(self.policy.hot, now)[1] for records in self.records.values()]
        return min((t for t in (*ages, *falls) if t is not None and t > now), default=None)


@dataclass(slots=True)
class LoadView:
    """The loads at one moment, for one batch of placements. `judge` adds the batch's own placements
    to the hot value where bursts are damped. `arrived`: node -> placements since the batch began,
    which the records do not include yet."""

    book: LoadBook
    now: Micros
    arrived: dict[str, int] = field(default_factory=dict)

    def came(self, node: str, n: int = 1) -> None:
        """Records `n` placements of this batch on a node; negative: removed again."""
        self.arrived[node] = self.arrived.get(node, 0) + n

    def judge(self, node: str, args: DynamicArgs, average: int | None = None) -> LoadVerdict:
        found = self.book.judge(node, self.now, args, average)
        arrived = self.arrived.get(node, 0)
        if not (arrived and args.damped):
            return found
        records = self.book.records.get(node) or HotRecords()
        hot = 0
        for window in self.book.policy.hot:
            recent = records.since(self.now - window.window_s * 1_000_000)
            hot += max(0, recent + arrived) // window.count
        return LoadVerdict(found.verdict, found.metric, found.load, hot, found.unknown)


def _sound(told: NodeLoadObserved) -> NodeLoadObserved:
    """Returns the measurement with all loads clipped to 0..`LOAD_MAX`."""
    loads = told.loads
    if not loads or (min(loads.values()) >= 0 and max(loads.values()) <= LOAD_MAX):
        return told
    return structs.replace(
        told, loads={node: max(0, min(LOAD_MAX, load)) for node, load in loads.items()}
    )


def counts(at: Micros, active: Micros, now: Micros) -> bool:
    """Returns whether a measurement taken at `at` is valid at `now`: it is younger than `active`,
    and its time is at most `GRACE` in the future. A time further in the future comes from a wrong
    clock or time zone; such a measurement would stay valid too long."""
    return now - active < at <= now + GRACE


def towards_zero(dividend: int, divisor: int) -> int:
    """Divides two integers and truncates the quotient towards zero. `divisor`: above 0."""
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)
