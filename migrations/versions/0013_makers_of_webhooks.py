"""Who has made a subscription without a token of the plane, and when this caller was last seen."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# As `wharfinger.runtime.ledger.row_records` has it: the same digest as before for those that were
# made with a token.
_COLUMNS = (
    "r.id, r.name, r.url, encode(r.filter, 'hex'), r.ordering, encode(r.secret, 'hex'), "
    "encode(r.old_secret, 'hex'), r.old_until_us, r.made_by, r.namespaces, "
    "encode(r.token || case when r.maker = '' then ''::bytea "
    "else r.maker || int8send(r.seen_at_us) end, 'hex'), r.made_at_us, r.version"
)


def _digest(row: str) -> str:
    columns = _COLUMNS.replace("r.", f"{row}.")
    return f"sha256(convert_to(jsonb_build_array({columns})::text, 'UTF8'))"


_TRIGGER = """
create or replace function ledger_record_subscription() returns trigger
language plpgsql security definer set search_path = {schema}, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        perform ledger_append_row_record('subscription', old.id, '');
    elsif tg_op = 'INSERT' then
        perform ledger_append_row_record('subscription', new.id, {new});
    elsif {old} <> {new} then
        perform ledger_append_row_record('subscription', new.id, {new});
    end if;
    return null;
end $$
"""


def upgrade() -> None:
    op.add_column(
        "subscription", sa.Column("maker", sa.LargeBinary(), nullable=False, server_default="")
    )
    op.add_column(
        "subscription", sa.Column("seen_at_us", sa.BigInteger(), nullable=False, server_default="0")
    )
    schema = op.get_bind().execute(sa.text("select quote_ident(current_schema())")).scalar_one()
    op.execute(_TRIGGER.format(schema=schema, new=_digest("new"), old=_digest("old")))


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
