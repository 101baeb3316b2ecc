"""`audit`: is the history as it was written? And the keys and checkpoints that let anybody ask
again later."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from rich.console import RenderableType
from rich.text import Text

from wharfinger.history import checkpoint as file
from wharfinger.history.checkpoint import Checkpoint, SignedCheckpoint
from wharfinger.history.verification import Verification, take_checkpoint
from wharfinger.history.verification import verify as verify_history
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import FirstBad, VerifyResult, wall_clock
from wharfinger.runtime.replay import worker_pool
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError, NotFoundError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    Plain,
    as_clock,
    as_time,
    count,
    messages,
    new_table,
    show,
    write,
)
from wharfinger_cli.request import Request

if TYPE_CHECKING:
    from wharfinger.history.topic_check import BadRecord, TopicResult

PUBLIC_SUFFIX = ".pub"

MEANING = {
    "round: hash": (
        "something in this round is not what was hashed: its time or settings, its inputs, "
        "or its decisions"
    ),
    "round: previous hash": "this round does not follow the one that now stands before it",
    "round: snapshot": "the chain knows a snapshot of this stream that is not there any more",
    "checkpoint: hash": (
        "the chain is whole and is another one: it was rewritten, or cut off, "
        "after the checkpoint was signed"
    ),
    "checkpoint: feed": "the feed gives other positions than when the checkpoint was signed",
    "checkpoint: cursor": (
        "what was published is recorded otherwise than when the checkpoint was signed: it was set "
        "back"
    ),
    "checkpoint: stream": "the stream was there when the checkpoint was signed",
    "horizon": "no checkpoint vouches for the start of this stream since its beginning was retired",
}
"""What a person should know of findings that name no column."""


def verify(
    request: Request,
    stream: str,
    topic: bool,
    checkpoints: Sequence[Path],
    stores: Sequence[str],
    public_key: Path | None,
) -> None:
    trusted = None if public_key is None else file.public_key(str(public_key), _read(public_key))
    signed = [file.read(str(path), _read(path), trusted) for path in checkpoints]
    shipped = [_shipped(request, where, trusted) for where in stores]
    signed += [one for store in shipped for one in store.checkpoints]
    workers = os.cpu_count() or 1
    with worker_pool(workers) as pool:
        found = run(_verify(request, stream, signed, trusted, topic, workers, pool))
    show(request.format, _plain(found, shipped), (), lambda: _page(found, shipped))
    if signed and trusted is None:
        messages().print(
            "whose key that is only you can tell: compare the fingerprint, or give --public-key",
            soft_wrap=True,
        )
    if not found.ok:
        raise SystemExit(DIFFERENCE)


@dataclass(frozen=True, slots=True)
class ShippedCheckpoints:
    """What a plane has shipped to one store. At least one."""

    where: str
    checkpoints: tuple[SignedCheckpoint, ...]

    def keys(self) -> tuple[str, ...]:
        return tuple(sorted({one.fingerprint for one in self.checkpoints}))

    def times(self) -> tuple[int, int]:
        """When the first and the last was made."""
        made = [one.checkpoint.made_at_us for one in self.checkpoints]
        return min(made), max(made)


def _shipped(request: Request, where: str, trusted: Ed25519PublicKey | None) -> ShippedCheckpoints:
    from wharfinger.history.checkpoint_store import StoreError, store_at

    store = store_at(where, lambda: _broker(request))
    found = run(store.shipped())
    if not found:
        raise StoreError(f"{store.shown}: no checkpoint was shipped here")
    return ShippedCheckpoints(
        store.shown, tuple(file.read(name, body, trusted) for name, body in found)
    )


def checkpoint(request: Request, key: Path, out: Path) -> None:
    signer = file.private_key(str(key), _read(key))
    workers = os.cpu_count() or 1
    with worker_pool(workers) as pool:
        found, made = run(_take(request, workers, pool))
    if made is None:
        show(request.format, _plain(found), (), lambda: _page(found))
        raise SystemExit(DIFFERENCE)
    body = file.signed(made, signer)
    _write_whole(out, body)
    signed = file.read(str(out), body, signer.public_key())
    show(
        request.format,
        _checkpoint_plain(signed),
        (),
        lambda: _checkpoint_page(found.ledger, signed),
    )


def make_key(path: Path) -> None:
    """Neither file is ever overwritten: checkpoints are only worth something as long as their key
    is."""
    public = path.with_name(path.name + PUBLIC_SUFFIX)
    if public.exists():
        raise CommandError(f"{public}: there is a key already")
    key = file.new_key()
    _create(path, file.private_pem(key), 0o600)
    _create(public, file.public_pem(key.public_key()), 0o644)
    write(f"{path}: the private key, for you alone")
    write(
        f"{public}: the public key, for everybody who verifies; "
        f"{file.fingerprint(key.public_key())}"
    )


async def _verify(
    request: Request,
    stream: str,
    checkpoints: Sequence[SignedCheckpoint],
    trusted: Ed25519PublicKey | None,
    topic: bool,
    workers: int,
    pool: Executor | None,
) -> Verification:
    broker = _broker(request) if topic else None
    async with opened_ledger(reached(request)) as ledger:
        with messages().status("walking the chains"):
            found = await verify_history(
                ledger, stream, checkpoints, trusted, broker, workers=workers, pool=pool
            )
    if stream and not found.ledger.streams and found.ok:
        raise NotFoundError(f"no stream is named {stream} or begins with it")
    return found


def _broker(request: Request) -> Backend:
    # only who reads the topic needs all settings
    from wharfinger.runtime.settings import load_settings

    return load_settings(request.flags).backend()


async def _take(
    request: Request, workers: int, pool: Executor | None
) -> tuple[Verification, Checkpoint | None]:
    async with opened_ledger(reached(request)) as ledger:
        with messages().status("walking the chains"):
            return await take_checkpoint(ledger, wall_clock(), workers=workers, pool=pool)


# --- files ---------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _create(path: Path, body: bytes, mode: int) -> None:
    """Made with its mode from the first moment on; an existing file is left as it is."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(body)
    except FileExistsError:
        raise CommandError(f"{path}: there is a key already") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _write_whole(path: Path, body: bytes) -> None:
    """The old file or the new one, never half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(body)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CommandError(f"{path}: {error.strerror}") from None


# --- answers -------------------------------------------------------------------------------------


def _plain(found: Verification, shipped: Sequence[ShippedCheckpoints] = ()) -> Plain:
    return {
        **verified_plain(found.ledger),
        "ok": found.ok,
        "retired": [
            {
                "stream": one.base.stream,
                "through_round": one.base.round,
                "through": as_time(one.base.at),
            }
            for one in found.ledger.walked
            if one.base.round
        ],
        "went_back": [
            {
                "incarnation": one.data.incarnation,
                "at": as_time(one.at),
                "streams_that_lost": len(one.data.published),
            }
            for one in found.ledger.went_back
        ],
        "checkpoints": [_checkpoint_plain(signed) for signed in _by_hand(found, shipped)],
        "shipped": [_shipped_plain(store) for store in shipped],
        "lost": found.lost,
        "topic": None if found.topic is None else _topic_plain(found.topic),
    }


def verified_plain(result: VerifyResult) -> Plain:
    return {
        "ok": result.ok,
        "streams": result.streams,
        "rounds": result.rounds,
        "rows": result.rows,
        "seconds": round(result.seconds, 3),
        "rows_per_s": round(result.rows_per_s),
        "first_bad": None if result.first_bad is None else _bad_plain(result.first_bad),
    }


def _bad_plain(bad: FirstBad) -> Plain:
    return {
        "stream": bad.stream,
        "round": bad.round,
        "place": bad.place,
        "what": bad.what,
        "expected": bad.expected,
        "found": bad.found,
    }


def _by_hand(found: Verification, shipped: Sequence[ShippedCheckpoints]) -> list[SignedCheckpoint]:
    names = {one.name for store in shipped for one in store.checkpoints}
    return [one for one in found.checkpoints if one.name not in names]


def _shipped_plain(store: ShippedCheckpoints) -> Plain:
    first, last = store.times()
    return {
        "where": store.where,
        "checkpoints": len(store.checkpoints),
        "first_at": as_time(first),
        "last_at": as_time(last),
        "keys": list(store.keys()),
    }


def _checkpoint_plain(signed: SignedCheckpoint) -> Plain:
    made = signed.checkpoint
    return {
        "name": signed.name,
        "made_at": as_time(made.made_at_us),
        "plane": made.plane,
        "streams": len(made.streams),
        "key": signed.fingerprint,
    }


def _topic_plain(topic: TopicResult) -> Plain:
    return {
        "ok": topic.ok,
        "topic": topic.topic,
        "incarnation": topic.life,
        "records": topic.records,
        "repeats": topic.repeats,
        "lost": topic.lost,
        "decisions": topic.decisions,
        "covered": topic.covered,
        "waiting": topic.waiting,
        "from": as_time(topic.from_us) if topic.from_us else None,
        "first_bad": None if topic.first_bad is None else _record_plain(topic.first_bad),
    }


def _record_plain(bad: BadRecord) -> Plain:
    return {
        "topic": bad.topic,
        "partition": bad.partition,
        "offset": bad.offset,
        "stream": bad.stream,
        "seq": bad.seq,
        "what": bad.what,
        "expected": bad.expected,
        "found": bad.found,
    }


def _page(
    found: Verification, shipped: Sequence[ShippedCheckpoints] = ()
) -> Iterator[RenderableType]:
    yield from verified_page(found.ledger)
    if found.ledger.ok:
        for signed in _by_hand(found, shipped):
            yield Text("it agrees with the checkpoint", GOOD).append(
                f": {_checkpoint_line(signed)}", "default"
            )
        for store in shipped:
            yield Text("it agrees with all that was shipped", GOOD).append(
                f": {_shipped_line(store)}", "default"
            )
    if found.lost:
        yield Text(
            f"not held against it: {count(found.lost, 'mark')} of checkpoints behind which the "
            "ledger went back later",
            DARK,
        )
    if found.topic is not None:
        yield from _topic_page(found.topic)


def verified_page(result: VerifyResult) -> Iterator[RenderableType]:
    verdict = (
        Text("the history is whole", GOOD) if result.ok else Text("the history was changed", BAD)
    )
    walked = (
        f": {count(result.rounds, 'round')} of {count(result.streams, 'stream')}, "
        f"{count(result.rows, 'row')}"
    )
    yield verdict.append(f"{walked} in {result.seconds:.1f} s", "default")
    if retired := [one.base for one in result.walked if one.base.round]:
        latest = max(base.at for base in retired)
        yield Text(
            f"{count(len(retired), 'stream')} begin behind what was retired, "
            f"the latest at {as_clock(latest)}",
            DARK,
        )
    for one in result.went_back:
        yield Text(
            f"the ledger went back at {as_clock(one.at)} (incarnation {one.data.incarnation}): of "
            f"{count(len(one.data.published), 'stream')} what was published later is lost",
            DARK,
        )
    if (bad := result.first_bad) is not None:
        if bad.what in MEANING:
            yield Text(MEANING[bad.what], DARK)
        yield _table(
            "first bad row", {k: v for k, v in _bad_plain(bad).items() if k != "place" or bad.place}
        )


def _topic_page(topic: TopicResult) -> Iterator[RenderableType]:
    verdict = Text("the topic agrees", GOOD) if topic.ok else Text("the topic says otherwise", BAD)
    waiting = f", {topic.waiting:,} not yet published" if topic.waiting else ""
    waiting += f", and {topic.lost:,} that the ledger lost when it went back" if topic.lost else ""
    since = f", from {as_clock(topic.from_us)} on" if topic.from_us else ""
    yield verdict.append(
        f": {topic.topic} has {topic.covered:,} of "
        f"{count(topic.decisions, 'decision')}{since}{waiting}",
        "default",
    )
    if topic.first_bad is not None:
        yield _table("first bad record", _record_plain(topic.first_bad))


def _shipped_line(store: ShippedCheckpoints) -> str:
    first, last = store.times()
    return (
        f"{count(len(store.checkpoints), 'checkpoint')} in {store.where}, from {as_clock(first)} "
        f"to {as_clock(last)}, signed by {', '.join(store.keys())}"
    )


def _checkpoint_line(signed: SignedCheckpoint) -> str:
    made = signed.checkpoint
    return (
        f"{signed.name}, {count(len(made.streams), 'stream')} at {as_clock(made.made_at_us)}, "
        f"signed by {signed.fingerprint}"
    )


def _checkpoint_page(result: VerifyResult, signed: SignedCheckpoint) -> Iterator[RenderableType]:
    yield from verified_page(result)
    yield Text("signed", GOOD).append(f": {_checkpoint_line(signed)}", "default")
    yield Text("keep the file out of reach of those who can change the database", DARK)


def _table(title: str, values: Plain) -> RenderableType:
    table = new_table(title, "")
    for name, value in values.items():
        if value is not None and value != "":
            table.add_row(name, str(value))
    return table
