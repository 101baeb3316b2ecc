"""The ledger: what happened and what was decided, in Postgres, complete enough to take every
decision again.

A stream is an ordered history with one writer; a round is one transaction of it and is chained to
the one before by its hash; decisions are numbered without gaps, so that a reader's place is one
number. Nothing is ever changed: what moves are the heads, the cursors and the snapshots. There is
no outbox, because the history is one.

Its names are imported when they are asked for: who reads loads nothing that writes. `schema` has
the tables, `database` the connections, `writer` and `intake` add rounds, `rounds`, `decision_rows`
and `facts` read them, `feed_writer` gives them positions over all streams by which `feed` reads
them, `snapshots` and `follower` shorten recovery, `cursors`, `locks` and
`notifications` are for the services around, `verify` trusts none of it. `ledger` is the door.
"""

from typing import TYPE_CHECKING

from wharfinger.lazy import lazily

if TYPE_CHECKING:
    from wharfinger.runtime.ledger.clock import DatabaseClock, wall_clock
    from wharfinger.runtime.ledger.cursors import Cursor, Withheld
    from wharfinger.runtime.ledger.decision_rows import DecisionQuery, IntakeRow, LedgerRow
    from wharfinger.runtime.ledger.errors import (
        ChangedSinceError,
        CorruptLedger,
        LedgerError,
        LedgerUnavailable,
        LedgerWentBackError,
        Transient,
        WriterReplacedError,
    )
    from wharfinger.runtime.ledger.fact_writers import FactWriter
    from wharfinger.runtime.ledger.facts import Fact
    from wharfinger.runtime.ledger.feed import (
        FeedEntry,
        FeedFilter,
        FeedHead,
        FeedPage,
        FeedPlaces,
        FeedRetiredError,
        UnsentRows,
    )
    from wharfinger.runtime.ledger.feed_writer import FeedAppender, GivenRows
    from wharfinger.runtime.ledger.follower import SnapshotFollower
    from wharfinger.runtime.ledger.freshness import Freshness, SnapshotAge
    from wharfinger.runtime.ledger.incarnations import WentBack
    from wharfinger.runtime.ledger.intake import AcceptResult, AsRead, AsSeen, Submission
    from wharfinger.runtime.ledger.ledger import Ledger
    from wharfinger.runtime.ledger.locks import PartitionLock
    from wharfinger.runtime.ledger.migration import migrate
    from wharfinger.runtime.ledger.record_marks import Mark
    from wharfinger.runtime.ledger.snapshots import StoredSnapshot
    from wharfinger.runtime.ledger.verify import FirstBad, VerifyResult, audit_verify
    from wharfinger.runtime.ledger.writer import CommitResult

__all__ = [
    "AcceptResult",
    "AsRead",
    "AsSeen",
    "ChangedSinceError",
    "CommitResult",
    "CorruptLedger",
    "Cursor",
    "DatabaseClock",
    "DecisionQuery",
    "Fact",
    "FactWriter",
    "FeedAppender",
    "FeedEntry",
    "FeedFilter",
    "FeedHead",
    "FeedPage",
    "FeedPlaces",
    "FeedRetiredError",
    "FirstBad",
    "Freshness",
    "GivenRows",
    "IntakeRow",
    "Ledger",
    "LedgerError",
    "LedgerRow",
    "LedgerUnavailable",
    "LedgerWentBackError",
    "Mark",
    "PartitionLock",
    "SnapshotAge",
    "SnapshotFollower",
    "StoredSnapshot",
    "Submission",
    "Transient",
    "UnsentRows",
    "VerifyResult",
    "WentBack",
    "Withheld",
    "WriterReplacedError",
    "audit_verify",
    "migrate",
    "wall_clock",
]

_OFFERED = {
    "clock": ("DatabaseClock", "wall_clock"),
    "cursors": ("Cursor", "Withheld"),
    "errors": (
        "ChangedSinceError",
        "CorruptLedger",
        "LedgerError",
        "LedgerUnavailable",
        "LedgerWentBackError",
        "Transient",
        "WriterReplacedError",
    ),
    "fact_writers": ("FactWriter",),
    "feed": (
        "FeedEntry",
        "FeedFilter",
        "FeedHead",
        "FeedPage",
        "FeedPlaces",
        "FeedRetiredError",
        "UnsentRows",
    ),
    "feed_writer": ("FeedAppender", "GivenRows"),
    "follower": ("SnapshotFollower",),
    "freshness": ("Freshness", "SnapshotAge"),
    "incarnations": ("WentBack",),
    "intake": ("AcceptResult", "AsRead", "AsSeen", "Submission"),
    "ledger": ("Ledger",),
    "locks": ("PartitionLock",),
    "record_marks": ("Mark",),
    "migration": ("migrate",),
    "decision_rows": ("IntakeRow", "DecisionQuery", "LedgerRow"),
    "facts": ("Fact",),
    "snapshots": ("StoredSnapshot",),
    "verify": ("FirstBad", "VerifyResult", "audit_verify"),
    "writer": ("CommitResult",),
}

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, _OFFERED)
