"""Where a stage begins to read its partitions: at what the ledger has committed, never at what the
consumer group has.

The consumer group only shares out partitions. Its committed offsets say which records were
acknowledged to the broker; a ledger that was restored from a backup, or that a failover took back,
may know nothing of them. The basis of a round says what was read when it was committed, in the same
transaction, so it goes back together with the ledger.

All streams of a group read the same partitions, in order, and their rounds are committed together
or not at all (`ledger.writer.commit`). So the highest offset that any of them has in its last basis
is right for the whole group: what lies below it was decided, or was for no stream. A cluster that
is idle for a week does not make the others read a week again. Next: `stage_service` asks,
`faust_app` seeks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wharfinger.kernel.round import Basis


def reading_starts(
    places: Iterable[str],
    bases: Mapping[str, Basis],
    group_of: Callable[[str], int],
    incarnations: Mapping[str, int],
) -> dict[str, int]:
    """The first offset to read of each place (`topic/partition`); 0 where nothing of its present
    incarnation was committed.

    `bases`: of the last round of each stream. `incarnations`: by topic. A partition has the number
    of its group.
    """
    reached: dict[tuple[int, str], int] = {}
    for stream, basis in bases.items():
        group = group_of(stream)
        for place, (incarnation, offset) in basis.items():
            if incarnation == incarnations.get(place.rpartition("/")[0]):
                reached[group, place] = max(offset, reached.get((group, place), 0))
    return {place: reached.get((int(place.rpartition("/")[2]), place), 0) for place in places}
