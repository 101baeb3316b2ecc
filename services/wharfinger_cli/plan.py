"""`plan` and `apply --plan`: what would happen, and then exactly that. Planning ends with 0 when
nothing would change and with 1 when something would; carrying out ends with 0 when it happened and
with 1 when a stream refused."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.text import some
from wharfinger.domain.value import Value
from wharfinger.events.decisions import PlanEnd, PlannedOutcome
from wharfinger.history import plan as plans
from wharfinger.history.names import UnknownNameError
from wharfinger.history.plan import (
    Applied,
    BindingMove,
    ClusterUse,
    Figures,
    Plan,
    PlannedRefusal,
    PlanRefusal,
    SelectionMove,
)
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.apply import compiled, loaded, read_events, require_policies, settle
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import cores, known_facts, plain
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_time,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request

SHOWN_MAX = 20
ANSWER_WITHIN_S = 30.0
MICRO = 1_000_000
SHORT_ID = 8


def plan(
    request: Request, filenames: Sequence[str], policies: Sequence[str], *, strict: bool = False
) -> None:
    if not filenames and not policies:
        raise CommandError(
            "plan: expected manifests (-f FILE, --policy FILE), drain or scale; "
            "see `wharfinger plan --help`"
        )
    _show(request, _of_manifests(request, filenames, policies, strict))


def drain(request: Request, what: str) -> None:
    async def work() -> Plan:
        async with opened_ledger(reached(request)) as ledger:
            return await _kept(ledger, await plans.drain(ledger, what))

    _show(request, work())


def scale(request: Request, binding: str, replicas: int) -> None:
    async def work() -> Plan:
        async with opened_ledger(reached(request)) as ledger:
            try:
                return await _kept(ledger, await plans.scale(ledger, binding, replicas))
            except UnknownNameError as error:  # 1 would say that something would change
                raise CommandError(str(error)) from None

    _show(request, work())


def carry_out(request: Request, id: str, names: Sequence[str]) -> None:
    """`apply --plan`. `names`: of manifests, which a plan does not take."""
    if names:
        raise CommandError(
            "apply: expected manifests or a plan, got both: a plan holds what it was made of"
        )
    made, answer = run(_carry_out(request, id))
    show(request.format, answer_plain(answer), [str(made.id)], lambda: answer_page(made, answer))
    if isinstance(answer, PlanRefusal):
        raise SystemExit(DIFFERENCE)


# --- asking


async def _of_manifests(
    request: Request, filenames: Sequence[str], policies: Sequence[str], strict: bool
) -> Plan:
    manifests = loaded(filenames)
    only_policies = loaded(policies)
    require_policies(only_policies, "; other manifests go with -f")
    events = read_events(filenames)
    if not manifests and not only_policies and not events:
        raise CommandError(
            f"{', '.join((*filenames, *policies))}: expected at least one manifest, got none"
        )
    async with opened_ledger(reached(request)) as ledger:
        intake = compiled([*manifests, *only_policies], await known_facts(ledger))
        settle(intake, strict)
        return await _kept(ledger, await plans.make_plan(ledger, [*events, *intake.facts]))


async def _kept(ledger: Ledger, made: Plan) -> Plan:
    if made.parts or made.facts:
        await plans.save(ledger, made)
    return made


async def _carry_out(request: Request, id: str) -> tuple[Plan, Applied | PlanRefusal]:
    async with opened_ledger(reached(request)) as ledger:
        made = await plans.named(ledger, id)
        return made, await plans.apply(ledger, made, ANSWER_WITHIN_S)


def _show(request: Request, work: Coroutine[object, object, Plan]) -> None:
    made = run(work)
    show(request.format, plan_plain(made), [str(made.id)], lambda: plan_page(made))
    if made.changes:
        raise SystemExit(DIFFERENCE)


# --- a plan, for programs


def plan_plain(made: Plan) -> Plain:
    return {
        "id": str(made.id),
        "made_at": as_time(made.made_at),
        "changes": made.changes,
        "streams": [part.stream for part in made.parts],
        "moves": [_whole(move) for move in made.moves],
        "refusals": [_whole(refusal) for refusal in made.refusals],
        "placements": [_whole(selection) for selection in made.selections],
        "stuck": list(made.stuck),
        "unsure": list(made.unsure),
        "declined": list(made.declined),
        "within_s": made.within_us / MICRO,
        "horizon_s": made.horizon_us / MICRO,
        "before": _figures_plain(made.before),
        "after": _figures_plain(made.after),
    }


def _whole(value: Value) -> Plain:
    """All fields, those that hold their default too: programs should not have to know the
    defaults."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _figures_plain(figures: Figures) -> Plain:
    return {
        "spread_permille": figures.spread,
        "node_cpu_milli": figures.node_cpu_milli,
        "cost_micro_per_hour": figures.cost_micro,
        "unplaced": figures.unplaced,
        "clusters": [{**_whole(use), "use_permille": use.permille} for use in figures.clusters],
    }


# --- a plan, for people


def plan_page(made: Plan) -> Iterator[RenderableType]:
    yield _headline(made)
    if made.moves:
        yield ""
        yield _moves(made.moves)
    new = [refusal for refusal in made.refusals if not refusal.before]
    if new:
        yield ""
        yield _refusals(new)
    if made.selections:
        yield ""
        yield _selections(made.selections)
    waiting = len(made.refusals) - len(new)
    unsure = (
        "may lie elsewhere than shown, since room is short and becomes free at moments that are "
        f"not known: {some(made.unsure)}"
    )
    notes = [*made.stuck, *(f"declined: {line}" for line in made.declined)]
    if made.unsure:
        notes.append(unsure)
    if waiting:
        notes.append(f"{count(waiting, 'binding waits', 'bindings wait')} for room as before")
    if notes:
        yield ""
        yield Text("\n".join([*notes[:SHOWN_MAX], *_more(len(notes))]), WARN)
    if made.moves_bindings:
        yield ""
        yield _uses(made.before, made.after)
        yield ""
        yield _totals(made)
    if no := plans.too_large(made):
        yield ""
        yield Text(f"it cannot be carried out as one plan: {no}", BAD)
    elif made.parts or made.facts:
        yield ""
        yield Text(f"carry it out: wharfinger apply --plan {str(made.id)[:SHORT_ID]}", DARK)


def _headline(made: Plan) -> Text:
    if not made.changes:
        said = Text("nothing would move", GOOD)
    else:
        clusters = sum(move.before != move.after for move in made.moves)
        inside = len(made.moves) - clusters
        lacking = sum(not refusal.before for refusal in made.refusals)
        elsewhere = sum(one.before != one.after for one in made.selections)
        told = len(made.selections) - elsewhere
        changes = (
            (clusters, "binding", "would move"),
            (inside, "binding", "would change nodes"),
            (lacking, "binding", "would lack room"),
            (elsewhere, "Placement", "would select other clusters"),
            (told, "Placement", "would have another condition"),
        )
        parts = [f"{count(n, noun)} {what}" for n, noun, what in changes if n]
        said = Text(", ".join(parts), BAD if lacking else WARN)
    return said.append(f"  plan {made.id}, made {as_clock(made.made_at)}", DARK)


def _moves(moves: Sequence[BindingMove]) -> Table:
    table = new_table(
        "binding", "now", "then", "replicas to start", "nodes", right=("replicas to start",)
    )
    for move in moves[:SHOWN_MAX]:
        started = sum(max(0, n - move.before.get(name, 0)) for name, n in move.after.items())
        table.add_row(
            move.binding,
            _places(move.before),
            _places(move.after),
            str(started or ""),
            Text(_node_changes(move), DARK),
        )
    if len(moves) > SHOWN_MAX:
        table.add_row(f"and {count(len(moves) - SHOWN_MAX, 'more binding')}", "", "", "", "")
    return table


def _places(places: Mapping[str, int]) -> str:
    return some(f"{name} {n}" if n else name for name, n in places.items()) or "nowhere"


def _node_changes(move: BindingMove) -> str:
    """`+2 oslo/n1 -2 oslo/n7`: what comes first, for that is the news."""
    names = sorted({*move.nodes_before, *move.nodes_after})
    change = {
        name: move.nodes_after.get(name, 0) - move.nodes_before.get(name, 0) for name in names
    }
    return some([f"{n:+d} {name}" for name, n in sorted(change.items(), key=lambda c: -c[1]) if n])


def _refusals(refusals: Sequence[PlannedRefusal]) -> Table:
    table = new_table("without a place", "replicas missing", "why", right=("replicas missing",))
    for refusal in refusals[:SHOWN_MAX]:
        table.add_row(refusal.binding, str(refusal.missing or "all"), Text(refusal.reason, BAD))
    if len(refusals) > SHOWN_MAX:
        table.add_row(f"and {count(len(refusals) - SHOWN_MAX, 'more binding')}", "", "")
    return table


def _selections(selections: Sequence[SelectionMove]) -> Table:
    table = new_table("placement", "selects now", "then", "what is wrong")
    for one in selections[:SHOWN_MAX]:
        table.add_row(
            one.placement, _grouped(one.before), _grouped(one.after), Text(one.reason, WARN)
        )
    if len(selections) > SHOWN_MAX:
        table.add_row(f"and {count(len(selections) - SHOWN_MAX, 'more placement')}", "", "", "")
    return table


def _grouped(groups: Sequence[Sequence[str]]) -> str:
    """`bergen, oslo`; with several decision groups `bergen | oslo`."""
    return " | ".join([some(clusters) for clusters in groups if clusters]) or "nothing"


def _uses(before: Figures, after: Figures) -> Table:
    table = new_table(
        "cluster",
        "replicas",
        "cpu asked for",
        "of",
        "use",
        "nodes in use",
        right=("replicas", "cpu asked for", "of", "use", "nodes in use"),
    )
    now, then = {u.cluster: u for u in before.clusters}, {u.cluster: u for u in after.clusters}
    for name in sorted({*now, *then}):
        a, b = now.get(name), then.get(name)
        table.add_row(
            name,
            _step(a, b, lambda u: f"{u.replicas}"),
            _step(a, b, lambda u: cores(u.cpu_milli)),
            _step(a, b, lambda u: cores(u.cpu_milli_max)),
            _step(a, b, lambda u: percent(u.permille) if u.cpu_milli_max else "-"),
            _step(a, b, lambda u: f"{u.nodes}"),
        )
    return table


def _step(a: ClusterUse | None, b: ClusterUse | None, said: Callable[[ClusterUse], str]) -> str:
    before, after = "-" if a is None else said(a), "-" if b is None else said(b)
    return after if before == after else f"{before} -> {after}"


def _totals(made: Plan) -> Text:
    a, b = made.before, made.after
    lines = [
        (
            f"balance: {_arrow(percent(a.spread), percent(b.spread))} between the fullest and the "
            "emptiest cluster"
        )
    ]
    if a.cost_micro is not None and b.cost_micro is not None:
        lines.append(
            f"cost: {_arrow(money(a.cost_micro), money(b.cost_micro))} an hour for the nodes in use"
        )
    else:
        lines.append(
            f"cost: {_arrow(cores(a.node_cpu_milli), cores(b.node_cpu_milli))} cores of nodes in "
            "use "
            f"(no prices: label clusters with wharfinger.io/price-per-core)"
        )
    if a.unplaced or b.unplaced:
        lines.append(f"without a place: {_arrow(str(a.unplaced), str(b.unplaced))} replicas")
    if made.within_us:
        lines.append(
            f"the last of it happens {made.within_us / MICRO:,.0f} s after it is carried out"
        )
    return Text("\n".join(lines))


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def percent(permille: int) -> str:
    return f"{permille / 10:.1f} %"


def money(micro: int) -> str:
    return f"{micro / MICRO:,.3f}"


def _more(lines: int) -> list[str]:
    return [f"and {count(lines - SHOWN_MAX, 'more line')}"] if lines > SHOWN_MAX else []


# --- what became of it


def answer_plain(answer: Applied | PlanRefusal) -> Plain:
    match answer:
        case Applied():
            committed = {stream: str(id) for stream, id in answer.decisions.items()}
            return {
                "plan": str(answer.plan),
                "applied": True,
                "again": answer.again,
                "committed": committed,
            }
        case PlanRefusal():
            refusals = {stream: plain(refusal) for stream, refusal in answer.refusals.items()}
            return {
                "plan": str(answer.plan),
                "applied": False,
                "refused": refusals,
                "committed": list(answer.committed),
            }


def answer_page(made: Plan, answer: Applied | PlanRefusal) -> Iterator[RenderableType]:
    match answer:
        case Applied(again=True):
            yield Text(f"plan {made.id} was carried out before; nothing was done", GOOD)
        case Applied():
            by = f" by {', '.join(answer.decisions)}" if answer.decisions else ""
            yield Text(f"plan {made.id} is carried out{by}", GOOD).append(
                f"  {count(len(made.moves), 'binding moves', 'bindings move')}, "
                f"{count(len(made.facts), 'fact')} handed in",
                DARK,
            )
        case PlanRefusal():
            for stream, refusal in answer.refusals.items():
                yield _refused(stream, refusal)
            done = (
                f"carried out by {', '.join(answer.committed)} only"
                if answer.committed
                else "nothing of it happened"
            )
            yield Text(f"{done}; make a new plan", DARK)


def _refused(stream: str, refusal: PlanEnd) -> Text:
    said = Text(f"{stream} refuses: {refusal.reason}", BAD)
    if refusal.expected is not None or refusal.found is not None:
        said.append(
            f"\n{refusal.subject}: planned {_outcome(refusal.expected)}, "
            f"now {_outcome(refusal.found)}",
            "default",
        )
    if refusal.changed:
        said.append(f"\nchanged since the plan was made: {', '.join(refusal.changed)}", "default")
    return said


def _outcome(outcome: PlannedOutcome | None) -> str:
    if outcome is None:
        return "nothing"
    if not outcome.reason and outcome.places:
        return _places(outcome.places)
    kept = f", keeps {_places(outcome.places)}" if outcome.places else ""
    return f"{outcome.outcome}{f' ({outcome.reason})' if outcome.reason else ''}{kept}"
