"""One position for every decision of every stream. The rows that are there already get theirs from
the publisher, once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feed",
        sa.Column("first_position", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("correlations", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("first_position", name="pk_feed"),
    )
    op.create_index("ix_feed_stream_first_seq", "feed", ["stream", "first_seq"], unique=True)
    # random bytes, of which a reader takes some: not compressed, so that they are read in part
    op.execute("alter table feed alter column correlations set storage external")
    op.create_table(
        "feed_head",
        sa.Column("one", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("earliest", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("one", name="pk_feed_head"),
    )
    op.execute("insert into feed_head (one, position, epoch, earliest) values (1, 0, 0, 1)")


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
