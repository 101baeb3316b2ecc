"""What a process sets of Python and the C library: its event loops, how often Python looks for
cycles, what goes back to the system meanwhile, and how long a thread keeps the interpreter.

Python's defaults walk the young objects every 700 allocations and everything now and then: with
states of some hundred thousand small values that was a quarter of the time of a replay. Hardly
anything of ours is cyclic, so it is enough to look seldom.
"""

import asyncio
import ctypes
import gc
import sys
from time import monotonic, thread_time

YOUNG_MAX = 100_000
ALL_AFTER_S = 1200.0
ALL_SHARE = 10_000
"""Between two looks at all objects are `ALL_AFTER_S` seconds, and `ALL_SHARE` times the processor
time of the last one where that is longer."""
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
_MALLOPT = getattr(ctypes.CDLL(None), "mallopt", None)
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
_MMAP_BYTES = 128 * 1024
TURN_S = 0.001


def one_heap() -> None:
    """To be called before there are threads: all of them share one heap of the C library, and large
    blocks go back to the system as soon as they are freed.

    glibc has a heap for each few threads, and after the first large block that was freed it takes
    larger and larger ones from these heaps. A scheduler under a steady load grew by 0.7 MiB a
    minute in them, while its Python objects took the same memory all the time. Python's own
    allocator has what is small, so threads seldom wait for each other here. Other C libraries have
    no such call, and nothing is done there."""
    if _MALLOPT is not None:
        _MALLOPT(_ARENA_MAX, 1)
        _MALLOPT(_MMAP_THRESHOLD, _MMAP_BYTES)


def short_turns() -> None:
    """A thread that computes gives the interpreter up after `TURN_S` to one that waits for it.

    Stages decide on threads of their own, beside the event loop that reads, commits and answers.
    The event loop waits for the interpreter after every call that blocks, and with Python's 5 ms it
    waits so long each time. With 1 ms a burst uses 3 % more of two cores, and a decision takes no
    more processor time. 0.2 ms gives no more.
    """
    sys.setswitchinterval(TURN_S)


def fast_loops() -> None:
    """Event loops that are made from now on, in any thread, are those of libuv.

    At a light load a binding is some hundred turns of event loops, each with little to do in it,
    and a quarter of a service's processor time was asyncio's own Python. Frameworks make loops of
    their own for their threads, so the policy is set and not one loop chosen.
    """
    import uvloop  # commands run without it

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def seldom_collect() -> None:
    """What stands now is taken out of sight of the collector; of what comes, the young are looked
    at every `YOUNG_MAX`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)


class Cleanup:
    """`free`: frees what was dropped and is kept nevertheless, at a time when a pause of some
    milliseconds does no harm.

    - Cycles. A stopped Kafka client is some hundreds of objects that refer to each other, and a
      process that does little makes `YOUNG_MAX` of them in three hours. What has outlived a
      collection of the young waits longer: a scheduler kept 30,000 values of five minutes. So all
      objects are looked at that are new since the last time. Then they are taken out of sight of
      the collector, since a look at a whole state holds up everything else: for 60 ms with 8,000
      bindings, and for longer with more. States have no cycles, so one that is dropped is freed at
      once. What was taken out of sight as part of a cycle, such as a client, is freed by a look at
      all objects.
    - Pages that are free within the heaps of the C library. glibc returns the end of a heap only,
      and has a heap for each few threads: a scheduler kept 20 MiB that it did not use. Other C
      libraries have no such call, and nothing is done there."""

    def __init__(self) -> None:
        self._all_at_s = monotonic() + ALL_AFTER_S

    def free(self) -> None:
        if monotonic() >= self._all_at_s:
            gc.unfreeze()
            began_s = thread_time()
            gc.collect()
            took_s = thread_time() - began_s
            self._all_at_s = monotonic() + max(ALL_AFTER_S, ALL_SHARE * took_s)
        else:
            gc.collect()
        gc.freeze()
        if _TRIM is not None:
            _TRIM(0)
