"""Load-aware scheduling: measured loads and recent placements as verdicts and scores of nodes.

`policy` merges the load policies, `records` counts recent placements, `node_loads` has the loads of
one cluster and judges a node, `columns` does the same for all nodes at once. `annotations` reads
and writes loads in crane's annotation format.

The rules are crane-scheduler's with its defects corrected; each module documents the differences.
"""

from wharfinger.engine.load.columns import LoadColumns, LoadTable
from wharfinger.engine.load.node_loads import (
    LOAD_TOO_HIGH,
    LOAD_UNKNOWN,
    LoadBook,
    LoadVerdict,
    LoadView,
    Written,
)

__all__ = [
    "LOAD_TOO_HIGH",
    "LOAD_UNKNOWN",
    "LoadBook",
    "LoadColumns",
    "LoadTable",
    "LoadVerdict",
    "LoadView",
    "Written",
]
