"""Devices: shares, models and whole devices as pods ask for them, and where they are spent best."""

from __future__ import annotations

import msgspec
import pytest
from tests.framework_world import feasible, only, reasons

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import GPU, Device, DeviceRequest
from wharfinger.domain.scheduler import Arguments, DevicesArgs, FitArgs
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import NOT_ENOUGH_LEFT, NOT_THERE
from wharfinger.engine.devices.workload import DeviceWorkload
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.snapshot import Snapshot

GIB = 2**30


def gpus(name: str, count: int, model: str = "T4", cpu: int = 96_000) -> Node:
    return Node(name, {"cpu": cpu, "memory": 384 * GIB, "pods": 110}, (Device(model),) * count)


def asking(
    name: str,
    count: int = 1,
    milli: int = 1000,
    models: tuple[str, ...] = (),
    cpu: int = 4000,
    node: str = "",
    holds: int = -1,
) -> Pod:
    """`holds`: the device it says it has."""
    devices = (DeviceRequest(count, milli, models),) if count else ()
    taken = ((holds, milli),) if holds >= 0 else ()
    return Pod(
        name, name, Requirements({"cpu": cpu, "memory": 4 * GIB}, devices), node, devices=taken
    )


def scoring(strategy: str) -> Framework:
    return only("NodeResourcesFit", "Devices", arguments=Arguments(devices=DevicesArgs(strategy)))


def best(strategy: str, snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """The nodes that the strategy alone scores highest."""
    scored = scoring(strategy).run(snapshot, pod).scores["Devices"]
    assert scored is not None
    return tuple(name for name, score in scored.normalised.items() if score == 100)


FITTING = only("NodeResourcesFit", "Devices")


def test_two_halves_on_two_devices_are_no_whole_one() -> None:
    halves = [asking("a", milli=500, node="n", holds=0), asking("b", milli=500, node="n", holds=1)]
    snapshot = Snapshot.of([gpus("n", 2)], halves)
    assert reasons(FITTING, snapshot, asking("new")) == {"n": (NOT_ENOUGH_LEFT,)}
    assert feasible(FITTING, snapshot, asking("new", milli=500)) == {"n"}


def test_a_share_goes_beside_another_as_long_as_it_fits() -> None:
    snapshot = Snapshot.of([gpus("n", 1)], [asking("a", milli=810, node="n", holds=0)])
    assert feasible(FITTING, snapshot, asking("new", milli=190)) == {"n"}
    assert reasons(FITTING, snapshot, asking("new", milli=191)) == {"n": (NOT_ENOUGH_LEFT,)}


def test_a_model_that_the_node_does_not_have_is_no_use_waiting_for() -> None:
    snapshot = Snapshot.of([gpus("t", 2), gpus("v", 2, "V100")], [])
    outcome = FITTING.run(snapshot, asking("new", models=("V100",)))
    assert outcome.feasible == ("v",)
    assert outcome.first["t"].code == "UnschedulableAndUnresolvable"
    assert outcome.first["t"].reasons == (NOT_THERE,)


def test_a_pod_that_does_not_say_what_it_holds_is_charged_all_the_same() -> None:
    snapshot = Snapshot.of([gpus("n", 1)], [asking("a", milli=600, node="n")])
    assert feasible(FITTING, snapshot, asking("new", milli=500)) == set()
    assert feasible(FITTING, snapshot, asking("new", milli=400)) == {"n"}


def test_a_kind_that_is_left_to_somebody_else_is_not_looked_at() -> None:
    left = only(
        "NodeResourcesFit", "Devices", arguments=Arguments(fit=FitArgs(ignored_resources=(GPU,)))
    )
    snapshot = Snapshot.of([gpus("none", 0)], [])
    assert feasible(left, snapshot, asking("new", count=2)) == {"none"}


def test_without_a_strategy_nothing_is_scored() -> None:
    outcome = FITTING.run(Snapshot.of([gpus("a", 1), gpus("b", 8)], []), asking("new"))
    assert outcome.scores["Devices"] is None
    assert set(outcome.feasible) == {"a", "b"}


def test_a_strategy_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'worst-fit'.*best-fit, fragmentation, expected-fill"):
        scoring("worst-fit")


def test_best_fit_takes_the_tightest_node() -> None:
    snapshot = Snapshot.of([gpus("eight", 8), gpus("two", 2, cpu=8000)], [])
    assert best("best-fit", snapshot, asking("new")) == ("two",)


def test_fragmentation_is_not_added_to_where_it_can_be_helped() -> None:
    """Everybody asks for whole devices: a share goes where a device is broken into already."""
    workload = DeviceWorkload.of(
        [(asking("w").requirements, 99), (asking("s", milli=300).requirements, 1)]
    )
    snapshot = with_demand(
        [gpus("broken", 2), gpus("sound", 2)],
        [asking("a", milli=500, node="broken", holds=0)],
        workload,
    )
    assert best("fragmentation", snapshot, asking("new", milli=300)) == ("broken",)


def test_a_share_goes_where_it_takes_least_from_those_to_come() -> None:
    """Pods take 0.47 or 0.32 of a device. Where 0.53 are left one of 0.47 will fit; where 0.35 are
    left only this one does."""
    workload = DeviceWorkload.of(
        [(asking("a", milli=470).requirements, 50), (asking("b", milli=320).requirements, 50)]
    )
    there = [
        asking("x", milli=470, node="wide", holds=0),
        asking("y", milli=650, node="narrow", holds=0),
    ]
    snapshot = with_demand([gpus("wide", 1), gpus("narrow", 1)], there, workload)
    assert best("expected-fill", snapshot, asking("new", milli=320)) == ("narrow",)
    assert best("expected-fill", snapshot, asking("new", milli=470)) == ("wide",)


def test_what_a_share_leaves_is_worth_what_can_still_be_made_of_it() -> None:
    """A device with 0.53 left takes a 0.32 either way; only where pods of 0.2 are asked for, too,
    is the rest of any use."""
    shares = [(asking("a", milli=530).requirements, 10), (asking("b", milli=320).requirements, 50)]
    small = (asking("c", milli=200).requirements, 40)
    there = [asking("x", milli=470, node="half", holds=0)]
    costs = [
        scores(
            "expected-fill",
            with_demand([gpus("half", 1)], there, DeviceWorkload.of(asked)),
            asking("new", milli=320),
        )["half"]
        for asked in (shares, [*shares, small])
    ]
    assert costs[1] < costs[0]


def test_a_pod_without_devices_does_not_take_the_cpu_that_devices_need() -> None:
    """Both nodes have eight idle devices and room for the pod; on one of them the pods that use
    devices would be short of cpu."""
    workload = DeviceWorkload.of([(asking("w", cpu=10_000).requirements, 1)])
    snapshot = with_demand(
        [gpus("scarce", 8, cpu=80_000), gpus("ample", 8, cpu=128_000)], [], workload
    )
    assert best("expected-fill", snapshot, asking("new", count=0, cpu=40_000)) == ("ample",)


def test_what_is_held_stands_for_what_is_asked_where_nobody_has_counted() -> None:
    held = [asking(f"w{i}", node="full") for i in range(4)]
    snapshot = Snapshot.of(
        [gpus("full", 4), gpus("broken", 2), gpus("sound", 2)],
        [*held, asking("s", milli=500, node="broken")],
    )
    assert best("expected-fill", snapshot, asking("new", milli=300)) == ("broken",)


def with_demand(nodes: list[Node], pods: list[Pod], workload: DeviceWorkload) -> Snapshot:
    snapshot = Snapshot.of(nodes, pods)
    snapshot.demand = workload
    return snapshot


def test_the_names_of_nodes_and_devices_do_not_matter() -> None:
    workload = DeviceWorkload.of(
        [(asking("w", cpu=10_000).requirements, 3), (asking("s", milli=470).requirements, 2)]
    )
    nodes = [gpus("a", 8), gpus("b", 4, "V100"), gpus("c", 2, "A10", cpu=20_000)]
    new = asking("new", milli=470)
    for strategy in ("best-fit", "fragmentation", "expected-fill"):
        forwards = scores(strategy, with_demand(nodes, [], workload), new)
        renamed = [
            msgspec.structs.replace(node, name={"a": "z", "b": "y", "c": "x"}[node.name])
            for node in nodes
        ]
        backwards = scores(strategy, with_demand(renamed, [], workload), new)
        assert forwards == {
            {"z": "a", "y": "b", "x": "c"}[name]: score for name, score in backwards.items()
        }


def scores(strategy: str, snapshot: Snapshot, pod: Pod) -> dict[str, int]:
    """What it costs there."""
    scored = scoring(strategy).run(snapshot, pod).scores["Devices"]
    assert scored is not None
    return scored.raw
