"""`lineage`: a tree from the first cause to the last effect, a line a link, with the ids under
which they are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from wharfinger.answers.event_text import told
from wharfinger.answers.lineage import lineage_plain
from wharfinger.events.decisions import as_decision
from wharfinger.history.lineage import (
    Lineage,
    Link,
    lineage_of_binding,
    lineage_of_decision,
    lineage_of_event,
)
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import DARK, WARN, as_clock, show
from wharfinger_cli.request import Request


def lineage(request: Request, binding: str | None, decision: str, event: str) -> None:
    if sum(1 for asked in (binding, decision, event) if asked) != 1:
        raise CommandError("lineage: expected one of BINDING, --decision ID and --event ID")
    found = run(_lineage(request, binding or "", decision, event))
    ids = dict.fromkeys(str(link.id) for link in found.links())
    show(request.format, lineage_plain(found), ids, lambda: lineage_page(found))


async def _lineage(request: Request, binding: str, decision: str, event: str) -> Lineage:
    if request.server:
        from wharfinger_cli.remote import Remote

        if decision or event:
            raise CommandError("--server: expected a BINDING")
        remote = Remote.of(request)
        answer: Lineage = remote.value(f"{remote.binding(binding)}/lineage")
        return answer
    async with opened_ledger(reached(request)) as ledger:
        if decision:
            return await lineage_of_decision(ledger, _id("--decision", decision))
        if event:
            return await lineage_of_event(ledger, _id("--event", event))
        return await lineage_of_binding(ledger, binding)


def _id(option: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise CommandError(
            f"{option}: expected an id such as those of `decisions -o json`, got {text!r}"
        ) from None


def lineage_page(found: Lineage) -> Iterator[RenderableType]:
    for root in found.roots:
        tree = Tree(_line(root, found), guide_style=DARK)
        _grow(tree, root, found)
        yield tree
    if found.cut:
        yield Text("there is more than is shown", WARN)


def _grow(tree: Tree, link: Link, found: Lineage) -> None:
    for child in link.children:
        _grow(tree.add(_line(child, found)), child, found)


def _line(link: Link, found: Lineage) -> Text:
    """What it says first; then where and when; the id last, where it can be copied."""
    line = Text()
    if link.decision is not None:
        row = link.decision
        line.append(f"{row.stream} {row.seq}  ", "bold" if link.id in found.asked else "")
        line.append_text(styled_outcome(row.outcome))
        line.append(f"  {as_decision(row.data()).sentence()}", "default")
        if row.subject != found.subject:
            line.append(f"  {row.subject}")
    elif link.event is not None:
        line.append(told(link.event, link.before), "bold" if link.id in found.asked else "")
        if link.event.subject != found.subject and link.event.subject not in line.plain:
            line.append(f"  {link.event.subject}")
    else:
        line.append("of which this ledger has no record")
    when = "" if link.at is None else f"  {as_clock(link.at)}"
    return line.append(f"{when}  {link.id}", DARK)
