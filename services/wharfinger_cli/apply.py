"""`apply` and `delete`: what the manifests say becomes facts, all of them or none. `apply --plan`
is in `plan`.

A file that ends in `.jsonl` holds events, one a line, as `generate fleet --out` writes them;
everything else is manifests.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.answers.decisions import short_type
from wharfinger.domain.binding import divided_quota
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.intake import (
    ANY,
    NO_POLICY,
    PLACEMENT,
    Intake,
    PolicyModel,
    compile_deletions,
    compile_manifests,
)
from wharfinger.events.policies import PolicyRemoved
from wharfinger.events.registry import type_of
from wharfinger.events.streams import FLEET
from wharfinger.manifests.parse import Loaded, Manifest, load_files, load_manifests
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.bulk import said
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import LatestFacts, Told, known_facts
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import DARK, GOOD, WARN, Format, Plain, count, messages, new_table, show
from wharfinger_cli.request import Request
from wharfinger_cli.submit import Submitted, submit

STDIN = "-"
EVENTS_SUFFIX = ".jsonl"
SHOWN_MAX = 50

CREATED, CHANGED, UNCHANGED, DELETED = "created", "changed", "unchanged", "deleted"
ENDS = (BindingWithdrawn, ClusterForgotten, PolicyRemoved)

Results = Mapping[tuple[str, str], str]
"""(short type, subject) -> what became of it."""

Compile = Callable[[Sequence[Manifest], LatestFacts], Intake]


def apply(request: Request, names: Sequence[str], *, strict: bool = False) -> None:
    if not names:
        raise CommandError("apply: expected manifests (-f FILE) or a plan (--plan ID)")
    _hand_in(request, names, compiled, read_events(names), strict)


def delete(request: Request, names: Sequence[str]) -> None:
    if any(name.endswith(EVENTS_SUFFIX) for name in names):
        raise CommandError(
            "delete: expected manifests, got events: what they told cannot be untold as a whole"
        )
    _hand_in(request, names, compiled_away, ())


def compiled(manifests: Sequence[Manifest], known: LatestFacts) -> Intake:
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


def read_events(names: Sequence[str]) -> list[Accepted]:
    """The events in the `.jsonl` files among `names`. CommandError: a line that is no event people
    may send."""
    return [
        fact for name in names if name.endswith(EVENTS_SUFFIX) for fact in _events_in(Path(name))
    ]


def _events_in(path: Path) -> Iterator[Accepted]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _fact(f"{path}:{number}", line)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def _fact(place: str, line: bytes) -> Accepted:
    try:
        event = decode(line.strip())
    except UndecodableError as error:
        raise CommandError(f"{place}: {error}") from error
    if not isinstance(event.data, Fact):
        raise CommandError(f"{place}: type: expected a fact from outside, got {event.type}")
    return replace(accepted(event.data), version=event.version)


def loaded(names: Sequence[str]) -> tuple[Manifest, ...]:
    """The manifests in those of `names` that hold manifests. CommandError: what cannot be read, all
    of it."""
    found = _load([name for name in names if not name.endswith(EVENTS_SUFFIX)])
    refuse(found.errors)
    return found.manifests


def _hand_in(
    request: Request,
    names: Sequence[str],
    made_by: Compile,
    events: Sequence[Accepted],
    strict: bool = False,
) -> None:
    manifests = loaded(names)
    if not manifests and not events:
        raise CommandError(f"{', '.join(names)}: expected at least one manifest, got none")
    facts, results, submitted, intake = run(_submit(request, manifests, made_by, events, strict))
    kinds = Counter(short_type(type_of(fact.data)) for fact in facts)
    value: Plain = {
        "events": dict(kinds),
        "accepted": submitted.accepted,
        "unchanged": submitted.unchanged,
        "objects": [
            {"type": what, "subject": subject, "result": result}
            for (what, subject), result in results.items()
        ],
        "skipped": [
            {
                "api_version": kind.api_version,
                "kind": kind.kind,
                "count": kind.count,
                "why": kind.why,
            }
            for kind in intake.skipped_kinds
        ],
    }

    def page() -> Iterator[RenderableType]:
        if facts:
            yield _table(results)
        yield said(submitted)

    show(request.format, value, [fact.key for fact in facts], page)
    people = request.format is Format.TABLE and messages().is_terminal
    if people and CHANGED in results.values():
        hint = "`wharfinger plan -f` with the same files shows beforehand what would change"
        messages().print(Text(hint, DARK), soft_wrap=True)


async def _submit(
    request: Request,
    manifests: Sequence[Manifest],
    made_by: Compile,
    events: Sequence[Accepted],
    strict: bool,
) -> tuple[list[Accepted], Results, Submitted, Intake]:
    async with opened_ledger(reached(request)) as ledger:
        known = await known_facts(ledger)
        intake = made_by(manifests, known)
        settle(intake, strict)
        facts = [*events, *intake.facts]
        await _refuse_what_shards_divide(ledger, facts)
        places = [(fact.topic.name, fact.key) for fact in facts]
        before = {place: known.latest[place] for place in places if place in known.latest}
        submitted = await submit(ledger, facts, known)
        return facts, results_of(facts, before, submitted.keys), submitted, intake


def results_of(
    facts: Sequence[Accepted], before: Mapping[tuple[str, str], Told], accepted: Collection[str]
) -> Results:
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
    return found


def settle(intake: Intake, strict: bool) -> None:
    """Refuses what is wrong, and prints what is not acted on and what is placed nowhere. `strict`:
    the latter is wrong too. CommandError."""
    refuse(intake.refusals if strict else intake.errors)
    for field in intake.unacted:
        messages().print(Text(f"{field}", WARN), soft_wrap=True)
    for kind in intake.skipped_kinds:
        messages().print(Text(f"{kind}", WARN), soft_wrap=True)
    if any(kind.why == NO_POLICY for kind in intake.skipped_kinds):
        hint = f"a policy that names a kind places it, and so does {PLACEMENT}: {ANY}"
        messages().print(Text(f"{hint}; --strict refuses what is skipped", DARK), soft_wrap=True)


async def _refuse_what_shards_divide(ledger: Ledger, facts: Sequence[Accepted]) -> None:
    """With one fleet shard, everything is kept."""
    divided = [
        why
        for fact in facts
        if isinstance(fact.data, BindingRequested) and (why := divided_quota(fact.data.binding))
    ]
    if divided and len(await ledger.heads(FLEET)) > 1:
        refuse(divided)


def _table(results: Results) -> Table:
    table = new_table("what", "subject", "")
    for (what, subject), result in list(results.items())[:SHOWN_MAX]:
        table.add_row(
            Text(what, DARK), subject, Text(result, DARK if result == UNCHANGED else GOOD)
        )
    if len(results) > SHOWN_MAX:
        table.add_row("", f"and {count(len(results) - SHOWN_MAX, 'more subject')}", "")
    return table


def _load(names: Sequence[str]) -> Loaded:
    files = load_files([name for name in names if name != STDIN])
    if STDIN not in names:
        return files
    piped = load_manifests(sys.stdin.read(), "standard input")
    return Loaded((*files.manifests, *piped.manifests), (*files.errors, *piped.errors))


def require_policies(manifests: Sequence[Manifest], hint: str = "") -> None:
    """CommandError: one of them is something else. `hint`: where that belongs."""
    for manifest in manifests:
        if not isinstance(manifest.model, PolicyModel):
            raise CommandError(
                f"{manifest.error(f'expected a policy, got a {manifest.model.kind}{hint}', 'kind')}"
            )


def refuse(errors: Sequence[object]) -> None:
    """Nothing is accepted when anything is wrong: half a change is worse than none."""
    if errors:
        more = len(errors) - SHOWN_MAX
        rest = [f"and {count(more, 'more error', 'more errors')}"] if more > 0 else []
        raise CommandError(*(str(error) for error in errors[:SHOWN_MAX]), *rest)
