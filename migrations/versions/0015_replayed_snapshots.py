"""Of which snapshots the rounds were decided again, and not only folded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Every snapshot made so far was.
    op.add_column(
        "snapshot", sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.true())
    )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
