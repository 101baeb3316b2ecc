"""`plan consolidate`: a dry run of everything that takes nodes away, with the reason for each node
that stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.policy import Policy
from wharfinger.domain.text import dollars, some
from wharfinger.engine.disruption.cluster_snapshot import Command, DisruptionVerdict
from wharfinger.engine.provisioning.bound import PriceBounds
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.consolidation_preview import ConsolidationPreview, outlooks
from wharfinger.runtime.extras import installed, remedy
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger_cli.apply import compiled, loaded, refuse, require_policies
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import DIFFERENCE
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request

SHOWN_MAX = 20
GOING = "Disrupting"
"""The rule of the verdict on a node that a running command already removes."""


def consolidate(request: Request, cluster: str, policies: Sequence[str], *, every: bool) -> None:
    """Ends with 1 where something would go. `every`: each node that stays is listed, not the first
    few."""
    found = run(_look(request, cluster, policies))
    names = [name for seen in found for command in seen.survey.commands for name in command.nodes]
    show(request.format, _plain(found), names, lambda: _page(found, every=every))
    if names:
        raise SystemExit(DIFFERENCE)


async def _look(
    request: Request, cluster: str, filenames: Sequence[str]
) -> list[ConsolidationPreview]:
    async with opened_ledger(reached(request)) as ledger:
        policies = await policies_in(ledger, filenames)
        with messages().status("looking at every node"):
            return await outlooks(ledger, wall_clock(), cluster, policies, bounds=has_bounds())


def has_bounds() -> bool:
    """Whether lower bounds of the price can be computed. Where they cannot, a remark says so."""
    if installed("highspy"):
        return True
    messages().print(f"no lower bound of the price: it {remedy('reports', 'highspy')}")
    return False


async def policies_in(ledger: Ledger, filenames: Sequence[str]) -> list[Policy]:
    """The policies of the manifests. CommandError: they are not policies, or have errors."""
    if not filenames:
        return []
    manifests = loaded(filenames)
    require_policies(manifests)
    intake = compiled(manifests, await known_facts(ledger))
    refuse(intake.errors)
    return [fact.data.policy for fact in intake.facts if isinstance(fact.data, PolicyApplied)]


# --- for programs


def _plain(found: Sequence[ConsolidationPreview]) -> Plain:
    """Prices in billionths of a dollar an hour."""
    return {"clusters": [_outlook_plain(seen) for seen in found]}


def _outlook_plain(seen: ConsolidationPreview) -> Plain:
    return {
        "cluster": seen.cluster,
        "nodes": seen.nodes,
        "unpriced": seen.unpriced,
        "cost": seen.cost,
        "after": seen.after,
        "saving": seen.saving,
        "bound": bound_plain(seen.bound),
        "commands": [_command_plain(command) for command in seen.survey.commands],
        "nodes_that_stay": [
            {
                "node": verdict.node,
                "rule": verdict.rule,
                "reason": verdict.sentence,
                "until": as_time(verdict.until) if verdict.until else None,
            }
            for verdict in _staying(seen)
        ],
    }


def bound_plain(bound: PriceBounds | None) -> Plain | None:
    """Billionths of a dollar an hour."""
    if bound is None:
        return None
    return {
        "resources_only": bound.resources_only,
        "with_anti_affinity": bound.with_anti_affinity,
        "relaxation": bound.relaxation,
    }


def _command_plain(command: Command) -> Plain:
    return {
        "method": command.method,
        "nodes": list(command.nodes),
        "replacements": [
            {"pool": new.pool, "instance_types": list(new.instance_types), "price": new.price}
            for new in command.replacements
        ],
        "moves": [
            {
                "binding": m.binding,
                "ordinal": m.ordinal,
                "pod": m.pod,
                "from": m.source,
                "to": m.target,
            }
            for m in command.moves
        ],
        "saving": command.saving,
        "disruption": command.disruption,
        "arithmetic": command.arithmetic,
    }


def _staying(seen: ConsolidationPreview) -> list[DisruptionVerdict]:
    going = {name for command in seen.survey.commands for name in command.nodes}
    return [verdict for verdict in seen.survey.verdicts if verdict.node not in going]


# --- for people


def _page(found: Sequence[ConsolidationPreview], *, every: bool) -> Iterator[RenderableType]:
    if not found:
        yield Text("no cluster has nodes of a pool (see `wharfinger get nodepools`)", DARK)
        return
    yield _headline(found)
    for seen in found:
        yield ""
        yield from _cluster(seen, every=every)


def _headline(found: Sequence[ConsolidationPreview]) -> Text:
    going = sum(len(command.nodes) for seen in found for command in seen.survey.commands)
    nodes, saving = sum(seen.nodes for seen in found), sum(seen.saving for seen in found)
    already = sum(verdict.rule == GOING for seen in found for verdict in seen.survey.verdicts)
    more = f"; {already} of them {'goes' if already == 1 else 'go'} already" if already else ""
    if not going:
        return Text(f"none of {count(nodes, 'node')} would go{more}", WARN if already else GOOD)
    said = Text(f"{going} of {count(nodes, 'node')} would go", WARN)
    return said.append(
        f", saving {dollars(saving)} of {dollars(sum(seen.cost for seen in found))}", "default"
    )


def _cluster(seen: ConsolidationPreview, *, every: bool) -> Iterator[RenderableType]:
    said = Text(seen.cluster, "bold").append(
        f"  {count(seen.nodes, 'node')}, {dollars(seen.cost)}", "not bold"
    )
    if seen.saving:
        said.append(f" -> {dollars(seen.after)}", "not bold " + GOOD)
    if seen.bound is not None:
        said.append(bound_text(seen.bound, seen.after), DARK)
    if seen.unpriced:
        said.append(f"  {count(seen.unpriced, 'node')} without a known price", BAD)
    yield said
    if seen.survey.commands:
        yield _commands(seen.survey.commands)
    staying = _staying(seen)
    if staying:
        yield _why(staying)
        yield _verdicts(staying if every else staying[:SHOWN_MAX])
        if not every and len(staying) > SHOWN_MAX:
            yield Text(
                f"and {count(len(staying) - SHOWN_MAX, 'more node')}; --all lists every one", DARK
            )
    if seen.bound is not None:
        yield Text(f"at best: {seen.bound.relaxation}", DARK)


def bound_text(bound: PriceBounds, after: int) -> str:
    """`after`: the cost in the end, billionths of a dollar an hour."""
    floor = bound.with_anti_affinity
    above = f", {bound.gap(after) * 100:.1f} % above it then" if floor > 0 else ""
    return f"  at best {dollars(floor)}{above}"


def _commands(commands: Sequence[Command]) -> Table:
    table = new_table(
        "method", "would go", "instead", "moves", "saves", "because", right=("moves", "saves")
    )
    for command in commands[:SHOWN_MAX]:
        instead = some(f"{new.instance_types[0]} of {new.pool}" for new in command.replacements)
        table.add_row(
            command.method,
            some(command.nodes),
            instead or "nothing",
            f"{len(command.moves):,}",
            Text(dollars(command.saving), GOOD),
            Text(command.arithmetic, DARK),
        )
    if len(commands) > SHOWN_MAX:
        table.caption = f"and {count(len(commands) - SHOWN_MAX, 'more command')}"
    return table


def _why(staying: Sequence[DisruptionVerdict]) -> Text:
    """`stay: 12 NotCheaper, 3 Budget`"""
    rules = Counter(verdict.rule for verdict in staying)
    counted = ", ".join(
        f"{n:,} {rule}" for rule, n in sorted(rules.items(), key=lambda r: (-r[1], r[0]))
    )
    return Text(f"stay: {counted}")


def _verdicts(staying: Sequence[DisruptionVerdict]) -> Table:
    table = new_table("stays", "rule", "because")
    for verdict in staying:
        table.add_row(verdict.node, verdict.rule, Text(verdict.sentence, DARK))
    return table
