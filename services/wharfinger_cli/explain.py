"""`explain`: why a binding is where it is, why not elsewhere, and what the smallest change is that
would let it in there.

First what was decided and what came of it, then how: every cluster or node that was asked, with the
rules it failed and the change that would have made it pass, and the arithmetic of the division.
Shown are the nearest few; `--all` shows every one and the nodes as well, and the formats for
programs always have everything that was derived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.answers.explanation import account_plain as account_plain
from wharfinger.answers.explanation import waits
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    Explanation,
    FailoverSets,
    ProposalEnd,
    ScheduleAnswer,
    SelectionPart,
    as_decision,
    effect_of,
    explanation_of,
)
from wharfinger.events.streams import CLUSTER
from wharfinger.history.explain import Derived, Explained, Steady, Undecided
from wharfinger.history.explain import account as recorded_account
from wharfinger.history.points import point_of
from wharfinger.rules.changes import said, sized
from wharfinger.runtime.ledger import Ledger, LedgerRow
from wharfinger.stages.cluster.trace import NodesTrace, NodeTrace
from wharfinger.stages.fleet.selection_trace import CandidateTrace, SelectionsTrace
from wharfinger.stages.fleet.trace import ClusterTrace, DivisionTrace, FleetTrace, SelectionTrace
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import BAD, DARK, GOOD, WARN, as_clock, count, new_table, show
from wharfinger_cli.request import Request

ESTIMATED_BY = {
    "class": "counted",
    "totals": "from totals",
    "summary": "from its summary",
    "refused": "it refused",
    "silent": "silent",
}
FAILOVER_SETS = ("reserved", "available", "candidates", "failed")
SHOWN = 8
"""Clusters, nodes and shares that are shown of each sort where not all are asked for."""


def explain(request: Request, binding: str, at: str, decision: str, *, every: bool) -> None:
    if at and decision:
        raise CommandError("--at and --decision: expected one of them")
    account = run(_account(request, binding, at, decision, every))
    ids = [] if isinstance(account, Undecided) else [str(account.decision.row.id)]
    show(request.format, account_plain(account), ids, lambda: account_page(account, every=every))


async def _account(
    request: Request, binding: str, at: str, decision: str, every: bool
) -> Explained | Undecided:
    if request.server:
        from wharfinger_cli.remote import Remote

        remote = Remote.of(request)
        answer: Explained | Undecided = remote.value(
            f"{remote.binding(binding)}/explain",
            at=at.replace(":", "@") if "/" in at else at,
            decision=_id(decision) or "",
            every=str(every).lower(),
        )
        return answer
    async with opened_ledger(reached(request)) as ledger:
        return await account_of(ledger, binding, decision, at, every=every)


async def account_of(
    ledger: Ledger, binding: str, decision: str = "", at: str = "", *, every: bool = False
) -> Explained | Undecided:
    """As `history.explain.account`, of what was typed."""
    point = point_of(at, time.time_ns() // 1000) if at else None
    return await recorded_account(ledger, binding, point, _id(decision), every)


def _id(decision: str) -> UUID | None:
    if not decision:
        return None
    try:
        return UUID(decision)
    except ValueError:
        raise CommandError(f"--decision: expected the id of a decision, got {decision!r}") from None


# --- for programs


# --- for people


def account_page(
    account: Explained | Undecided, *, every: bool = False
) -> Iterator[RenderableType]:
    if isinstance(account, Undecided):
        yield _undecided(account)
        yield from _unacted(account)
        return
    yield _headline(account)
    if account.waiting is not None:
        yield ""
        yield Text("its present request ", WARN).append(waits(account.waiting), "default")
    if account.steady is not None:
        yield from _steady(account.steady)
    yield from _derived(account.decision, every)
    if account.on_nodes:
        yield ""
        yield _nodes(account.on_nodes)
    for derived in account.nodes:
        yield ""
        yield Text(
            f"{derived.row.stream}, {derived.row.outcome}: {as_decision(derived.data).sentence()}",
            "bold",
        )
        yield from _derived(derived, every)
    yield from _unacted(account)
    yield ""
    yield _history(account)


def _undecided(account: Undecided) -> Table:
    table = _facts()
    table.add_row(Text("binding", DARK), Text(account.binding, "bold"))
    table.add_row(Text("decision", DARK), Text("none yet", WARN))
    if account.round:
        where = f"{as_clock(account.at)} in {account.stream}, round {account.round:,}"
        table.add_row(Text("state of", DARK), where)
    if account.waiting is None:
        table.add_row(Text("because", DARK), account.rule)
    else:
        table.add_row(Text("request", DARK), waits(account.waiting))
    return table


def _unacted(account: Explained | Undecided) -> Iterator[RenderableType]:
    """What was asked for and had no part in the decision."""
    if account.unacted:
        yield ""
    for whose, fields in account.unacted.items():
        text = Text(f"accepted in {whose}, not acted on in this version: ", WARN)
        yield text.append(", ".join(fields), "default")


def _headline(account: Explained) -> Table:
    row, data = account.decision.row, account.decision.data
    table = _facts()

    def say(name: str, value: str | Text) -> None:
        if value:
            table.add_row(Text(name, DARK), value)

    say(_kind(data), Text(account.binding, "bold"))
    say("decision", f"{row.id}")
    say("taken", f"{as_clock(row.at)} in {row.stream}, round {row.round:,}, number {row.seq:,}")
    say(
        "outcome",
        styled_outcome(row.outcome).append(f"  {as_decision(data).sentence()}", "default"),
    )
    if isinstance(data, ScheduleAnswer):
        say("because", data.trigger)
        say("replicas", str(data.replicas or ""))
        say("asks for", _asked(data))
        say("affinity", data.affinity)
    effect = effect_of(data)
    if isinstance(effect, SelectionPart):
        say("because", effect.trigger)
    if isinstance(effect, ProposalEnd):
        say("proposed", f"{effect.kind}, {effect.proposal}")
        say("refused", f"{effect.reason}: {effect.detail}")
    say("again", _again(account.decision))
    return table


def _facts() -> Table:
    """Names and values, one a row."""
    table = new_table()
    table.add_column()
    table.add_column()
    table.show_header = False
    return table


def _kind(data: Value) -> str:
    """What the decision is about."""
    about = as_decision(data).ABOUT
    return about if about in ("placement", "claim", "command", "node") else "binding"


def _asked(data: ScheduleAnswer) -> str:
    asked = [f"{sized(name, n)} {name}" for name, n in sorted(data.requirements.requests.items())]
    asked += [
        f"{d.count} {d.kind}" if d.milli >= DEVICE_MILLI else f"{d.milli}/1000 {d.kind}"
        for d in data.requirements.devices
    ]
    return ", ".join(asked)


def _again(derived: Derived) -> Text:
    again = derived.again
    if again.retired:
        return Text("not taken again: what led to it was retired. What was recorded is shown", DARK)
    if again.same:
        return Text("decided once more with the same bytes", GOOD)
    if again.reworded:
        return Text("decided once more, the same", GOOD).append(
            f"; {again.engine} recorded another explanation", DARK
        )
    other = "" if again.own_engine else f" by {again.engine}, which is another engine than this one"
    what = (
        "this engine decides nothing here"
        if not again.replayed
        else "this engine decides otherwise"
    )
    return Text(
        f"NOT REPRODUCED: it was decided{other or f' by {again.engine}'}; {what}. "
        "Only what was recorded is shown",
        BAD,
    )


def _steady(steady: Steady) -> Iterator[RenderableType]:
    yield ""
    text = Text(
        f"at {as_clock(steady.at)} ({steady.stream}, round {steady.round:,}) nothing was decided: ",
        "bold",
    )
    text.append("AvoidSchedule: " if steady.avoided else "", "default")
    yield text.append(steady.rule, "default")
    if steady.fresh is None:
        if steady.reason:
            yield f"a fresh decision would have been refused then: {steady.reason}"
        return
    if not steady.would_move:
        yield "a fresh decision would have given the same clusters"
        return
    yield (
        f"a fresh decision would have given {_placed(steady.fresh)} instead of "
        f"{_placed(steady.held)}"
    )
    yield Text(
        "it is taken when somebody asks for it: a new `reschedule` token, or a proposal", DARK
    )


def _placed(targets: object) -> str:
    assert isinstance(targets, dict)
    return " + ".join(f"{n} {name}" for name, n in sorted(targets.items())) or "nothing"


def _derived(derived: Derived, every: bool) -> Iterator[RenderableType]:
    explanation = derived.recorded
    if explanation is not None:
        yield from _recorded(derived.row, explanation)
    match derived.trace:
        case FleetTrace() as trace:
            yield from _fleet(trace, derived, every)
        case NodesTrace() as nodes:
            yield from _cluster(nodes, every)
        case SelectionsTrace() as selection:
            yield from _placement(selection, every)
        case None if explanation is not None and (explanation.chosen or explanation.best):
            yield ""
            yield _recorded_candidates(derived.data, explanation)


def _recorded(row: LedgerRow, explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.why:
        yield ""
        yield f"because: {explanation.why}"
    if explanation.failover is not None:
        yield from _failover(explanation.failover)
    if explanation.note:
        yield ""
        yield explanation.note
    if explanation.candidates:
        what = "node" if row.stream.startswith(CLUSTER) else "cluster"
        text = Text(
            f"{count(explanation.candidates, what)} looked at, {explanation.feasible:,} feasible"
        )
        if explanation.refused:
            reasons = sorted(explanation.refused.items(), key=lambda entry: (-entry[1], entry[0]))
            text.append(
                "; refused: " + ", ".join(f"{reason} {number:,}" for reason, number in reasons),
                DARK,
            )
        yield ""
        yield text


def _failover(sets: FailoverSets) -> Iterator[RenderableType]:
    """The four sets of a failover, a few names of each."""
    named = (sets.reserved, sets.available, sets.candidates, sets.failed)
    for what, names, number in zip(FAILOVER_SETS, named, sets.counts, strict=True):
        more = f" and {number - len(names):,} more" if 0 < len(names) < number else ""
        yield f"{what}: {', '.join(names) or f'{number:,}'}{more}"


def _recorded_candidates(data: Value, explanation: Explanation) -> Table:
    """The candidates that were recorded: two, or in decisions of versions before 0.6 a few more."""
    table = new_table("recorded", "", "score", "room for", right=("score", "room for"))
    for place, scored in [("chosen", s) for s in explanation.chosen] + [
        ("next", s) for s in explanation.runners_up
    ]:
        table.add_row(scored.name, place, str(scored.score), f"{scored.estimate:,}")
    steps = {result.step: result.parts for result in as_decision(data).step_results(None)}
    chosen, by_room = steps.get("selection", {}), "estimate" in steps
    for name in sorted(explanation.best, key=lambda name: (name not in chosen, name)):
        number = f"{explanation.best[name]:,}"
        place = "chosen" if name in chosen else "next"
        table.add_row(name, place, *(("", number) if by_room else (number, "")))
    return table


def _placement(trace: SelectionsTrace, every: bool) -> Iterator[RenderableType]:
    yield ""
    weights = ", ".join(f"{name} × {weight}" for name, weight in trace.weights.items())
    yield Text(f"cluster sets: {', '.join(trace.sets) or 'none'}", "bold").append(
        f"; prioritizers: {weights or 'none'}", "default"
    )
    if trace.trouble:
        yield Text(trace.trouble, WARN)
    shown = trace.candidates if every else trace.candidates[: 2 * SHOWN]
    if shown:
        yield _candidates(shown, list(trace.weights))
    if len(shown) < len(trace.candidates):
        yield Text(
            f"{count(len(trace.candidates) - len(shown), 'more cluster')}: --all shows them", DARK
        )


def _candidates(candidates: Sequence[CandidateTrace], prioritizers: Sequence[str]) -> Table:
    table = new_table("cluster", "", *prioritizers, "total", right=(*prioritizers, "total"))
    for c in candidates:
        what = (
            Text(c.fell, BAD)
            if c.fell
            else Text("selected", GOOD)
            if c.place
            else Text("held" if c.held else "", DARK)
        )
        scores = [str(c.scores.get(name, "")) for name in prioritizers]
        table.add_row(c.name, what, *scores, "" if c.fell else str(c.total))
    return table


def _fleet(trace: FleetTrace, derived: Derived, every: bool) -> Iterator[RenderableType]:
    for term in trace.terms:
        if len(trace.terms) > 1:
            yield ""
            yield Text(
                f"affinity {term.name}: "
                f"{f'{term.reason}, {term.note}' if term.reason else 'chosen'}",
                "bold",
            )
        used = [c for c in term.clusters if c.used or c.held]
        free = [c for c in term.clusters if not c.refused and c not in used]
        refused = [c for c in term.clusters if c.refused and c not in used]
        yield ""
        yield _clusters(
            [*used, *_some(free, every), *_some(_nearest(refused), every)], derived.row.at
        )
        hidden = (
            len(term.clusters) - len(used) - len(_some(free, every)) - len(_some(refused, every))
        )
        if hidden:
            yield Text(f"and {count(hidden, 'cluster')} more: --all shows every one", DARK)
        if term.selection is not None:
            yield ""
            yield from _selection(term.selection)
        for division in term.divisions:
            if division.shares:
                yield ""
                yield from _division(division, every)
    if trace.ways:
        yield ""
        yield Text(
            "it would have been placed with "
            + "; or with ".join(said(way) for way in trace.ways[:3]),
            "bold",
        )


def _some(items: Sequence[ClusterTrace], every: bool) -> Sequence[ClusterTrace]:
    return items if every else items[:SHOWN]


def _nearest(refused: Sequence[ClusterTrace]) -> list[ClusterTrace]:
    """Those that lack least first."""
    return sorted(refused, key=lambda c: (not c.ways, len(c.ways[0]) if c.ways else 0, c.name))


def _clusters(clusters: Sequence[ClusterTrace], at: int) -> Table:
    columns = (
        "cluster",
        "replicas",
        "before",
        "room for",
        "known",
        "age",
        "refused",
        "it would be used with",
    )
    table = new_table(*columns, right=("replicas", "before", "room for", "age"))
    for c in clusters:
        age = (
            ""
            if c.counted_at is None or c.source not in ("class", "totals")
            else _age(at - c.counted_at)
        )
        room = f"{c.estimate:,}" if c.source and not c.refused else ""
        table.add_row(
            c.name,
            f"{c.replicas:,}" if c.used else "",
            f"{c.held:,}" if c.held else "",
            room,
            ESTIMATED_BY.get(c.source, c.source),
            age,
            ", ".join(c.refused),
            said(c.ways[0]) if c.ways else "",
            style="" if c.used else DARK,
        )
    return table


def _age(micros: int) -> str:
    seconds = micros / 1_000_000
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _selection(selection: SelectionTrace) -> Iterator[RenderableType]:
    for c in selection.constraints:
        most = f" to {c.max_groups}" if c.max_groups else " or more"
        yield f"spread by {c.field or c.label}: {c.min_groups}{most}"
    for by in dict.fromkeys(g.by for g in selection.groups):
        table = new_table(by, "score", "", "its clusters, best first", right=("score",))
        for g in sorted(
            [g for g in selection.groups if g.by == by], key=lambda g: (not g.chosen, -g.score)
        ):
            table.add_row(
                g.name, f"{g.score:,}", "chosen" if g.chosen else "", ", ".join(g.members)
            )
        yield table
    if not selection.groups:
        yield Text(f"ranked {', '.join(selection.ranking[:SHOWN])}", DARK)
    yield selection.note or f"chosen {', '.join(selection.chosen)}"


def _division(division: DivisionTrace, every: bool) -> Iterator[RenderableType]:
    yield Text(division.how, "bold")
    if not division.seats or not division.total:
        return
    shares = sorted(division.shares, key=lambda s: (-s.seats, -s.weight, s.cluster))
    table = new_table("cluster", "kept", "share", "gets", "", right=("kept", "gets"))
    for share in shares if every else shares[:SHOWN]:
        table.add_row(
            share.cluster, str(share.kept or ""), *_share(share.weight, share.seats, division)
        )
    yield table
    hidden = 0 if every else len(shares) - SHOWN
    if hidden > 0:
        yield Text(f"and {count(hidden, 'cluster')} more", DARK)


def _share(weight: int, seats: int, division: DivisionTrace) -> tuple[str, str, str]:
    """`4 x 40/70 = 2.29`, what it got, and how that came of it."""
    exact = division.seats * weight * 100 // division.total
    quotient = (
        f"{division.seats:,} x {weight:,}/{division.total:,} = {exact // 100:,}.{exact % 100:02d}"
    )
    extra = seats - exact // 100
    why = (
        ""
        if not extra
        else f"{exact // 100:,}, then {extra} more by quotient"
        if extra > 0
        else f"{-extra} less by quotient"
    )
    return quotient, f"{seats:,}", why


def _cluster(trace: NodesTrace, every: bool) -> Iterator[RenderableType]:
    feasible = [n for n in trace.nodes if not n.refused]
    refused = [n for n in trace.nodes if n.refused]
    used = [n for n in feasible if n.replicas]
    others = [n for n in feasible if not n.replicas]
    shown = [
        *used[: None if every else SHOWN],
        *others[: None if every else 3],
        *refused[: None if every else SHOWN],
    ]
    table = new_table(
        "node",
        "replicas",
        "score",
        "of which",
        "devices",
        "refused",
        "it would fit with",
        right=("replicas", "score"),
    )
    for n in shown:
        parts = ", ".join(f"{name} {p.weighted}" for name, p in n.parts.items() if p.weighted)
        devices = ", ".join(
            f"{index}" if milli >= DEVICE_MILLI else f"{index}:{milli}"
            for index, milli in n.devices
        )
        table.add_row(
            n.name,
            str(n.replicas or ""),
            "" if n.refused else str(n.score),
            parts,
            devices,
            _against(n),
            said(n.ways[0]) if n.ways else "",
            style="" if n.replicas else DARK,
        )
    yield ""
    yield table
    if len(shown) < len(trace.nodes):
        yield Text(
            f"and {count(len(trace.nodes) - len(shown), 'node')} more: --all shows every one", DARK
        )
    nearest = trace.nearest
    if nearest is not None and not feasible:
        yield Text(f"the nearest: {nearest.name}, with {said(nearest.ways[0])}", "bold")


def _against(n: NodeTrace) -> str:
    """In the words users know, where a plugin has said any."""
    return ", ".join(
        dict.fromkeys(reason for reasons in n.said.values() for reason in reasons)
    ) or ", ".join(n.refused)


def _nodes(rows: Sequence[LedgerRow]) -> Table:
    table = new_table("on the nodes", "outcome", "which", "nodes looked at", "refused", "decision")
    for row in rows:
        data: Value = row.data()
        explanation = explanation_of(data) or Explanation()
        refused = ", ".join(
            f"{reason} {number:,}" for reason, number in sorted(explanation.refused.items())
        )
        looked_at = (
            f"{explanation.feasible:,} of {explanation.candidates:,} feasible"
            if explanation.candidates
            else ""
        )
        table.add_row(
            row.stream.removeprefix(CLUSTER),
            styled_outcome(row.outcome),
            as_decision(data).sentence(),
            looked_at,
            Text(refused, DARK),
            Text(str(row.id), DARK),
        )
    return table


def _history(account: Explained) -> Table:
    table = new_table("its history", "stream", "seq", "outcome", "", right=("seq",))
    if len(account.history) < account.total:
        table.caption = (
            f"the last {len(account.history)} of {account.total:,}; `wharfinger history` has all"
        )
    for row in account.history:
        mark = "bold" if row.id == account.decision.row.id else ""
        data = row.data()
        text = as_decision(data).sentence()
        if isinstance(data, ScheduleAnswer):
            text = f"{text}  [{data.trigger}]"
        table.add_row(
            as_clock(row.at),
            row.stream,
            f"{row.seq:,}",
            styled_outcome(row.outcome),
            Text(text),
            style=mark,
        )
    return table
