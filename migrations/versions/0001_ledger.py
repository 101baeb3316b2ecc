"""The ledger: streams, rounds, inputs, events, decisions, snapshots, cursors, incarnations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")


def column(name: str, type_: sa.types.TypeEngine[Any], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "stream",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False),
        column("name", NAME),
        column("round", sa.BigInteger()),
        column("seq", sa.BigInteger()),
        column("hash", sa.LargeBinary()),
        column("epoch", sa.BigInteger()),
        column("at_us", sa.BigInteger()),
        column("snapshot", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name="pk_stream"),
        sa.UniqueConstraint("name", name="uq_stream_name"),
    )
    # A head is rewritten with every round: room in its page keeps the new version there, without
    # touching an index.
    op.execute("alter table stream set (fillfactor = 30)")
    op.create_table(
        "round",
        column("stream", sa.Integer()),
        column("number", sa.BigInteger()),
        column("epoch", sa.BigInteger()),
        column("at_us", sa.BigInteger()),
        column("engine", sa.Text()),
        column("profile", sa.Text()),
        column("basis", sa.LargeBinary()),
        column("first_seq", sa.BigInteger()),
        column("inputs", sa.Integer()),
        column("decisions", sa.Integer()),
        column("snapshot", sa.LargeBinary()),
        column("prev_hash", sa.LargeBinary()),
        column("hash", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", "number", name="pk_round"),
    )
    op.create_index("ix_round_stream_at_us", "round", ["stream", "at_us"])
    op.create_table(
        "input",
        column("stream", sa.Integer()),
        column("round", sa.BigInteger()),
        column("ordinal", sa.Integer()),
        column("event", sa.Uuid()),
        column("sha256", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", "round", "ordinal", name="pk_input"),
        sa.UniqueConstraint("stream", "event", name="uq_input_stream_event"),
    )
    op.create_table(
        "event",
        column("id", sa.Uuid()),
        column("sha256", sa.LargeBinary()),
        column("type", NAME),
        column("subject", NAME),
        column("source", NAME),
        column("encoding", sa.SmallInteger()),
        column("body", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", "sha256", name="pk_event"),
    )
    op.create_table(
        "decision",
        column("stream", sa.Integer()),
        column("seq", sa.BigInteger()),
        column("round", sa.BigInteger()),
        column("id", sa.Uuid()),
        column("type", NAME),
        column("subject", NAME),
        column("outcome", NAME),
        column("cause", sa.Uuid(), nullable=True),
        column("encoding", sa.SmallInteger()),
        column("body", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", "seq", name="pk_decision"),
    )
    op.create_index("ix_decision_id", "decision", ["id"])
    op.create_index("ix_decision_subject_stream_seq", "decision", ["subject", "stream", "seq"])
    op.create_table(
        "snapshot",
        column("stream", sa.Integer()),
        column("round", sa.BigInteger()),
        column("digest", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", "round", name="pk_snapshot"),
    )
    op.create_table(
        "snapshot_section",
        column("stream", sa.Integer()),
        column("round", sa.BigInteger()),
        column("name", NAME),
        column("sha256", sa.LargeBinary()),
        column("encoding", sa.SmallInteger()),
        column("body", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("stream", "round", "name", name="pk_snapshot_section"),
    )
    op.create_table(
        "cursor",
        column("consumer", NAME),
        column("incarnation", sa.BigInteger()),
        column("stream", NAME),
        column("seq", sa.BigInteger()),
        sa.PrimaryKeyConstraint("consumer", "incarnation", "stream", name="pk_cursor"),
    )
    op.create_table(
        "cursor_position",
        column("consumer", NAME),
        column("incarnation", sa.BigInteger()),
        column("place", NAME),
        column("end_offset", sa.BigInteger()),
        sa.PrimaryKeyConstraint("consumer", "incarnation", "place", name="pk_cursor_position"),
    )
    for table in ("cursor", "cursor_position"):
        op.execute(f"alter table {table} set (fillfactor = 50)")
    op.create_table(
        "incarnation",
        column("topic", NAME),
        column("counter", sa.BigInteger()),
        column("boot_id", sa.Text()),
        sa.PrimaryKeyConstraint("topic", name="pk_incarnation"),
    )


def downgrade() -> None:
    raise RuntimeError("the ledger only goes forward: restore a backup instead")
