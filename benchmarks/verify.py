"""How fast a history is verified: rounds, inputs and decisions, every byte of them hashed."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.plane import PlaneUnderTest
from wharfinger.runtime.ledger import Ledger, audit_verify

REPEATS = 3


@dataclass(frozen=True, slots=True)
class VerifyRun:
    """Rows a second, the best of some runs: by `audit verify` with a process a core, and in one
    process. `topic_s`: a whole `audit verify --topic --checkpoint`, from its start as a process to
    its end."""

    ok: bool
    rounds: int
    rows: int
    rows_per_s: float
    alone_rows_per_s: float
    topic_s: float
    covered: int


async def verified(plane: PlaneUnderTest) -> VerifyRun:
    runs: list[Any] = [plane.json("audit", "verify") for _ in range(REPEATS)]
    ledger = await Ledger.open(plane.plane()["database_url"], "wharfinger-bench")
    try:
        alone = [(await audit_verify(ledger)).rows_per_s for _ in range(REPEATS)]
    finally:
        await ledger.close()
    with tempfile.TemporaryDirectory() as directory:
        key, checkpoint = Path(directory, "key"), Path(directory, "checkpoint")
        plane.command("audit", "key", str(key))
        plane.command("audit", "checkpoint", "--key", str(key), "--out", str(checkpoint))
        began = time.perf_counter()
        whole = plane.json(
            "audit",
            "verify",
            "--topic",
            "--checkpoint",
            str(checkpoint),
            "--public-key",
            f"{key}.pub",
        )
        topic_s = time.perf_counter() - began
    return VerifyRun(
        whole["ok"] and all(run["ok"] for run in runs),
        whole["rounds"],
        whole["rows"],
        max(run["rows_per_s"] for run in runs),
        max(alone),
        topic_s,
        whole["topic"]["covered"],
    )
