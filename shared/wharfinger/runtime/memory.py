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
