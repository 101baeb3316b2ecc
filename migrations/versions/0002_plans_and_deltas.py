"""Plans that were made, and snapshots that hold only what has changed since the one before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plan",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("made_at_us", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plan"),
    )
    # Every snapshot made so far is a whole one.
    op.add_column(
        "snapshot", sa.Column("whole", sa.Boolean(), nullable=False, server_default=sa.true())
    )
    op.add_column("snapshot_section", sa.Column("names", ARRAY(sa.BigInteger()), nullable=True))
