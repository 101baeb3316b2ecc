"""How loaded the nodes are, and how hot their recent bindings make them.

`cadence` says when each metric of each cluster is due, `series` turns an answer of Prometheus into loads of nodes,
`hot_value` counts recent bindings, `observer` ties them to events. Pure: asking is the service's business.
The rules are crane's node annotator's, less its faults: one question a cluster and metric instead of up to three a node,
a replica counts once, and what was never measured is unknown rather than zero.
"""

from wharfinger.engine.load.records import HotRecords
from wharfinger.stages.annotator.cadence import Failure, FailureKind, Query
from wharfinger.stages.annotator.observer import AnnotatorObserver, AnnotatorState
from wharfinger.stages.annotator.series import Answer, Matched, Series, match

__all__ = [
    "AnnotatorObserver",
    "AnnotatorState",
    "Answer",
    "Failure",
    "FailureKind",
    "HotRecords",
    "Matched",
    "Query",
    "Series",
    "match",
]
