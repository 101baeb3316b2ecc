"""`apply` and `delete`: what the manifests say becomes facts, all of them or none. `apply --plan`
is in `plan`.

A file that ends in `.jsonl` holds events, one a line, as `generate fleet --out` writes them;
everything else is manifests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.answers.changes import (
    CHANGED,
    SHOWN_MAX,
    UNCHANGED,
    AppliedChanges,
    ChangeRefusedError,
    Compile,
    ObjectResult,
    change,
    changes_plain,
)
from wharfinger.answers.changes import compiled as compiled
from wharfinger.answers.changes import compiled_away as compiled_away
from wharfinger.answers.plans import require_policies as policies_only
from wharfinger.answers.submit import Submitted, submission
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.intake import ANY, NO_POLICY, PLACEMENT, SkippedKind
from wharfinger.manifests.errors import ManifestError
from wharfinger.manifests.parse import Manifest, loaded_texts, read_texts
from wharfinger_cli.bulk import said
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import DARK, GOOD, WARN, Format, count, messages, new_table
from wharfinger_cli.request import Request
from wharfinger_cli.waiting import Wait, show_and_wait

STDIN = "-"
EVENTS_SUFFIX = ".jsonl"


def apply(
    request: Request, names: Sequence[str], *, strict: bool = False, wait: Wait | None = None
) -> None:
    if not names:
        raise CommandError("apply: expected manifests (-f FILE) or a plan (--plan ID)")
    _hand_in(request, names, compiled, read_events(names), strict, wait)


def delete(request: Request, names: Sequence[str], *, wait: Wait | None = None) -> None:
    if any(name.endswith(EVENTS_SUFFIX) for name in names):
        raise CommandError(
            "delete: expected manifests, got events: what they told cannot be untold as a whole"
        )
    _hand_in(request, names, compiled_away, (), wait=wait)


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
    found = loaded_texts(texts_of(names))
    refuse(found.errors)
    return found.manifests


def _hand_in(
    request: Request,
    names: Sequence[str],
    made_by: Compile,
    events: Sequence[Accepted],
    strict: bool = False,
    wait: Wait | None = None,
) -> None:
    texts = texts_of(names)
    found = loaded_texts(texts)
    refuse(found.errors)
    manifests = found.manifests
    if not manifests and not events:
        raise CommandError(f"{', '.join(names)}: expected at least one manifest, got none")
    if request.server:
        changes = _over_server(request, texts, events, made_by is compiled_away, strict)
    else:
        changes = run(_change(request, manifests, made_by, events, strict))
    say_unacted(changes.unacted, changes.skipped)

    def page() -> Iterator[RenderableType]:
        if changes.keys:
            yield _table(changes.objects)
        yield said(Submitted(changes.accepted, changes.unchanged, changes.outdated))
        people = request.format is Format.TABLE and messages().is_terminal
        if people and any(one.result == CHANGED for one in changes.objects):
            hint = "`wharfinger plan -f` with the same files shows beforehand what would change"
            messages().print(Text(hint, DARK), soft_wrap=True)

    show_and_wait(request, changes_plain(changes), changes.keys, page, wait, changes.facts)


async def _change(
    request: Request,
    manifests: Sequence[Manifest],
    made_by: Compile,
    events: Sequence[Accepted],
    strict: bool,
) -> AppliedChanges:
    async with opened_ledger(reached(request)) as ledger:
        try:
            return await change(ledger, manifests, made_by, events, strict=strict)
        except ChangeRefusedError as error:
            raise CommandError(*error.lines) from None


def _over_server(
    request: Request,
    texts: Sequence[tuple[str, str | ManifestError]],
    events: Sequence[Accepted],
    deleting: bool,
    strict: bool,
) -> AppliedChanges:
    """The server reads the same texts under the same names, so that it finds the same."""
    from wharfinger_cli.remote import Remote

    body: dict[str, object] = {
        "manifests": [{"name": name, "text": text} for name, text in texts],
        "reason": request.reason,
        "revision": request.revision,
    }
    if not deleting:
        body["strict"] = strict
        body["events"] = [msgspec.Raw(submission(fact, None).event.body) for fact in events]
    found = Remote.of(request).change("/v1/delete" if deleting else "/v1/apply", body)
    assert isinstance(found, AppliedChanges), "the route answers with its value"
    return found


def say_unacted(unacted: Sequence[str], skipped: Sequence[SkippedKind]) -> None:
    """Prints what is read and has no effect, and what is placed nowhere."""
    for field in unacted:
        messages().print(Text(field, WARN), soft_wrap=True)
    _say_skipped(skipped)


def _say_skipped(kinds: Sequence[SkippedKind]) -> None:
    for kind in kinds:
        messages().print(Text(f"{kind}", WARN), soft_wrap=True)
    if any(kind.why == NO_POLICY for kind in kinds):
        hint = f"a policy that names a kind places it, and so does {PLACEMENT}: {ANY}"
        messages().print(Text(f"{hint}; --strict refuses what is skipped", DARK), soft_wrap=True)


def _table(objects: Sequence[ObjectResult]) -> Table:
    table = new_table("what", "subject", "")
    for one in objects[:SHOWN_MAX]:
        table.add_row(
            Text(one.type, DARK),
            one.subject,
            Text(one.result, DARK if one.result == UNCHANGED else GOOD),
        )
    if len(objects) > SHOWN_MAX:
        table.add_row("", f"and {count(len(objects) - SHOWN_MAX, 'more subject')}", "")
    return table


def texts_of(names: Sequence[str]) -> list[tuple[str, str | ManifestError]]:
    """(name, what it holds or why it cannot be read), of those that hold manifests. Of a name it
    is read once: standard input cannot be read again."""
    wanted = [name for name in names if not name.endswith(EVENTS_SUFFIX)]
    found = read_texts([name for name in wanted if name != STDIN])
    return [*found, ("standard input", sys.stdin.read())] if STDIN in wanted else found


def require_policies(manifests: Sequence[Manifest], hint: str = "") -> None:
    """CommandError: one of them is something else. `hint`: where that belongs."""
    try:
        policies_only(manifests, hint)
    except ChangeRefusedError as error:
        raise CommandError(*error.lines) from None


def refuse(errors: Sequence[ManifestError | str]) -> None:
    """Nothing is accepted when anything is wrong. CommandError: all of it."""
    if errors:
        raise CommandError(*ChangeRefusedError(errors).lines)
