"""Operations of the HTTP API, who made a plan, and subscriptions of webhooks with what was
delivered to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_NAME = sa.Text(collation="C")


def upgrade() -> None:
    op.add_column("plan", sa.Column("made_by", _NAME, nullable=False, server_default=""))
    op.create_table(
        "operation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("actor", _NAME, nullable=False),
        sa.Column("made_at_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_at_us", sa.BigInteger(), nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=False),
        sa.Column("lease_until_us", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.Uuid(), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_operation"),
    )
    op.create_index("ix_operation_made_at_us", "operation", ["made_at_us"])
    op.create_table(
        "subscription",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("filter", sa.LargeBinary(), nullable=False),
        sa.Column("ordering", _NAME, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("old_secret", sa.LargeBinary(), nullable=False),
        sa.Column("old_until_us", sa.BigInteger(), nullable=False),
        sa.Column("made_by", _NAME, nullable=False),
        sa.Column("namespaces", ARRAY(sa.Text()), nullable=False),
        sa.Column("token", sa.LargeBinary(), nullable=False),
        sa.Column("made_at_us", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("probe_at_us", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=True),
        sa.Column("lease_until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_subscription"),
    )
    op.create_table(
        "delivery",
        sa.Column("subscription", sa.Uuid(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Uuid(), nullable=False),
        sa.Column("key", _NAME, nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_at_us", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("latency_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subscription", "sequence", name="pk_delivery"),
    )
    op.create_index(
        "ix_delivery_open",
        "delivery",
        ["subscription", "sequence"],
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index("ix_delivery_changed_at_us", "delivery", ["changed_at_us"])


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
