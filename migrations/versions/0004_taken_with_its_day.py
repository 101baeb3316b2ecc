"""What a stream has taken in is found in its inputs; only what was retired and may come again has a
table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_input_event_stream_day", "input", ["event", "stream", "day"], unique=True)
    op.execute("alter table taken rename to taken_before")
    op.execute("alter table taken_before rename constraint pk_taken to pk_taken_before")
    op.create_table(
        "taken",
        sa.Column("stream", sa.Integer(), nullable=False),
        sa.Column("event", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "event", name="pk_taken"),
    )
    # Of rounds retired before: on which day is not known any more, so the latest facts stay and the
    # others are kept for as long as a topic may bring them, counted from the last round of the
    # stream that was retired.
    op.execute("""
        insert into taken (stream, event, day)
        select t.stream, t.event, h.at_us / 86400000000 from taken_before t
        join horizon h on h.stream = t.stream
        where not exists (select from input i where i.event = t.event and i.stream = t.stream)
    """)
    op.execute("drop table taken_before")
    op.execute("analyze input, taken")


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
