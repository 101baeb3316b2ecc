"""Metrics of a process: one registry for all its services. Each metric is registered once and has a
`service` label, because several services share a process."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Seconds. A commit with fsync takes about one millisecond, a round of many decisions tens of them.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """The metrics of one service, bound to its name."""

    events: Counter  # inputs folded
    decisions: Counter
    rounds: Counter  # transactions of streams
    duplicates: Counter  # redelivered events that were skipped
    outdated: Counter  # facts refused because a newer version of their key was taken in before
    dead_letters: Counter
    cluster_failures: Counter  # of one cluster, while the service goes on with the others
    published: Counter  # records acknowledged by the broker
    fetches: Counter  # requests for records
    empty_fetches: Counter  # of these, answered without a record
    refused: Counter  # records that the broker refused for good
    withheld: Gauge  # keys that get nothing since one of their records was refused
    round_seconds: Histogram  # from the first event of a round to its acknowledgement
    decide_seconds: Histogram
    commit_seconds: Histogram
    lag: Gauge  # messages not yet taken in
    ready: Gauge  # 1 when the service is ready
    stalled: Gauge  # seconds without a completed turn although something waits
    oldest: Gauge  # seconds that the oldest message or row has waited
    snapshot_age: (
        Gauge  # seconds since the newest snapshot of the stream that is furthest behind its own
    )
    snapshot_rows: Gauge  # rows of that stream since then
    # streams of which no snapshot can be made, because replaying their rounds decides otherwise
    divergences: Gauge


class Metrics:
    """Every metric of the process, created once. `of` binds them to a service."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._events = self._counter("events", "Input events folded into state")
        self._decisions = self._counter("decisions", "Decisions committed to the ledger")
        self._rounds = self._counter("rounds", "Rounds committed to the ledger")
        self._duplicates = self._counter(
            "duplicates_dropped", "Redelivered events that were recognised and skipped"
        )
        self._outdated = self._counter(
            "outdated_facts",
            "Facts that were older than what was known of their key, and were refused",
        )
        self._dead_letters = self._counter(
            "dead_letters", "Messages that could not be read and were set aside"
        )
        self._cluster_failures = self._counter(
            "cluster_failures", "Times that the service could not work on one cluster"
        )
        self._published = self._counter("published", "Records acknowledged by the broker")
        self._fetches = self._counter("fetches", "Requests for records, sent to the broker")
        self._empty_fetches = self._counter(
            "empty_fetches", "Requests for records that brought none"
        )
        self._refused = self._counter(
            "refused", "Records that the broker refused for good and that were set aside"
        )
        self._withheld = self._gauge(
            "withheld_keys", "Keys that get no records since the broker refused one of theirs"
        )
        self._round_seconds = self._seconds(
            "round", "From the first event of a round to its acknowledgement"
        )
        self._decide_seconds = self._seconds("decide", "Deciding one round")
        self._commit_seconds = self._seconds("commit", "Committing one round to the ledger")
        self._lag = self._gauge("event_lag", "Messages not yet taken in")
        self._ready = self._gauge("ready", "1 when the service is ready")
        self._stalled = self._gauge(
            "stalled_seconds", "Without a completed turn although something waits"
        )
        self._oldest = self._gauge(
            "oldest_waiting_seconds", "Age of the oldest message or row that waits"
        )
        self._snapshot_age = self._gauge(
            "snapshot_age_seconds", "Since the newest snapshot of the stream furthest behind"
        )
        self._snapshot_rows = self._gauge(
            "snapshot_rows_behind", "Rows of that stream since its newest snapshot"
        )
        self._divergences = self._gauge(
            "divergences", "Streams whose rounds a snapshot's replay decided otherwise"
        )
        self.effect_answers = Counter(
            "wharfinger_effect_answers_total",
            "Answers of API servers to what was decided, by verb and by what they mean",
            ["verb", "outcome"],
            registry=registry,
        )
        self.effects_open = Gauge(
            "wharfinger_effects_open",
            "What was decided about a cluster and is not observed there yet",
            ["cluster"],
            registry=registry,
        )
        self.loop_silent = Gauge(
            "wharfinger_event_loop_silent_seconds",
            "Since the services' event loop last ran",
            registry=registry,
        )
        self.checkpoints = Counter(
            "wharfinger_checkpoints_total",
            "Signed checkpoints that were shipped",
            registry=registry,
        )
        self.checkpoint_age = Gauge(
            "wharfinger_checkpoint_age_seconds",
            "Since the whole ledger was last covered by shipped checkpoints; 0: none are shipped",
            registry=registry,
        )
        self.clock_skew = Gauge(
            "wharfinger_clock_skew_seconds",
            "This process's clock less the database's",
            registry=registry,
        )

    def of(self, service: str) -> ServiceMetrics:
        return ServiceMetrics(
            events=self._events.labels(service),
            decisions=self._decisions.labels(service),
            rounds=self._rounds.labels(service),
            duplicates=self._duplicates.labels(service),
            outdated=self._outdated.labels(service),
            dead_letters=self._dead_letters.labels(service),
            cluster_failures=self._cluster_failures.labels(service),
            published=self._published.labels(service),
            fetches=self._fetches.labels(service),
            empty_fetches=self._empty_fetches.labels(service),
            refused=self._refused.labels(service),
            withheld=self._withheld.labels(service),
            round_seconds=self._round_seconds.labels(service),
            decide_seconds=self._decide_seconds.labels(service),
            commit_seconds=self._commit_seconds.labels(service),
            lag=self._lag.labels(service),
            ready=self._ready.labels(service),
            stalled=self._stalled.labels(service),
            oldest=self._oldest.labels(service),
            snapshot_age=self._snapshot_age.labels(service),
            snapshot_rows=self._snapshot_rows.labels(service),
            divergences=self._divergences.labels(service),
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"wharfinger_{name}_total", text, ["service"], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"wharfinger_{name}", text, ["service"], registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"wharfinger_{name}_seconds",
            text,
            ["service"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )


METRICS = Metrics(CollectorRegistry(auto_describe=True))
"""The process's own. Tests that look at figures make another."""
