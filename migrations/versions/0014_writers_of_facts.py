"""Which session of a collector may write the facts of a cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fact_writer",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_fact_writer"),
    )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
