"""For how long a call to the database may take before it counts as failed.

A server that stopped answering (a frozen machine, a network that drops packets) closes no
connection. Without a deadline a call waits for it without end, and with it the stage that made the
call.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. `call_s`: of one statement, of a free connection, and of an open transaction in
    which nothing is done. `fetch_s`: of one statement of a long read (verify, export, retention),
    never of the whole read. `lock_s`: of the sign of life that the holder of a session lock asks
    for every second."""

    call_s: float = 30.0
    fetch_s: float = 600.0
    lock_s: float = 5.0
