"""What the plane is told from outside, before it has an identity: the data and its address.

Manifests, traces and generators give these; the intake makes events of them and keeps them first.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.value import Value


@dataclass(frozen=True, slots=True)
class Accepted:
    """`key` is the record's key (compaction keeps the latest of it), `partition_key` what chooses the partition."""

    data: Value
    subject: str
    key: str
    partition_key: str
