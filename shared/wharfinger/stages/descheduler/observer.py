"""The descheduler: facts in, proposals out.

Three rules. A cluster that its fleet stream holds for silent: failover of each binding there (silent is not dead, so the
stage adds elsewhere and releases nothing). A NoExecute taint whose toleration has ended, whether the cluster says it or a policy
gives it by the cluster's condition: eviction of the binding from that cluster. A node of a pool that has been empty for as long
as the pool's policy allows: its removal.

What is remembered of time is when this process saw it first; after a restart that is later than it was, so a proposal
may come late but never too early. The stage that owns the target has the ledger's times and checks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint, Toleration, toleration_seconds
from wharfinger.domain.value import Value
from wharfinger.engine.fleet.trigger import ours
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Recovered,
    Refused,
    Released,
    Silenced,
)
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.envelope import Event
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, NodeRemovalProposed
from wharfinger.events.streams import fleet_stream
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import emptiness
from wharfinger.stages.descheduler.causes import Cause, Causes
from wharfinger.stages.descheduler.facts import (
    SECOND,
    ClusterFacts,
    DeschedulerState,
    ShardOf,
    Share,
    Sighting,
    Spread,
    as_id,
)


@dataclass(frozen=True, slots=True)
class DeschedulerObserver:
    """`shard_of`: binding -> fleet shard. `repeat_after_s`: how soon a proposal is made again while its cause stands.
    `batch_max`: proposals of one `publish`."""

    shard_of: ShardOf
    repeat_after_s: int = 60
    batch_max: int = 500

    def __post_init__(self) -> None:
        if self.repeat_after_s <= 0 or self.batch_max <= 0:
            raise ValueError(
                f"expected repeat_after_s and batch_max above zero, got {self.repeat_after_s} and {self.batch_max}"
            )

    def initial(self) -> DeschedulerState:
        return DeschedulerState(Causes(self.repeat_after_s * SECOND))

    def fold(self, state: DeschedulerState, event: Event[Value], at: Micros) -> None:
        match event.data:
            case ClusterObserved(cluster):
                _fold_cluster(state, cluster, Sighting(at, str(event.id)))
            case ClusterForgotten(name):
                _forget_cluster(state, name)
            case BindingRequested(binding):
                _fold_binding(state, binding, at)
            case BindingWithdrawn(name):
                _withdraw(state, name)
            case PolicyApplied(policy):
                _fold_policy(state, policy, Sighting(at, str(event.id)))
            case PolicyRemoved(kind, name, namespace):
                _fold_policy(state, Policy(kind, name, namespace), Sighting(at, str(event.id)))
            case NodesObserved() as nodes:
                emptiness.fold_nodes(state, nodes, Sighting(at, str(event.id)))
            case PodsObserved(name, node, pods):
                facts = state.cluster(name)
                (facts.pods.add if pods else facts.pods.discard)(node)
                emptiness.contents_changed(state, name, facts, node, Sighting(at, str(event.id)))
            case AssignmentsDecided() as decided:
                self._fold_assignments(state, decided, at)
            case _:
                pass

    def publish(self, state: DeschedulerState, at: Micros) -> list[Publication]:
        """What is due, the important first, at most `batch_max`; `next_due` says at once when more is waiting."""
        proposals: list[Publication] = []
        while len(proposals) < self.batch_max and (cause := state.causes.take(at)) is not None:
            if cause.kind == "failover" and _made_up_for(state, cause):
                continue  # looked at again after the pause, for the substitute may be lost too
            proposals.append(_proposal(cause, state.causes.proposal_id(cause, at)))
        return proposals

    def next_due(self, state: DeschedulerState) -> Micros | None:
        return state.causes.next_due()

    def _fold_assignments(self, state: DeschedulerState, decided: AssignmentsDecided, at: Micros) -> None:
        """`decided.items` stand in order of seq, as the publisher and the ledger give them."""
        cluster = state.cluster(decided.cluster)
        seen = cluster.through.get(decided.stream, 0)
        for item in decided.items:
            if item.seq > seen:  # else redelivered
                cluster.through[decided.stream] = max(item.seq, cluster.through.get(decided.stream, 0))
                self._fold_item(state, decided.cluster, cluster, decided.stream, item, at)

    def _fold_item(
        self, state: DeschedulerState, name: str, cluster: ClusterFacts, stream: str, item: AssignmentItem, at: Micros
    ) -> None:
        sighting = Sighting(at, item.decision)
        match item:
            case Assigned():
                self._assigned(state, name, cluster, item, at)
            case Placed(binding=binding, placed=placed):
                for node, replica in emptiness.replicas(binding, placed):
                    emptiness.place(state, name, cluster, node, replica, sighting)
            case Released(binding=binding, released=released):
                for node, replica in emptiness.replicas(binding, released):
                    emptiness.take_back(state, name, cluster, node, replica, sighting)
            case NodeClosed(node=node):
                cluster.closed.add(node)
                emptiness.contents_changed(state, name, cluster, node, sighting)
            case Silenced(decision=decision):
                cluster.silenced[stream] = decision
                _silence_changed(state, name, cluster, stream, at)
            case Recovered():
                cluster.silenced.pop(stream, None)
                _silence_changed(state, name, cluster, stream, at)
            case Refused():
                pass  # the fleet stage answers it with a new assignment

    def _assigned(self, state: DeschedulerState, name: str, cluster: ClusterFacts, item: Assigned, at: Micros) -> None:
        item = _whole(cluster, item)
        binding = item.binding
        share = cluster.shares.get(binding)
        if item.replicas <= 0:
            if share is not None:
                _end_share(state, name, cluster, binding)
            return
        if share is not None:
            if share.live:
                state.spreads[binding].live += item.replicas - share.replicas
            share.replicas, share.priority = item.replicas, item.priority
            return
        stream = fleet_stream(self.shard_of(binding))
        spread = state.spreads.setdefault(binding, Spread())
        spread.clusters[name] = None
        spread.live += item.replicas
        cluster.shares[binding] = Share(item.replicas, item.priority, stream, Sighting(at, item.decision), live=True)
        if cluster.silenced:
            _judge_failover(state, name, cluster, binding, at)
        if cluster.taints:
            _judge_eviction(state, name, cluster, binding, at)


def _whole(cluster: ClusterFacts, item: Assigned) -> Assigned:
    """Components of a binding are assigned one by one, and leave together: what is proposed is about all of them."""
    whole = whole_of(item.binding)
    if whole == item.binding:
        return item
    parts = cluster.parts.setdefault(whole, {})
    parts[item.binding] = item.replicas
    replicas = sum(parts.values())
    if not replicas:
        del cluster.parts[whole]
    return msgspec.structs.replace(item, binding=whole, replicas=replicas)


# Taints and bindings.


def _fold_policy(state: DeschedulerState, policy: Policy, sighting: Sighting) -> None:
    """A policy without the part in question takes back what its key said before."""
    emptiness.fold_policy(state, policy, sighting.at)
    if state.tainting.set(policy.key, policy.taints):
        for name in sorted(state.tainting.told):
            _see_taints(state, state.tainting.judge(name), sighting)


def _fold_cluster(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    _see_taints(state, state.tainting.tell(observed), sighting)


def _see_taints(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    cluster = state.cluster(observed.name)
    taints = {t: cluster.taints.get(t, sighting) for t in observed.taints if t.effect == "NoExecute"}
    if taints != cluster.taints:
        cluster.taints = taints
        for binding in cluster.shares:
            _judge_eviction(state, observed.name, cluster, binding, sighting.at)


def _fold_binding(state: DeschedulerState, binding: Binding, at: Micros) -> None:
    before = state.bindings.get(binding.name)
    state.bindings[binding.name] = binding
    for name in state.clusters_of(binding.name):
        cluster = state.clusters[name]
        changed_hands = before is None or before.scheduler != binding.scheduler
        if changed_hands:
            _judge_failover(state, name, cluster, binding.name, at)
        if changed_hands or (before and before.placement.tolerations != binding.placement.tolerations):
            _judge_eviction(state, name, cluster, binding.name, at)


def _judge_eviction(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros) -> None:
    """When the binding has to leave the cluster because of its taints, if ever.

    Each taint by itself, since they came at different times. A binding that came after the taint gets its full time: else
    it would be placed, evicted at once, and placed again. A binding whose tolerations are not known here is left alone.
    """
    facts, share = state.bindings.get(binding), cluster.shares[binding]
    tolerations = facts.placement.tolerations if facts is not None else (_ANYTHING,)
    ends: list[tuple[Micros, str, str]] = []
    for taint, sighting in cluster.taints.items():
        seconds = toleration_seconds((taint,), tolerations)
        if seconds is not None:
            ends.append((max(sighting.at, share.since.at) + seconds * SECOND, _text(taint), sighting.by))
    if not ends or _another_schedulers(facts):
        state.causes.remove(("eviction", name, binding))
        return
    due, taint_text, by = min(ends)
    reason = f"the taint {taint_text} is not tolerated any more"
    stay = share.since.by
    origin, priority = f"{taint_text} {by} {stay}", _priority(facts, share)
    cause = Cause("eviction", name, binding, share.stream, origin, stay, reason, as_id(by), priority)
    state.causes.stand(cause, due, at)


_ANYTHING = Toleration(operator="Exists")


def _another_schedulers(facts: Binding | None) -> bool:
    """The fleet stage would refuse whatever is proposed about it."""
    return facts is not None and not ours(facts.scheduler)


def _priority(facts: Binding | None, share: Share) -> int:
    return facts.priority if facts is not None else share.priority


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


# Silence.


def _silence_changed(state: DeschedulerState, name: str, cluster: ClusterFacts, stream: str, at: Micros) -> None:
    """`stream` silenced the cluster or heard from it again. That concerns the bindings it owns: no other stream may decide
    on them, and each stream finds out for itself."""
    for binding, share in cluster.shares.items():
        if share.stream == stream:
            _judge_failover(state, name, cluster, binding, at)


def _judge_failover(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros) -> None:
    share, spread = cluster.shares[binding], state.spreads[binding]
    decision = cluster.silenced.get(share.stream)
    if share.live != (decision is None):
        share.live = decision is None
        spread.live += share.replicas if share.live else -share.replicas
    standing = state.causes.standing.get(("failover", name, binding))
    if decision is None or _another_schedulers(state.bindings.get(binding)):
        state.causes.remove(("failover", name, binding))
    elif standing is None or standing.by != as_id(decision):  # a cause that stands knows what there was before it
        priority = _priority(state.bindings.get(binding), share)
        reason, wanted = f"cluster {name} is silent", spread.live + share.replicas
        origin = f"{decision} {share.since.by}"
        cause = Cause(
            "failover", name, binding, share.stream, origin, origin, reason, as_id(decision), priority, wanted
        )
        state.causes.stand(cause, at, at)


def _made_up_for(state: DeschedulerState, cause: Cause) -> bool:
    """The binding has as many replicas in live clusters as before the silence, or as many as it asks for now."""
    wanted, facts = cause.live_wanted, state.bindings.get(cause.target)
    if facts is not None and facts.placement.replicas.type == "Divided" and not facts.components:
        wanted = min(wanted, facts.replicas)
    return state.spreads[cause.target].live >= wanted


# Ends.


def _end_share(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str) -> None:
    share, spread = cluster.shares.pop(binding), state.spreads[binding]
    if share.live:
        spread.live -= share.replicas
    del spread.clusters[name]
    if not spread.clusters:
        del state.spreads[binding]
    state.causes.forget(("failover", name, binding))
    state.causes.forget(("eviction", name, binding))


def _withdraw(state: DeschedulerState, binding: str) -> None:
    """Nothing more to propose for it; its shares end when the fleet stage lets them go."""
    state.bindings.pop(binding, None)
    for name in state.clusters_of(binding):
        state.causes.remove(("failover", name, binding))
        state.causes.remove(("eviction", name, binding))


def _forget_cluster(state: DeschedulerState, name: str) -> None:
    """The cluster left, and its replicas with it. How far its streams were read is kept: a cluster of that name may join
    again, and its streams go on."""
    state.tainting.forget(name)
    cluster = state.clusters.get(name)
    if cluster is None:
        return
    for binding in list(cluster.shares):
        _end_share(state, name, cluster, binding)
    for node in list(cluster.pool_of):
        emptiness.leave_pool(state, name, cluster, node)
    state.clusters[name] = ClusterFacts(through=cluster.through)


def _proposal(cause: Cause, id: UUID) -> Publication:
    data: Value
    match cause.kind:
        case "failover":
            data = FailoverProposed(cause.stream, cause.target, cause.cluster, cause.reason)
        case "eviction":
            data = EvictionProposed(cause.stream, cause.target, cause.cluster, cause.reason)
        case "node-removal":
            data = NodeRemovalProposed(cause.stream, cause.cluster, cause.target, cause.reason)
    return Publication(data, cause.target, cause.stream, cause.stream, id, cause.by)
