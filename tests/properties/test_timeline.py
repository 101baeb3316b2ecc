"""Whether a ledger has gone back: found after every history of commits, published heads and
restores, and never otherwise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.events.decisions import LedgerWentBack
from wharfinger.events.ledger import StreamPublished
from wharfinger.kernel.incarnations import Incarnations, decision_id, id_of, incarnation_at, noted
from wharfinger.runtime.ledger.incarnations import WhatIsThere, behind

STREAMS = ("fleet/0", "cluster/oslo", "intake")


@dataclass
class Database:
    """Chains of hashes, and how often they went back. One decision a round, so seqs are round
    numbers."""

    chains: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    history: list[LedgerWentBack] = field(default_factory=list)

    def commit(self, stream: str, salt: int) -> None:
        chain = self.chains[stream]
        before = chain[-1] if chain else stream.encode()
        chain.append(hashlib.sha256(before + str(salt).encode()).digest())

    def copy(self) -> Database:
        return Database(
            {name: list(chain) for name, chain in self.chains.items()}, list(self.history)
        )

    @property
    def incarnation(self) -> int:
        return self.history[-1].incarnation if self.history else 1

    def incarnations(self, stream: str) -> Incarnations:
        found: Incarnations = ()
        for one in self.history:
            found = noted(found, stream, one)
        return found

    def there(self, timeline: dict[str, StreamPublished]) -> dict[str, WhatIsThere]:
        found = {}
        for name, one in timeline.items():
            chain = self.chains[name]
            found[name] = WhatIsThere(
                len(chain), 0, chain[one.round - 1] if one.round <= len(chain) else None
            )
        return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(STREAMS)),
        st.tuples(st.just("publish"), st.sampled_from(STREAMS)),
        st.tuples(st.just("backup"), st.just("")),
        st.tuples(st.just("restore"), st.just("")),
        st.tuples(st.just("start"), st.just("")),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_published_id_ever_stands_for_two_decisions(steps: list[tuple[str, str]]) -> None:
    database, backup = Database(), Database()
    timeline: dict[str, StreamPublished] = {}
    seen: dict[object, bytes] = {}
    for salt, (what, stream) in enumerate([*steps, ("start", "")]):
        match what:
            case "commit":
                database.commit(stream, salt)
            case "publish" if database.chains[stream]:
                chain = database.chains[stream]
                timeline[stream] = StreamPublished(
                    stream, database.incarnation, len(chain), len(chain), chain[-1].hex()
                )
                for seq, hash_ in enumerate(chain, 1):
                    id_ = id_of(stream, seq, database.incarnations(stream))
                    assert seen.setdefault(id_, hash_) == hash_, "one id, two decisions"
            case "backup":
                backup = database.copy()
            case "restore" | "start":
                # A restored database is started at once: nothing is committed or published before
                # the comparison.
                if what == "restore":
                    database = backup.copy()
                missing = behind(timeline, database.there(timeline), database.incarnation)
                if what == "start":
                    assert not missing, "a database that only went forward is never behind"
                if missing:
                    number = 1 + max(
                        database.incarnation, *(one.incarnation for one in missing.values())
                    )
                    kept = {name: len(chain) for name, chain in database.chains.items()}
                    database.history.append(LedgerWentBack(number, kept))
                    assert not behind(timeline, database.there(timeline), database.incarnation), (
                        "recorded once"
                    )
            case _:
                pass


def test_ids_of_the_first_incarnation_are_as_they_always_were() -> None:
    assert id_of("fleet/0", 7, ()) == decision_id("fleet/0", 7) == decision_id("fleet/0", 7, 1)
    back: Incarnations = noted((), "fleet/0", LedgerWentBack(2, {"fleet/0": 7}))
    assert id_of("fleet/0", 7, back) == decision_id("fleet/0", 7)
    assert id_of("fleet/0", 8, back) == decision_id("fleet/0", 8, 2) != decision_id("fleet/0", 8)
    twice = noted(back, "fleet/0", LedgerWentBack(4, {"fleet/0": 9}))
    assert [incarnation_at(twice, seq) for seq in (7, 8, 9, 10)] == [1, 2, 2, 4]
    assert noted((), "cluster/new", LedgerWentBack(2, {})) == ((0, 2),)
