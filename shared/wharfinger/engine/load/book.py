"""How loaded the nodes of one cluster are, and what that means for placing on them.

Three ways of knowing: measurements of the annotator (`NodeLoadObserved`), measurements that came written on the nodes
themselves, as crane's annotator leaves them, and the replicas that the cluster's own stream has placed lately, which
no measurement shows yet.

What is not known is neither zero nor infinite. A node whose measurement is missing or too old is *unknown* for that
metric, and `DynamicArgs.stale` says what follows:

- `open`: it passes the filter and is scored by the metrics that are known; a node of which nothing is known counts as
  the average of those that are, so that silence neither draws pods nor drives them away.
- `closed`: it is refused while any metric that the policy names is unknown.
- `crane`: as crane-scheduler has it: it passes, and a missing metric counts as if the node were full.

Scores are exact: loads are hundred-thousandths, weights thousandths, and the quotient is taken once, towards zero.
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
"""Where a load is cut off: some 21,000 times the whole is a broken exporter, not a load."""

SCORE_MAX = 100
NEUTRAL = SCORE_MAX // 2
"""What every node counts as where nothing is known of any, or nothing is weighed: in the middle, so that hot nodes
still fall behind others."""
HOT_COST = 10
"""What each unit of the hot value takes off the score (crane's factor)."""

HOT_VALUE = "node_hot_value"
"""Under which crane's annotator writes a node's hot value among its metrics."""

HOT_ACTIVE: Micros = 300_000_000
"""How long a hot value written on a node counts (crane's rule)."""

TOUCHED_MAX = 4096
"""How many changes of records are told apart before whoever follows them has to look at all."""

PASSES, LOAD_TOO_HIGH, LOAD_UNKNOWN = 0, 1, 2
"""Verdicts of the filter."""


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """One node, judged. `metric`: which one refuses it, empty when it passes. `load`: the free share, 0..100, below zero for
    a node that is more than full; `hot`: the hot value; `unknown`: metrics that the policy names and nobody can say."""

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
    """What a node says of itself. `loads`: metric -> (hundred-thousandths, when it was measured)."""

    loads: Mapping[str, tuple[int, Micros]]
    hot: tuple[int, Micros] | None = None


@dataclass(slots=True)
class LoadBook:
    """Everything known of the load of one cluster. `version` grows with every change that is not the passing of time,
    but for placements: those are in `touched`, the nodes in the order in which their records changed, of which the
    first `forgotten` are left out."""

    policies: dict[str, LoadPolicy] = field(default_factory=dict)
    policy: LoadPolicy = field(default_factory=LoadPolicy)
    measured: dict[str, NodeLoadObserved] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    hot: HotValueObserved | None = None
    records: dict[str, HotRecords] = field(default_factory=dict)
    version: int = 0
    touched: list[str] = field(default_factory=list)
    forgotten: int = 0

    # What it is told.

    def policy_applied(self, key: str, policy: LoadPolicy | None) -> bool:
        """None: it was removed, or is none about load. False: nothing changed."""
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
        """False when something newer is known already."""
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
        """What stands on the node now; None: nothing, or the node is gone."""
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
        """Let go of placements that no window reaches any more, nor the last `retain_us`."""
        until = now - max(longest_window_us(self.policy.hot), retain_us)
        for node in [node for node, records in self.records.items() if records.placed[0][0] <= until]:
            records = self.records[node]
            records.forget_until(until)
            if not records.placed:
                del self.records[node]

    # What it knows.

    @property
    def idle(self) -> bool:
        """No policy bounds or weighs anything: nothing here says a word."""
        return not (self.policy.limits or self.policy.weights or self.policy.hot)

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics that the policy bounds or weighs, in its order."""
        policy = self.policy
        weighed = (w.metric for w in policy.weights if w.weight > 0)
        return tuple(dict.fromkeys((*(limit.metric for limit in policy.limits if limit.limit > 0), *weighed)))

    def load(self, metric: str, node: str, now: Micros) -> int | None:
        """Hundred-thousandths of the whole; None when it is not known or too old. Of two measurements the newer counts, and
        the annotator's of two of the same moment."""
        active = active_us(self.policy, metric)
        found, newest = None, now - active
        measured = self.measured.get(metric)
        if measured is not None and counts(measured.measured_at_us, active, now) and node in measured.loads:
            found, newest = measured.loads[node], measured.measured_at_us
        own = self.written.get(node)
        if own is not None and metric in own.loads:
            load, at = own.loads[metric]
            if at > newest and counts(at, active, now):
                found = load
        return found

    def hot_value(self, node: str, now: Micros, damped: bool) -> int:
        """`damped`: as this cluster's own placements make it up to this moment; else as it was last told."""
        if damped:
            records = self.records.get(node)
            return records.value(self.policy.hot, now)[0] if records is not None else 0
        return self.told_hot(node, now)

    def told_hot(self, node: str, now: Micros) -> int:
        """What was told counts until the last of its bindings must have left the longest window; what is written on the node
        for five minutes."""
        own = self.written.get(node)
        hot, newest = 0, None
        if self.hot is not None and now - longest_window_us(self.policy.hot) < self.hot.measured_at_us:
            hot, newest = self.hot.hot.get(node, 0), self.hot.measured_at_us
        if own is not None and own.hot is not None and counts(own.hot[1], HOT_ACTIVE, now):
            hot = own.hot[0] if newest is None or own.hot[1] > newest else hot
        return hot

    def judge(self, node: str, now: Micros, args: DynamicArgs, average: int | None = None) -> LoadVerdict:
        """`average`: of the nodes that are known, where the caller has it at hand (`average_load`)."""
        loads = {metric: self.load(metric, node, now) for metric in self.named}
        unknown = tuple(metric for metric, load in loads.items() if load is None)
        verdict, metric = self._filtered(loads, unknown, args)
        load = self.weighed(loads, args.stale)
        if load is None:
            load = self.average_load(now) if average is None else average
        return LoadVerdict(verdict, metric, load, self.hot_value(node, now, args.damped), unknown)

    def _filtered(self, loads: Mapping[str, int | None], unknown: Sequence[str], args: DynamicArgs) -> tuple[int, str]:
        """A load that is too high is said before one that is unknown: it is the surer reason."""
        for limit in self.policy.limits:
            load = loads.get(limit.metric)
            if load is not None and load > limit.limit > 0:
                return LOAD_TOO_HIGH, limit.metric
        if unknown and args.stale == "closed":
            return LOAD_UNKNOWN, unknown[0]
        return PASSES, ""

    def weighed(self, loads: Mapping[str, int | None], stale: str) -> int | None:
        """The free share in hundredths; None when none of the weighed metrics is known, or none is weighed."""
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
        """The average free share over the nodes of which anything weighed is known; `NEUTRAL` when that is none."""
        shares = [share for node in self.known_nodes() if (share := self._share(node, now)) is not None]
        return towards_zero(sum(shares), len(shares)) if shares else NEUTRAL

    def _share(self, node: str, now: Micros) -> int | None:
        return self.weighed({m: self.load(m, node, now) for m in self.named}, "open")

    def known_nodes(self) -> list[str]:
        """Every node that a weighed metric was ever told of."""
        weighed = {w.metric for w in self.policy.weights if w.weight > 0}
        names = {node for metric in weighed & self.measured.keys() for node in self.measured[metric].loads}
        return sorted(names | {node for node, own in self.written.items() if weighed & own.loads.keys()})

    def unknown(self, nodes: Iterable[str], now: Micros) -> dict[str, int]:
        """Of how many of `nodes` each metric that the policy names is unknown; metrics that are known of all are left out."""
        counts = dict.fromkeys(self.named, 0)
        for node in nodes:
            for metric in counts:
                counts[metric] += self.load(metric, node, now) is None
        return {metric: n for metric, n in counts.items() if n}

    def next_change(self, now: Micros) -> Micros | None:
        """When the passing of time alone will next change a verdict or score: a measurement gets too old, or a placement leaves
        a window. Measurements written on nodes are left to the next occasion: every node has its own."""
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
    """The book at a moment, as one batch of placements sees it. `arrived`: node -> how many came to it since the batch began,
    which the records do not have yet."""

    book: LoadBook
    now: Micros
    arrived: dict[str, int] = field(default_factory=dict)

    def came(self, node: str, n: int = 1) -> None:
        """`n` below zero: they left again."""
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
    """Our annotator tells loads from 0 to `LOAD_MAX` only; whatever else tells some is cut to that."""
    loads = told.loads
    if not loads or (min(loads.values()) >= 0 and max(loads.values()) <= LOAD_MAX):
        return told
    return structs.replace(told, loads={node: max(0, min(LOAD_MAX, load)) for node, load in loads.items()})


def counts(at: Micros, active: Micros, now: Micros) -> bool:
    """Whether what was measured at `at` counts now. A time well ahead of now is no time of ours (of a writer in
    another zone, say), and would count for ever: of that nothing is known."""
    return now - active < at <= now + GRACE


def towards_zero(dividend: int, divisor: int) -> int:
    """The quotient of whole numbers without its fraction; `divisor` above zero."""
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)
