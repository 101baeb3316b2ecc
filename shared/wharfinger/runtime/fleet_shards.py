"""How many fleet shards a plane has: fixed when its ledger begins, and the ledger's from then on.

A shard is a range of keys, not a process: processes share the shards out among themselves through
the consumer group, so a plane that has outgrown one core gets more scheduler processes, up to one a
shard, and no new ledger. The heads of the fleet streams are made all at once, before any of them
decides, and their number is the number of shards.
"""

from __future__ import annotations

from wharfinger.events.streams import FLEET, fleet_stream
from wharfinger.runtime.ledger import Ledger, LedgerUnavailable
from wharfinger.runtime.settings import Settings

BY_NAME = " shards="
"""In a profile: bindings were divided over several shards by their names."""


class FleetShardsError(LedgerUnavailable):
    """The ledger cannot go on with these settings, or with this version at all. One line."""


async def with_fleet_shards(ledger: Ledger, settings: Settings, *, begin: bool) -> Settings:
    """The settings with the ledger's number of fleet shards. `begin`: a new ledger is given its
    own.

    FleetShardsError: the settings say another number, or the ledger's shards divide bindings by
    name, so that their groups and quotas cannot be kept.
    """
    heads = await ledger.heads(FLEET)
    if not heads:
        if begin:
            await ledger.ensure_streams([fleet_stream(n) for n in range(settings.shards)])
        return settings.model_copy(update={"fleet_shards": settings.shards})
    for head in heads:
        if head.round and BY_NAME in await ledger.profile_at(head.stream, head.round):
            raise FleetShardsError(
                f"{head.stream} was decided with {len(heads)} shards that divide bindings by name:"
                " this version divides them by namespace and cannot go on with it;"
                " begin a new ledger, or stay with the version that recorded it"
            )
    if settings.fleet_shards not in (None, len(heads)):
        raise FleetShardsError(
            f"fleet_shards: expected {len(heads)}, which this ledger has had from its beginning,"
            f" got {settings.fleet_shards}"
        )
    return settings.model_copy(update={"fleet_shards": len(heads)})
