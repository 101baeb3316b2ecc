"""What is derived in the fleet state follows from what is recorded: it equals what is made again
from the records.

Three ways lead to a second state: `rebuild` in place, saving and loading, and a fork. All must
agree with the state that folded the history; and what happens to a fork must not show in the
original.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from itertools import permutations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.properties import test_batch_laws, test_fleet_laws
from tests.properties.test_fleet_laws import BINDINGS, CLASSES, CLUSTERS, live, start
from tests.scenarios.fleet_plane import STREAM, FleetPlane

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import ApplicationFailover, Placement, Steadiness
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import QuotaRoom
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import EvictionProposed
from wharfinger.stages.due_times import Agenda
from wharfinger.stages.fleet import FleetDecider, saved_bindings
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.queue import reopened, stands
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.bindings import NOTHING
from wharfinger.stages.fleet.state.clusters import ClusterState

MAPPINGS = ("targets", "before", "assigned_by", "extra", "evicted", "leaving", "excluded_until")
NAMESPACES = ("", "default", "team")


def _richer(
    request: BindingRequested,
    namespace: str,
    together: str,
    apart: str,
    steady: bool,
    fails_over: bool,
) -> BindingRequested:
    """The request with what the laws of deciding leave out: a namespace with quotas, groups of
    workloads, moves."""
    spec = request.binding
    placement = spec.placement
    if steady:
        placement = msgspec.structs.replace(
            placement, steadiness=Steadiness(failback_after_s=1, rebalance_after_s=1)
        )
    if fails_over:
        placement = msgspec.structs.replace(
            placement, application=ApplicationFailover(toleration_s=1, grace_s=2)
        )
    return BindingRequested(
        msgspec.structs.replace(
            spec,
            resource=ObjectRef(spec.resource.api_version, spec.resource.kind, spec.name, namespace),
            affinity_group=together,
            anti_affinity_group=apart,
            placement=placement,
        )
    )


requests = st.builds(
    _richer,
    test_fleet_laws.bindings,
    st.sampled_from(NAMESPACES),
    st.sampled_from(("", "", "together")),
    st.sampled_from(("", "", "apart")),
    st.booleans(),
    st.booleans(),
)
counts = st.builds(
    lambda counted, made, rooms: msgspec.structs.replace(counted, provisionable=made, quotas=rooms),
    test_fleet_laws.capacities,
    st.sampled_from(({}, {}, {CLASSES[0].class_key: 3})),
    st.sampled_from(
        ((), (), (QuotaRoom("team", "q", {"cpu": 2000}),), (QuotaRoom("default", "q", {"cpu": 0}),))
    ),
)
evictions = st.builds(
    EvictionProposed,
    st.just(STREAM),
    st.sampled_from(BINDINGS),
    st.sampled_from(CLUSTERS),
    cause=st.sampled_from(("taint", "unhealthy", "unschedulable", "replaced")),
)
happenings = st.one_of(
    requests, requests, counts, evictions, test_fleet_laws.happenings, test_batch_laws.policies
)
histories = st.lists(st.lists(happenings, min_size=1, max_size=4), min_size=1, max_size=14)
many = settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


def due(agenda: Agenda[tuple[str]]) -> dict[str, int]:
    copied = agenda.copy()
    found: dict[str, int] = {}
    while (at := copied.next()) is not None:
        found |= dict.fromkeys([name for (name,) in copied.pop(at)], at)
    return found


def derived(state: FleetState) -> dict[str, object]:
    """Every derived part, in values that equal states have in common: without counters, and without
    what is empty."""
    return (
        _of_clusters(state)
        | _of_bindings(state)
        | _of_waiting(state)
        | _of_estimates(state)
        | _of_selections(state)
    )


def _of_clusters(state: FleetState) -> dict[str, object]:
    index = state.cluster_index
    return {
        "deleting": index.deleting,
        "silent": index.silent,
        "leased": index.leased,
        "leases": due(index.leases),
        "provisioning": list(index.provisioning),
        "quoted": index.quoted,
    }


def _of_bindings(state: FleetState) -> dict[str, object]:
    index = state.binding_index
    return {
        "by cluster": {name: names for name, names in index.by_cluster.items() if names},
        "groups of workloads": index.groups.members,
        "suspected": index.suspected,
        "outgoing": index.outgoing,
        "read": {name: (r.class_key, r.claim, r.parsed.key) for name, r in state.bindings.items()},
    }


def _of_waiting(state: FleetState) -> dict[str, object]:
    waiting, facts = state.waiting, state.estimates.facts
    return {
        "asked": waiting.asked,
        "withdrawn": waiting.withdrawn,
        "open": waiting.open,
        "everywhere": (waiting.everywhere, waiting.everywhere_facts == facts),
        "paused": {
            name for name in waiting.paused if state.bindings[name].pause_until > state.clock
        },
        "pauses": due(waiting.pauses),
        "graces": due(waiting.graces),
        "retry": (waiting.retry_due, waiting.regrouped),
        "groups": {
            key: (
                group.names,
                None if group.values is None else list(group.values),
                group.made,
                group.facts == facts,
            )
            for key, group in waiting.groups.items()
        },
        "quotas waited for": (
            state.quotas.waiting,
            state.quotas.freed,
            state.quotas.facts == facts,
        ),
        "movable": (state.moves.candidates, due(state.moves.agenda)),
    }


def _of_estimates(state: FleetState) -> dict[str, object]:
    state.quotas.count(state.bindings)
    columns = {name: state.column(record) for name, record in state.bindings.items()}
    return {
        "order": [cluster.name for cluster in state.order],
        "columns": {name: (list(c.values), c.total, c.unlimited) for name, c in columns.items()},
        "makeable": {
            name: state.estimates.makeable(record) for name, record in state.bindings.items()
        },
        "room": {name: (_left(c), c.taken, c.quotas) for name, c in state.clusters.items()},
        "quotas used": (
            {
                namespace: {k: n for k, n in used.items() if n}
                for namespace, used in state.quotas.used.items()
            },
            {name: count for name, count in state.quotas.counts.items() if any(count[1].values())},
        ),
    }


def _left(cluster: ClusterState) -> tuple[object, ...] | None:
    room = cluster.room
    return (
        None
        if room is None
        else (room.left, room.devices, {k: n for k, n in room.taken_milli.items() if n})
    )


def _of_selections(state: FleetState) -> dict[str, object]:
    found = state.selections
    assert found is not None
    return {
        "placements": (found.placements, list(found.sets), found.bound, found.holders),
        "placements to look at": (found.open, found.removed, found.stale, due(found.dues)),
        "placements' clusters": found.clusters,
    }


def rebuilt(state: FleetState) -> FleetState:
    other = fork(state)
    other.rebuild()
    return other


def loaded(plane: FleetPlane) -> FleetState:
    """As a process that starts now has it: the time comes with the next round."""
    state = plane.decider.load(plane.state.stream, plane.decider.dump(plane.state))
    state.clock = plane.state.clock
    return state


def loaded_as_written_otherwise(plane: FleetPlane) -> FleetState:
    """As `loaded`, from JSON in which every second record has spaces, as another version might
    write it."""
    sections = plane.decider.dump(plane.state)
    for name, body in sections.items():
        if name == "capacity" or name.startswith("bindings"):
            records = [
                json.dumps(record, indent=place % 2 or None)
                for place, record in enumerate(json.loads(body))
            ]
            sections[name] = f"[{','.join(records)}]".encode()
    state = plane.decider.load(plane.state.stream, sections)
    assert plane.decider.dump(state) == plane.decider.dump(plane.state)
    return state


@pytest.mark.parametrize("order", list(permutations(["left out", "given", "of a policy"])))
def test_a_snapshot_is_the_same_whichever_way_of_writing_a_default_came_first(
    order: tuple[str, ...],
) -> None:
    decider = FleetDecider()
    state = decider.initial(STREAM)
    for way in order:
        name = f"shop/{way}"
        spec = Binding(name, way, ObjectRef("apps/v1", "Deployment", way, "shop"), 2)
        if way != "left out":
            spec = msgspec.structs.replace(spec, placement=Placement())
        if way == "given":
            spec = msgspec.structs.replace(spec, requirements=Requirements())
        request = BindingRequested(spec)
        event = made(request, id=derived_id("written", way), source="/law", subject=name)
        decider.fold_input(state, event, 1_000_000)
    sections = decider.dump(state)
    written = b"".join(sections[bucket] for bucket in saved_bindings.BUCKETS)
    assert written.count(b'"spec":') == 3
    assert b'"placement":{}' not in written
    assert b'"requirements":{}' not in written
    assert decider.dump(decider.load(STREAM, sections)) == sections


@many
@given(histories)
def test_what_is_derived_equals_what_is_made_again(history: Sequence[Sequence[object]]) -> None:
    plane = FleetPlane()
    start(plane)
    for happened in history:
        live(plane, happened)
        now = derived(plane.state)
        for other in (fork(plane.state), rebuilt(plane.state), loaded(plane)):
            again = derived(other)
            for part, value in now.items():
                assert again[part] == value, part


@many
@given(histories)
def test_equal_parts_of_records_are_one_object(history: Sequence[Sequence[object]]) -> None:
    """A million records then take less than half of the memory. What is shared is never changed:
    the one empty mapping stays empty."""
    plane = FleetPlane()
    start(plane)
    for happened in history:
        live(plane, happened)
    for state in (plane.state, loaded(plane), loaded_as_written_otherwise(plane)):
        pending = [entry for cluster in state.clusters.values() for entry in cluster.pending]
        asked = [entry.requirements for entry in pending]
        assert len({id(part) for part in asked}) == len({canonical(part) for part in asked})
        records = state.bindings.values()
        applied = [record.applied for record in records if record.applied is not None]
        placements = [record.spec.placement for record in records] + applied
        for parts in (placements, [record.spec.requirements for record in records]):
            assert len({id(part) for part in parts}) == len({canonical(part) for part in parts})
        for record in records:
            assert record.shrunk or record.targets is record.before
            mappings = [getattr(record, name) for name in MAPPINGS]
            assert all(found is NOTHING for found in mappings if not found)
    assert NOTHING == {}


@many
@given(histories)
def test_a_binding_that_stands_is_decided_as_it_stands(history: Sequence[Sequence[object]]) -> None:
    """What a change of facts passes over, a decision would leave as it is."""
    plane = FleetPlane()
    start(plane)
    for happened in history:
        live(plane, happened)
        state = plane.state
        for name in [*state.waiting.everywhere]:
            if stands(state, state.bindings[name]):
                other = fork(state)
                assert reopened(other, other.bindings[name]) is None, name


@many
@given(histories, histories)
def test_what_happens_to_a_fork_does_not_show_in_the_original(
    history: Sequence[Sequence[object]], tried: Sequence[Sequence[object]]
) -> None:
    plane = FleetPlane()
    start(plane)
    for happened in history:
        live(plane, happened)
    before, dumped = deepcopy(derived(plane.state)), plane.decider.dump(plane.state)
    original, plane.state = plane.state, fork(plane.state)
    for happened in tried:
        live(plane, happened)
    assert plane.decider.dump(original) == dumped
    after = derived(original)
    for part, value in before.items():
        assert after[part] == value, part
