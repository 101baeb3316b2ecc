"""What `apply` and `delete` do, for the command line and for the HTTP API: manifests become facts,
all of them or none, and each object is answered as created, changed, unchanged or deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.answers.decisions import Plain, short_type
from wharfinger.answers.facts import LatestFacts, Told, known_facts
from wharfinger.answers.submit import SOURCE, Submitted, news_of, submit
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
from wharfinger.events.streams import FLEET
from wharfinger.manifests.errors import ManifestError
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import Manifest
from wharfinger.runtime.ledger import Ledger

CREATED, CHANGED, UNCHANGED, DELETED = "created", "changed", "unchanged", "deleted"
ENDS = (BindingWithdrawn, ClusterForgotten, PolicyRemoved)
SHOWN_MAX = 50

_OF_A_NAMESPACE = frozenset(kind.kind for kind in KINDS if kind.namespaced) & (
    EVERY_SHARD_KINDS | FIRST_SHARD_KINDS | NODE_KINDS
)
"""Kinds of policies whose namespace says whose they are. With others it is a part of the name, as
of a catalogue of instance types, and the policy is for the fleet."""

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

    ChangeRefusedError: something is wrong. ChangedSinceError: it was changed after `since`. In both
    cases nothing was accepted."""
    known = await known_facts(ledger)
    intake = made_by(manifests, known)
    refuse(intake.refusals if strict else intake.errors)
    facts = [*events, *intake.facts]
    check(facts)
    await _refuse_what_shards_divide(ledger, facts)
    places = [(fact.topic.name, fact.key) for fact in facts]
    before = {place: known.latest[place] for place in places if place in known.latest}
    if dry_run:
        submitted = _would_submit(facts, known)
    else:
        submitted = await submit(ledger, facts, known, source=source, origin=origin, since=since)
    return AppliedChanges(
        dict(Counter(short_type(type_of(fact.data)) for fact in facts)),
        tuple(fact.key for fact in facts),
        results_of(facts, before, submitted.keys),
        submitted.accepted,
        submitted.unchanged,
        submitted.outdated,
        intake.skipped_kinds,
        tuple(str(field) for field in intake.unacted),
        tuple(places),
    )


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


def _would_submit(facts: Sequence[Accepted], known: LatestFacts) -> Submitted:
    news = [found for fact in facts if (found := news_of(fact, known)) is not None]
    return Submitted(len(news), len(facts) - len(news), 0, {found.key for found in news})


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
