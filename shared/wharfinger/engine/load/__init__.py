"""Load awareness: measured loads and recent placements, turned into verdicts and scores of nodes.

`policy` says what counts and for how long, `records` counts recent placements, `book` holds what is known of one
cluster and judges a node, `columns` the same of all nodes at once. `annotations` reads and writes loads as crane's
annotator writes them on nodes; `crane` judges as crane-scheduler does, in its own arithmetic, for whoever compares.

The rules are crane-scheduler's, less its faults; each module says where it departs."""

from wharfinger.engine.load.book import LOAD_TOO_HIGH, LOAD_UNKNOWN, LoadBook, LoadVerdict, LoadView, Written
from wharfinger.engine.load.columns import LoadColumns, LoadTable

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
