"""The ledger as of a position, and the tokens of the HTTP API.

The views of the schema `ledger_at` have the names of the tables behind them, and only the rows that
there were when each stream stood where `wharfinger.cut` says: stream id -> [round, seq]. A
connection that has this schema first on its search path reads the past with the same statements as
the present."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_CUT = """
create function ledger_at.cut() returns jsonb stable parallel safe language sql
as $$ select current_setting('wharfinger.cut')::jsonb $$
"""

# The cut is read once a statement, by an uncorrelated subquery.
_ROUND = "((select ledger_at.cut()) -> {0}::text ->> 0)::bigint"
_SEQ = "((select ledger_at.cut()) -> {0}::text ->> 1)::bigint"

_STREAM = """
create view ledger_at.stream as
select s.id, s.name, coalesce(r.number, h.round, 0) as round,
    coalesce(r.first_seq - 1 + r.decisions, h.seq, 0) as seq,
    coalesce(r.hash, h.hash, ''::bytea) as hash, coalesce(r.epoch, h.epoch, 0) as epoch,
    coalesce(r.at_us, h.at_us, 0) as at_us, ''::bytea as snapshot
from {schema}.stream s
left join {schema}.horizon h on h.stream = s.id
left join lateral (
    select * from {schema}.round r where r.stream = s.id and r.number = {round} limit 1
) r on true
where (select ledger_at.cut()) ? s.id::text
"""

# The last fact under a key is found among what the intake accepted about the same subject. The
# bodies of these decisions are a few names and never compressed.
_FACT = """
create view ledger_at.fact as
select f.topic, f.key, f.partition_key, f.event, f.sha256, f.seq, f.at_us from {schema}.fact f
where f.seq <= coalesce({seq}, 0)
union all
select f.topic, f.key, d.partition_key, d.cause, i.sha256, d.seq, r.at_us
from {schema}.fact f
join {schema}.stream s on s.name = 'intake'
cross join lateral (
    select e.subject from {schema}.event e
    where e.id = f.event and e.sha256 = f.sha256 and e.day = f.at_us / 86400000000 limit 1
) e
cross join lateral (
    select d.seq, d.round, d.cause, d.day,
        convert_from(d.body, 'UTF8')::jsonb ->> 'partition_key' as partition_key
    from {schema}.decision d
    where d.subject = e.subject and d.stream = s.id and d.seq <= coalesce({seq}, 0)
        and d.encoding = 0
        and convert_from(d.body, 'UTF8')::jsonb ->> 'topic' = f.topic
        and convert_from(d.body, 'UTF8')::jsonb ->> 'key' = f.key
    order by d.seq desc limit 1
) d
join {schema}.round r on r.stream = s.id and r.number = d.round and r.day = d.day
cross join lateral (
    select i.sha256 from {schema}.input i
    where i.event = d.cause and i.stream = s.id and i.day = d.day limit 1
) i
where f.seq > coalesce({seq}, 0)
"""


def upgrade() -> None:
    schema = op.get_bind().scalar(sa.text("select quote_ident(current_schema())"))
    op.execute("create schema ledger_at")
    op.execute(_CUT)
    op.execute(_STREAM.format(schema=schema, round=_ROUND.format("s.id")))
    op.execute(
        f"create view ledger_at.round as select t.* from {schema}.round t "
        f"where t.number <= {_ROUND.format('t.stream')}"
    )
    for table in ("input", "snapshot", "snapshot_section"):
        op.execute(
            f"create view ledger_at.{table} as select t.* from {schema}.{table} t "
            f"where t.round <= {_ROUND.format('t.stream')}"
        )
    op.execute(
        f"create view ledger_at.decision as select t.* from {schema}.decision t "
        f"where t.seq <= {_SEQ.format('t.stream')}"
    )
    intake = f"(select id from {schema}.stream where name = 'intake')"
    op.execute(_FACT.format(schema=schema, seq=f"(select {_SEQ.format(intake)})"))
    # where each stream stood at a position
    op.create_index("ix_feed_stream_first_position", "feed", ["stream", "first_position"])
    op.create_table(
        "token",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("roles", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("namespaces", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("sources", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("made_by", sa.Text(collation="C"), nullable=False),
        sa.Column("made_at_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_us", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at_us", sa.BigInteger(), nullable=False),
        sa.Column("once", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("sha256", name="uq_token_sha256"),
    )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
