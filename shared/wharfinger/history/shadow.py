"""Shadow: each pod that a cluster's own scheduler placed, held against what we decide on the facts
as they were just before (`stages.shadow`).

Read from the rounds of the cluster's stream alone: no cluster is asked, and the same rounds give
the same comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import msgspec

from wharfinger.domain.scheduler import DEFAULT_SCHEDULER, Profile
from wharfinger.engine.framework.profile import framework
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.streams import CLUSTER
from wharfinger.history.points import HistoryPoint, moment_of, round_of
from wharfinger.history.states import PRESENT, state_at
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.shadow import ShadowBook, ShadowDecision, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

WAITS_US = 30_000_000
"""A pod that has waited for so long found no node at the other scheduler; before, it may only not
have been tried yet."""

BALANCE_BY_CHANGE = (1, 36)
"""Since this release of Kubernetes the balance of resources is scored by its change."""

GENESIS = HistoryPoint("the beginning", round=0)


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """`decisions`: in order of time, those of pods that wait last. `begin`, `end`: of the rounds
    that were read. `nodes`: nodes, or clusters of the fleet. `runs`: how often all of them were
    looked at for a pod, binding or placement; `run_s`: how long that took now, in all; it is not
    part of the comparison. `hub`: it compares choices of clusters, see `history.fleet_shadow`."""

    cluster: str
    schedulers: tuple[str, ...]
    profile: str
    begin: Micros
    end: Micros
    nodes: int
    decisions: tuple[ShadowDecision, ...]
    runs: int = 0
    run_s: float = 0.0
    hub: bool = False

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Of every verdict, also where it is 0."""
        found = dict.fromkeys(VERDICTS, 0)
        for one in self.decisions:
            found[one.verdict] += 1
        return found

    @property
    def placed(self) -> int:
        """Pods that the other scheduler placed."""
        return len(self.decisions) - self.counts["unplaced"]

    def of(self, verdict: Verdict) -> list[ShadowDecision]:
        return [one for one in self.decisions if one.verdict == verdict]

    def plugins(self) -> list[tuple[str, int, int, int]]:
        """(plugin, pods, sum of our lead, sum of their lead) over all that are better or worse:
        which plugins made the difference, the largest first."""
        found: dict[str, list[int]] = {}
        for one in self.decisions:
            for part in one.plugins:
                row = found.setdefault(part.plugin, [0, 0, 0])
                row[0] += 1
                row[1] += max(0, part.ours - part.theirs)
                row[2] += max(0, part.theirs - part.ours)
        rows = [(plugin, row[0], row[1], row[2]) for plugin, row in found.items()]
        return sorted(rows, key=lambda row: (-(row[2] + row[3]), row[0]))

    def waits_us(self) -> list[Micros]:
        """From a pod's creation to when it was seen on its node, ascending; of pods of which that
        is known."""
        return sorted(
            one.waited_us for one in self.decisions if one.verdict != "unplaced" and one.waited_us
        )


async def shadow(
    ledger: Ledger,
    cluster: str,
    from_: HistoryPoint = GENESIS,
    to: HistoryPoint = PRESENT,
    *,
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,),
    release: tuple[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ShadowReport:
    """`release`: of the other scheduler, such as (1, 36); None: not known. `progress`: per cent.
    PointError, LedgerError: it cannot be read."""
    stream = f"{CLUSTER}{cluster}"
    first, last = await round_of(ledger, stream, from_), await round_of(ledger, stream, to)
    start = await state_at(ledger, stream, HistoryPoint("", stream, first))
    state, decider = start.state, start.decider
    if not isinstance(state, ClusterStageState):
        raise LedgerError(f"{stream} places no pods")
    walk = _Walk(cluster, tuple(schedulers), release)
    walk.begin(state, start.head.at)
    async for recorded in ledger.recorded_rounds(stream, first + 1, last, on_trust=True):
        decided = _decided(state, recorded)
        state = recover(decider, state, (recorded,))
        walk.round(state, recorded, decided)
        if progress is not None:
            progress(100 * (recorded.round.number - first) // max(1, last - first))
    return walk.report(state, await _end(ledger, to))


async def _end(ledger: Ledger, to: HistoryPoint) -> Micros:
    """When that was; for now, when the plane last wrote anything: the clock is not asked, so that
    the same history gives the same report."""
    at = await moment_of(ledger, to)
    if at is not None:
        return at
    times = await ledger.first_and_last()
    return 0 if times is None else times[1]


def shadow_profile(profile: Profile, release: tuple[int, int] | None) -> Profile:
    """The profile with the formulas of a release of kube-scheduler."""
    balanced = msgspec.structs.replace(
        profile.arguments.balanced, by_change=release is not None and release >= BALANCE_BY_CHANGE
    )
    arguments = msgspec.structs.replace(profile.arguments, balanced=balanced)
    return msgspec.structs.replace(profile, arguments=arguments)


def release_of(version: str) -> tuple[int, int] | None:
    """`v1.36.3` -> (1, 36); None: it says none, as `v0.0.0-master` of a build without one."""
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return (int(parts[0]), int(parts[1])) if int(parts[0]) else None


def _decided(state: ClusterStageState, recorded: RecordedRound) -> dict[str, str]:
    """uid -> node, of the pods that are replicas which the stage placed itself."""
    found: dict[str, str] = {}
    for event in recorded.events:
        if not isinstance(event.data, PodsObserved):
            continue
        for pod in event.data.pods:
            held = state.book.held.get(pod.binding)
            replica = None if held is None else held.placed.get(pod.ordinal)
            if replica is not None:
                found[pod.uid] = replica.node
    return found


SURROUNDINGS = NodesObserved | NodeImagesObserved | ObjectsObserved


class _Walk:
    """Through the rounds of one cluster's stream."""

    def __init__(
        self, cluster: str, schedulers: Sequence[str], release: tuple[int, int] | None
    ) -> None:
        self._cluster = cluster
        self._schedulers = tuple(schedulers)
        self._release = release
        self._profile: Profile | None = None
        self._book: ShadowBook | None = None
        self._since: Micros = 0
        self._begin: Micros = 0
        self._end: Micros = 0
        self._found: list[ShadowDecision] = []
        self._run_s = 0.0

    def begin(self, state: ClusterStageState, at: Micros) -> None:
        self._begin = self._end = at
        if state.book.known:
            self._start(state, at)

    def _start(self, state: ClusterStageState, at: Micros) -> None:
        """From here on the cluster's nodes are known. Pods that are older are not compared: they
        were placed before."""
        self._follow(state)
        assert self._book is not None, "made by _follow"
        waiting = state.book.waiting.facts()
        self._book.begin(state.book.nodes, state.book.pods, state.objects.all, at, waiting)
        self._since = at // 1_000_000 * 1_000_000  # creation times have whole seconds

    def _follow(self, state: ClusterStageState) -> None:
        """The profile of the other scheduler, as it is configured here."""
        name = self._schedulers[0]
        profile = state.profiles.profile(name) or state.profiles.named[DEFAULT_SCHEDULER]
        profile = shadow_profile(profile, self._release)
        if profile != self._profile:
            self._profile = profile
            made = framework(profile)
            if self._book is None:
                self._book = ShadowBook(made, self._schedulers)
            else:
                self._book.framework = made

    def round(
        self, state: ClusterStageState, recorded: RecordedRound, decided: Mapping[str, str]
    ) -> None:
        """`state`: after the round. Nodes and objects are taken as they are then; pods that were
        seen in it are compared one after the other."""
        at = recorded.round.at
        self._begin, self._end = self._begin or at, at
        if self._book is None:
            if state.book.known:
                self._start(state, at)
            return
        facts = [event.data for event in recorded.events]
        self._follow(state)
        if any(isinstance(fact, SURROUNDINGS) for fact in facts):
            self._book.surroundings(state.book.nodes, state.objects.all)
        observed = [f for f in facts if isinstance(f, PodsObserved | WaitingPodsObserved)]
        if observed:
            began = time.perf_counter()
            self._found += self._book.observe(observed, at, self._since, decided)
            self._run_s += time.perf_counter() - began

    def report(self, state: ClusterStageState, end: Micros) -> ShadowReport:
        self._end = max(self._end, end)
        report = ShadowReport(
            self._cluster,
            self._schedulers,
            "" if self._profile is None else self._profile.name,
            self._begin,
            self._end,
            len(state.book.nodes),
            tuple(self._found),
        )
        if self._book is None:
            return report
        waiting = self._book.unplaced(self._end, WAITS_US)
        return replace(
            report, decisions=(*self._found, *waiting), runs=self._book.runs, run_s=self._run_s
        )
