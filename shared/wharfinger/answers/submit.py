"""Hand facts in: each becomes an event with an id that follows from what it says, and is durable
when this returns.

An event's id is made of its key, its content and the id of the message under that key before it, or
the version that it has of its own. So the same fact twice is known and has no effect, while a fact
that was true, then not, then true again is three messages and not two. A command that was killed
half way is simply run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from wharfinger.answers.facts import LatestFacts, Told
from wharfinger.domain.text import printable
from wharfinger.domain.value import canonical, digest
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.codec import made
from wharfinger.events.envelope import NO_VERSION, derived_id
from wharfinger.events.names import wrong_name
from wharfinger.events.origin import Origin
from wharfinger.runtime.ledger import AsSeen, Ledger, Submission

SOURCE = "/wharfinger/command-line"
API_SOURCE = "/wharfinger/api"
CHUNK = 500
PACE_S = 0.02  # with a rate: how often a few are sent


class WrongFactError(ValueError):
    """A name in a fact cannot be one; one line."""


@dataclass(slots=True)
class Submitted:
    """`accepted` now, `unchanged` because they were the last word already, `outdated` because a
    newer version of their key is known. `keys`: of what was accepted."""

    accepted: int = 0
    unchanged: int = 0
    outdated: int = 0
    keys: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        return self.accepted + self.unchanged + self.outdated


def submission(fact: Accepted, before: Told | None, source: str = SOURCE) -> Submission:
    """The event that says `fact`, after `before` under the same key. `source`: which way in; the
    id does not depend on it."""
    said = () if fact.version == NO_VERSION else fact.version
    previous = str(before.id) if before is not None and not said else ""
    event = made(
        fact.data,
        id=derived_id(
            "told", fact.topic.name, fact.key, previous, digest(fact.data, 64), *map(str, said)
        ),
        source=source,
        subject=fact.subject,
        key=fact.partition_key,
        version=fact.version,
    )
    return Submission(event, fact.topic.name, fact.key, fact.partition_key)


async def submit(
    ledger: Ledger,
    facts: Iterable[Accepted],
    known: LatestFacts,
    *,
    rate: float | None = None,
    again: bool = False,
    source: str = SOURCE,
    origin: Origin | None = None,
    since: int | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Submitted:
    """Accept `facts` in order, `rate` bindings a second (other facts as they come). `told` is
    called with the number handled.

    `again`: also what changes nothing is a message of its own (a cluster that says it is still
    there). `known` is moved along, so that it may be used for the next call. `origin`: who hands it
    in, where it is not whom the ledger was opened for.

    WrongFactError: a name cannot be one. ChangedSinceError: a fact under one of the keys was
    accepted after the seq `since` of the intake.
    """
    seen = None
    if since is not None:
        facts = list(facts)
        seen = AsSeen(since, [(fact.topic.name, fact.key) for fact in facts])
    done = Submitted()
    pace = BindingPace(rate)
    for chunk in chunks(facts, CHUNK if rate is None else max(1, int(rate * PACE_S))):
        await pace.wait_for(sum(isinstance(fact.data, BindingRequested) for fact in chunk))
        submissions = [
            s
            for s in (news_of(fact, known, again=again, source=source) for fact in chunk)
            if s is not None
        ]
        result = await ledger.accept(submissions, origin, seen)
        seen = None
        new = set(result.new)
        done.keys.update(s.key for s in submissions if s.event.id in new)
        done.accepted += len(result.new)
        done.outdated += len(result.outdated)
        done.unchanged += len(chunk) - len(result.new) - len(result.outdated)
        told(len(chunk))
    return done


def news_of(
    fact: Accepted, known: LatestFacts, *, again: bool = False, source: str = SOURCE
) -> Submission | None:
    """None: the last word under this key says the same. `known` is moved along. WrongFactError: a
    name cannot be one."""
    if wrong := wrong_name(fact.data):
        raise WrongFactError(f"{printable(fact.key)}: {wrong}")
    place = (fact.topic.name, fact.key)
    before = known.latest.get(place)
    same = (
        before is not None
        and type(before.data) is type(fact.data)
        and canonical(before.data) == canonical(fact.data)
    )
    if same and not again and fact.version == NO_VERSION:
        return None
    made_now = submission(fact, before, source)
    known.latest[place] = Told(made_now.event.id, fact.data, 0)
    return made_now


class BindingPace:
    """Lets `rate` bindings a second pass, measured from the first one, so that a slow moment is
    made up for."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._started: float | None = None
        self._passed = 0

    async def wait_for(self, bindings: int) -> None:
        if self._rate is None or bindings == 0:
            return
        self._started = self._started or time.monotonic()
        due = self._started + self._passed / self._rate
        self._passed += bindings
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def chunks(facts: Iterable[Accepted], size: int) -> Iterator[list[Accepted]]:
    iterator = iter(facts)
    while chunk := list(islice(iterator, size)):
        yield chunk
