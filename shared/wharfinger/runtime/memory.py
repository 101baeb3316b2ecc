"""How often Python looks for cycles.

Its defaults walk the young objects every 700 allocations and everything now and then: with states
of some hundred thousand small values that was a quarter of the time of a replay. Hardly anything of
ours is cyclic, so it is enough to look seldom.
"""

import gc

YOUNG_MAX = 100_000


def seldom_collect() -> None:
    """What stands now is taken out of sight of the collector; of what comes, the young are looked
    at every `YOUNG_MAX`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)


def free_young_cycles() -> None:
    """Collect among the objects that are younger than the last collection: at most `YOUNG_MAX` of
    them, some milliseconds.

    For who has dropped large cycles at a known time. A stopped Kafka client is some hundreds of
    objects that refer to each other; a process that does little makes `YOUNG_MAX` of them in three
    hours, and keeps 20 MiB until then."""
    gc.collect(0)
