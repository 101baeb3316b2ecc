"""The tables of the ledger, and how a database gets them.

What is read by people or joined is a column; what is hashed is bytes. `at_us` is microseconds since the epoch, exactly as
it was hashed. Streams have a small number as key, because every row of the history carries it. There are no foreign
keys: rows of the history are never changed, a round is written in one transaction, and `verify` sees more than a foreign
key could. Text is compared by its bytes (collation C), so that order and prefixes are the same everywhere.

Next: `migration` makes a database like this one.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import LedgerError, LedgerUnavailable

VERSION = "0003"
"""The newest migration: what a database must be at for this code to use it."""

CHANNEL = "wharfinger_ledger"
"""What is notified, once a transaction, when rows were added."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Name = Text(collation="C")

DAY_US = 86_400_000_000


def day_of(at: Micros) -> int:
    """Days since the epoch, UTC: by them the history lies in partitions. Everything that belongs to a round has its day,
    the bodies of its inputs too, so that a partition can be taken away whole."""
    return at // DAY_US


def _day() -> Column[int]:
    # Second in every row because four bytes fit between stream and round for nothing.
    return Column("day", Integer, primary_key=True, autoincrement=False)


stream = Table(
    "stream",
    metadata,
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("name", _Name, nullable=False, unique=True),
    # The head: what the next round must follow, changed only by compare-and-set on (round, seq, hash, epoch).
    Column("round", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    # Digest of the newest snapshot: set by its follower, read by the writer, no part of the compare-and-set.
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
    postgresql_partition_by="range (day)",
)

taken = Table(
    "taken",
    metadata,
    # A stream takes an event in once, for ever: no partition can promise that for all of them, and no retirement ends it.
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("event", Uuid, primary_key=True),
)

event = Table(
    "event",
    metadata,
    _day(),
    Column("id", Uuid, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True),  # of the plain body; one id with two bodies is kept twice
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


# What the intake was told last under each key: true until something else is told, however long ago it was. And the same as
# of the horizon of the intake, from where on its rows tell what was true when.
fact = _facts("fact")
horizon_fact = _facts("horizon_fact")

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
    # The last round of a stream that was retired: the history begins behind it, at the state of a whole snapshot.
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("round", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),  # digest of the whole snapshot of that round; empty: of the intake
    Column("retirement", LargeBinary, nullable=False),  # whose checkpoint vouches for it
)

snapshot = Table(
    "snapshot",
    metadata,
    Column("stream", Integer, primary_key=True, autoincrement=False),
    Column("round", BigInteger, primary_key=True, autoincrement=False),  # the last round it has in it
    Column("digest", LargeBinary, nullable=False),
    # A whole one holds everything and is vouched for by the chain; the others hold what changed since the one before.
    Column("whole", Boolean, nullable=False, server_default=true()),
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
    Column("names", ARRAY(BigInteger)),  # of what a section holds items of: 64-bit hashes of their names
)

plan = Table(
    "plan",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("made_at_us", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # canonical JSON, compressed by nobody: it is read once
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

incarnation = Table(
    "incarnation",
    metadata,
    Column("topic", _Name, primary_key=True),
    Column("counter", BigInteger, nullable=False),
    Column("boot_id", Text, nullable=False),
)


async def migrate(database_url: str, partition_days: int = 30) -> None:
    """Bring the database to `VERSION`, and make the partitions of the days to come; nothing to do when all is there.
    LedgerUnavailable: it cannot be reached."""
    # Alembic and Mako cost every service memory for something only one program does.
    from wharfinger.runtime.ledger.migration import upgrade

    await upgrade(database_url, partition_days)


async def require_version(database: Database) -> None:
    """LedgerUnavailable: no connection, no ledger in this database, or one of another version."""
    try:
        async with database.reading() as raw:
            found = await raw.fetchrow("select to_regclass('alembic_version') is not null")
            exists = found is not None and bool(found[0])
            row = await raw.fetchrow("select version_num from alembic_version") if exists else None
    except LedgerError as error:
        raise LedgerUnavailable(f"{database.shown}: {error}") from error
    if row is None:
        raise LedgerUnavailable(f"{database.shown}: no ledger in this database; migrate it first")
    if row[0] != VERSION:
        raise LedgerUnavailable(f"{database.shown}: the ledger is at version {row[0]}, this program needs {VERSION}")
