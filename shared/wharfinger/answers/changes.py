"""What `apply` and `delete` do, for the command line and for the HTTP API: manifests become facts,
all of them or none, and each object is answered as created, changed, unchanged or deleted.

What manifests state depends on what is known: a workload goes by the policies, a policy moves the
workloads that it selects. Where another caller's change of these was accepted between the reading
and the accepting, the manifests are compiled again with it, under the lock of the intake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.answers.decisions import Plain, short_type
from wharfinger.answers.facts import LatestFacts, Told, known_facts
from wharfinger.answers.submit import CHUNK, SOURCE, news_of
from wharfinger.domain.binding import divided_quota
from wharfinger.domain.text import count
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.intake import (
    Intake,
    SkippedKind,
    compile_deletions,
    compile_manifests,
    compile_policy_removal,
    stated_by,
)
from wharfinger.events.origin import Origin
from wharfinger.events.policies import (
    EVERY_SHARD_KINDS,
    FIRST_SHARD_KINDS,
    NODE_KINDS,
    PolicyApplied,
    PolicyRemoved,
)
from wharfinger.events.registry import type_of
from wharfinger.events.streams import FLEET, POLICIES
from wharfinger.manifests.errors import ManifestError
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import Manifest
from wharfinger.runtime.ledger import AcceptResult, AsRead, AsSeen, Fact, Ledger, Submission

CREATED, CHANGED, UNCHANGED, DELETED = "created", "changed", "unchanged", "deleted"
ENDS = (BindingWithdrawn, ClusterForgotten, PolicyRemoved)
SHOWN_MAX = 50

_OF_A_NAMESPACE = frozenset(kind.kind for kind in KINDS if kind.namespaced) & (
    EVERY_SHARD_KINDS | FIRST_SHARD_KINDS | NODE_KINDS
)
"""Kinds of policies whose namespace says whose they are. With others it is a part of the name, as
of a catalogue of instance types, and the policy is for the fleet."""

Place = tuple[str, str]
"""A topic and a key."""

Compile = Callable[[Sequence[Manifest], LatestFacts], Intake]
Check = Callable[[Sequence[Accepted]], None]


class ChangeRefusedError(Exception):
    """Nothing was accepted. `errors`: all that is wrong; as text, one line each of the first
    `SHOWN_MAX`."""

    def __init__(self, errors: Sequence[ManifestError | str]) -> None:
        self.errors = tuple(errors)
        more = len(errors) - SHOWN_MAX
        rest = [f"and {count(more, 'more error', 'more errors')}"] if more > 0 else []
        self.lines = (*(str(error) for error in errors[:SHOWN_MAX]), *rest)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """`type`: short, of the fact; `result`: created, changed, unchanged or deleted."""

    type: str
    subject: str
    result: str


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """`events`: short type -> number of facts; `keys`: of the facts, in order. `unacted`: one line
    a field that is read and has no effect. `facts`: (topic, key) of each fact, to wait for it."""

    events: Mapping[str, int]
    keys: tuple[str, ...]
    objects: tuple[ObjectResult, ...]
    accepted: int
    unchanged: int
    outdated: int
    skipped: tuple[SkippedKind, ...] = ()
    unacted: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def changes_plain(changes: AppliedChanges) -> Plain:
    return {
        "events": dict(changes.events),
        "accepted": changes.accepted,
        "unchanged": changes.unchanged,
        "objects": [
            {"type": one.type, "subject": one.subject, "result": one.result}
            for one in changes.objects
        ],
        "skipped": [
            {
                "api_version": kind.api_version,
                "kind": kind.kind,
                "count": kind.count,
                "why": kind.why,
            }
            for kind in changes.skipped
        ],
    }


def compiled(manifests: Sequence[Manifest], known: LatestFacts) -> Intake:
    """What applying them states."""
    return compile_manifests(
        manifests,
        known.policies,
        known.bindings,
        known.nodes,
        known.buckets,
        known.quotas,
        known.objects,
        known.pods,
        known.finished,
        known.waiting,
    )


def compiled_away(manifests: Sequence[Manifest], known: LatestFacts) -> Intake:
    """What deleting them states."""
    return compile_deletions(
        manifests,
        known.policies,
        known.bindings,
        known.nodes,
        known.buckets,
        known.quotas,
        known.objects,
        known.pods,
        known.finished,
        known.waiting,
    )


def compiled_policy_removal(kind: str, namespace: str, name: str) -> Compile:
    """What deleting one policy states, without its manifest."""

    def made(manifests: Sequence[Manifest], known: LatestFacts) -> Intake:
        removed = PolicyRemoved(kind, name, namespace)
        return compile_policy_removal(removed, known.policies, known.bindings)

    return made


async def change(
    ledger: Ledger,
    manifests: Sequence[Manifest],
    made_by: Compile,
    events: Sequence[Accepted] = (),
    *,
    strict: bool = False,
    dry_run: bool = False,
    source: str = SOURCE,
    origin: Origin | None = None,
    check: Check = lambda _: None,
    since: int | None = None,
) -> AppliedChanges:
    """Accept `events` and what `made_by` makes of `manifests`. `strict`: an object that is placed
    nowhere is wrong too. `dry_run`: nothing is accepted, the answer is as if it were. `check`:
    raises what it has against the facts before any is accepted. `since`: the seq of the intake up
    to which the caller has seen what is changed.

    What others have changed after it was read is looked at for each `CHUNK` of facts. What is left
    is compiled again then.

    ChangeRefusedError: something is wrong. ChangedSinceError: it was changed after `since`. In both
    cases nothing was accepted, unless the first line of the error says how much was."""
    known = await known_facts(ledger)
    applied = _Applied(manifests, made_by, events, known, strict, source, check)
    await _refuse_what_shards_divide(ledger, applied.facts)
    if dry_run:
        applied.pretend()
        return applied.changes()
    submissions = applied.next_chunk()
    seen = None if since is None else AsSeen(since, applied.places)
    left = bool(submissions or seen is not None or applied.intake.skipped)
    while left:
        applied.take(await ledger.accept(submissions, origin, seen, applied.as_read()))
        seen = None
        submissions = applied.next_chunk()
        left = bool(submissions)
    return applied.changes()


class _Applied:
    """Manifests and events on their way in: what was compiled of what is known, and what of it is
    accepted. `known` is moved along."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        made_by: Compile,
        events: Sequence[Accepted],
        known: LatestFacts,
        strict: bool,
        source: str,
        check: Check,
    ) -> None:
        self._manifests = manifests
        self._made_by = made_by
        self._events = events
        self._known = known
        self._strict = strict
        self._source = source
        self._check = check
        self._chunk: list[tuple[Accepted, Submission]] = []
        self._chunk_before: dict[Place, Told | None] = {}
        self._chunk_unchanged = 0
        self._stale: set[Place] = set()
        self._keys: set[str] = set()
        self._new: set[UUID] = set()
        self._outdated: set[UUID] = set()
        self._before: dict[Place, Told | None] = {}
        self._accepted: dict[Place, tuple[Accepted, UUID]] = {}
        self._superseded: set[Place] = set()
        self._compile()

    def _compile(self) -> None:
        """What others have changed after it was accepted from here is not stated again.
        ChangeRefusedError: something is wrong."""
        gone = self._superseded
        manifests = [m for m in self._manifests if not (gone and stated_by(m) in gone)]
        self.intake = self._made_by(manifests, self._known)
        errors = self.intake.refusals if self._strict else self.intake.errors
        if errors and self._new:
            # what was right before another caller's change
            said = count(len(self._new), "fact was", "facts were")
            raise ChangeRefusedError([f"{said} accepted before this came up", *errors])
        refuse(errors)
        of_policies = any(topic == POLICIES.name for topic, _ in gone)
        if self._manifests or not of_policies:
            self.facts = [*(e for e in self._events if _place(e) not in gone), *self.intake.facts]
        else:
            self.facts = []  # the policy to be removed was applied again
        if self.facts or not gone:
            self._check(self.facts)
        self.places = [_place(fact) for fact in self.facts]
        self._own = frozenset(self.places)
        self._earlier = frozenset(self._before)
        self._handled = 0
        self._unchanged = 0

    def next_chunk(self) -> list[Submission]:
        """Of the facts that are left, the next that say something new."""
        self._chunk, self._chunk_before, self._chunk_unchanged = [], {}, 0
        while self._handled < len(self.facts) and len(self._chunk) < CHUNK:
            fact = self.facts[self._handled]
            self._handled += 1
            place = _place(fact)
            before = self._known.latest.get(place)
            if (found := news_of(fact, self._known, source=self._source)) is not None:
                self._chunk.append((fact, found))
                self._chunk_before.setdefault(place, before)
            elif place not in self._earlier:
                self._chunk_unchanged += 1
        return [submission for _, submission in self._chunk]

    def as_read(self) -> AsRead | None:
        """None: nothing of it follows from what is known."""
        if not self.intake.reads:
            return None
        return AsRead(self._known.seq, self._known.at, self._stale_among, self._again)

    def _stale_among(self, changed: Sequence[Place]) -> Collection[Place]:
        self._stale.update(changed)
        depends = any(place[0] in self.intake.reads or place in self._own for place in changed)
        return self._stale if depends else ()

    def _again(self, facts: Sequence[Fact]) -> list[Submission]:
        """The chunk was not accepted: what it says is not known yet."""
        for place, before in self._chunk_before.items():
            if before is None:
                del self._known.latest[place]
            else:
                self._known.latest[place] = before
        self._chunk_before = {}
        self._known.take(facts)
        self._stale.clear()
        latest = self._known.latest
        self._superseded.update(p for p, (_, id_) in self._accepted.items() if latest[p].id != id_)
        self._compile()
        return self.next_chunk()

    def take(self, result: AcceptResult) -> None:
        """The chunk was accepted."""
        new, outdated = set(result.new), set(result.outdated)
        self._known.seq, self._known.at = result.seq, result.at
        for fact, s in self._chunk:
            if s.event.id in new:
                place = _place(fact)
                self._before.setdefault(place, self._chunk_before[place])
                self._accepted[place] = fact, s.event.id
                self._keys.add(s.key)
        self._unchanged += self._chunk_unchanged + sum(
            all(s.event.id not in ids for ids in (new, outdated, self._new)) for _, s in self._chunk
        )
        self._new |= new
        self._outdated |= outdated
        self._chunk, self._chunk_before, self._chunk_unchanged = [], {}, 0

    def pretend(self) -> None:
        """As if all of it were accepted."""
        while chunk := self.next_chunk():
            self.take(AcceptResult(tuple(s.event.id for s in chunk), ()))

    def changes(self) -> AppliedChanges:
        before = {place: told for place, told in self._before.items() if told is not None}
        earlier = [fact for place, (fact, _) in self._accepted.items() if place not in self._own]
        facts = [*earlier, *self.facts]
        return AppliedChanges(
            dict(Counter(short_type(type_of(fact.data)) for fact in facts)),
            tuple(fact.key for fact in facts),
            results_of(facts, before, self._keys),
            len(self._new),
            self._unchanged + self._chunk_unchanged,
            len(self._outdated),
            self.intake.skipped_kinds,
            tuple(str(field) for field in self.intake.unacted),
            tuple(_place(fact) for fact in facts),
        )


def _place(fact: Accepted) -> Place:
    return fact.topic.name, fact.key


def refuse(errors: Sequence[ManifestError | str]) -> None:
    """Nothing is accepted when anything is wrong: half a change is worse than none."""
    if errors:
        raise ChangeRefusedError(errors)


def namespace_of(fact: Accepted) -> str | None:
    """The namespace that a fact is about; None: it is about the fleet, or about a cluster."""
    match fact.data:
        case BindingRequested(binding=binding):
            return str(binding.name).partition("/")[0]
        case BindingWithdrawn(name=name):
            return str(name).partition("/")[0]
        case PolicyApplied(policy=policy):
            return policy.namespace or None if policy.kind in _OF_A_NAMESPACE else None
        case PolicyRemoved(kind=kind, namespace=namespace):
            return namespace or None if kind in _OF_A_NAMESPACE else None
        case _:
            return None


def results_of(
    facts: Sequence[Accepted], before: Mapping[tuple[str, str], Told], accepted: Collection[str]
) -> tuple[ObjectResult, ...]:
    """What became of each subject, however many facts say something about it. `before`: (topic,
    key) -> what was known; `accepted`: the keys of the facts that said something new."""
    found: dict[tuple[str, str], str] = {}
    for fact in facts:
        line = (short_type(type_of(fact.data)), fact.subject)
        result = UNCHANGED
        if fact.key in accepted:
            told = before.get((fact.topic.name, fact.key))
            ended = isinstance(fact.data, ENDS)
            created = told is None or isinstance(told.data, ENDS)
            result = DELETED if ended else CREATED if created else CHANGED
        known = found.setdefault(line, result)
        if result != known:  # one part of it is new, or says something new
            found[line] = CHANGED
    return tuple(ObjectResult(what, subject, result) for (what, subject), result in found.items())


async def _refuse_what_shards_divide(ledger: Ledger, facts: Sequence[Accepted]) -> None:
    """With one fleet shard, everything is kept."""
    divided = [
        why
        for fact in facts
        if isinstance(fact.data, BindingRequested) and (why := divided_quota(fact.data.binding))
    ]
    if divided and len(await ledger.heads(FLEET)) > 1:
        refuse(divided)
