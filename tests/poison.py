"""Records as readers take them from topics, and such that no service can take in."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from wharfinger.domain.binding import Binding
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.codec import encode
from wharfinger.events.envelope import derived_id


class Record(NamedTuple):
    """`ack`: what acknowledges it; None: nothing has to."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    ack: object = None
    headers: Sequence[tuple[str, bytes]] = ()


def binding(name: str, **changes: object) -> bytes:
    """A record that asks for a pod, with these fields of its envelope changed; None: left out."""
    event = json.loads(
        encode(
            BindingRequested(
                Binding(name, f"uid-{name}", ObjectRef("v1", "Pod", name, "shop"), replicas=1)
            ),
            id=derived_id("letter", name),
            source="/tests",
            subject=name,
        )
    )
    return json.dumps({k: v for k, v in {**event, **changes}.items() if v is not None}).encode()


def with_replicas(text: str) -> bytes:
    return binding("shop/many").replace(b'"replicas": 1', b'"replicas": ' + text.encode())


POISON: dict[str, bytes] = {
    "no json": b"\x00\xffnot json",
    "no utf-8": b'{"id": "\xff\xfe"}',
    "empty": b"",
    "another json": b"[1, 2, 3]",
    "half a record": binding("shop/half")[:100],
    "unknown type": binding("shop/type", type="io.wharfinger.binding.dreamt.v1"),
    "unknown version": binding("shop/version", type="io.wharfinger.binding.requested.v99"),
    "another specversion": binding("shop/spec", specversion="0.3"),
    "no id": binding("shop/id", id=None),
    "empty id": binding("shop/id", id=""),
    "wrong data": binding("shop/data", data={"binding": "none"}),
    "no data": binding("shop/data", data=None),
    "huge integer": with_replicas("1" + "0" * 400),
    "beyond 64 bits": with_replicas("9223372036854775808"),
    "deeply nested": b"[" * 100_000,
    "no text for the database": binding("shop/nul\x00name"),
    "a name without end": binding("shop/" + "".join(f"{derived_id('x', n)}" for n in range(400))),
}

_WHOLE = binding("shop/mutated")


def hostile_record(random: Random, number: int) -> tuple[bytes, bytes]:
    """Key and value of a record that is no event: one of `POISON`, random bytes, a record with
    bytes changed, or one under a key of up to 64 KiB. The numbers make them differ."""
    kind = random.randrange(4)
    key = f"hostile-{number}".encode()
    if kind == 0:
        return key, random.choice(list(POISON.values()))
    if kind == 1:
        return key, random.randbytes(random.randrange(2000))
    if kind == 2:
        changed = bytearray(_WHOLE)
        for _ in range(random.randint(1, 8)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        # cut, so that it is never an event after all
        return key, bytes(changed[: random.randrange(1, len(changed) - 1)])
    return random.randbytes(random.randrange(1 << 16)), random.randbytes(50)


_BOMB = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

async def main(bootstrap, topic, codec, size):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, max_request_size=2 * int(size)
    )
    await producer.start()
    await producer.send_and_wait(topic, bytes(int(size)), key=b"k", partition=0)
    await producer.stop()

asyncio.run(main(*sys.argv[1:]))
"""


def bomb_command(bootstrap: str, topic: str, codec: str, size: int) -> list[str]:
    """Sends one record of so many zeros, compressed by its producer, from a process of its own: it
    takes twice its size."""
    return [sys.executable, "-c", _BOMB, bootstrap, topic, codec, str(size)]
