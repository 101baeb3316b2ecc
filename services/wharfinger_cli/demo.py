"""`demo`: the whole plane in a minute, told as it happens.

A fleet is made up and scheduled, with the hand-written examples beside it. Every cluster promises to be heard of within a
few seconds; then one is not heard any more, and what it held is placed elsewhere too. In one more cluster nodes are made as
workloads need them, and taken away when they shrink, each command with its arithmetic. One decision is explained, the ledger is
verified and replayed, and gone through once more under another policy, which leaves a page to look at. All that
was started is stopped, however the story ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.instance_types import dollars
from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    ClusterSilenced,
    ProposalRefused,
    ReplicasPlaced,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.provisioning import NodeClaimRequested
from wharfinger.events.registry import LATEST, type_of
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.changes import changes_of
from wharfinger.history.report import Asked, page
from wharfinger.history.savings import Savings, savings
from wharfinger.history.whatif import what_if
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, VerifyResult, verify, wall_clock
from wharfinger.runtime.replay import ReplayResult
from wharfinger.runtime.settings import ENV_PREFIX, load_settings
from wharfinger.runtime.supervisor import STEPS, take_down
from wharfinger_cli.app import Request
from wharfinger_cli.apply import compiled, refuse
from wharfinger_cli.audit import verified_page
from wharfinger_cli.bulk import bar
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import Asked as CatalogueAsked
from wharfinger_cli.connection import opened_ledger
from wharfinger_cli.decisions import TYPES
from wharfinger_cli.explain import account_of, account_page
from wharfinger_cli.facts import Facts, known_facts
from wharfinger_cli.failures import CommandError
from wharfinger_cli.generate import FleetPlan, generate
from wharfinger_cli.history import replayed_page, watched_replay
from wharfinger_cli.instance_types import parts_of
from wharfinger_cli.lifecycle import start_detached
from wharfinger_cli.output import DARK, GOOD, WARN, count, messages, new_table
from wharfinger_cli.provide import Provider
from wharfinger_cli.savings import savings_page
from wharfinger_cli.status import Seen, look
from wharfinger_cli.submit import submit
from wharfinger_cli.summary import some
from wharfinger_cli.whatif import whatif_page

WIDTH = 100
LEASE_S = 4  # what every generated cluster promises
BEAT_S = 1.0
FLEET_PLAN = FleetPlan(clusters=6, nodes=180, bindings=300, seed=2, lease_s=LEASE_S)
WHAT_IF = "whatif/pack-everything.yaml"
WHAT_IF_SETTING = "strategy=most-allocated"  # where there are no examples
EXAMPLES = ("fleet", "policies", "workloads", "ocm", "crane", "karpenter")
CONSOLIDATION = "consolidation"
INSTANCE_TYPES = "karpenter/instance-types.csv"
DOCK = "dock"
DAY = ("crane-control", "berth-board", "customs")
PROVIDED_AFTER_S = 0.5
CALM_S = 3.0  # so long without a command or a node: nothing more can go
QUIET_S = 1.0  # so long without a new decision: everything has been decided
PATIENCE_S = 40.0
POLL_S = 0.1

D = TypeVar("D", bound=Value)

# What would lead the demonstration to a plane that is somebody's real one.
FOREIGN = ("KAFKA", "DATABASE", "BROKER", "BROKER_BOOT_ID", "CONFIG", "DATA_DIR", "PROCESSES", "HTTP_PORT")


@dataclass(slots=True)
class Story:
    """What happened, for the figures at the end."""

    up_s: float = 0.0
    bindings: int = 0
    accepted: int = 0
    scheduling_s: float = 0.0
    decisions: int = 0
    lost: str = ""
    held: int = 0
    silenced_s: float = 0.0
    answered: dict[str, str] = field(default_factory=dict)
    made: int = 0
    savings: Savings | None = None
    verified: VerifyResult | None = None
    replayed: ReplayResult | None = None

    @property
    def moved(self) -> list[str]:
        return [binding for binding, outcome in self.answered.items() if outcome == "scheduled"]

    @property
    def unmoved(self) -> str:
        """`12 NothingToDo, 3 Unschedulable`"""
        reasons = Counter(outcome for outcome in self.answered.values() if outcome != "scheduled")
        return ", ".join(f"{number:,} {reason}" for reason, number in sorted(reasons.items()))


def demo(request: Request, *, keep: bool, report: Path) -> None:
    """`report`: where the what-if's page goes; it stays when everything else is gone."""
    for name in FOREIGN:
        os.environ.pop(ENV_PREFIX + name, None)
    console = Console(highlight=False, width=None if Console().is_terminal else WIDTH)
    with _data_dir(request, keep=keep, console=console) as data_dir:
        story = Story()
        _chapter(console, "A plane", "a broker, a database and six services, all on this machine")
        story.up_s = _start(data_dir)
        try:
            console.print(f"ready in {story.up_s:.1f} s")
            asyncio.run(_tell(Request(data_dir, request.format), console, story, report.absolute()))
        finally:
            with messages().status("stopping everything"):
                take_down(data_dir)
        console.print(Text("everything that was started is stopped", DARK))


@contextmanager
def _data_dir(request: Request, *, keep: bool, console: Console) -> Iterator[Path]:
    """The directory asked for, if nothing is in it, or one of our own that goes when we go."""
    if request.data_dir is not None:
        data_dir = request.data_dir.absolute()
        if data_dir.exists() and any(data_dir.iterdir()):
            raise CommandError(f"demo: expected an empty data directory, got {data_dir}")
        data_dir.mkdir(parents=True, exist_ok=True)
        yield data_dir
        return
    data_dir = Path(tempfile.mkdtemp(prefix="wharfinger-demo-"))
    try:
        yield data_dir
    finally:
        if keep:
            console.print(f"kept: {data_dir} (`wharfinger up --data-dir {data_dir}` goes on with it)", soft_wrap=True)
        else:
            shutil.rmtree(data_dir, ignore_errors=True)


def _start(data_dir: Path) -> float:
    started = time.monotonic()
    with bar("starting", len(STEPS)) as step:
        # What can go is looked for every second and proposed at once: nobody wants to watch a plane be patient.
        flags = {"data_dir": data_dir, "disruption_poll_s": 1, "disruption_validation_s": 0}
        start_detached(data_dir, flags, lambda _: step(1))
    return time.monotonic() - started


async def _tell(request: Request, console: Console, story: Story, report: Path) -> None:
    async with opened_ledger(load_settings(request.flags)) as ledger:
        known = await known_facts(ledger)
        heart = _Heart(ledger, known)
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(heart.beat())
            await _schedule(ledger, heart, console, story)
            await _lose_a_cluster(ledger, heart, console, story)
            await _grow_and_shrink(ledger, heart, console, story)
            beating.cancel()
        await _explain(ledger, console)
        await _prove(ledger, console, story)
        await _what_if(ledger, console, report)
        _figures(console, story, await look(request))


class _Heart:
    """Says again and again that every cluster is there, until one is told to be silent."""

    def __init__(self, ledger: Ledger, known: Facts) -> None:
        self.clusters: dict[str, Cluster] = {}
        self._ledger = ledger
        self._known = known
        self._turn = asyncio.Lock()

    async def tell(self, facts: Sequence[Accepted], step: Callable[[int], None]) -> int:
        """Hand in what is new; clusters among it are kept alive from now on."""
        for fact in facts:
            if isinstance(fact.data, ClusterObserved) and fact.data.cluster.lease_s is not None:
                self.clusters[fact.data.cluster.name] = fact.data.cluster
        async with self._turn:
            return (await submit(self._ledger, facts, self._known, told=step)).accepted

    async def beat(self) -> None:
        while True:
            beats = [accepted(ClusterObserved(cluster)) for cluster in self.clusters.values()]
            async with self._turn:
                await submit(self._ledger, beats, self._known, again=True)
            await asyncio.sleep(BEAT_S)


async def _schedule(ledger: Ledger, heart: _Heart, console: Console, story: Story) -> None:
    _chapter(console, "A fleet", "made up from a seed, with the examples' manifests beside it")
    facts = list(generate(FLEET_PLAN))
    examples = _example_facts(facts)
    names = {f.key for f in [*facts, *examples] if type_of(f.data).startswith("io.wharfinger.binding.requested")}
    story.bindings = len(names)
    began = time.monotonic()
    with bar("telling it", len(facts) + len(examples)) as step:
        story.accepted = await heart.tell(facts, step) + await heart.tell(examples, step)
    with bar("scheduling", len(names)) as step:
        seen: set[str] = set()

        async def decided() -> bool:
            now = {row.subject for row in await ledger.current(stream=FLEET)} & names
            step(len(now - seen))
            seen.update(now)
            return len(seen) == len(names)

        if not await _until(decided):
            raise CommandError(f"demo: only {len(seen)} of {len(names)} bindings were decided in {PATIENCE_S:g} s")
        last = await _until_quiet(ledger)
    story.scheduling_s = last - began
    rows = [row async for row in ledger.decisions(DecisionQuery(types=TYPES))]
    story.decisions = len(rows)
    outcomes = Counter(row.outcome for row in rows)
    shown = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(outcomes.items()))
    console.print(f"{count(len(names), 'binding')} decided in {story.scheduling_s:.1f} s: {shown}")


def _from_here(path: Path) -> str:
    """As one would type it, where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _examples() -> Path:
    """Beside the source tree; an installed package has none."""
    return Path(__file__).resolve().parents[2] / "examples"


def _example_facts(generated: Sequence[Accepted]) -> list[Accepted]:
    """The hand-written manifests, where the source tree is at hand; an installed package has none."""
    folders = [_examples() / name for name in EXAMPLES if (_examples() / name).is_dir()]
    if not folders:
        return []
    loaded = load_files(folders)
    taken = {fact.key for fact in generated if isinstance(fact.data, ClusterObserved)}
    intake = compile_manifests(loaded.manifests)
    if errors := [*loaded.errors, *intake.errors]:
        raise CommandError(*(str(error) for error in errors))
    # A made-up cluster may be called as one of the examples: then the example is left out, whole.
    return [fact for fact in intake.facts if fact.subject not in taken]


async def _lose_a_cluster(ledger: Ledger, heart: _Heart, console: Console, story: Story) -> None:
    holding = Counter(
        target.cluster
        for row in await ledger.current(stream=FLEET)
        for target in getattr(row.data(), "targets", ())
        if target.cluster in heart.clusters and target.replicas  # what has no count has no replicas to fail over
    )
    if not holding:
        raise CommandError("demo: no cluster holds anything, so none can be lost")
    # Not the largest: the others must have room for what it held.
    story.lost, story.held = sorted(holding.items(), key=lambda entry: (entry[1], entry[0]))[len(holding) // 2]
    _chapter(console, f"{story.lost} falls silent", f"it holds replicas of {count(story.held, 'binding')}")
    del heart.clusters[story.lost]

    async def silenced() -> bool:
        for row in await ledger.current(story.lost, FLEET):
            if isinstance(data := row.data(), ClusterSilenced):
                story.silenced_s = (row.at - data.silent_since_us) / 1e6
        return story.silenced_s > 0

    with bar("waiting", LEASE_S + 1) as step:
        if not await _until(silenced, tick=step):
            raise CommandError(f"demo: {story.lost} was not called silent in {PATIENCE_S:g} s")
    console.print(
        f"called silent after {story.silenced_s:.1f} s without a word; silent is not dead, so nothing it holds is let go"
    )
    with bar("failing over", story.held) as step:

        async def answered() -> bool:
            found = await _answered(ledger)
            step(len(found) - len(story.answered))
            story.answered = found
            return len(found) >= story.held

        await _until(answered, patience_s=PATIENCE_S / 4)
        await _until_quiet(ledger)
    story.answered = await _answered(ledger)
    kept = f"; the rest stay as they are: {story.unmoved}" if story.unmoved else ""
    console.print(f"{count(len(story.moved), 'binding')} placed elsewhere too{kept}")


async def _answered(ledger: Ledger) -> dict[str, str]:
    """binding -> what became of its failover: `scheduled`, or why not."""
    answers: dict[str, str] = {}
    async for row in ledger.decisions(DecisionQuery(FLEET)):
        match row.data():
            case ScheduleDecided(trigger="FailoverSchedule"):
                answers[row.subject] = row.outcome
            case ScheduleRefused(trigger="FailoverSchedule") as refused:
                answers.setdefault(row.subject, refused.reason)
            case ProposalRefused() as refused:
                answers.setdefault(row.subject, refused.reason)
    return answers


async def _failovers(ledger: Ledger) -> AsyncIterator[LedgerRow]:
    async for row in ledger.decisions(DecisionQuery(FLEET)):
        data = row.data()
        if isinstance(data, ScheduleDecided | ScheduleRefused) and data.trigger == "FailoverSchedule":
            yield row


async def _grow_and_shrink(ledger: Ledger, heart: _Heart, console: Console, story: Story) -> None:
    """A cluster of which nothing is there but its office: nodes are made for the day's workloads, and go by night."""
    folder = _examples() / CONSOLIDATION
    if not folder.is_dir():  # an installed package has no examples
        return
    here = _from_here(folder)
    _chapter(console, "Nodes as they are needed", f"`wharfinger apply -f {here}/day.yaml`, `wharfinger provide`")
    types = read([_examples() / INSTANCE_TYPES], "auto", CatalogueAsked()).types
    catalogue = [accepted(PolicyApplied(part)) for part in parts_of(DOCK, types)]
    day = await _intake(ledger, folder / "cluster.yaml", folder / "day.yaml")
    await heart.tell([*catalogue, *day], lambda _: None)
    provider = Provider(ledger, PROVIDED_AFTER_S)
    with bar("making nodes", 1) as step:

        async def placed() -> bool:
            for line in await provider.turn():
                console.print(line)
            return not provider.waiting and await _on_nodes(ledger, DOCK) == len(DAY)

        if not await _until(placed):
            raise CommandError(f"demo: not all of {DOCK} was placed in {PATIENCE_S:g} s")
        step(1)
    claims = await _of_type(ledger, NodeClaimRequested)
    story.made = len(claims)
    console.print(f"{count(len(claims), 'node')} asked for and made, {dollars(sum(c.price for c in claims))} together")
    _chapter(console, "Fewer nodes", f"`wharfinger apply -f {here}/night.yaml`, `wharfinger savings`")
    await heart.tell(await _intake(ledger, folder / "night.yaml"), lambda _: None)
    with bar("consolidating", 1) as step:
        quiet_from = time.monotonic()

        async def settled() -> bool:
            nonlocal quiet_from
            begun, ended = await _of_type(ledger, DisruptionDecided), await _of_type(ledger, DisruptionEnded)
            if await provider.turn() or not begun or len(begun) > len(ended) or provider.waiting:
                quiet_from = time.monotonic()
            return time.monotonic() - quiet_from > CALM_S

        if not await _until(settled):
            raise CommandError(f"demo: {DOCK} did not come to rest in {PATIENCE_S:g} s")
        step(1)
    for decided in await _of_type(ledger, DisruptionDecided):
        line = Text(f"{decided.method}: ", WARN).append(f"{some(n.name for n in decided.nodes)} goes. ", "default")
        console.print(line.append(decided.reason, DARK), soft_wrap=True)
    story.savings = await savings(ledger, wall_clock())
    for part in savings_page(story.savings):
        console.print(part)


async def _intake(ledger: Ledger, *files: Path) -> list[Accepted]:
    """What the manifests say, beside what is known already."""
    intake = compiled(load_files(files).manifests, await known_facts(ledger))
    refuse(intake.errors)
    return list(intake.facts)


async def _of_type(ledger: Ledger, kind: type[D]) -> list[D]:
    """Decisions of one type in the cluster whose nodes come and go."""
    query = DecisionQuery(f"{CLUSTER}{DOCK}", types=(LATEST[kind].type,))
    return [data async for row in ledger.decisions(query) if isinstance(data := row.data(), kind)]


async def _on_nodes(ledger: Ledger, cluster: str) -> int:
    """How many bindings were last told to be placed there."""
    return sum(isinstance(row.data(), ReplicasPlaced) for row in await ledger.current(stream=f"{CLUSTER}{cluster}"))


async def _explain(ledger: Ledger, console: Console) -> None:
    row = await _telling(ledger)
    _chapter(console, "Why there?", f"`wharfinger explain {row.subject}`")
    for part in account_page(await account_of(ledger, row.subject, str(row.id))):
        console.print(part)


async def _telling(ledger: Ledger) -> LedgerRow:
    """A decision worth explaining: a failover whose replicas found nodes; else any failover; else any decision."""
    failovers = {str(row.id): row async for row in _failovers(ledger) if row.outcome == "scheduled"}
    async for row in ledger.decisions(DecisionQuery(CLUSTER)):
        if isinstance(data := row.data(), ReplicasPlaced) and data.assignment in failovers:
            return failovers[data.assignment]
    return next(iter(failovers.values()), (await ledger.current(stream=FLEET))[0])


async def _prove(ledger: Ledger, console: Console, story: Story) -> None:
    _chapter(console, "Is it true?", "`wharfinger audit verify`, `wharfinger replay`")
    story.verified = await verify.audit_verify(ledger)
    for part in verified_page(story.verified):
        console.print(part)
    story.replayed = await watched_replay(ledger)
    for part in replayed_page(story.replayed):
        console.print(part)
    if not story.verified.ok or story.replayed.divergences:
        raise CommandError("demo: the ledger does not hold what it promises", code=1)


async def _what_if(ledger: Ledger, console: Console, report: Path) -> None:
    policy = _examples() / WHAT_IF
    asked = _from_here(policy) if _examples().is_dir() else WHAT_IF_SETTING
    command = f"wharfinger replay --with {asked} --report {report.name}"
    _chapter(console, "What if?", f"`{command}`")
    with bar("replaying", 100) as step:
        result = await what_if(ledger, changes_of([asked]), progress=step)
    for part in whatif_page(result, (), None):
        console.print(part)
    await asyncio.to_thread(report.write_text, page(result, Asked(command, ())), encoding="utf-8")
    console.print(f"the comparison as a page, with plots: {report}", soft_wrap=True)


def _figures(console: Console, story: Story, seen: Seen) -> None:
    assert story.verified is not None, "proved before"
    assert story.replayed is not None, "proved before"
    _chapter(console, "Figures", "")
    memory = sum(rss for _, rss in seen.processes.values()) / 2**20
    table = new_table("what", "how much")
    table.show_header = False
    for name, value in (
        ("plane ready in", f"{story.up_s:.1f} s"),
        ("bindings", f"{story.bindings:,}"),
        ("events accepted", f"{story.accepted:,}"),
        ("decisions until all were placed", f"{story.decisions:,}"),
        ("from the first event to the last decision", f"{story.scheduling_s:.1f} s"),
        ("cluster called silent after", f"{story.silenced_s:.1f} s (its lease: {LEASE_S} s)"),
        ("bindings failed over", f"{len(story.moved):,}"),
        *_of_nodes(story),
        ("rows verified", f"{story.verified.rows:,} ({story.verified.rows_per_s:,.0f}/s)"),
        ("decisions replayed", f"{story.replayed.decisions:,} ({story.replayed.decisions_per_s:,.0f}/s)"),
        ("divergences", f"{len(story.replayed.divergences)}"),
        ("memory of all processes", f"{memory:,.0f} MB"),
    ):
        table.add_row(Text(name, DARK), value)
    console.print(table)


def _of_nodes(story: Story) -> list[tuple[str, str]]:
    if story.savings is None:
        return []
    gone = sum(account.removed for account in story.savings.done)
    return [("nodes made, and taken away again", f"{story.made}, {gone} ({dollars(story.savings.realised)} saved)")]


def _chapter(console: Console, title: str, said: str) -> None:
    console.print()
    console.print(Text(title, "bold " + GOOD).append(f"  {said}" if said else "", DARK))


async def _until(
    condition: Callable[[], Awaitable[bool]],
    *,
    patience_s: float = PATIENCE_S,
    tick: Callable[[int], None] | None = None,
) -> bool:
    """Ask until it is so. `tick` hears of every whole second."""
    began, told = time.monotonic(), 0
    while not await condition():
        passed = time.monotonic() - began
        if passed > patience_s:
            return False
        if tick is not None and int(passed) > told:
            tick(int(passed) - told)
            told = int(passed)
        await asyncio.sleep(POLL_S)
    return True


async def _until_quiet(ledger: Ledger) -> float:
    """Wait for a while without decisions; when the last one was seen, by the monotonic clock."""
    began = last = time.monotonic()
    before = -1
    while time.monotonic() - last < QUIET_S and time.monotonic() - began < PATIENCE_S:
        now = sum(head.seq for head in await ledger.heads() if head.stream != "intake")
        if now != before:
            before, last = now, time.monotonic()
        await asyncio.sleep(POLL_S)
    return last
