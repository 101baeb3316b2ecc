"""`import` and `generate`: much input at once, with a bar to watch it by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from wharfinger.answers.submit import SOURCE, Submitted, submit
from wharfinger.domain.value import digest
from wharfinger.events.accepted import Accepted
from wharfinger.events.codec import encode
from wharfinger.events.envelope import derived_id
from wharfinger_cli import openb
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import CommandError
from wharfinger_cli.generate import FleetPlan, generate
from wharfinger_cli.output import Plain, count, messages
from wharfinger_cli.request import Request
from wharfinger_cli.waiting import Wait, show_and_wait


def import_openb(
    request: Request,
    nodes: Path,
    pods: Path,
    clusters: int,
    rate: float | None,
    strategy: str,
    wait: Wait | None = None,
) -> None:
    require_plane(request)  # before the files are read
    trace_nodes, trace_pods = openb.read_nodes(nodes), openb.read_pods(pods)
    fleet = list(openb.fleet(trace_nodes, clusters))
    facts = chain(fleet, openb.bindings(trace_pods, openb.PLACEMENTS[strategy]))
    told = {"clusters": clusters, "nodes": len(trace_nodes), "bindings": len(trace_pods)}
    _tell(request, facts, len(fleet) + len(trace_pods), told, rate, wait)


def generate_fleet(
    request: Request, plan: FleetPlan, out: Path | None, *, apply: bool, wait: Wait | None = None
) -> None:
    if (out is None) != apply:
        raise CommandError("generate fleet: expected one of --out FILE and --apply")
    if wait is not None and not apply:
        raise CommandError("generate fleet: --wait needs --apply")
    facts = list(generate(plan))
    told = {
        "clusters": plan.clusters,
        "nodes": plan.nodes,
        "bindings": plan.bindings,
        "seed": plan.seed,
    }
    if apply:
        _tell(request, facts, len(facts), told, None, wait)
        return
    assert out is not None, "asked for above"
    try:
        with out.open("wb") as file:
            file.writelines(as_line(fact) for fact in facts)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}") from error
    messages().print(
        f"{count(len(facts), 'event')} in {out}; `wharfinger apply -f {out}` tells them to a plane"
    )


def as_line(fact: Accepted) -> bytes:
    """One CloudEvent. Its id is made of what it says: the same fleet is the same bytes."""
    id_ = derived_id("generated", fact.topic.name, fact.key, digest(fact.data, 64))
    return (
        encode(fact.data, id=id_, source=SOURCE, subject=fact.subject, key=fact.partition_key)
        + b"\n"
    )


def _tell(
    request: Request,
    facts: Iterable[Accepted],
    total: int,
    told: dict[str, int],
    rate: float | None,
    wait: Wait | None,
) -> None:
    keys: list[tuple[str, str]] = []

    def kept() -> Iterator[Accepted]:
        for fact in facts:
            keys.append((fact.topic.name, fact.key))
            yield fact

    started = time.monotonic()
    submitted = run(_submit(request, kept(), total, rate))
    seconds = time.monotonic() - started
    value: Plain = {
        **told,
        "accepted": submitted.accepted,
        "unchanged": submitted.unchanged,
        "seconds": round(seconds, 3),
    }

    def page() -> Iterator[str]:
        yield (
            f"{count(told['bindings'], 'binding')} and {count(told['nodes'], 'node')} in"
            f" {count(told['clusters'], 'cluster')}: {said(submitted)} in {seconds:.1f} s"
        )

    show_and_wait(request, value, (), page, wait, keys)


def require_plane(request: Request) -> None:
    """CommandError: nothing says where the plane is, or how its server is asked."""
    if request.server:
        from wharfinger_cli.remote import Remote

        Remote.of(request)
    else:
        reached(request)


async def _submit(
    request: Request, facts: Iterable[Accepted], total: int, rate: float | None
) -> Submitted:
    if request.server:
        from wharfinger_cli.remote_facts import submit_over

        with bar("accepting", total) as step:
            return await submit_over(request, facts, rate=rate, told=step)
    async with opened_ledger(reached(request)) as ledger:
        with bar("accepting", total) as step:
            return await submit(ledger, facts, await known_facts(ledger), rate=rate, told=step)


def said(submitted: Submitted) -> str:
    unchanged = f", {submitted.unchanged:,} said nothing new" if submitted.unchanged else ""
    outdated = (
        f", {submitted.outdated:,} older than what is known and refused"
        if submitted.outdated
        else ""
    )
    return f"{count(submitted.accepted, 'event')} accepted{unchanged}{outdated}"


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, removed at the end; none if that is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = messages()
    with Progress(
        TextColumn(f"{what:<14}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda number: progress.advance(task, number)
