"""Whatever a fleet was called, without its names it decides the same; and none of its names is
left."""

from __future__ import annotations

import asyncio
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exported import parts_of
from tests.fleets import CLASSES, Fleet, a_fleet
from tests.hunting import examples
from tests.scenarios.fleet_plane import FleetPlane, a_binding, a_cluster, room

from wharfinger.domain.binding import Binding, Component, set_key
from wharfinger.domain.cluster_objects import DisruptionBudget, NamespaceLabels, PodSelecting
from wharfinger.domain.device_claims import DeviceClass
from wharfinger.domain.ids import Bounded, ClusterName, Meaning, NodeName, ResourceName
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread, VolumeUse
from wharfinger.domain.policy import PodGroups, Policy
from wharfinger.domain.resources import GPU
from wharfinger.domain.scheduler import SchedulerConfig
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.storage import PersistentVolume
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved
from wharfinger.events.codec import made
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.event_part import EventPart
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.ledger import StreamPublished
from wharfinger.events.plans import PlanRequested, StepData, step_of
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.registry import EVENT_TYPES
from wharfinger.events.streams import FLEET
from wharfinger.history.export import Exported, replay_file, write_plain, write_redacted
from wharfinger.history.export_file import CHECKSUM_BYTES, opened
from wharfinger.history.redaction import (
    SPECIAL_FIELDS,
    Pairs,
    RedactionError,
    ValueWalk,
    meaning_of,
)
from wharfinger.history.renaming import (
    LABEL_VALUES,
    MODELS,
    RESOURCES,
    WORDS,
    Collector,
    Renamer,
    deciding_bits,
)
from wharfinger.stages.cluster import state as cluster_state
from wharfinger.stages.fleet import saved

KEY = b"a key for tests"


def redacted(fleet: Fleet, directory: Path, first: int = 1, key: bytes = KEY) -> Exported:
    return asyncio.run(
        write_redacted(directory / "redacted", parts_of(fleet.by_stream(), first), "ab", key)
    )


def decompressed(path: Path) -> bytes:
    body = path.read_bytes()
    content = body[body.index(b"\n") + 1 : -CHECKSUM_BYTES]
    return zstandard.ZstdDecompressor().stream_reader(content).read()


@settings(max_examples=examples(12), deadline=None)
@given(number=st.integers(1, 10_000), first=st.sampled_from([1, 2, 9]), traits=st.booleans())
def test_a_redacted_history_is_decided_again_to_the_same(
    number: int, first: int, traits: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """That it is the same up to renaming, decision by decision, is what the export itself insists
    on. A history that today's deciders would not repeat under its own names is not repeated under
    others either, and gives no file."""
    fleet = a_fleet(number, traits=traits)
    directory = tmp_path_factory.mktemp("files")
    plain = asyncio.run(write_plain(directory / "plain", parts_of(fleet.by_stream(), first), "ab"))
    if replay_file(plain.path).result.divergences:
        with pytest.raises(RedactionError, match="decided again under new names"):
            redacted(fleet, directory, first)
        assert [path.name for path in directory.iterdir()] == ["plain"]
        return
    exported = redacted(fleet, directory, first)
    again = replay_file(exported.path).result
    assert again.divergences == ()
    assert again.decisions == sum(r.decisions for r in plain.header.streams)
    assert _shape(exported.path) == _shape(plain.path)


def _shape(path: Path) -> list[tuple[int, int, list[tuple[int, str, str]]]]:
    """What renaming must leave as it was: times, numbers, types and outcomes, stream by stream."""
    with opened(path) as file:
        return [
            (r.round.number, r.round.at, [(d.seq, d.type, d.outcome) for d in r.round.decisions])
            for part in file.ranges()
            for r in part.rounds
        ]


@settings(max_examples=examples(6), deadline=None)
@given(number=st.integers(1, 10_000))
def test_no_name_is_left(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    fleet = a_fleet(number)
    content = decompressed(redacted(fleet, tmp_path_factory.mktemp("files")).path)
    names = set(names_of(fleet))
    assert len(names) > 20
    left = [
        name
        for name in names
        if json.dumps(name).encode() in content or (len(name) > 7 and name.encode() in content)
    ]
    assert sorted(left) == []


PUBLIC = {
    *WORDS,
    *LABEL_VALUES,
    *MODELS,
    *RESOURCES,
    GPU,
    "apps/v1",
    "batch/v1",
    "Deployment",
    "Job",
    "cluster",
}
TAGS = {"type", "assigned", "placed", "refused", "released", "node-closed", "silenced", "recovered"}


def names_of(fleet: Fleet) -> Iterator[str]:
    """All texts that the streams were told, and ids and hashes that are derived from them; but for
    public words and what names no name: fleet streams and the ids of their decisions."""
    ids = {
        str(d.id)
        for r in fleet.rounds
        if r.round.stream.startswith(FLEET)
        for d in r.round.decisions
    }
    nameless = {
        *PUBLIC,
        *(f"{api}/{kind}" for api in ("apps/v1", "batch/v1") for kind in ("Deployment", "Job")),
    }
    nameless |= {r.class_key for r in CLASSES if not r.tolerations and not r.node_selector}
    fields = {
        name for kind in _structs([e.data for e in EVENT_TYPES]) for name in kind.__struct_fields__
    }
    nameless |= {*TAGS, *fields, *ids, fleet.stream, ""}
    for recorded in fleet.rounds:
        if not recorded.round.stream.startswith(FLEET):
            yield recorded.round.stream
        yield recorded.round.hash.hex()
        for event in recorded.events:
            yield str(event.id)
            yield from (
                text for text in _texts(msgspec.to_builtins(event.data)) if text not in nameless
            )


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def test_the_same_key_gives_the_same_names_in_every_file_and_another_key_others(
    tmp_path: Path,
) -> None:
    """All but the rank, which is a place in one file."""
    fleet = a_fleet(3)
    names = [
        _clusters(redacted(fleet, tmp_path, first, key))
        for first, key in ((1, KEY), (9, KEY), (1, b"another"))
    ]
    assert names[1]
    assert names[1] <= names[0]
    assert not names[0] & names[2]


def _clusters(exported: Exported) -> set[str]:
    return {
        r.stream.rpartition("-")[2]
        for r in exported.header.streams
        if r.stream.startswith("cluster/")
    }


def test_the_same_range_gives_the_same_bytes(tmp_path: Path) -> None:
    bodies = [redacted(a_fleet(5), tmp_path).path.read_bytes() for _ in range(2)]
    assert bodies[0] == bodies[1]


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60, unique=True),
    st.integers(0, 2**64 - 1),
)
def test_the_bits_that_are_kept_decide_every_tie(hashes: list[int], seed: int) -> None:
    kept = deciding_bits(sorted(hashes))
    every = 0
    for bits in kept.values():
        every |= bits
    assert sorted(hashes, key=lambda h: h ^ seed) == sorted(
        hashes, key=lambda h: (h & kept[h]) ^ (seed & every)
    )
    # And they are few: no more than there are numbers to be told apart from.
    assert all(bits.bit_count() < len(hashes) for bits in kept.values())


def test_a_plan_that_was_carried_out_is_redacted_and_one_that_was_refused_is_not(
    tmp_path: Path,
) -> None:
    plane = FleetPlane()
    plane.given(a_cluster("oslo"), room("oslo", 10))
    plane.when(a_binding("shop/web", 4))
    plane.when(_planned(plane, "first", a_binding("shop/api", 2)))
    parts = parts_of({"fleet/0": plane.rounds})
    assert asyncio.run(write_redacted(tmp_path / "redacted", parts, "ab", KEY)).header.redacted
    stale = _planned(plane, "second", a_binding("shop/late", 3))
    plane.when(room("oslo", 1, fleet=plane.head.seq))
    plane.when(stale)
    with pytest.raises(RedactionError, match="digests of its inputs"):
        asyncio.run(
            write_redacted(tmp_path / "other", parts_of({"fleet/0": plane.rounds}), "ab", KEY)
        )


def _planned(plane: FleetPlane, name: str, step: StepData) -> Event[Value]:
    plan = str(derived_id("plan", name))
    bare = PlanRequested("fleet/0", plan, (step_of(step),), seq=plane.head.seq)
    request = plane.decider.expectation(plane.state, bare, plane.at)
    return made(request, id=derived_id("asked", name), source="/test", subject=plan)


# --- what cannot be hidden is refused


@pytest.mark.parametrize(
    "value",
    [
        LabelSelector(match_expressions=(Requirement("generation", "Gt", ("3",)),)),
        Requirements(node_terms=(NodeTerm(expressions=(Requirement("cores", "Lt", ("8",)),)),)),
        NodeTerm(fields=(Requirement("metadata.name", "Gt", ("3",)),)),
    ],
)
def test_what_is_computed_on_is_refused_by_name(value: Value) -> None:
    with pytest.raises(
        RedactionError, match=r"(generation|cores|metadata.name) is compared as a number"
    ):
        ValueWalk(Collector()).value(value)


def test_a_move_for_its_cost_is_refused_by_name() -> None:
    """Prices are values of a label, and are added up."""
    with pytest.raises(RedactionError, match=r"shop/web is to be moved for its cost"):
        ValueWalk(Collector()).value(RescheduleProposed("fleet/0", "shop/web", objective="cost"))


class Unheard(Value, frozen=True):
    told: str


def test_text_of_unknown_meaning_is_refused() -> None:
    with pytest.raises(RedactionError, match=r"Unheard.told"):
        ValueWalk(Collector()).value(Unheard("something"))


def test_a_set_of_components_is_counted_under_its_new_key() -> None:
    """The key of a set is made of what its components ask for, so new names make a new key, which
    counts must be told under."""
    parts = (
        Component("head", 1, Requirements({"cpu": 1000}, node_selector={"disk": "fast"})),
        Component("worker", 3, Requirements({"cpu": 2000, "example.org/accelerator": 1})),
    )
    told = BindingRequested(
        Binding(
            "shop/ray", "uid", ObjectRef("ray.io/v1", "RayJob", "ray", "shop"), components=parts
        )
    )
    count = CapacityEstimated("oslo", 3, {"cpu": 9000}, {set_key(parts): 2})
    collector = Collector()
    for value in (count, told):
        ValueWalk(collector).value(value)
    walk = ValueWalk(Renamer(KEY, collector))
    renamed, counted = walk.value(told).binding.components, walk.value(count).classes
    assert set_key(renamed) != set_key(parts)
    assert counted == {set_key(renamed): 2}


def test_every_text_of_every_event_and_state_says_what_it_means() -> None:
    """A field that somebody adds is missed here before it is missed by a redaction."""
    # no decider takes them in
    never_redacted = {MessageAccepted, MessageDeadLettered, EventPart, StreamPublished}
    roots: list[object] = [e.data for e in EVENT_TYPES if e.data not in never_redacted]
    roots += [*saved.SECTIONS.values(), *cluster_state.SECTIONS.values()]
    unknown = {
        f"{kind.__name__}.{field}"
        for kind in _structs(roots)
        for field, hint in typing.get_type_hints(kind, include_extras=True).items()
        if field in kind.__struct_fields__
        and _has_plain_text(hint)
        and (kind, field) not in SPECIAL_FIELDS
    }
    assert unknown == set()


def _structs(roots: list[object]) -> list[type[msgspec.Struct]]:
    found: dict[type[msgspec.Struct], None] = {}
    left = list(roots)
    while left:
        hint = left.pop()
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            if hint not in found:
                found[hint] = None
                left += typing.get_type_hints(hint).values()
        else:
            left += [arg for arg in typing.get_args(hint) if arg is not Ellipsis]
    return list(found)


def _has_plain_text(hint: object) -> bool:
    """A `str` without a meaning."""
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Annotated:
        return not any(isinstance(one, Meaning) for one in inner[1:]) and _has_plain_text(inner[0])
    if hint is str:
        return True
    if kind is typing.Literal or (
        isinstance(hint, type) and issubclass(hint, msgspec.Struct | UUID)
    ):
        return False
    return any(_has_plain_text(arg) for arg in inner)


@pytest.mark.parametrize(
    ("hint", "means"),
    [
        (ClusterName, Meaning.CLUSTER),
        (Bounded[NodeName] | None, Meaning.NODE),
        (tuple[tuple[ClusterName, int], ...], Meaning.CLUSTER),
        (dict[NodeName, dict[ResourceName, int]], Pairs(Meaning.NODE, Pairs(Meaning.RESOURCE))),
        (dict[str, int], None),
        (typing.Literal["a", "b"] | None, Meaning.WORD),
        (str, None),
    ],
)
def test_a_type_says_what_its_text_means(hint: object, means: object) -> None:
    assert meaning_of(hint) == means


def test_pods_and_those_who_select_them_still_find_each_other() -> None:
    """Labels, namespaces, ports and the names of groups mean the same under new names, wherever
    they stand."""
    acme = LabelSelector({"acme-app": "acme-web"})
    pod = Requirements(
        {"cpu": 1000},
        pod=PodTraits(
            namespace="acme",
            labels={"acme-app": "acme-web"},
            owner="DaemonSet",
            images=("acme.example/web:1",),
            scored={"cpu": 100},
            node_name="acme-n-1",
            ports=(HostPort(80, "UDP", "10.0.0.1"),),
            spread=(TopologySpread("acme-hall", 1, selector=acme),),
            anti_affinity=(PodTerm("kubernetes.io/hostname", acme, ("acme",)),),
            volumes=(VolumeUse("acme-data"),),
            group="acme-group",
            min_count=2,
        ),
    )
    told = PodsObserved("oslo", "acme-n-1", (Pod("u", "acme-pod", pod, "acme-n-1"),))
    others = (
        ObjectsObserved(
            "oslo", "Service", "acme", (PodSelecting("Service", "acme", "acme-web", acme),)
        ),
        ObjectsObserved(
            "oslo", "Namespace", "", (NamespaceLabels("acme", {"acme-app": "acme-web"}),)
        ),
        ObjectsObserved(
            "oslo",
            "PodDisruptionBudget",
            "acme",
            (DisruptionBudget("acme", "acme-b", acme, None, "30%"),),
        ),
        PolicyApplied(
            Policy("PodGroup", "acme-group", "acme", pod_groups=PodGroups({"acme-group": 2}))
        ),
    )
    collector = Collector()
    for value in (told, *others):
        ValueWalk(collector).value(value)
    walk = ValueWalk(Renamer(KEY, collector))
    seen = walk.value(told)
    under_new_names: list[Any] = [walk.value(other) for other in others]
    service, namespace, budget, group = under_new_names
    assert "acme" not in repr((seen, service, namespace, budget, group)).replace(
        "kubernetes.io/hostname", ""
    )
    traits = seen.pods[0].requirements.traits
    for selecting in (service.objects[0], budget.objects[0]):
        assert selecting.selector.matches(traits.labels)
        assert selecting.namespace == traits.namespace == namespace.objects[0].name
    (apart,) = traits.anti_affinity
    assert apart.selector is not None
    assert apart.selector.matches(traits.labels)
    assert (apart.key, apart.namespaces) == ("kubernetes.io/hostname", (traits.namespace,))
    assert traits.node_name == seen.node == seen.pods[0].node
    assert (traits.owner, traits.ports[0].protocol, traits.scored) == (
        "DaemonSet",
        "UDP",
        {"cpu": 100},
    )
    assert budget.objects[0].min_available == "30%"
    assert group.policy.pod_groups.min_counts == {traits.group: 2}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            PolicyApplied(
                Policy("KubeSchedulerConfiguration", "default", scheduler=SchedulerConfig())
            ),
            "names of plugins",
        ),
        (
            ObjectsObserved("oslo", "PersistentVolume", "", (PersistentVolume("pv-1"),)),
            "the PersistentVolume pv-1 is found",
        ),
        (
            ObjectsObserved("oslo", "DeviceClass", "", (DeviceClass("radar"),)),
            "the DeviceClass radar is found",
        ),
        (ExtenderAnswered("cluster/oslo", "1", "{}"), "cluster/oslo was answered by an extender"),
    ],
)
def test_what_is_decided_by_foreign_texts_is_refused_by_name(value: Value, why: str) -> None:
    with pytest.raises(RedactionError, match=why):
        ValueWalk(Collector()).value(value)


def test_public_words_stay_and_everything_else_goes() -> None:
    names = Renamer(KEY, Collector())
    walk = ValueWalk(names)
    kept = Taint("node.kubernetes.io/unreachable", "NoExecute")
    assert walk.value(kept) == kept
    role = walk.value(Taint("node-role.kubernetes.io/acme-batch", "NoSchedule", "true"))
    assert "acme" not in role.key
    assert role.value == "true"
    ours = walk.value(Toleration("team", "Equal", "acme"))
    assert "team" not in ours.key
    assert "acme" not in ours.value
    assert (ours.operator, walk.value(Toleration("team", "Equal", "acme"))) == ("Equal", ours)


def test_a_replay_without_the_tie_values_of_the_old_names_parts(tmp_path: Path) -> None:
    """Else the test above would say nothing about ties. A fleet is looked for in which one
    matters."""
    for number in range(1, 40):
        exported = redacted(a_fleet(number, Random(number)), tmp_path)
        if _parts_with_other_ties(exported.path):
            return
    raise AssertionError("no tie mattered in any of these fleets")


def _parts_with_other_ties(path: Path) -> bool:
    from wharfinger.history.deciders import DECIDERS
    from wharfinger.history.export import maker
    from wharfinger.kernel.audit import audit

    with opened(path) as file:
        for part in file.ranges():
            make = maker(DECIDERS, part.head.stream)
            assert make is not None
            decider = make("")
            if audit(
                decider, decider.initial(part.head.stream), part.head, part.rounds, make
            ).divergences:
                return True
    return False
