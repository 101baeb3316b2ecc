"""Laws of the kernel, over random histories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.counter import Counter, Writer, withdrawn

from wharfinger.kernel.audit import audit
from wharfinger.kernel.hashing import round_hash
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import InputRef, Round
from wharfinger.kernel.step import empty_head

# A history: for each round, the names whose withdrawal it takes in.
HISTORIES = st.lists(st.lists(st.sampled_from("abcdé"), max_size=5), min_size=1, max_size=12)
EVERY = st.integers(1, 5)


def lived(history: list[list[str]], every: int) -> tuple[Writer, list[RecordedRound]]:
    writer = Writer(empty_head("fleet/0", epoch=1), Counter(every))
    recorded = []
    count = 0
    for names in history:
        events = [withdrawn(count + i, name) for i, name in enumerate(names)]
        count += len(names)
        recorded.append(RecordedRound(writer.step(events), events))
    return writer, recorded


@given(HISTORIES, EVERY)
def test_replay_of_any_history_is_history(history: list[list[str]], every: int) -> None:
    _, recorded = lived(history, every)
    decider = Counter(every)
    assert (
        audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded).divergences
        == []
    )


@given(HISTORIES, EVERY, st.data())
def test_recovery_gives_the_live_state_from_any_snapshot(
    history: list[list[str]], every: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    before, _ = lived(history[:cut], every)
    live, recorded = lived(history, every)
    decider = Counter(every)
    state = decider.load("fleet/0", before.decider.dump(before.state))
    recover(decider, state, recorded[cut:])
    assert decider.dump(state) == live.decider.dump(live.state)


@given(HISTORIES.filter(lambda h: any(h)), EVERY, st.data())
def test_a_changed_body_is_found_at_its_round(
    history: list[list[str]], every: int, data: st.DataObject
) -> None:
    _, recorded = lived(history, every)
    place = data.draw(st.sampled_from([n for n, r in enumerate(recorded) if r.round.decisions]))
    r = recorded[place].round
    index = data.draw(st.integers(0, len(r.decisions) - 1))
    body = data.draw(st.binary().filter(lambda b: b != r.decisions[index].body))
    decisions = [
        structs.replace(d, body=body) if n == index else d for n, d in enumerate(r.decisions)
    ]
    recorded[place] = replace(recorded[place], round=replace(r, decisions=tuple(decisions)))
    decider = Counter(every)
    result = audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded)
    assert [(d.round, d.seq, d.step) for d in result.divergences] == [
        (r.number, r.decisions[index].seq, "bytes")
    ]


def hash_of(r: Round) -> bytes:
    return round_hash(
        r.prev_hash,
        r.stream,
        r.number,
        r.epoch,
        r.at,
        r.engine,
        r.profile,
        r.inputs,
        r.basis,
        r.decisions,
        r.snapshot,
    )


def first_decision(**change: Any) -> Callable[[Round], Round]:
    return lambda r: replace(
        r, decisions=(structs.replace(r.decisions[0], **change), *r.decisions[1:])
    )


CHANGES: dict[str, Callable[[Round], Round]] = {
    "prev_hash": lambda r: replace(r, prev_hash=bytes(32)),
    "stream": lambda r: replace(r, stream="fleet/1"),
    "number": lambda r: replace(r, number=r.number + 1),
    "epoch": lambda r: replace(r, epoch=r.epoch + 1),
    "at": lambda r: replace(r, at=r.at + 1),
    "engine": lambda r: replace(r, engine=r.engine + "x"),
    "profile": lambda r: replace(r, profile=r.profile + "x"),
    "snapshot": lambda r: replace(r, snapshot=b"x"),
    "input id": lambda r: replace(
        r, inputs=(InputRef(UUID(int=1), r.inputs[0].sha256), *r.inputs[1:])
    ),
    "input sha256": lambda r: replace(
        r, inputs=(InputRef(r.inputs[0].id, bytes(32)), *r.inputs[1:])
    ),
    "input order": lambda r: replace(r, inputs=r.inputs[::-1]),
    "input less": lambda r: replace(r, inputs=r.inputs[:-1]),
    "basis place": lambda r: replace(r, basis={"x/0": (1, 1)}),
    "basis incarnation": lambda r: replace(
        r, basis={p: (i + 1, o) for p, (i, o) in r.basis.items()}
    ),
    "basis offset": lambda r: replace(r, basis={p: (i, o + 1) for p, (i, o) in r.basis.items()}),
    "decision seq": lambda r: replace(
        r, decisions=(structs.replace(r.decisions[0], seq=99), *r.decisions[1:])
    ),
    "decision id": first_decision(id=UUID(int=1)),
    "decision type": first_decision(type="x"),
    "decision subject": first_decision(subject="x"),
    "decision outcome": first_decision(outcome="x"),
    "decision cause": first_decision(cause=None),
    "decision body": first_decision(body=b"x"),
    "decision order": lambda r: replace(r, decisions=r.decisions[::-1]),
    "decision less": lambda r: replace(r, decisions=r.decisions[:-1]),
}


@given(HISTORIES, EVERY)
def test_the_hash_is_what_its_module_says(history: list[list[str]], every: int) -> None:
    """Every field with its length, every list with its count: here slowly, so that others can check
    a ledger."""
    for recorded in lived(history, every)[1]:
        r = recorded.round
        fields: list[str | bytes] = [
            r.prev_hash,
            r.stream,
            f"{r.number} {r.epoch} {r.at}",
            r.engine,
            r.profile,
            str(len(r.inputs)),
        ]
        for ref in r.inputs:
            fields += [ref.id.bytes, ref.sha256]
        fields.append(str(len(r.basis)))
        for place, (incarnation, offset) in sorted(r.basis.items()):
            fields += [place, f"{incarnation} {offset}"]
        fields.append(str(len(r.decisions)))
        for d in r.decisions:
            cause = d.cause.bytes if d.cause else b""
            fields += [str(d.seq), d.id.bytes, d.type, d.subject, d.outcome, cause, d.body]
        fields.append(r.snapshot)
        plain = [f.encode() if isinstance(f, str) else f for f in fields]
        assert r.hash == sha256(b"".join(str(len(f)).encode() + b":" + f for f in plain)).digest()


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=5), st.sampled_from(sorted(CHANGES)))
def test_the_hash_covers_every_field(names: list[str], change: str) -> None:
    _, recorded = lived([names], 3)
    r = recorded[0].round
    assert hash_of(r) == r.hash
    assert hash_of(CHANGES[change](r)) != r.hash


@given(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
def test_neighbouring_fields_cannot_trade_characters(a: str, b: str, c: str, d: str) -> None:
    """Lengths are hashed, so `ab` + `c` is not `a` + `bc`."""

    def of(engine: str, profile: str) -> bytes:
        return round_hash(b"", "s", 1, 1, 1, engine, profile, (), {}, (), b"")

    assert (of(a, b) == of(c, d)) == ((a, b) == (c, d))


@given(st.permutations([("a/0", (1, 1)), ("a/1", (1, 2)), ("b/0", (2, 3))]))
def test_the_order_in_which_a_basis_was_written_down_does_not_matter(
    places: list[tuple[str, tuple[int, int]]],
) -> None:
    sorted_ = round_hash(b"", "s", 1, 1, 1, "e", "p", (), dict(sorted(places)), (), b"")
    assert round_hash(b"", "s", 1, 1, 1, "e", "p", (), dict(places), (), b"") == sorted_
