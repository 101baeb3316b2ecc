"""A chain of the rows that no stream covers: plans, tokens, and what subscriptions were set to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# What of a row is held against its record, as `wharfinger.runtime.ledger.row_records` has it.
_COLUMNS = {
    "plan": "r.id, r.made_at_us, r.made_by, encode(sha256(r.body), 'hex')",
    "token": (
        "r.id, encode(r.sha256, 'hex'), r.name, r.roles, r.namespaces, r.sources, r.made_by, "
        "r.made_at_us, r.expires_at_us, r.revoked_at_us, r.once"
    ),
    "subscription": (
        "r.id, r.name, r.url, encode(r.filter, 'hex'), r.ordering, encode(r.secret, 'hex'), "
        "encode(r.old_secret, 'hex'), r.old_until_us, r.made_by, r.namespaces, "
        "encode(r.token, 'hex'), r.made_at_us, r.version"
    ),
}


def _digest(table: str, row: str) -> str:
    columns = _COLUMNS[table].replace("r.", f"{row}.")
    return f"sha256(convert_to(jsonb_build_array({columns})::text, 'UTF8'))"


# As the owner of the tables: who writes a row needs no right on the records. The lock puts writers
# in a row; readers go on.
_APPEND = """
create function ledger_append_row_record(of_kind text, of_row uuid, digest bytea) returns void
language plpgsql security definer set search_path = {schema}, pg_temp as $$
declare
    last row_record;
    next_seq bigint;
    next_at bigint;
begin
    lock table row_record in exclusive mode;
    select * into last from row_record order by seq desc limit 1;
    next_seq := coalesce(last.seq, 0) + 1;
    next_at := greatest(
        coalesce(last.at_us, 0), (extract(epoch from clock_timestamp()) * 1000000)::bigint);
    insert into row_record (seq, at_us, kind, row_id, sha256, hash) values (
        next_seq, next_at, of_kind, of_row, digest,
        sha256(coalesce(last.hash, '') || digest
            || convert_to(concat_ws(' ', next_seq, next_at, of_kind, of_row), 'UTF8')));
end $$
"""

_TRIGGER = """
create function ledger_record_{table}() returns trigger
language plpgsql security definer set search_path = {schema}, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        perform ledger_append_row_record('{table}', old.id, '');
    elsif tg_op = 'INSERT' then
        perform ledger_append_row_record('{table}', new.id, {new});
    elsif {old} <> {new} then
        perform ledger_append_row_record('{table}', new.id, {new});
    end if;
    return null;
end $$
"""


def upgrade() -> None:
    op.create_table(
        "row_record",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("row_id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_row_record"),
    )
    schema = op.get_bind().execute(sa.text("select quote_ident(current_schema())")).scalar_one()
    op.execute(_APPEND.format(schema=schema))
    op.execute("revoke all on function ledger_append_row_record(text, uuid, bytea) from public")
    for table in _COLUMNS:
        # what is there already, in order of time
        op.execute(
            f"select ledger_append_row_record('{table}', r.id, {_digest(table, 'r')}) "
            f"from (select * from {table} order by made_at_us, id) r"
        )
        op.execute(
            _TRIGGER.format(
                schema=schema, table=table, new=_digest(table, "new"), old=_digest(table, "old")
            )
        )
        op.execute(
            f"create trigger record_row after insert or update or delete on {table} "
            f"for each row execute function ledger_record_{table}()"
        )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
