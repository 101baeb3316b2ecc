"""`plan` and `apply --plan`: what would happen, and then exactly that. Planning ends with 0 when
nothing would change and with 1 when something would; carrying out ends with 0 when it happened and
with 1 when a stream refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.answers.changes import ChangeRefusedError
from wharfinger.answers.plans import MadePlan, WantedPlan, answer_plain, make, plan_plain
from wharfinger.domain.text import some
from wharfinger.events.decisions import PlanEnd, PlannedOutcome
from wharfinger.history import plan as plans
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import (
    BindingMove,
    ClusterUse,
    Figures,
    Plan,
    PlannedRefusal,
    SelectionMove,
)
from wharfinger.manifests.parse import loaded_texts
from wharfinger_cli.apply import read_events, refuse, say_unacted, texts_of
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import cores
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import BAD, DARK, GOOD, WARN, as_clock, count, new_table, show
from wharfinger_cli.request import Request
from wharfinger_cli.waiting import Wait, show_and_wait

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
    wanted = WantedPlan(
        "manifests",
        manifests=tuple(texts_of(filenames)),
        policies=tuple(texts_of(policies)),
        events=tuple(read_events(filenames)),
        strict=strict,
    )
    _require_something(wanted, [*filenames, *policies])
    _show(request, wanted)


def drain(request: Request, what: str) -> None:
    _show(request, WantedPlan("drain", what))


def scale(request: Request, binding: str, replicas: int) -> None:
    _show(request, WantedPlan("scale", binding, replicas))


def carry_out(request: Request, id: str, names: Sequence[str], wait: Wait | None = None) -> None:
    """`apply --plan`. `names`: of manifests, which a plan does not take."""
    if names:
        raise CommandError(
            "apply: expected manifests or a plan, got both: a plan holds what it was made of"
        )
    made, answer = _over_server(request, id) if request.server else run(_carry_out(request, id))
    value, ids = answer_plain(answer), [str(made.id)]
    if isinstance(answer, PlanRefusal):
        show(request.format, value, ids, lambda: answer_page(made, answer))
        raise SystemExit(DIFFERENCE)
    facts, bindings = plans.waited_for(made)
    show_and_wait(request, value, ids, lambda: answer_page(made, answer), wait, facts, bindings)


# --- asking


def _require_something(wanted: WantedPlan, names: Sequence[str]) -> None:
    """CommandError: the files hold nothing, or cannot be read; all that is wrong with them."""
    found = loaded_texts([*wanted.manifests, *wanted.policies])
    refuse(found.errors)
    if not found.manifests and not wanted.events:
        raise CommandError(f"{', '.join(names)}: expected at least one manifest, got none")


def _show(request: Request, wanted: WantedPlan) -> None:
    if request.server:
        from wharfinger_cli.remote_plans import made_over

        found = made_over(request, wanted)
    else:
        found = run(_made(request, wanted))
    say_unacted(found.unacted, found.skipped)
    made = found.plan
    show(request.format, plan_plain(made), [str(made.id)], lambda: plan_page(made))
    if made.changes:
        raise SystemExit(DIFFERENCE)


async def _made(request: Request, wanted: WantedPlan) -> MadePlan:
    async with opened_ledger(reached(request)) as ledger:
        try:
            return await make(ledger, wanted)
        except ChangeRefusedError as error:
            raise CommandError(*error.lines) from None


async def _carry_out(request: Request, id: str) -> tuple[Plan, Applied | PlanRefusal]:
    async with opened_ledger(reached(request)) as ledger:
        made = await plans.named(ledger, id)
        return made, await plans.apply(ledger, made, ANSWER_WITHIN_S)


def _over_server(request: Request, id: str) -> tuple[Plan, Applied | PlanRefusal]:
    from wharfinger_cli.remote_plans import applied_over

    return applied_over(request, id, ANSWER_WITHIN_S)


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
