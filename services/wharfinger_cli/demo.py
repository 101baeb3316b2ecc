"""`demo`: the whole plane in a minute, shown as it happens.

A generated fleet is scheduled, together with the hand-written examples. Its clusters send
heartbeats; then one cluster stops, and its replicas are placed elsewhere too. In one more cluster
nodes are made as workloads need them, and removed when the workloads shrink, each command with its
arithmetic. One decision is explained. The ledger is verified and replayed, then replayed under
another policy, which leaves a page to look at. All that was started is stopped, however the
demonstration ends, and the plane ends with its process if that is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.text import Text

from wharfinger.answers.plane_status import PlaneStatus as PlaneSeen
from wharfinger.answers.submit import submit
from wharfinger.domain.text import dollars, some
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    DisruptionCommand,
    DisruptionResult,
    Effect,
    HeartbeatEnd,
    NodeClaim,
    ProposalEnd,
    ReplicaChange,
    ScheduleAnswer,
    effect_of,
)
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import type_of
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.changes import changes_of
from wharfinger.history.report import ReportCommand, page
from wharfinger.history.savings import Savings, savings
from wharfinger.history.whatif import what_if
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.ledger import (
    DecisionQuery,
    Ledger,
    LedgerRow,
    VerifyResult,
    verify,
    wall_clock,
)
from wharfinger.runtime.process_status import STEPS
from wharfinger.runtime.replay import ReplayResult
from wharfinger.runtime.settings import ENV_PREFIX, load_settings
from wharfinger.runtime.supervisor import take_down
from wharfinger_cli.apply import compiled, refuse
from wharfinger_cli.audit import verified_page
from wharfinger_cli.bulk import bar
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms as CatalogueAsked
from wharfinger_cli.connection import opened_ledger
from wharfinger_cli.decisions import TYPES
from wharfinger_cli.demo_waits import PlaneWaits, WaitProgress
from wharfinger_cli.examples import examples_dir
from wharfinger_cli.explain import account_of, account_page
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import CommandError
from wharfinger_cli.generate import FleetPlan, generate
from wharfinger_cli.heartbeats import Heartbeats, heartbeats
from wharfinger_cli.history import replayed_page, watched_replay
from wharfinger_cli.instance_types import parts_of
from wharfinger_cli.lifecycle import start_detached
from wharfinger_cli.output import DARK, GOOD, WARN, count, messages, new_table
from wharfinger_cli.output import console as open_console
from wharfinger_cli.provide import LedgerProvider
from wharfinger_cli.request import Request
from wharfinger_cli.savings import savings_page
from wharfinger_cli.status import look
from wharfinger_cli.whatif import whatif_page

WIDTH = 100
LEASE_S = (
    120  # of the generated clusters: no machine is so slow that one of them is missed by mistake
)
LOST_LEASE_S = 4  # seconds, in the last heartbeat of the cluster that is lost
# With room for every binding, in any order of the rounds.
FLEET_PLAN = FleetPlan(clusters=6, nodes=240, bindings=300, seed=3103, lease_s=LEASE_S)
WHAT_IF = "whatif/pack-everything.yaml"
EXAMPLES = ("fleet", "policies", "workloads", "ocm", "crane", "karpenter")
CONSOLIDATION = "consolidation"
INSTANCE_TYPES = "karpenter/instance-types.csv"
DOCK = "dock"
PROVIDED_AFTER_S = 0.5
REFUSED_ROUNDS = 40  # without a decision, and so many seconds: what is refused now will stay so
REFUSED_S = 30.0
CALM_ROUNDS = 8  # without a decision, four seconds where nothing is slow: no more nodes can go

E = TypeVar("E", bound=Effect)

# What would lead the demonstration to a plane that is somebody's real one.
FOREIGN = (
    "KAFKA",
    "DATABASE",
    "BROKER",
    "BROKER_BOOT_ID",
    "CONFIG",
    "DATA_DIR",
    "PROCESSES",
    "HTTP_PORT",
)


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
    console = open_console(None if open_console().is_terminal else WIDTH)
    with _interruptible() as signals:
        with _data_dir(request, keep=keep, console=console, signals=signals) as data_dir:
            story = Story()
            _chapter(
                console, "A plane", "a broker, a database and six services, all on this machine"
            )
            try:
                story.up_s = _start(data_dir)
                console.print(f"ready in {story.up_s:.1f} s")
                asyncio.run(
                    _tell(Request(data_dir, request.format), console, story, report.absolute())
                )
            finally:
                signals.ignore()
                with messages().status("stopping everything"):
                    take_down(data_dir)
        console.print(Text("everything that was started is stopped", DARK))


class _Signals:
    """SIGTERM and a closed terminal do what Ctrl-C does: the work is cut off, and all that was
    started is stopped."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received = 0

    def listen(self) -> None:
        # a shell in the background has it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)

    def ignore(self) -> None:
        """From now on everything is being stopped; more signals would only leave something
        behind."""
        for number in self.NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        handler = signal.getsignal(signal.SIGINT)  # asyncio's own while it runs
        if callable(handler):
            handler(signal.SIGINT, frame)


@contextmanager
def _interruptible() -> Iterator[_Signals]:
    """SystemExit with 128 + number where SIGTERM or SIGHUP came, as a shell counts;
    KeyboardInterrupt where it was Ctrl-C."""
    before = {number: signal.getsignal(number) for number in _Signals.NUMBERS}
    signals = _Signals()
    signals.listen()
    try:
        yield signals
    except KeyboardInterrupt:
        if signals.received:
            raise SystemExit(128 + signals.received) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _data_dir(
    request: Request, *, keep: bool, console: Console, signals: _Signals
) -> Iterator[Path]:
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
        signals.ignore()
        if keep:
            console.print(
                f"kept: {data_dir} (`wharfinger up --data-dir {data_dir}` goes on with it)",
                soft_wrap=True,
            )
        else:
            shutil.rmtree(data_dir, ignore_errors=True)


def _start(data_dir: Path) -> float:
    started = time.monotonic()
    with bar("starting", len(STEPS)) as step:
        # What can go is looked for every second and proposed at once, to keep this short. The plane
        # ends with this process.
        flags = {
            "data_dir": data_dir,
            "owner_pid": os.getpid(),
            "disruption_poll_s": 1,
            "disruption_validation_s": 0,
        }
        start_detached(data_dir, flags, lambda _: step(1))
    return time.monotonic() - started


async def _tell(request: Request, console: Console, story: Story, report: Path) -> None:
    async with opened_ledger(load_settings(request.flags)) as ledger:
        assert request.data_dir is not None, "the demonstration's own"
        async with heartbeats(request.data_dir) as beats:
            watch = PlaneWaits(ledger, beats.failure)
            await _schedule(watch, beats, console, story)
            await _lose_a_cluster(watch, beats, console, story)
            await _grow_and_shrink(watch, console, story)
        await _explain(ledger, console)
        await _prove(ledger, console, story)
        await _what_if(ledger, console, report)
        _figures(console, story, await look(request))


async def _schedule(watch: PlaneWaits, beats: Heartbeats, console: Console, story: Story) -> None:
    _chapter(console, "A fleet", "made up from a seed, with the examples' manifests beside it")
    ledger = watch.ledger
    facts = list(generate(FLEET_PLAN))
    examples = _example_facts(facts)
    names = {
        f.key
        for f in [*facts, *examples]
        if type_of(f.data).startswith("io.wharfinger.binding.requested")
    }
    story.bindings = len(names)
    await beats.keep(())  # it answers, so what is applied now will not wait for its first heartbeat
    began, known = wall_clock(), await known_facts(ledger)
    # Together: a workload of the examples may run in one cluster only, and another one that came
    # before it might take the last room there.
    together = [*examples, *facts]
    with bar("applying", len(together)) as step:
        story.accepted = (await submit(ledger, together, known, told=step)).accepted
    await beats.keep(_with_heartbeats(facts))
    with bar("scheduling", len(names)) as step:
        seen: set[str] = set()

        async def decided() -> WaitProgress:
            now = {row.subject for row in await ledger.current(stream=FLEET)} & names
            step(len(now - seen))
            seen.update(now)
            return WaitProgress(
                len(seen) == len(names), f"{len(seen):,} of {len(names):,} bindings are decided"
            )

        await watch.until("every binding to be decided", decided)
        await watch.until_quiet("the clusters to place their replicas on nodes")
        latest = await _latest(ledger, names)
        if any(row.outcome != "scheduled" for row in latest):
            # refused before the clusters' room was counted, most often
            await watch.until_quiet("every binding to be scheduled", REFUSED_ROUNDS, REFUSED_S)
            latest = await _latest(ledger, names)
    rows = [row async for row in ledger.decisions(DecisionQuery(types=TYPES))]
    story.decisions = len(rows)
    story.scheduling_s = (max(row.at for row in rows) - began) / 1e6
    outcomes = Counter(row.outcome for row in latest)
    shown = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(outcomes.items()))
    console.print(f"{count(len(names), 'binding')} decided in {story.scheduling_s:.1f} s: {shown}")
    for row in latest:
        if row.outcome != "scheduled":
            for part in account_page(await account_of(ledger, row.subject, str(row.id))):
                console.print(part)
            break


async def _latest(ledger: Ledger, names: set[str]) -> list[LedgerRow]:
    """The latest decision of the fleet stage on each of these bindings."""
    return [row for row in await ledger.current(stream=FLEET) if row.subject in names]


def _with_heartbeats(facts: Sequence[Accepted]) -> list[str]:
    clusters = [fact.data.cluster for fact in facts if isinstance(fact.data, ClusterObserved)]
    return [cluster.name for cluster in clusters if cluster.lease_s is not None]


def _from_here(path: Path) -> str:
    """As one would type it, where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _example_facts(generated: Sequence[Accepted]) -> list[Accepted]:
    """The hand-written manifests."""
    loaded = load_files([examples_dir() / name for name in EXAMPLES])
    taken = {fact.key for fact in generated if isinstance(fact.data, ClusterObserved)}
    intake = compile_manifests(loaded.manifests)
    if errors := [*loaded.errors, *intake.refusals]:
        raise CommandError(*(str(error) for error in errors))
    # A made-up cluster may be called as one of the examples: then the example is left out, whole.
    return [fact for fact in intake.facts if fact.subject not in taken]


async def _lose_a_cluster(
    watch: PlaneWaits, beats: Heartbeats, console: Console, story: Story
) -> None:
    ledger = watch.ledger
    holding = Counter(
        cluster
        for row in await ledger.current(stream=FLEET)
        for cluster in _counted(row)
        if cluster in beats.alive
    )
    if not holding:
        raise CommandError("demo: no cluster holds anything, so none can be lost")
    # Not the largest: the others must have room for what it held.
    story.lost, story.held = sorted(holding.items(), key=lambda entry: (entry[1], entry[0]))[
        len(holding) // 2
    ]
    _chapter(
        console,
        f"{story.lost} falls silent",
        f"it holds replicas of {count(story.held, 'binding')}",
    )
    await beats.keep(beats.alive - {story.lost})
    await _last_heartbeat(ledger, story.lost)

    async def silenced() -> WaitProgress:
        for row in await ledger.current(story.lost, FLEET):
            if isinstance(lost := effect_of(row.data()), HeartbeatEnd):
                story.silenced_s = (row.at - lost.since_us) / 1e6
        return WaitProgress(story.silenced_s > 0, "it counts as alive")

    with bar("waiting", LOST_LEASE_S + 1) as step:
        await watch.until(
            f"{story.lost}, of {LOST_LEASE_S} s lease, to be found silent", silenced, tick=step
        )
    console.print(
        f"found silent {story.silenced_s:.1f} s after its last heartbeat;"
        " silent is not dead, so nothing it holds is released"
    )
    with bar("failing over", story.held) as step:

        async def answered() -> WaitProgress:
            found = await _answered(ledger)
            step(len(found) - len(story.answered))
            story.answered = found
            open_ = await _not_replaced(ledger, story.lost, found)
            return WaitProgress(
                not open_, f"{len(story.moved):,} bindings are, {len(open_):,} have no answer"
            )

        await watch.until(f"what {story.lost} holds to be placed elsewhere", answered)
        await watch.until_quiet("the other clusters to place these replicas on nodes")
    story.answered = await _answered(ledger)
    if not story.moved:
        raise CommandError(
            f"demo: nothing that {story.lost} holds was placed elsewhere: {story.unmoved}", code=1
        )
    kept = f"; the rest stay as they are: {story.unmoved}" if story.unmoved else ""
    console.print(f"{count(len(story.moved), 'binding')} placed elsewhere too{kept}")


async def _last_heartbeat(ledger: Ledger, name: str) -> None:
    """The cluster sends one more heartbeat, with a short lease."""
    known = await known_facts(ledger)
    cluster = next(cluster for cluster in known.clusters if cluster.name == name)
    last = ClusterObserved(msgspec.structs.replace(cluster, lease_s=LOST_LEASE_S))
    await submit(ledger, [accepted(last)], known, again=True)


def _counted(row: LedgerRow) -> list[str]:
    """The clusters that a decision gives replicas to. What has no count has no replicas to fail
    over."""
    return [target.cluster for target in getattr(row.data(), "targets", ()) if target.replicas]


async def _not_replaced(ledger: Ledger, lost: str, answered: dict[str, str]) -> list[str]:
    """Bindings with replicas in the lost cluster about which nothing has been decided since."""
    return [
        row.subject
        for row in await ledger.current(stream=FLEET)
        if row.subject not in answered
        and lost in _counted(row)
        and lost not in getattr(row.data(), "suspect", ())
    ]


async def _answered(ledger: Ledger) -> dict[str, str]:
    """binding -> what became of its failover: `scheduled`, or why not."""
    answers: dict[str, str] = {}
    async for row in ledger.decisions(DecisionQuery(FLEET)):
        data = row.data()
        if isinstance(data, ScheduleAnswer) and data.trigger == "FailoverSchedule":
            if reason := data.refusal():
                answers.setdefault(row.subject, reason)
            else:
                answers[row.subject] = row.outcome
        elif isinstance(no := effect_of(data), ProposalEnd) and no.reason != "FleetHeld":
            # held: it is proposed again
            answers.setdefault(row.subject, no.reason)
    return answers


async def _failovers(ledger: Ledger) -> AsyncIterator[LedgerRow]:
    async for row in ledger.decisions(DecisionQuery(FLEET)):
        data = row.data()
        if isinstance(data, ScheduleAnswer) and data.trigger == "FailoverSchedule":
            yield row


async def _grow_and_shrink(watch: PlaneWaits, console: Console, story: Story) -> None:
    """A tainted cluster with nothing in it but its office: nodes are made for the day's workloads,
    and go by night."""
    folder = examples_dir() / CONSOLIDATION
    ledger, here = watch.ledger, _from_here(folder)
    _chapter(
        console,
        "Nodes as they are needed",
        f"`wharfinger apply -f {here}/day.yaml`, `wharfinger provide`",
    )
    types = read([examples_dir() / INSTANCE_TYPES], "auto", CatalogueAsked()).types
    catalogue = [accepted(PolicyApplied(part)) for part in parts_of(DOCK, types)]
    day = await _intake(ledger, folder / "cluster.yaml", folder / "day.yaml")
    wanted = {
        fact.key: fact.data.binding.replicas
        for fact in day
        if isinstance(fact.data, BindingRequested)
    }
    await submit(ledger, [*catalogue, *day], await known_facts(ledger))
    provider = LedgerProvider(ledger, PROVIDED_AFTER_S)

    async def placed() -> WaitProgress:
        for line in await provider.turn():
            console.print(line)
        there = await _on_nodes(ledger)
        shares = [
            f"{there[name]} of {replicas} replicas of {name}"
            for name, replicas in sorted(wanted.items())
        ]
        done = not provider.waiting and all(
            there[name] == replicas for name, replicas in wanted.items()
        )
        return WaitProgress(
            done, f"{', '.join(shares)} are; {count(len(provider.waiting), 'node')} to be made"
        )

    with bar("making nodes", 1) as step:
        await watch.until(f"the day's workloads to be on nodes of {DOCK}", placed)
        step(1)
    claims = await _effects(ledger, NodeClaim)
    story.made = len(claims)
    if not claims:
        raise CommandError(
            f"demo: the day's workloads are in {DOCK} without a node having been made for them",
            code=1,
        )
    console.print(
        f"{count(len(claims), 'node')} requested and made, "
        f"{dollars(sum(c.price for c in claims))} together"
    )
    _chapter(
        console, "Fewer nodes", f"`wharfinger apply -f {here}/night.yaml`, `wharfinger savings`"
    )
    await submit(ledger, await _intake(ledger, folder / "night.yaml"), await known_facts(ledger))

    async def ended() -> WaitProgress:
        for line in await provider.turn():
            console.print(line)
        begun, ended = (
            await _effects(ledger, DisruptionCommand),
            await _effects(ledger, DisruptionResult),
        )
        done = bool(begun) and len(begun) == len(ended) and not provider.waiting
        return WaitProgress(done, f"{count(len(begun), 'command')} begun, {len(ended)} ended")

    with bar("consolidating", 1) as step:
        while not (await ended()).done:
            await watch.until(f"nodes of {DOCK} that are not needed to go", ended)
            await watch.until_quiet(f"{DOCK} to come to rest", CALM_ROUNDS)
        step(1)
    for decided in await _effects(ledger, DisruptionCommand):
        line = Text(f"{decided.method}: ", WARN).append(
            f"{some(n.name for n in decided.nodes)} goes. ", "default"
        )
        console.print(line.append(decided.reason, DARK), soft_wrap=True)
    story.savings = await savings(ledger, wall_clock())
    for part in savings_page(story.savings):
        console.print(part)


async def _intake(ledger: Ledger, *files: Path) -> list[Accepted]:
    """What the manifests say, beside what is known already."""
    intake = compiled(load_files(files).manifests, await known_facts(ledger))
    refuse(intake.errors)
    return list(intake.facts)


async def _effects(ledger: Ledger, sort: type[E]) -> list[E]:
    """What was decided of one sort in the cluster whose nodes come and go."""
    rows = ledger.decisions(DecisionQuery(f"{CLUSTER}{DOCK}"))
    return [found async for row in rows if isinstance(found := effect_of(row.data()), sort)]


async def _on_nodes(ledger: Ledger) -> Counter[str]:
    """binding -> its replicas on nodes of that cluster now."""
    there: Counter[str] = Counter()
    for change in await _effects(ledger, ReplicaChange):
        there[change.binding] += sum(len(share.ordinals) for share in change.placed)
        there[change.binding] -= sum(len(share.ordinals) for share in change.released)
    return there


async def _explain(ledger: Ledger, console: Console) -> None:
    row = await _telling(ledger)
    _chapter(console, "Why there?", f"`wharfinger explain {row.subject}`")
    for part in account_page(await account_of(ledger, row.subject, str(row.id))):
        console.print(part)


async def _telling(ledger: Ledger) -> LedgerRow:
    """A decision worth explaining: a failover whose replicas found nodes; else any failover; else
    any decision."""
    failovers = {str(row.id): row async for row in _failovers(ledger) if row.outcome == "scheduled"}
    async for row in ledger.decisions(DecisionQuery(CLUSTER)):
        change = effect_of(row.data())
        if isinstance(change, ReplicaChange) and change.placed and change.assignment in failovers:
            return failovers[change.assignment]
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
    policy = examples_dir() / WHAT_IF
    asked = _from_here(policy)
    command = f"wharfinger replay --with {asked} --report {report.name}"
    _chapter(console, "What if?", f"`{command}`")
    with bar("replaying", 100) as step:
        result = await what_if(ledger, changes_of([asked]), progress=step)
    for part in whatif_page(result, (), None):
        console.print(part)
    await asyncio.to_thread(
        report.write_text, page(result, ReportCommand(command, ())), encoding="utf-8"
    )
    console.print(f"the comparison as a page, with plots: {report}", soft_wrap=True)


def _figures(console: Console, story: Story, seen: PlaneSeen) -> None:
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
        ("decisions until nothing was left to decide", f"{story.decisions:,}"),
        ("from the first event to the last decision", f"{story.scheduling_s:.1f} s"),
        ("cluster found silent after", f"{story.silenced_s:.1f} s (its lease: {LOST_LEASE_S} s)"),
        ("bindings failed over", f"{len(story.moved):,}"),
        *_of_nodes(story),
        ("rows verified", f"{story.verified.rows:,} ({story.verified.rows_per_s:,.0f}/s)"),
        (
            "decisions replayed",
            f"{story.replayed.decisions:,} ({story.replayed.decisions_per_s:,.0f}/s)",
        ),
        ("divergences", f"{len(story.replayed.divergences)}"),
        ("memory of all processes", f"{memory:,.0f} MB"),
    ):
        table.add_row(Text(name, DARK), value)
    console.print(table)


def _of_nodes(story: Story) -> list[tuple[str, str]]:
    if story.savings is None:
        return []
    gone = sum(account.removed for account in story.savings.done)
    return [
        (
            "nodes made, and taken away again",
            f"{story.made}, {gone} ({dollars(story.savings.realised)} saved)",
        )
    ]


def _chapter(console: Console, title: str, said: str) -> None:
    console.print()
    console.print(Text(title, "bold " + GOOD).append(f"  {said}" if said else "", DARK))
