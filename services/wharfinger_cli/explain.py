"""`explain`: why a binding is where it is, from what was recorded when it was decided.

The recorded explanation is hashed with the decision: it is what was known then, not what would be said now. Around it
stands what it led to on the nodes, and every decision about the binding before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    Explanation,
    ReplicasPlaced,
    ReplicasRefused,
    ScheduleDecided,
    ScheduleRefused,
    Scored,
)
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger_cli.app import Request
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.decisions import TYPES, as_plain, styled_outcome
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import DARK, Plain, as_clock, count, new_table, show
from wharfinger_cli.summary import summary

Explained = ScheduleDecided | ScheduleRefused | ReplicasPlaced | ReplicasRefused
ESTIMATED_BY = {"class": "counted", "totals": "from totals", "summary": "from the summary"}
NEAR_MAX = 5
HISTORY_SHOWN_MAX = 30


@dataclass(frozen=True, slots=True)
class Account:
    """`row` is the decision explained, `history` every decision about its subject in order of time, `row` among them."""

    subject: str
    row: LedgerRow
    data: Value
    history: tuple[LedgerRow, ...]

    @property
    def explanation(self) -> Explanation | None:
        return self.data.explanation if isinstance(self.data, Explained) else None

    @property
    def on_nodes(self) -> list[LedgerRow]:
        """What the cluster stages made of this decision."""
        return [row for row in self.history if getattr(row.data(), "assignment", None) == str(self.row.id)]


def explain(request: Request, binding: str, decision: str) -> None:
    account = run(_account(request, binding, decision))
    show(request.format, account_plain(account), [str(account.row.id)], lambda: account_page(account))


async def _account(request: Request, binding: str, decision: str) -> Account:
    async with opened_ledger(settings_of(request)) as ledger:
        return await account_of(ledger, binding, decision)


async def account_of(ledger: Ledger, binding: str, decision: str = "") -> Account:
    """The latest fleet decision about `binding`, or the one named. NotFoundError: there is none."""
    name = await _full_name(ledger, binding)
    history = [row async for row in ledger.decisions(DecisionQuery(types=TYPES, subject=name))]
    row = _named(history, name, decision) if decision else _latest(history)
    return Account(name, row, row.data(), tuple(history))


async def _full_name(ledger: Ledger, binding: str) -> str:
    """As given, or the one name that ends with it: `web` is `shop/web-deployment` where no other fits."""
    if await ledger.current(binding, FLEET):
        exact = [row async for row in ledger.decisions(DecisionQuery(FLEET, subject=binding, limit=1))]
        if exact:
            return binding
    short = binding.rpartition("/")
    subjects = sorted({row.subject for row in await ledger.current(stream=FLEET)})
    fitting = [s for s in subjects if s.endswith(f"/{binding}") or _bare(s) in (binding, f"{short[0]}/{short[2]}")]
    match fitting:
        case [only]:
            return only
        case []:
            near = [s for s in subjects if short[2] and short[2] in s][:NEAR_MAX]
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise NotFoundError(f"no decision was ever taken about a binding {binding}{hint}")
        case _:
            raise CommandError(f"{binding}: expected one binding, got {', '.join(fitting[:NEAR_MAX])}")


def _bare(subject: str) -> str:
    """`shop/web-deployment` without its namespace and the kind that is hung on."""
    return subject.rpartition("/")[2].rpartition("-")[0]


def _named(history: Sequence[LedgerRow], name: str, decision: str) -> LedgerRow:
    try:
        id_ = UUID(decision)
    except ValueError:
        raise CommandError(f"--decision: expected the id of a decision, got {decision!r}") from None
    for row in history:
        if row.id == id_:
            return row
    raise NotFoundError(f"no decision about {name} has the id {decision}")


def _latest(history: Sequence[LedgerRow]) -> LedgerRow:
    """The last word of the fleet stage; it always has the first one, so there is one."""
    return next(row for row in reversed(history) if row.stream.startswith(FLEET))


def account_plain(account: Account) -> Plain:
    return {
        "binding": account.subject,
        "decision": as_plain(account.row),
        "nodes": [as_plain(row) for row in account.on_nodes],
        "history": [as_plain(row) for row in account.history],
    }


def account_page(account: Account) -> Iterator[RenderableType]:
    yield _headline(account)
    if account.explanation is not None:
        yield from _explained(account, account.explanation)
    if account.on_nodes:
        yield ""
        yield _nodes(account.on_nodes)
    yield ""
    yield _history(account)


def _headline(account: Account) -> Table:
    row, data = account.row, account.data
    table = new_table()
    table.add_column()
    table.add_column()
    table.show_header = False

    def say(name: str, value: str | Text) -> None:
        if value:
            table.add_row(Text(name, DARK), value)

    say("binding", Text(account.subject, "bold"))
    say("decision", f"{row.id}")
    say("taken", f"{as_clock(row.at)} in {row.stream}, round {row.round:,}, number {row.seq:,}")
    say("outcome", styled_outcome(row.outcome).append(f"  {summary(data)}", "default"))
    if isinstance(data, ScheduleDecided | ScheduleRefused):
        say("because", data.trigger)
        say("replicas", str(data.replicas or ""))
        say("affinity", data.affinity)
    return table


def _explained(account: Account, explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.note:
        yield ""
        yield explanation.note
    if explanation.candidates:
        yield ""
        yield _counts(account, explanation)
    if explanation.chosen or explanation.runners_up:
        yield ""
        yield _candidates(account, explanation)


def _counts(account: Account, explanation: Explanation) -> Text:
    what = "cluster" if account.row.stream.startswith(FLEET) else "node"
    said = Text(f"{count(explanation.candidates, what)} looked at, {explanation.feasible:,} feasible")
    if explanation.refused:
        reasons = sorted(explanation.refused.items(), key=lambda entry: (-entry[1], entry[0]))
        said.append("; refused: " + ", ".join(f"{reason} {number:,}" for reason, number in reasons), DARK)
    return said


def _candidates(account: Account, explanation: Explanation) -> Table:
    data = account.data
    now = _replicas(data.targets if isinstance(data, ScheduleDecided | ScheduleRefused) else ())
    before = _replicas(data.previous if isinstance(data, ScheduleDecided | ScheduleRefused) else ())
    what = "cluster" if account.row.stream.startswith(FLEET) else "node"
    table = new_table(what, "", "score", "room for", "known", "weight", "replicas", "before",
                      right=("score", "room for", "weight", "replicas", "before"))  # fmt: skip

    def add(candidate: Scored, place: str, style: str) -> None:
        name = candidate.name
        room = f"{candidate.estimate:,}" if candidate.estimated_by or candidate.estimate else ""
        weight = explanation.division.get(name)
        table.add_row(
            name, place, str(candidate.score), room, ESTIMATED_BY.get(candidate.estimated_by, candidate.estimated_by),
            "" if weight is None else f"{weight:,}", str(now.get(name, "")), str(before.get(name, "")), style=style,
        )  # fmt: skip

    for candidate in explanation.chosen:
        add(candidate, "chosen", "")
    for candidate in explanation.runners_up:
        add(candidate, "runner-up", DARK)
    return table


def _replicas(clusters: Sequence[TargetCluster]) -> dict[str, int]:
    return {t.cluster: t.replicas for t in clusters}


def _nodes(rows: Sequence[LedgerRow]) -> Table:
    table = new_table("on the nodes", "outcome", "which", "nodes looked at", "refused")
    for row in rows:
        data = row.data()
        explanation = data.explanation if isinstance(data, ReplicasPlaced | ReplicasRefused) else Explanation()
        refused = ", ".join(f"{reason} {number:,}" for reason, number in sorted(explanation.refused.items()))
        looked_at = f"{explanation.feasible:,} of {explanation.candidates:,} feasible" if explanation.candidates else ""
        table.add_row(
            row.stream.removeprefix(CLUSTER), styled_outcome(row.outcome), summary(data), looked_at, Text(refused, DARK)
        )
    return table


def _history(account: Account) -> Table:
    table = new_table("its history", "stream", "seq", "outcome", "", right=("seq",))
    shown = account.history[-HISTORY_SHOWN_MAX:]
    if len(shown) < len(account.history):
        table.caption = f"the last {len(shown)} of {len(account.history)}; -o json has all"
    for row in shown:
        mark = "bold" if row.id == account.row.id else ""
        data = row.data()
        said = summary(data)
        if isinstance(data, ScheduleDecided | ScheduleRefused):
            said = f"{said}  [{data.trigger}]"
        table.add_row(
            as_clock(row.at), row.stream, f"{row.seq:,}", styled_outcome(row.outcome), Text(said), style=mark,
        )  # fmt: skip
    return table
