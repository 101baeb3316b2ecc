"""Functions that make a span of partitions as the owner of the tables, for a publisher that is not
the owner: they add empty tables and move rows out of the default partitions, and can do nothing
else to the history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Callers must not choose what the names mean: the search path is fixed, with pg_temp last.
_LOCK = """
create function ledger_lock_history() returns void language plpgsql security definer
set search_path = {schema}, pg_temp as $$
begin
    lock table event, round, input, decision in access exclusive mode;
end $$
"""

_MAKE = """
create function ledger_make_span(first int, beyond int, suffix text) returns void
language plpgsql security definer set search_path = {schema}, pg_temp as $$
declare
    name text;
begin
    if suffix is null or suffix !~ '^[0-9]{{8}}$' or first is null or beyond <= first then
        raise exception 'a span: expected days and a suffix of eight digits';
    end if;
    foreach name in array array['round', 'input', 'event', 'decision'] loop
        execute format('create table %I (like %I including all)', name || '_' || suffix, name);
        execute format(
            'with moved as (delete from %I where day >= $1 and day < $2 returning *) '
            'insert into %I select * from moved', name || '_default', name || '_' || suffix)
            using first, beyond;
        execute format('alter table %I attach partition %I for values from (%s) to (%s)',
            name, name || '_' || suffix, first, beyond);
    end loop;
end $$
"""


def upgrade() -> None:
    schema = op.get_bind().execute(sa.text("select quote_ident(current_schema())")).scalar_one()
    op.execute(_LOCK.format(schema=schema))
    op.execute(_MAKE.format(schema=schema))
    for function in ("ledger_lock_history()", "ledger_make_span(int, int, text)"):
        op.execute(f"revoke all on function {function} from public")


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
