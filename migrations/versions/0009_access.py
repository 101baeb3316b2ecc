"""Who wrote over the HTTP API, was refused, or read what belongs to others: a chain of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(collation="C"), nullable=False),
        sa.Column("action", sa.Text(collation="C"), nullable=False),
        sa.Column("target", sa.Text(collation="C"), nullable=False),
        sa.Column("outcome", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(collation="C"), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_access"),
    )
    op.create_index("ix_access_actor_seq", "access", ["actor", "seq"])
    op.create_table(
        "access_head",
        sa.Column("one", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("one", name="pk_access_head"),
    )
    op.execute("insert into access_head (one, seq, hash, at_us) values (1, 0, '', 0)")


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
