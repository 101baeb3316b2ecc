"""Measured load of nodes, and hot values from their recent placements.

`cadence` schedules the queries per metric and cluster, `series` maps a Prometheus result to nodes,
`observer` connects them to events. Pure: the service sends the queries. The rules are those of
crane's node annotator with its defects corrected: one query per cluster and metric instead of up to
three per node, a replica counts once, and a missing measurement is unknown, not zero.
"""

from wharfinger.engine.load.records import HotRecords
from wharfinger.stages.annotator.cadence import FailureKind, Query, QueryFailure
from wharfinger.stages.annotator.observer import AnnotatorObserver, AnnotatorState
from wharfinger.stages.annotator.series import Matched, PrometheusAnswer, Series, match

__all__ = [
    "AnnotatorObserver",
    "AnnotatorState",
    "FailureKind",
    "HotRecords",
    "Matched",
    "PrometheusAnswer",
    "Query",
    "QueryFailure",
    "Series",
    "match",
]
