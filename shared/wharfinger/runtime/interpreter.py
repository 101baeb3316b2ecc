"""What the long-running processes set of Python itself: how much a socket is read at once, and how
long a thread keeps the interpreter."""

import asyncio.selector_events
import asyncio.sslproto
import sys
from typing import Any

READ_BYTES = 64 * 1024
"""Well below the size from which the C library asks the system for a block (`memory.one_heap`)."""
TURN_S = 0.001


def short_turns() -> None:
    """A thread that computes gives the interpreter up after `TURN_S` to one that waits for it.

    Stages decide on threads of their own, beside the event loop that reads, commits and answers.
    The event loop waits for the interpreter after every call that blocks, and with Python's 5 ms it
    waits so long each time: some ten times a commit. With 1 ms a burst uses 3 % more of two cores,
    and a decision takes no more processor time. 0.2 ms gives no more.
    """
    sys.setswitchinterval(TURN_S)


def small_reads() -> None:
    """Sockets of asyncio are read by at most `READ_BYTES` at once.

    asyncio reads into a new block of 256 KiB and then shortens it to what came. The C library gets
    a block as large as that from the system each time: 15 us of processor for an answer of some
    hundred bytes, where 64 KiB take 2.5 us. At a light load a binding takes about a hundred such
    answers of database and broker. A Python without these classes reads as it does."""
    for module, name in (
        (asyncio.selector_events, "_SelectorTransport"),
        (asyncio.sslproto, "SSLProtocol"),
    ):
        reader: Any = getattr(module, name, None)
        if hasattr(reader, "max_size"):
            reader.max_size = READ_BYTES
