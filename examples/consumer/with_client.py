"""Keep where everything is in a database of your own, with `wharfinger-client`.

    python examples/consumer/with_client.py --server http://127.0.0.1:PORT --token-file token \
        --database placed.db --via sse

Stop it at any point and start it again, by another way if you like: no event is missing and none
comes twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from pathlib import Path

from wharfinger_client import AsyncClient, Consumer, Event, Kafka, Pull, SqliteCursors, Sse
from wharfinger_client.sources import Source


def source_of(args: argparse.Namespace) -> Source:
    if args.via == "kafka":
        return Kafka(args.bootstrap)
    client = AsyncClient(args.server, args.token_file.read_text().strip())
    return Sse(client) if args.via == "sse" else Pull(client, wait_s=1.0)


def write(own: sqlite3.Connection, event: Event) -> None:
    """What your program makes of an event, in the transaction in which the cursor moves."""
    own.execute(
        "insert into decided values (?, ?, ?, ?)",
        (event.position, event.id, event.short_type, event.subject),
    )
    if event.short_type in ("schedule.decided", "schedule.refused", "binding.released"):
        own.execute("delete from placed where binding = ?", (event.subject,))
        for target in event.data.get("targets", ()):
            own.execute(
                "insert into placed values (?, ?, ?)",
                (event.subject, target["cluster"], target.get("replicas", 0)),
            )


async def run(args: argparse.Namespace) -> None:
    cursors = SqliteCursors(args.database)
    own = cursors.connection
    own.execute(
        "create table if not exists decided (position integer, id text, type text, subject text)"
    )
    own.execute("create table if not exists placed (binding text, cluster text, replicas integer)")
    async with Consumer(cursors, source_of(args), "placed", lease_s=args.lease_s) as consumer:
        async for batch in consumer:
            async with batch.transaction() as tx:
                for event in batch.events:
                    write(tx, event)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--database", required=True)
    parser.add_argument("--via", choices=("sse", "pull", "kafka"), default="sse")
    parser.add_argument("--lease-s", type=float, default=10.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
