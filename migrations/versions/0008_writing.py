"""What was answered under the idempotency keys of the HTTP API, for a day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency",
        sa.Column("actor", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("holder", sa.Uuid(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_at_us", "idempotency", ["at_us"])


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
