"""The tables of the ledger, and how a database gets them.

What is read by people or joined is a column; what is hashed is bytes. `at_us` is microseconds since
the epoch, exactly as it was hashed. Streams have a small number as key, because every row of the
history carries it. There are no foreign keys: rows of the history are never changed, a round is
written in one transaction, and `verify` sees more than a foreign key could. Text is compared by its
bytes (collation C), so that order and prefixes are the same everywhere.

Only `migration` and `roles` need this description; everything else speaks SQL as text (`database`).
`days` says by what the history is partitioned, `version` which migration this code needs.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Name = Text(collation="C")


def _day() -> Column[int]:
    # Second in every row because four bytes fit between stream and round for nothing.
    return Column("day", Integer, primary_key=True, autoincrement=False)


stream = Table(
    "stream",
    metadata,
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("name", _Name, nullable=False, unique=True),
    # The head: what the next round must follow, changed only by compare-and-set on (round, seq,
    # hash, epoch).
    Column("round", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    # Digest of the newest snapshot: set by its follower, read by the writer, no part of the
    # compare-and-set.
    Column("snapshot", LargeBinary, nullable=False),
)

round_ = Table(
    "round",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    _day(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("engine", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("basis", LargeBinary, nullable=False),  # canonical JSON: place -> [incarnation, offset]
    Column("first_seq", BigInteger, nullable=False),
    Column("inputs", Integer, nullable=False),
    Column("decisions", Integer, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),
    Column("prev_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("stream", "number", "day"),
    Index(None, "stream", "at_us"),  # "since when" becomes "from which round"
    postgresql_partition_by="range (day)",
)

input_ = Table(
    "input",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    _day(),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("event", Uuid, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    PrimaryKeyConstraint("stream", "round", "ordinal", "day"),
    Index(None, "event", "stream", "day", unique=True),  # whether a stream has taken an event in
    postgresql_partition_by="range (day)",
)

taken = Table(
    "taken",
    metadata,
    # Events whose inputs were retired and which a broker may still deliver again: the latest fact
    # under each key, and what is younger than a topic's retention. All others that a stream has
    # taken in are found in `input`.
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("event", Uuid, primary_key=True),
    Column("day", Integer, nullable=False),  # on which it was taken in
)

event = Table(
    "event",
    metadata,
    _day(),
    Column("id", Uuid, primary_key=True),
    Column(
        "sha256", LargeBinary, primary_key=True
    ),  # of the plain body; one id with two bodies is kept twice
    Column("type", _Name, nullable=False),
    Column("subject", _Name, nullable=False),
    Column("source", _Name, nullable=False),
    Column("encoding", SmallInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", "sha256", "day"),
    postgresql_partition_by="range (day)",
)

decision = Table(
    "decision",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    _day(),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("round", BigInteger, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("type", _Name, nullable=False),
    Column("subject", _Name, nullable=False),
    Column("outcome", _Name, nullable=False),
    Column("cause", Uuid),
    Column("encoding", SmallInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # canonical JSON
    PrimaryKeyConstraint("stream", "seq", "day"),
    Index(None, "id"),
    Index(None, "subject", "stream", "seq"),
    postgresql_partition_by="range (day)",
)


def _facts(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("topic", _Name, primary_key=True),
        Column("key", _Name, primary_key=True),
        Column("partition_key", _Name, nullable=False),
        Column("event", Uuid, nullable=False),
        Column("sha256", LargeBinary, nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("at_us", BigInteger, nullable=False),
    )


# `fact`: the last event that the intake recorded under each key. It holds until the next event
# under that key, however old it is. `horizon_fact`: the same as of the horizon of the intake;
# from there on the rows of the intake show what held when.
fact = _facts("fact")
horizon_fact = _facts("horizon_fact")

fact_writer = Table(
    "fact_writer",
    metadata,
    # Which session of several writers of the same facts is the newest: see `fact_writers`.
    Column("name", _Name, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)

retirement = Table(
    "retirement",
    metadata,
    Column("sha256", LargeBinary, primary_key=True),  # of the checkpoint
    Column("made_at_us", BigInteger, nullable=False),
    Column("before_day", Integer, nullable=False),
    Column("checkpoint", LargeBinary, nullable=False),
)

horizon = Table(
    "horizon",
    metadata,
    # The last round of a stream that was retired: the history begins behind it, at the state of a
    # whole snapshot.
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("round", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column(
        "snapshot", LargeBinary, nullable=False
    ),  # digest of the whole snapshot of that round; empty: of the intake
    Column("retirement", LargeBinary, nullable=False),  # whose checkpoint vouches for it
)

snapshot = Table(
    "snapshot",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column(
        "round", BigInteger, primary_key=True, autoincrement=False
    ),  # the last round it has in it
    Column("digest", LargeBinary, nullable=False),
    # A whole one holds everything and is vouched for by the chain; the others hold what changed
    # since the one before.
    Column("whole", Boolean, nullable=False, server_default=true()),
    # Whether the rounds before it were decided again and compared, not only folded.
    Column("replayed", Boolean, nullable=False, server_default=true()),
)

snapshot_section = Table(
    "snapshot_section",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("name", _Name, primary_key=True),
    Column("sha256", LargeBinary, nullable=False),
    Column("encoding", SmallInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column(
        "names", ARRAY(BigInteger)
    ),  # of what a section holds items of: 64-bit hashes of their names
)

plan = Table(
    "plan",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("made_at_us", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # canonical JSON, not compressed: it is read once
    Column("made_by", _Name, nullable=False, server_default=""),  # over the HTTP API: which actor
)

cursor = Table(
    "cursor",
    metadata,
    Column("consumer", _Name, primary_key=True),
    Column("incarnation", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", _Name, primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

cursor_position = Table(
    "cursor_position",
    metadata,
    Column("consumer", _Name, primary_key=True),
    Column("incarnation", BigInteger, primary_key=True, autoincrement=False),
    Column("place", _Name, primary_key=True),  # topic/partition
    Column("end_offset", BigInteger, nullable=False),
)

record_mark = Table(
    "record_mark",
    metadata,
    # Which record was read or written at an offset: see `record_marks`.
    Column("reader", _Name, primary_key=True),
    Column("place", _Name, primary_key=True),  # topic/partition
    Column("incarnation", BigInteger, primary_key=True, autoincrement=False),
    Column("at_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("sha256", LargeBinary, nullable=False),  # of the value
    Column("epoch", Integer, nullable=False),
    Column("noted_at", DateTime(timezone=True), nullable=False),
)

incarnation = Table(
    "incarnation",
    metadata,
    Column("topic", _Name, primary_key=True),
    Column("counter", BigInteger, nullable=False),
    Column("boot_id", Text, nullable=False),
)

token = Table(
    "token",
    metadata,
    # Who may ask the HTTP API for what: see `tokens`.
    Column("id", Uuid, primary_key=True),
    Column("sha256", LargeBinary, nullable=False, unique=True),  # of the secret, which is nowhere
    Column("name", _Name, nullable=False),
    Column("roles", ARRAY(Text), nullable=False),
    Column("namespaces", ARRAY(Text), nullable=False),  # empty: all of them
    Column("sources", ARRAY(Text), nullable=False),  # of facts that it may post
    Column("made_by", _Name, nullable=False),
    Column("made_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Column("revoked_at_us", BigInteger, nullable=False),  # 0: it is not
    Column("once", Boolean, nullable=False),  # good for one exchange
)

idempotency = Table(
    "idempotency",
    metadata,
    # The answer under a key that a client has chosen: see `idempotency`.
    Column("actor", _Name, primary_key=True),
    Column("key", _Name, primary_key=True),
    Column("request", LargeBinary, nullable=False),  # SHA-256 of method, path and body
    Column("holder", Uuid, nullable=False),  # who answers it
    Column("at_us", BigInteger, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # 0: it is being answered
    Column("media_type", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

operation = Table(
    "operation",
    metadata,
    # What the HTTP API is doing or has done for a request that takes longer: see `operations`.
    Column("id", Uuid, primary_key=True),
    Column("kind", _Name, nullable=False),
    Column("actor", _Name, nullable=False),
    Column("made_at_us", BigInteger, nullable=False, index=True),
    Column("changed_at_us", BigInteger, nullable=False),
    Column("state", _Name, nullable=False),
    Column("step", Text, nullable=False),  # what is being done, for people
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("owner", Uuid, nullable=False),  # the process that does it
    Column("lease_until_us", BigInteger, nullable=False),
    Column("plan", Uuid, nullable=True),  # that was made, or is carried out
    Column("result", LargeBinary, nullable=False),  # JSON: the answer, or the problem
)

subscription = Table(
    "subscription",
    metadata,
    # A receiver of webhooks, and how far it has come: see `webhooks`.
    Column("id", Uuid, primary_key=True),
    Column("name", _Name, nullable=False),
    Column("url", Text, nullable=False),
    Column("filter", LargeBinary, nullable=False),  # JSON of a `FeedFilter`
    Column("ordering", _Name, nullable=False),
    Column("secret", LargeBinary, nullable=False),  # sealed
    Column("old_secret", LargeBinary, nullable=False),  # sealed; empty: there is none
    Column("old_until_us", BigInteger, nullable=False),
    Column("made_by", _Name, nullable=False),
    Column("namespaces", ARRAY(Text), nullable=False),  # of its maker; empty: all of them
    Column("token", LargeBinary, nullable=False),  # SHA-256 of the secret of its maker, or empty
    Column("maker", LargeBinary, nullable=False, server_default=""),  # JSON, where there is none
    Column("seen_at_us", BigInteger, nullable=False, server_default="0"),  # of that maker
    Column("made_at_us", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),  # of what its maker has set
    Column("state", _Name, nullable=False),
    Column("why", Text, nullable=False),
    Column("position", BigInteger, nullable=False),  # the feed was looked at up to here
    Column("sequence", BigInteger, nullable=False),  # of its newest delivery
    Column("failures", Integer, nullable=False),  # in a row
    Column("probe_at_us", BigInteger, nullable=False),
    Column("owner", Uuid, nullable=True),  # the process that delivers
    Column("lease_until_us", BigInteger, nullable=False),
)

delivery = Table(
    "delivery",
    metadata,
    # One event to one receiver. The event itself is read from the feed.
    Column("subscription", Uuid, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("event", Uuid, nullable=False),
    Column("key", _Name, nullable=False),
    Column("state", _Name, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at_us", BigInteger, nullable=False),
    Column("changed_at_us", BigInteger, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # of the last answer; 0: there was none
    Column("error", Text, nullable=False),
    Column("answer", LargeBinary, nullable=False),  # the first bytes of it
    Column("latency_us", BigInteger, nullable=False),
    Index(
        "ix_delivery_open", "subscription", "sequence", postgresql_where=text("state = 'waiting'")
    ),
)

access = Table(
    "access",
    metadata,
    # Who wrote, was refused, or read what belongs to others: see `access`. Each row has the hash of
    # the one before in its own.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", _Name, nullable=False),
    Column("action", _Name, nullable=False),
    Column("target", _Name, nullable=False),
    Column("outcome", _Name, nullable=False),
    Column("reason", Text, nullable=False),
    Column("request", _Name, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Index(None, "actor", "seq"),
)

access_head = Table(
    "access_head",
    metadata,
    # One row, locked by who appends.
    Column("one", SmallInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),  # of the last; 0: there is none
    Column("hash", LargeBinary, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

row_record = Table(
    "row_record",
    metadata,
    # A row of a plan, token or subscription that was written: see `row_records`. Appended by
    # triggers.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", _Name, nullable=False),  # the table
    Column("row_id", Uuid, nullable=False),
    Column("sha256", LargeBinary, nullable=False),  # of the row; empty: it was deleted
    Column("hash", LargeBinary, nullable=False),
)

feed = Table(
    "feed",
    metadata,
    # A run: `count` decisions of one stream and one day that follow each other in it and in the
    # feed. See `feed_writer`.
    Column("first_position", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Integer, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("at_us", BigInteger, nullable=False),  # of its last decision
    Column("correlations", LargeBinary, nullable=False),  # 16 bytes a decision: its first cause
    Index(None, "stream", "first_seq", unique=True),
    Index(None, "stream", "first_position"),
)

feed_head = Table(
    "feed_head",
    metadata,
    # One row, changed only by compare-and-set on (position, epoch). Who retires history, and each
    # appender that begins, raises the epoch: what was read before is read again.
    Column("one", SmallInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),  # the last that was given; 0: none
    Column("epoch", BigInteger, nullable=False),
    Column("earliest", BigInteger, nullable=False),  # from here on nothing is retired
)
