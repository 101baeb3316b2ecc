"""The history in partitions by day, what a stream has taken in, the latest fact under each key, and
what was retired."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from wharfinger.events.acceptance import MessageAccepted
from wharfinger.runtime.ledger.bodies import unpack

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
DAY_US = 86_400_000_000
INTAKE_ROWS = sa.text("""
    select d.seq, d.encoding, d.body, r.at_us, i.event, i.sha256
    from stream s join decision d on d.stream = s.id
    join round r on r.stream = d.stream and r.number = d.round
    join input i on i.stream = d.stream and i.round = d.round and i.ordinal = d.seq - r.first_seq
    where s.name = 'intake' and d.seq > :after order by d.seq limit 10000
""")
FACT = sa.table(
    "fact", *map(sa.column, ("topic", "key", "partition_key", "event", "sha256", "seq", "at_us"))
).insert()
# of a partition made here, for history that is there already; those to come are made as the
# settings say
DAYS = 30


def column(name: str, type_: sa.types.TypeEngine[Any], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable)


def upgrade() -> None:
    make_key_tables()
    for table, make in (
        ("round", make_round),
        ("input", make_input),
        ("event", make_event),
        ("decision", make_decision),
    ):
        op.execute(f"alter table {table} rename to {table}_before")
        make()
        op.execute(f"create table {table}_default partition of {table} default")
    make_partitions_of_what_is_there()
    move_history()
    for table in ("round", "input", "event", "decision"):
        op.execute(f"drop table {table}_before")
    make_indexes()
    gather_facts()
    # What is there is planned for at once, not when the autovacuum comes by.
    op.execute("analyze round, input, event, decision, taken, fact")


def make_key_tables() -> None:
    op.create_table(
        "taken",
        column("stream", sa.Integer()),
        column("event", sa.Uuid()),
        sa.PrimaryKeyConstraint("stream", "event", name="pk_taken"),
    )
    for facts in ("fact", "horizon_fact"):
        op.create_table(
            facts,
            column("topic", NAME),
            column("key", NAME),
            column("partition_key", NAME),
            column("event", sa.Uuid()),
            column("sha256", sa.LargeBinary()),
            column("seq", sa.BigInteger()),
            column("at_us", sa.BigInteger()),
            sa.PrimaryKeyConstraint("topic", "key", name=f"pk_{facts}"),
        )
    op.create_table(
        "retirement",
        column("sha256", sa.LargeBinary()),
        column("made_at_us", sa.BigInteger()),
        column("before_day", sa.Integer()),
        column("checkpoint", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("sha256", name="pk_retirement"),
    )
    op.create_table(
        "horizon",
        column("stream", sa.Integer()),
        column("round", sa.BigInteger()),
        column("seq", sa.BigInteger()),
        column("hash", sa.LargeBinary()),
        column("epoch", sa.BigInteger()),
        column("at_us", sa.BigInteger()),
        column("snapshot", sa.LargeBinary()),
        column("retirement", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", name="pk_horizon"),
    )


def make_round() -> None:
    op.create_table(
        "round",
        column("stream", sa.Integer()),
        column("day", sa.Integer()),
        column("number", sa.BigInteger()),
        column("epoch", sa.BigInteger()),
        column("at_us", sa.BigInteger()),
        column("engine", sa.Text()),
        column("profile", sa.Text()),
        column("basis", sa.LargeBinary()),
        column("first_seq", sa.BigInteger()),
        column("inputs", sa.Integer()),
        column("decisions", sa.Integer()),
        column("snapshot", sa.LargeBinary()),
        column("prev_hash", sa.LargeBinary()),
        column("hash", sa.LargeBinary()),
        postgresql_partition_by="range (day)",
    )


def make_input() -> None:
    op.create_table(
        "input",
        column("stream", sa.Integer()),
        column("day", sa.Integer()),
        column("round", sa.BigInteger()),
        column("ordinal", sa.Integer()),
        column("event", sa.Uuid()),
        column("sha256", sa.LargeBinary()),
        postgresql_partition_by="range (day)",
    )


def make_event() -> None:
    op.create_table(
        "event",
        column("day", sa.Integer()),
        column("id", sa.Uuid()),
        column("sha256", sa.LargeBinary()),
        column("type", NAME),
        column("subject", NAME),
        column("source", NAME),
        column("encoding", sa.SmallInteger()),
        column("body", sa.LargeBinary()),
        postgresql_partition_by="range (day)",
    )


def make_decision() -> None:
    op.create_table(
        "decision",
        column("stream", sa.Integer()),
        column("day", sa.Integer()),
        column("seq", sa.BigInteger()),
        column("round", sa.BigInteger()),
        column("id", sa.Uuid()),
        column("type", NAME),
        column("subject", NAME),
        column("outcome", NAME),
        column("cause", sa.Uuid(), nullable=True),
        column("encoding", sa.SmallInteger()),
        column("body", sa.LargeBinary()),
        postgresql_partition_by="range (day)",
    )


def make_partitions_of_what_is_there() -> None:
    """One for every span of days that has rounds: a clock that lied once must not make seven
    hundred of them."""
    for table in ("round", "input", "event", "decision"):
        op.execute(f"""
            do $$ declare first int; begin
                for first in select distinct at_us / {DAY_US * DAYS} * {DAYS} from round_before
                    order by 1 loop
                    execute format(
                        'create table %I partition of {table} for values from (%s) to (%s)',
                        '{table}_' || to_char(date '1970-01-01' + first, 'YYYYMMDD'),
                        first, first + {DAYS});
                end loop;
            end $$
        """)


def move_history() -> None:
    """Every row, with the day of its round. A body lies once in each day whose rounds refer to it,
    so that the days can be told apart; bodies that no round refers to are kept under day 0."""
    op.execute(f"""
        insert into round (stream, day, number, epoch, at_us, engine, profile, basis, first_seq,
            inputs, decisions, snapshot, prev_hash, hash)
        select stream, at_us / {DAY_US}, number, epoch, at_us, engine, profile, basis, first_seq,
            inputs, decisions, snapshot, prev_hash, hash from round_before order by stream, number
    """)
    op.execute(f"""
        insert into input (stream, day, round, ordinal, event, sha256)
        select i.stream, coalesce(r.at_us / {DAY_US}, 0), i.round, i.ordinal, i.event, i.sha256
        from input_before i left join round_before r on r.stream = i.stream and r.number = i.round
        order by i.stream, i.round, i.ordinal
    """)
    op.execute("""
        insert into event (day, id, sha256, type, subject, source, encoding, body)
        select coalesce(u.day, 0), e.id, e.sha256, e.type, e.subject, e.source, e.encoding, e.body
        from event_before e left join (select distinct event, sha256, day from input) u
        on u.event = e.id and u.sha256 = e.sha256
    """)
    op.execute(f"""
        insert into decision (stream, day, seq, round, id, type, subject, outcome, cause, encoding,
            body)
        select d.stream, coalesce(r.at_us / {DAY_US}, 0), d.seq, d.round, d.id, d.type, d.subject,
            d.outcome, d.cause, d.encoding, d.body
        from decision_before d left join round_before r on r.stream = d.stream
            and r.number = d.round
        order by d.stream, d.seq
    """)
    op.execute(
        "insert into taken (stream, event) select stream, event from input_before "
        "order by stream, event"
    )


def gather_facts() -> None:
    """What the intake was told last under each key. Where it goes is in the decision's body, which
    SQL cannot read."""
    connection = op.get_bind()
    latest: dict[tuple[str, str], dict[str, object]] = {}
    after = 0
    while rows := connection.execute(INTAKE_ROWS, {"after": after}).all():
        after = rows[-1].seq
        for row in rows:
            to = msgspec.json.decode(unpack(row.encoding, row.body), type=MessageAccepted)
            place = {"topic": to.topic, "key": to.key, "partition_key": to.partition_key}
            latest[to.topic, to.key] = {
                **place,
                "event": row.event,
                "sha256": row.sha256,
                "seq": row.seq,
                "at_us": row.at_us,
            }
    if latest:
        connection.execute(FACT, list(latest.values()))


def make_indexes() -> None:
    """After the rows, and after the tables before, whose names they take."""
    for table, columns in (
        ("round", "stream, number, day"),
        ("input", "stream, round, ordinal, day"),
        ("event", "id, sha256, day"),
        ("decision", "stream, seq, day"),
    ):
        op.execute(f"alter table {table} add constraint pk_{table} primary key ({columns})")
    op.create_index("ix_round_stream_at_us", "round", ["stream", "at_us"])
    op.create_index("ix_decision_id", "decision", ["id"])
    op.create_index("ix_decision_subject_stream_seq", "decision", ["subject", "stream", "seq"])


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
