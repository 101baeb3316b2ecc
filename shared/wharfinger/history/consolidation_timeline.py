"""What consolidation would do over time: the present plane is simulated forward, and every change
of the nodes of its pools is listed with its time and the cost after it.

The simulation is a `World` of all stages with a simulated provider, as in a what-if. So passes
follow each other, replacements come after a delay, and budgets with their schedules,
`consolidateAfter`, expiry and the pauses after moves hold at the times at which they apply. Nothing
comes from outside: workloads, prices and foreign pods stay as they are, and clusters that are not
silent go on sending heartbeats. Nothing is written. The same state, time and policies give the same
timeline.

`consolidation_preview` is one pass over one moment, `whatif` replays what was recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from wharfinger.domain.policy import Policy
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.events.accepted import accepted
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    BindingEnd,
    DisruptionCommand,
    DisruptionResult,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    PlanEnd,
    ProposalEnd,
    ReplicaChange,
    SelectionEnd,
    SelectionPart,
    TimeCorrection,
    effect_of,
    kinds_about,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER
from wharfinger.history.consolidation_preview import (
    ConsolidationPreview,
    PoolCost,
    outlook,
    pool_cost,
    streams_asked,
)
from wharfinger.history.plan_records import fact_event
from wharfinger.history.planning import moments
from wharfinger.history.points import HistoryPoint, moment_of
from wharfinger.history.savings import HOUR_US, Account, Savings, SavingsBook
from wharfinger.history.states import PRESENT, world_at
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.stages.cluster.cluster_snapshot import scene
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.provider import Deed
from wharfinger.stages.world import World, foreign_pods

PROVIDES_AFTER_S = 60
"""Seconds from a claim to its node, and from a decided removal to the end of the node: about what
cloud providers take."""

_ID = derived_id("consolidation over time")
_CLAIMS = types_of(*kinds_about("claim"))


@dataclass(slots=True)
class PoolChange:
    """One change of the nodes of a cluster's pools.

    `method`: of the disruption command; `provisioning`: a node for replicas without one; `removal`:
    a node removed without a command. `at`: when it was decided. `account`: of the command, else
    None. `removed`: nodes whose removal was decided. `made`: nodes that came. `finished`: when the
    last of its removed nodes was gone and the last of its new ones there, in microseconds; None:
    not within the span. `cost`: of the pools of the cluster then, billionths of a dollar an hour.
    """

    cluster: str
    method: str
    at: Micros
    account: Account | None = None
    removed: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    finished: Micros | None = None
    cost: int = 0
    open_claims: set[str] = field(default_factory=set)

    @property
    def outcome(self) -> str:
        """`done`, `rolled-back`, or `running` where the span ends before it does."""
        if self.finished is None:
            return "running"
        return "done" if self.account is None else self.account.outcome

    @property
    def nodes(self) -> list[str]:
        """The nodes that it is to remove."""
        if self.account is None:
            return self.removed
        return [node.name for node in self.account.decided.nodes]

    @property
    def moves(self) -> int:
        return 0 if self.account is None else self.account.moved

    def is_over(self, nodes: Collection[str]) -> bool:
        """`nodes`: the names of those that are there."""
        ended = self.account is None or bool(self.account.outcome)
        return ended and not self.open_claims and not any(name in nodes for name in self.removed)


@dataclass(frozen=True, slots=True)
class ClusterOverTime:
    """The pools of one cluster. `before`: at the beginning. `after`: at the end of the span, with
    what could still go then. `spent`: what they cost over the span, billionths of a dollar."""

    cluster: str
    before: PoolCost
    after: ConsolidationPreview
    spent: int


@dataclass(frozen=True, slots=True)
class ConsolidationTimeline:
    """From `begin` to `end`, in microseconds. `changes`: in the order in which they were decided.
    `savings`: as `wharfinger savings` would show the commands of the span at its end."""

    begin: Micros
    end: Micros
    provides_after_s: int
    changes: tuple[PoolChange, ...]
    clusters: tuple[ClusterOverTime, ...]
    savings: Savings

    @property
    def unchanged(self) -> int:
        """What the pools would cost over the span if nothing changed, billionths of a dollar."""
        return sum(one.before.price * (self.end - self.begin) // HOUR_US for one in self.clusters)

    @property
    def spent(self) -> int:
        return sum(one.spent for one in self.clusters)

    @property
    def saved(self) -> int:
        """Billionths of a dollar. Negative: the pools cost more than if nothing changed, because
        nodes were made for replicas that had none."""
        return self.unchanged - self.spent


async def consolidation_timeline(
    ledger: Ledger,
    now: Micros,
    span_s: int,
    cluster: str = "",
    policies: Sequence[Policy] = (),
    *,
    begin: HistoryPoint = PRESENT,
    provides_after_s: int = PROVIDES_AFTER_S,
    bounds: bool = True,
) -> ConsolidationTimeline:
    """Of one cluster, or of all that have pools. The whole plane is simulated in any case. `now`:
    in microseconds; the simulation begins then, or at `begin` where that is a moment of the
    history. `policies`: applied at the beginning. `provides_after_s`: see `PROVIDES_AFTER_S`.

    UnknownNameError: no such cluster. PointError: no such point."""
    moment = await moment_of(ledger, begin)
    world = await world_at(
        ledger,
        begin,
        provides_after_s=provides_after_s,
        namespace="consolidation over time",
        not_before=now if moment is None else moment,
    )
    names = streams_asked([name for name in world.streams if name.startswith(CLUSTER)], cluster)
    world.provide(await _undone(ledger, world))
    world.tell(_given(world, policies))
    return played(world, names, span_s, provides_after_s, bounds=bounds)


async def _undone(ledger: Ledger, world: World) -> list[tuple[Micros, Deed]]:
    """What was decided before the world began and the provider has still to do, by the time of the
    decision where that is known."""
    deeds: list[tuple[Micros, Deed]] = []
    for state in world.cluster_states():
        claims = state.pools.claims
        if claims:
            since = min(claim.asked_us for claim in claims.values())
            query = DecisionQuery(state.stream, since=since, types=_CLAIMS)
            async for row in ledger.decisions(query):
                effect = effect_of(row.data())
                of_it = row.stream == state.stream and row.at <= world.at
                if of_it and isinstance(effect, NodeClaim) and effect.claim in claims:
                    deeds.append((row.at, effect))
        for name in sorted(state.pools.leaving):
            if name in state.book.nodes:
                deeds.append((world.at, NodeRemoval(state.cluster, name)))
        for running in state.running.values():
            if any(move.pod for move in running.decided.moves):
                deeds.append((running.at, running.decided))
    return deeds


def _given(world: World, policies: Sequence[Policy]) -> Iterator[Event[Value]]:
    """The policies, and the pods of others without those of bindings."""
    for state in world.cluster_states():
        for node, pods in sorted(state.book.pods.items()):
            observed = PodsObserved(state.cluster, node, pods)
            foreign = foreign_pods(observed)
            if foreign is not observed:
                id = derived_id(str(_ID), state.cluster, node)
                yield made(foreign, id=id, source="/wharfinger/plan", subject=state.cluster)
    for policy in policies:
        yield fact_event(_ID, accepted(PolicyApplied(policy)))


def played(
    world: World,
    streams: Sequence[str],
    span_s: int,
    provides_after_s: int = PROVIDES_AFTER_S,
    *,
    bounds: bool = True,
) -> ConsolidationTimeline:
    """Advances `world` by `span_s` seconds. `streams`: of the clusters that are looked at."""
    begin, end = world.at, world.at + span_s * SECOND
    savings = SavingsBook(Savings(end))
    clusters = {name: _ClusterPools(_state(world, name), begin, savings) for name in streams}
    for rounds in moments(world, end):
        for recorded in rounds:
            if recorded.round.stream in clusters:
                clusters[recorded.round.stream].take(recorded)
        for name in dict.fromkeys(r.round.stream for r in rounds if r.round.stream in clusters):
            clusters[name].look(world.at)
    world.wait(end)  # nothing is due until then
    over = [clusters[name].over(end, bounds=bounds) for name in streams]
    changes = [change for name in streams for change in clusters[name].changes]
    return ConsolidationTimeline(
        begin,
        end,
        provides_after_s,
        tuple(sorted(changes, key=lambda change: change.at)),
        tuple(one for one in over if one.before.nodes or one.after.nodes),
        savings.savings,
    )


def _state(world: World, stream: str) -> ClusterStageState:
    state = world.streams[stream].state
    assert isinstance(state, ClusterStageState), "streams of clusters have such a state"
    return state


class _ClusterPools:
    """The pools of one cluster while time passes: their changes, and what they cost."""

    def __init__(self, state: ClusterStageState, begin: Micros, savings: SavingsBook) -> None:
        self._state, self._savings = state, savings
        self._prices = NodePrices(state.policies.types, state.policies.overlays)
        self._before = self._cost = self._costs()
        self._since, self._spent = begin, 0
        self.changes: list[PoolChange] = []
        self._open: list[PoolChange] = []
        self._of_node: dict[str, PoolChange] = {}
        self._of_claim: dict[str, PoolChange] = {}
        self._begun_before(begin)

    def _begun_before(self, begin: Micros) -> None:
        """Commands, claims and removals that are under way at the beginning."""
        for running in self._state.running.values():
            account = self._savings.begun(running.decided, running.id, running.at)
            account.moved = running.moved
            settled = {r.claim for r in running.replacements if r.node or r.failed}
            change = self._command(running.decided, account, running.at)
            change.removed += running.removed
            change.open_claims -= settled
        for claim in self._state.pools.claims.values():
            if not claim.command:
                self._provisioned(claim.claim, claim.asked_us)
        for name in self._state.pools.leaving:
            if name in self._state.book.nodes and name not in self._of_node:
                self._removed(name, begin)

    def take(self, recorded: RecordedRound) -> None:
        for decision in recorded.round.decisions:
            self._decided(decision, recorded.round.at)
        if any(isinstance(event.data, NodesObserved) for event in recorded.events):
            at = recorded.round.at
            self._spent += self._cost.price * (at - self._since)
            self._since, self._cost = at, self._costs()

    def look(self, at: Micros) -> None:
        """Closes the changes that are finished at the end of this moment."""
        for change in self._open:
            if change.is_over(self._state.book.nodes):
                change.finished, change.cost = at, self._cost.price
        self._open = [change for change in self._open if change.finished is None]

    def over(self, end: Micros, *, bounds: bool) -> ClusterOverTime:
        state = self._state
        state.at = max(state.at, end)
        spent = self._spent + self._cost.price * (end - self._since)
        after = outlook(state.cluster, scene(state, state.at), bounds=bounds)
        return ClusterOverTime(state.cluster, self._before, after, spent // HOUR_US)

    def _costs(self) -> PoolCost:
        state = self._state
        pools = state.policies.of(state.cluster)
        return pool_cost(state.book.nodes.values(), pools, self._prices)

    # --- what was decided

    def _decided(self, decision: Decision, at: Micros) -> None:
        self._savings.take(decision.data, decision.id, decision.cause, at)
        match effect_of(decision.data):
            case DisruptionCommand() as decided:
                self._command(decided, self._savings.savings.accounts[-1], at)
            case NodeClaim() as claim:
                if not claim.command:
                    self._provisioned(claim.claim, at)
            case NodeClaimResult() as ended:
                self._claim_ended(ended)
            case NodeRemoval(node=node):
                self._removed(node, at)
            case (
                BindingEnd()
                | HeartbeatEnd()
                | ReplicaChange()
                | DisruptionResult()
                | SelectionPart()
                | SelectionEnd()
                | ProposalEnd()
                | PlanEnd()
                | TimeCorrection()
                | None
            ):
                pass  # the account of a command has its result
            case other:
                assert_never(other)

    def _command(self, decided: DisruptionCommand, account: Account, at: Micros) -> PoolChange:
        change = self._begun(PoolChange(decided.cluster, decided.method, at, account))
        change.open_claims.update(decided.claims)
        self._of_node.update({node.name: change for node in decided.nodes})
        self._of_claim.update(dict.fromkeys(decided.claims, change))
        return change

    def _provisioned(self, claim: str, at: Micros) -> None:
        change = self._begun(PoolChange(self._state.cluster, "provisioning", at))
        change.open_claims.add(claim)
        self._of_claim[claim] = change

    def _claim_ended(self, ended: NodeClaimResult) -> None:
        change = self._of_claim.pop(ended.claim, None)
        if change is None:
            return
        change.open_claims.discard(ended.claim)
        if ended.outcome == "registered":
            change.made.append(ended.node)
        elif change.account is None:  # no node came, so nothing has changed
            self.changes.remove(change)
            self._open.remove(change)

    def _removed(self, node: str, at: Micros) -> None:
        change = self._of_node.get(node)
        if change is None or change.account is None or change.account.outcome:
            change = self._begun(PoolChange(self._state.cluster, "removal", at))
        change.removed.append(node)

    def _begun(self, change: PoolChange) -> PoolChange:
        self.changes.append(change)
        self._open.append(change)
        return change
