"""The ledger: what happened and what was decided, in Postgres, complete enough to take every decision again.

A stream is an ordered history with one writer; a round is one transaction of it and is chained to the one before by its
hash; decisions are numbered without gaps, so that a reader's place is one number. Nothing is ever changed: what moves are
the heads, the cursors and the snapshots. There is no outbox, because the history is one.

`schema` has the tables, `database` the connections, `writer` and `intake` add rounds, `reader` gives them back, `snapshots`
and `follower` shorten recovery, `cursors`, `locks` and `notifications` are for the services around, `verify` trusts none
of it. `ledger` is the door.
"""

from wharfinger.runtime.ledger.cursors import Cursor
from wharfinger.runtime.ledger.errors import CorruptLedger, LedgerError, LedgerUnavailable, Transient
from wharfinger.runtime.ledger.follower import SnapshotFollower
from wharfinger.runtime.ledger.intake import AcceptResult, Submission
from wharfinger.runtime.ledger.ledger import Ledger, wall_clock
from wharfinger.runtime.ledger.locks import PartitionLock
from wharfinger.runtime.ledger.reader import Accepted, DecisionQuery, Fact, LedgerRow
from wharfinger.runtime.ledger.schema import migrate
from wharfinger.runtime.ledger.snapshots import Snapshot
from wharfinger.runtime.ledger.verify import FirstBad, VerifyResult, audit_verify
from wharfinger.runtime.ledger.writer import CommitResult

__all__ = [
    "AcceptResult",
    "Accepted",
    "CommitResult",
    "CorruptLedger",
    "Cursor",
    "DecisionQuery",
    "Fact",
    "FirstBad",
    "Ledger",
    "LedgerError",
    "LedgerRow",
    "LedgerUnavailable",
    "PartitionLock",
    "Snapshot",
    "SnapshotFollower",
    "Submission",
    "Transient",
    "VerifyResult",
    "audit_verify",
    "migrate",
    "wall_clock",
]
