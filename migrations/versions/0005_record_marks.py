"""Which record was read or written at which offset: a partition that was truncated and has grown
past it has another one there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "record_mark",
        sa.Column("reader", sa.Text(collation="C"), nullable=False),
        sa.Column("place", sa.Text(collation="C"), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("at_offset", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "reader", "place", "incarnation", "at_offset", name="pk_record_mark"
        ),
    )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
