"""One process of `make feed-soak`: a share of its subscribers and receivers of webhooks.

It reads its share from the file that it is given, and runs until it is killed. Started again, its
subscribers go on from what is in their databases.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
from tests.storing_receiver import StoringReceiver, serving_receivers
from tests.subscribers import CuttingProxy, Subscriber, Subscribers, api_port, living


class Member(msgspec.Struct, frozen=True):
    """`secret`: its token. `signed_with`: of a webhook."""

    number: int
    way: str
    secret: str
    signed_with: str = ""

    def database(self, directory: Path) -> Path:
        return directory / f"{self.number}.db"


class Share(msgspec.Struct, frozen=True):
    """`data_dir`: of the plane. `directory`: of the databases. `port`: of the receivers.
    `life_s`: a subscriber is ended after at most so long and begins again. `cut`: share of
    connections that are cut."""

    data_dir: str
    directory: str
    seed: str
    port: int
    life_s: float
    cut: float
    members: list[Member]


async def run(share: Share) -> None:
    """Does not return. What ends a subscriber by itself is raised: none may end."""
    data_dir, directory = Path(share.data_dir), Path(share.directory)
    bootstrap = str(json.loads((data_dir / "plane.json").read_text())["bootstrap"])

    def broker() -> str:
        """Where it listens now; where that is being written, where it did."""
        nonlocal bootstrap
        with suppress(OSError, ValueError):
            bootstrap = str(json.loads((data_dir / "plane.json").read_text())["bootstrap"])
        return bootstrap

    subscribers: list[Subscriber] = []
    receivers: list[StoringReceiver] = []
    for one in share.members:
        path, random = one.database(directory), Random(f"{share.seed}/{one.number}")
        if one.way == "webhook":
            receivers.append(StoringReceiver(path, one.signed_with, random))
        else:
            subscribers.append(Subscriber(one.way, path, one.secret, random))
    proxy = CuttingProxy(Random(share.seed), lambda: api_port(data_dir), share.cut)
    async with proxy, serving_receivers(share.port, receivers):
        all_ = Subscribers(proxy.url, subscribers, broker, share.life_s)
        async with living(all_):
            if subscribers:
                await all_.ended()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Share)))
