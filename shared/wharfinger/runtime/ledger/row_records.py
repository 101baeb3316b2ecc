"""The row records: a hash chain over rows that belong to no stream.

A plan that is carried out, a token that gives rights and a subscription that sends decisions out of
the plane must not be added or changed without a trace. The database appends a record with a digest
of such a row whenever one is written or deleted (triggers of migrations 0012 and 0013), so no
program needs a right on the chain, and none can forget it. Of a subscription the record holds what
its maker has set, and not how far its deliveries have come.

Next: `verify_rows`, which holds rows and records against each other.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from uuid import UUID

from wharfinger.kernel.decider import Micros

COLUMNS = "seq, at_us, kind, row_id, sha256, hash"

DIGESTS = {
    "plan": "r.id, r.made_at_us, r.made_by, encode(sha256(r.body), 'hex')",
    "subscription": (
        "r.id, r.name, r.url, encode(r.filter, 'hex'), r.ordering, encode(r.secret, 'hex'), "
        "encode(r.old_secret, 'hex'), r.old_until_us, r.made_by, r.namespaces, "
        "encode(r.token || case when r.maker = '' then ''::bytea "
        "else r.maker || int8send(r.seen_at_us) end, 'hex'), r.made_at_us, r.version"
    ),
    "token": (
        "r.id, encode(r.sha256, 'hex'), r.name, r.roles, r.namespaces, r.sources, r.made_by, "
        "r.made_at_us, r.expires_at_us, r.revoked_at_us, r.once"
    ),
}
"""Table -> the columns of a row `r` that its digest covers, as migrations 0012 and 0013 have
them."""


class RowRecord(NamedTuple):
    """`digest`: SHA-256 of the row as it was written; empty: it was deleted."""

    seq: int
    at: Micros
    table: str
    row: UUID
    digest: bytes


def next_hash(previous: bytes, record: RowRecord) -> bytes:
    """`previous`: of the record before; empty for the first one."""
    place = f"{record.seq} {record.at} {record.table} {record.row}"
    return hashlib.sha256(previous + record.digest + place.encode()).digest()


def rows_with_digests(table: str) -> str:
    """SQL that gives id and digest of each row, computed here and not by a function of the
    database, which could be replaced."""
    digest = f"sha256(convert_to(jsonb_build_array({DIGESTS[table]})::text, 'UTF8'))"
    return f"select r.id, {digest} from {table} r order by r.id"
