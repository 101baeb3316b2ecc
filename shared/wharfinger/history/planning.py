"""Computes what a change would do, on simulated worlds. Pure, so that tests can compare thousands
of plans with what then happens.

Three worlds start from the same present state:

- The first receives the facts. It shows what the descheduler proposes because of them (the
  evictions of a drained cluster). These proposals become part of the plan, so that they commit with
  it.
- The second carries the plan out exactly as the plane would: it requests the plan, the streams
  commit it, the facts follow, and time passes until nothing is due.
- The third is not changed, and runs for the same time. What also happens there is no effect of the
  plan.

A plan that changes clusters or bindings is requested from the fleet streams, and changes of nodes
follow as facts. Several fleet streams commit their parts together or not at all. A plan that
changes only nodes is requested from the streams of their clusters, and each of these answers for
its own part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.resources import Amounts
from wharfinger.domain.value import Value, canonical
from wharfinger.engine.fleet.objective import price_micro
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    MISCONFIGURED,
    SATISFIED,
    PlanAnswer,
    ProposalEnd,
    ScheduleAnswer,
    effect_of,
)
from wharfinger.events.plans import PlanRequested, StepData, step_of
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.registry import type_of
from wharfinger.events.room import RoomItem
from wharfinger.events.streams import FLEET, cluster_stream
from wharfinger.history.plan_records import (
    HORIZON_US,
    BindingMove,
    ClusterUse,
    Figures,
    Plan,
    PlanFact,
    PlannedRefusal,
    Proposed,
    SelectionMove,
    fact_event,
    in_turn,
    request_event,
)
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.selections import SelectionRecord
from wharfinger.stages.world import World

AMENDED_MAX = 4
"""At most so many times a plan is amended, so that no cluster has to refuse a part of it."""

AMENDED = "where its clusters can hold it"

FLEET_FACTS = ClusterObserved | ClusterForgotten | BindingRequested | BindingWithdrawn


def planned(
    world: World,
    facts: Sequence[Accepted],
    proposals: Sequence[Proposed],
    id: UUID,
    made_at: Micros,
) -> Plan:
    """What `facts` and `proposals` would do to `world`, which is at rest and stays as it is."""
    facts = [fact for fact in _last_of_each_key(facts) if _is_news(world, fact.data)]
    steps: list[StepData] = [
        fact.data for fact in facts if isinstance(fact.data, FLEET_FACTS | NodesObserved)
    ]
    steps += [*proposals, *_follows(world, id, facts)]
    kept = tuple(PlanFact(type_of(fact.data), canonical(fact.data).decode()) for fact in facts)
    then, anyway = _carried_out(world, steps, facts, id), world.fork()
    began, parts = world.at, then.parts
    rounds = [*then.rounds, *live_on(then.world, began + HORIZON_US)]
    live_on(anyway, began + HORIZON_US)
    after = then.world
    return Plan(
        id,
        made_at,
        kept,
        parts,
        tuple(_moves(anyway, after)),
        tuple(_refusals(anyway, after)),
        _figures(anyway),
        _figures(after),
        HORIZON_US,
        max((r.round.at for r in rounds), default=began) - began,
        tuple(_stuck(after, facts)),
        tuple(_declined(rounds, proposals)),
        tuple(_unsure(parts, after)),
        tuple(_selection_moves(anyway, after)),
    )


@dataclass(frozen=True, slots=True)
class _CarriedOut:
    """A world on which the plan was carried out, at rest, no time passed; what was asked for that,
    and what was done."""

    world: World
    parts: tuple[PlanRequested, ...]
    rounds: list[RecordedRound]


def _carried_out(
    world: World, steps: Sequence[StepData], facts: Sequence[Accepted], id: UUID
) -> _CarriedOut:
    """The fleet stage believes estimates, and where many compete for little some cluster refuses
    what it was given. What then goes elsewhere goes where it can at that moment, which on a busy
    plane is another moment each time. So those places are made steps of the plan, as long as that
    leaves fewer bindings to chance: the streams commit them at once, and no cluster has to refuse
    anything."""
    best = _tried(world, steps, facts, id)
    amends: dict[str, RescheduleProposed] = {}
    for _ in range(AMENDED_MAX):
        elsewhere = _settled_elsewhere(best)
        if not elsewhere:
            break
        amends = {**amends, **elsewhere}
        amended = _tried(world, _amended(steps, amends), facts, id)
        vain = _declined_in(amended.parts)
        if vain & set(amends):
            amends = {name: amend for name, amend in amends.items() if name not in vain}
            amended = _tried(world, _amended(steps, amends), facts, id)
        if len(_settled_elsewhere(amended)) >= len(elsewhere):
            break
        best = amended
    return best


def _amended(steps: Iterable[StepData], amends: Mapping[str, RescheduleProposed]) -> list[StepData]:
    """The steps with the amendments added. An amendment names the targets of its binding, so the
    eviction of that binding is left out: evicted first, it could take room in a cluster that
    another binding needs."""
    kept = [
        step
        for step in steps
        if not isinstance(step, EvictionProposed) or step.binding not in amends
    ]
    return [*kept, *amends.values()]


def _tried(
    world: World, steps: Sequence[StepData], facts: Sequence[Accepted], id: UUID
) -> _CarriedOut:
    then = world.fork()
    # expected of the copy: its estimator may count clusters again that are uncertain in `world`
    parts = _parts(then, {name: s.head.seq for name, s in world.streams.items()}, steps, id)
    rounds = [made for asked in in_turn(parts) for made in then.tell(map(request_event, asked))]
    _require_committed(parts, rounds)
    rounds += then.tell(fact_event(id, fact) for fact in facts)
    return _CarriedOut(then, parts, rounds)


def _settled_elsewhere(tried: _CarriedOut) -> dict[str, RescheduleProposed]:
    """Bindings whose final clusters differ from those that the committing round assigned, and the
    proposal that assigns the final ones directly."""
    found: dict[str, RescheduleProposed] = {}
    for part in tried.parts:
        for outcome in part.expected:
            state = tried.world.state_of_shard(outcome.subject)
            record = state.bindings.get(outcome.subject)
            if (
                outcome.outcome != "scheduled"
                or record is None
                or record.refused
                or record.targets == outcome.places
            ):
                continue
            if (
                record.parsed.duplicated
                or sum(record.targets.values()) != record.spec.replicas
                or not record.targets
            ):
                continue
            targets = tuple(TargetCluster(name, n) for name, n in sorted(record.targets.items()))
            found[outcome.subject] = RescheduleProposed(
                part.stream, outcome.subject, AMENDED, targets
            )
    return found


def _unsure(parts: Iterable[PlanRequested], after: World) -> list[str]:
    """Bindings whose final clusters the committing rounds did not assign, and bindings that still
    lack replicas: both take room when it becomes free."""
    fleets = [part for part in parts if part.stream.startswith(FLEET)]  # others assign nodes
    committed = {o.subject: o.places for part in fleets for o in part.expected}
    names = {name for name, (_, missing) in _lacking(after) if missing}
    for state in after.fleet_states():
        names |= {
            name
            for name, record in state.bindings.items()
            if name in committed and not record.withdrawn and record.targets != committed[name]
        }
    return sorted(names)


def _declined_in(parts: Iterable[PlanRequested]) -> set[str]:
    return {
        outcome.subject
        for part in parts
        for outcome in part.expected
        if outcome.outcome == "declined"
    }


def live_on(world: World, end: Micros) -> list[RecordedRound]:
    """Lets time pass until nothing is due, but not beyond `end`. The heartbeats of all clusters
    that are not silent continue."""
    return [recorded for rounds in moments(world, end) for recorded in rounds]


def moments(world: World, end: Micros) -> Iterator[list[RecordedRound]]:
    """The same, one moment at a time: the rounds of each. `world` is as it is after that moment."""
    world.keep_hearing()
    while (due := world.next_due()) is not None and due <= end:
        yield world.wait(due)
        world.keep_hearing()


# --- what is asked of whom


def _last_of_each_key(facts: Sequence[Accepted]) -> list[Accepted]:
    """A fact is the whole state of its key, so the last one is what holds in the end. Earlier ones
    must not be compared with the present state: what is dropped as "no change" there could be what
    a later fact takes back."""
    last = {(fact.topic.name, fact.key): fact for fact in facts}
    return [fact for fact in facts if last[fact.topic.name, fact.key] is fact]


def _is_news(world: World, data: Value) -> bool:
    """Whether the fact differs from what some stream holds. Policies always do: not every stream
    keeps them."""
    match data:
        case ClusterObserved(cluster=facts):
            return any(
                state.tainting.told.get(facts.name) != facts for state in world.fleet_states()
            )
        case ClusterForgotten(name=name):
            known = [state.clusters.get(name) for state in world.fleet_states()]
            return any(cluster is not None and cluster.facts is not None for cluster in known)
        case BindingRequested(binding=spec):
            record = world.state_of_shard(spec.name).bindings.get(spec.name)
            return record is None or record.withdrawn or record.spec != spec
        case BindingWithdrawn(name=name):
            record = world.state_of_shard(name).bindings.get(name)
            return record is not None and not record.withdrawn
        case NodesObserved():
            state = _cluster_state(world, data.cluster)
            known_nodes = None if state is None else state.book.buckets.get(data.bucket)
            return known_nodes is None or known_nodes != {node.name: node for node in data.nodes}
        case _:
            return True


def _cluster_state(world: World, cluster: str) -> ClusterStageState | None:
    return next((state for state in world.cluster_states() if state.cluster == cluster), None)


def _follows(world: World, id: UUID, facts: Sequence[Accepted]) -> list[StepData]:
    """What the descheduler would propose at once because of the facts and a fleet stream would
    commit."""
    if not any(_drives_away(fact.data) for fact in facts):
        return []
    trial = world.fork()
    at = trial.at
    proposed: list[StepData] = []
    for recorded in trial.tell(fact_event(id, fact) for fact in facts):
        if recorded.round.at == at:
            proposed += _committed_proposals(recorded)
    return proposed


def _committed_proposals(recorded: RecordedRound) -> Iterator[StepData]:
    answers = {d.cause: d.data for d in recorded.round.decisions}
    for event in recorded.events:
        came_of_it = answers.get(event.id)
        if isinstance(event.data, EvictionProposed | FailoverProposed) and isinstance(
            came_of_it, ScheduleAnswer
        ):
            yield event.data


def _drives_away(data: Value) -> bool:
    return isinstance(data, ClusterObserved) and any(
        t.effect == "NoExecute" for t in data.cluster.taints
    )


def _parts(
    world: World, seqs: Mapping[str, int], steps: Sequence[StepData], id: UUID
) -> tuple[PlanRequested, ...]:
    """One request a stream that has something to do, with what comes of it on the present state,
    less the room that the parts of the fleet streams before it take. `seqs`: of the last decision
    of each stream when the plan is made."""
    of_stream: dict[str, list[StepData]] = {}
    of_nodes = all(isinstance(data, NodesObserved | NodeRemovalProposed) for data in steps)
    for data in steps:
        for stream in _streams_of(world, data, of_nodes):
            of_stream.setdefault(stream, []).append(data)
    fleets = sorted([stream for stream in of_stream if stream.startswith(FLEET)], key=_shard_number)
    together = tuple(fleets) if len(fleets) > 1 else ()
    taken: tuple[RoomItem, ...] = ()
    parts: list[PlanRequested] = []
    for stream in (*fleets, *sorted(of_stream.keys() - set(fleets))):
        running = world.streams[stream]
        decider = running.decider
        assert isinstance(decider, FleetDecider | ClusterDecider), "only these are asked"
        request = PlanRequested(
            stream, str(id), tuple(map(step_of, of_stream[stream])), seq=seqs[stream]
        )
        if together and isinstance(decider, FleetDecider):
            request = msgspec.structs.replace(request, shards=together, taken=taken)
            taken += decider.room_of(running.state, request, world.at)
        parts.append(decider.expectation(running.state, request, world.at))
    return tuple(parts)


def _shard_number(stream: str) -> int:
    return int(stream.removeprefix(FLEET))


def _streams_of(world: World, data: StepData, of_nodes: bool) -> Sequence[str]:
    match data:
        case ClusterObserved() | ClusterForgotten():
            return [name for name in sorted(world.streams) if name.startswith(FLEET)]
        case BindingRequested(binding=binding):
            return (world.state_of_shard(binding.name).stream,)
        case BindingWithdrawn(name=name):
            return (world.state_of_shard(name).stream,)
        case NodesObserved(cluster=cluster):
            state = _cluster_state(world, cluster)
            return (
                (cluster_stream(cluster),)
                if of_nodes and state is not None and state.book.known
                else ()
            )
        case FailoverProposed() | EvictionProposed() | RescheduleProposed() | NodeRemovalProposed():
            return (data.stream,) if data.stream in world.streams else ()


def _require_committed(parts: Sequence[PlanRequested], rounds: Iterable[RecordedRound]) -> None:
    """A plan that the very state it was made from refuses is our mistake, not the plane's."""
    committed: set[str] = set()
    for recorded in rounds:
        for decision in recorded.round.decisions:
            if isinstance(decision.data, PlanAnswer):
                if decision.data.refusal():
                    raise AssertionError(f"{decision.stream} refuses its own plan: {decision.data}")
                committed.add(decision.stream)
    assert committed == {part.stream for part in parts}, "every stream answers"


# --- what came of it


def _moves(anyway: World, then: World) -> Iterator[BindingMove]:
    before, after = _places(anyway), _places(then)
    on_before, on_after = _nodes(anyway), _nodes(then)
    nothing: dict[str, int] = {}
    for name in sorted({*before, *after, *on_before, *on_after}):
        move = BindingMove(
            name,
            before.get(name, nothing),
            after.get(name, nothing),
            on_before.get(name, nothing),
            on_after.get(name, nothing),
        )
        if move.before != move.after or move.nodes_before != move.nodes_after:
            yield move


def _places(world: World) -> dict[str, dict[str, int]]:
    return {
        name: dict(sorted(record.targets.items()))
        for state in world.fleet_states()
        for name, record in state.bindings.items()
        if record.targets
    }


def _nodes(world: World) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for state in world.cluster_states():
        for name, held in state.book.held.items():
            for _, replica in sorted(held.placed.items()):
                places, place = found.setdefault(name, {}), f"{state.cluster}/{replica.node}"
                places[place] = places.get(place, 0) + 1
    return {name: dict(sorted(places.items())) for name, places in found.items()}


def _selection_moves(anyway: World, then: World) -> Iterator[SelectionMove]:
    before, after = _selections(anyway), _selections(then)
    for key in sorted({*before, *after}):
        old, new = before.get(key, SelectionRecord()), after.get(key, SelectionRecord())
        move = SelectionMove(key, _grouped(old), _grouped(new), _trouble(new))
        if move.before != move.after or move.reason != _trouble(old):
            yield move


def _selections(world: World) -> dict[str, SelectionRecord]:
    """The sets of all Placements: `<namespace>/<name>` -> its set."""
    return {
        key: record
        for state in world.fleet_states()
        if state.selections is not None
        for key, record in state.selections.active.items()
    }


def _grouped(record: SelectionRecord) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple(group.scores) for group in record.groups if group.scores])


def _trouble(record: SelectionRecord) -> str:
    """The message of the condition that says what is wrong, as `get placements` shows it; empty:
    nothing is."""
    wrong = {MISCONFIGURED: "True", SATISFIED: "False"}
    found = {c.type: c.message for c in record.conditions if wrong.get(c.type) == c.status}
    return found.get(SATISFIED) or found.get(MISCONFIGURED, "")


def _refusals(anyway: World, then: World) -> Iterator[PlannedRefusal]:
    before = dict(_lacking(anyway))
    for name, (reason, missing) in sorted(_lacking(then)):
        yield PlannedRefusal(name, reason, missing, name in before and before[name][1] >= missing)


def _lacking(world: World) -> Iterator[tuple[str, tuple[str, int]]]:
    for state in world.fleet_states():
        for name, record in state.bindings.items():
            if record.refused:
                yield (
                    name,
                    (record.refused, _missing(record.spec.replicas, record.targets.values())),
                )


def _missing(wanted: int, held: Iterable[int]) -> int:
    return max(0, wanted - sum(held))


def _stuck(then: World, facts: Sequence[Accepted]) -> Iterator[str]:
    """What still lies where NoExecute says that nothing should."""
    for fact in facts:
        if isinstance(fact.data, ClusterObserved) and _drives_away(fact.data):
            yield from _stuck_in_cluster(then, fact.data.cluster.name)
        elif isinstance(fact.data, NodesObserved):
            yield from _stuck_on_nodes(then, fact.data)


def _stuck_in_cluster(then: World, cluster: str) -> Iterator[str]:
    for state in then.fleet_states():
        for name in sorted(state.by_cluster.get(cluster, ())):
            n = state.bindings[name].targets.get(cluster, 0)
            yield (
                f"{name} stays in {cluster}{f' with {n} replicas' if n else ''}: it bears the taint"
            )


def _stuck_on_nodes(then: World, observed: NodesObserved) -> Iterator[str]:
    state = _cluster_state(then, observed.cluster)
    if state is None:
        return
    for node in observed.nodes:
        if any(t.effect == "NoExecute" for t in node.taints):
            here = state.book.on_node.get(node.name, {})
            for name in sorted({binding for binding, _ in here}):
                n = sum(binding == name for binding, _ in here)
                yield (
                    f"{name} stays on {observed.cluster}/{node.name} with {n} replicas: "
                    "it bears the taint"
                )
            foreign = [pod for pod in state.book.pods.get(node.name, ()) if not pod.binding]
            if foreign:
                yield (
                    f"{len(foreign)} pods on {observed.cluster}/{node.name} belong to no binding "
                    "and are not moved"
                )


def _declined(rounds: Iterable[RecordedRound], proposals: Sequence[Proposed]) -> Iterator[str]:
    """Of the proposals that were handed in; what the descheduler would propose in vain is its own
    business."""
    asked = {
        (type(p).__name__, p.node if isinstance(p, NodeRemovalProposed) else p.binding)
        for p in proposals
    }
    for recorded in rounds:
        for decision in recorded.round.decisions:
            no = effect_of(decision.data)
            if isinstance(no, ProposalEnd) and (no.kind, no.target) in asked:
                yield f"{no.target}: {no.reason}{f' ({no.detail})' if no.detail else ''}"


# --- figures


def _figures(world: World) -> Figures:
    uses = tuple(_uses(world))
    open_ = [
        use.permille
        for use, usable in uses_with_doors(world, uses)
        if usable and use.cpu_milli_max > 0
    ]
    in_use = [use for use in uses if use.nodes]
    priced = all(use.price_micro is not None for use in in_use)
    cost = (
        sum((use.price_micro or 0) * use.node_cpu_milli // 1000 for use in in_use)
        if in_use and priced
        else None
    )
    return Figures(
        uses,
        max(open_) - min(open_) if open_ else 0,
        sum(use.node_cpu_milli for use in uses),
        cost,
        sum(missing for _, (_, missing) in _lacking(world)),
    )


def uses_with_doors(world: World, uses: Iterable[ClusterUse]) -> Iterator[tuple[ClusterUse, bool]]:
    """Each use, and whether the cluster takes anything in: one that is drained is empty on
    purpose."""
    facts = _clusters(world)
    for use in uses:
        cluster = facts[use.cluster]
        yield (
            use,
            not cluster.deleting and all(t.effect == "PreferNoSchedule" for t in cluster.taints),
        )


def _clusters(world: World) -> dict[str, Cluster]:
    found: dict[str, Cluster] = {}
    for state in world.fleet_states():
        found |= {name: c.facts for name, c in state.clusters.items() if c.facts is not None}
    return dict(sorted(found.items()))


def _uses(world: World) -> Iterator[ClusterUse]:
    books = {state.cluster: state for state in world.cluster_states()}
    states = list(world.fleet_states())
    for name, facts in _clusters(world).items():
        cpu, replicas = _asked_for(states, name)
        book = books.get(name)
        if book is not None and book.book.known:
            usable = [
                n
                for n in book.book.nodes.values()
                if not n.unschedulable and n.name not in book.book.closed
            ]
            holding = [
                n
                for n in book.book.nodes.values()
                if n.name in book.book.on_node or n.name in book.book.pods
            ]
            yield ClusterUse(
                name,
                cpu,
                _cpu(usable),
                replicas,
                len(holding),
                len(book.book.nodes),
                _cpu(holding),
                price_micro(facts),
            )
        else:
            total: Amounts = facts.summary.allocatable if facts.summary is not None else {}
            yield ClusterUse(name, cpu, total.get("cpu", 0), replicas, 0, 0, 0, price_micro(facts))


def _asked_for(states: Iterable[FleetState], cluster: str) -> tuple[int, int]:
    cpu = replicas = 0
    for state in states:
        for name in state.by_cluster.get(cluster, ()):
            record = state.bindings[name]
            n = record.targets.get(cluster, 0)
            replicas += n
            cpu += n * record.spec.requirements.requests.get("cpu", 0)
    return cpu, replicas


def _cpu(nodes: Iterable[Node]) -> int:
    return sum(node.allocatable.get("cpu", 0) for node in nodes)


# --- the changes that have a command of their own
