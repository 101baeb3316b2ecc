"""How often Python looks for cycles, and what goes back to the system meanwhile.

Python's defaults walk the young objects every 700 allocations and everything now and then: with
states of some hundred thousand small values that was a quarter of the time of a replay. Hardly
anything of ours is cyclic, so it is enough to look seldom.
"""

import ctypes
import gc

YOUNG_MAX = 100_000
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def seldom_collect() -> None:
    """What stands now is taken out of sight of the collector; of what comes, the young are looked
    at every `YOUNG_MAX`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)


def free_unused() -> None:
    """Free what was dropped lately and is kept nevertheless, for who has dropped much at a known
    time. Takes some milliseconds.

    - Cycles among the objects that are younger than the last collection, at most `YOUNG_MAX`. A
      stopped Kafka client is some hundreds of objects that refer to each other; a process that does
      little makes `YOUNG_MAX` of them in three hours, and keeps 20 MiB until then.
    - Pages that are free within the heaps of the C library. glibc returns the end of a heap only,
      and has a heap for each few threads: a scheduler kept 20 MiB that it did not use. Other C
      libraries have no such call, and nothing is done there."""
    gc.collect(0)
    if _TRIM is not None:
        _TRIM(0)
