"""Metrics of the HTTP API. Labels are bounded: a route is its pattern."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from wharfinger.runtime.observability import METRICS, SECONDS_BUCKETS

REQUESTS = Counter(
    "wharfinger_api_requests",
    "Requests answered",
    ("route", "method", "code"),
    registry=METRICS.registry,
)
REQUEST_SECONDS = Histogram(
    "wharfinger_api_request_seconds",
    "From a request to the end of its answer",
    ("route",),
    buckets=SECONDS_BUCKETS,
    registry=METRICS.registry,
)
SSE_CLIENTS = Gauge(
    "wharfinger_sse_clients", "Readers of the event stream", registry=METRICS.registry
)
SSE_DELIVERED = Counter(
    "wharfinger_sse_delivered", "Events handed to readers", registry=METRICS.registry
)
SSE_CLOSED = Counter(
    "wharfinger_sse_closed",
    "Event streams that ended, by the reason",
    ("why",),
    registry=METRICS.registry,
)
WEBHOOKS = Gauge(
    "wharfinger_webhooks", "Subscriptions of webhooks", ("state",), registry=METRICS.registry
)
WEBHOOK_TRIES = Counter(
    "wharfinger_webhook_tries",
    "Events sent to receivers of webhooks; `dead`: given up after the last try",
    ("result",),
    registry=METRICS.registry,
)
WEBHOOK_LAG = Gauge(
    "wharfinger_webhook_lag",
    "Positions that the slowest receiver of this process is behind the feed",
    registry=METRICS.registry,
)
