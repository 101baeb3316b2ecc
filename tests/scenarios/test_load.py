"""Measured load in a cluster stream: who is too busy gets nothing, a burst is spread, and what
nobody knows stops nothing."""

from __future__ import annotations

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.domain.scheduler import Arguments, DynamicArgs, PluginUse, SchedulerConfig
from wharfinger.engine.framework.profile import default_profile
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head

CPU = "cpu_usage_avg_5m"
POLICY = LoadPolicy(
    (SyncPeriod(CPU, 60),),
    (LoadLimit(CPU, 65_000),),
    (LoadWeight(CPU, 1000),),
    (HotWindow(300, 5), HotWindow(60, 2)),
)
BIG = 64_000


def load_policy(load: LoadPolicy = POLICY) -> PolicyApplied:
    return PolicyApplied(Policy("DynamicSchedulerPolicy", "default", load=load))


def profile(args: DynamicArgs) -> PolicyApplied:
    """The default profile, in which load alone has a score."""
    default = default_profile()
    alone = {"score": (PluginUse("Dynamic", 1),), "preScore": (PluginUse("Dynamic"),)}
    changed = msgspec.structs.replace(
        default, points={**default.points, **alone}, arguments=Arguments(dynamic=args)
    )
    return PolicyApplied(
        Policy("KubeSchedulerConfiguration", "default", scheduler=SchedulerConfig((changed,)))
    )


class Plane(Harness):
    def measured(self, seconds: int = 0, **loads: int) -> None:
        self.feed(NodeLoadObserved(CLUSTER, CPU, 60, self.at, dict(loads)), seconds=seconds)

    def on(self, binding: str) -> dict[str, int]:
        """How many of its replicas each node has."""
        found = list(self.where(binding).values())
        return {node: found.count(node) for node in sorted(set(found))}


def a_plane(*facts: PolicyApplied) -> Plane:
    plane = Plane(at=10**15)
    plane.feed(load_policy(), *facts)
    plane.nodes(*(a_node(name, cpu=BIG, memory=2**38) for name in ("busy", "calm", "idle")))
    return plane


def test_a_node_that_is_too_busy_gets_nothing() -> None:
    plane = a_plane()
    plane.measured(busy=90_000, calm=40_000, idle=10_000)
    plane.assign("web", 12, needs(cpu=100))
    assert plane.on("web").keys() == {"calm", "idle"}


def test_a_burst_is_spread_within_its_batch_and_over_the_next_ones() -> None:
    plane = a_plane(profile(DynamicArgs()))
    plane.measured(busy=90_000, calm=40_000, idle=10_000)
    plane.assign("web", 12, needs(cpu=10))
    first = plane.on("web")
    assert first["idle"] > first["calm"] > 0
    for i in range(8):
        plane.assign(f"db-{i}", 1, needs(cpu=10))
    nodes = [plane.on(f"db-{i}") for i in range(8)]
    assert {"calm": 1} in nodes
    assert {"idle": 1} in nodes


def test_undamped_all_run_to_the_node_that_was_idle_when_it_was_measured() -> None:
    plane = a_plane(profile(DynamicArgs(damped=False)))
    plane.measured(busy=90_000, calm=40_000, idle=10_000)
    plane.assign("web", 12, needs(cpu=10))
    assert plane.on("web") == {"idle": 12}


def test_a_daemonsets_pod_goes_where_it_belongs_however_busy_that_is() -> None:
    plane = a_plane()
    plane.measured(busy=90_000, calm=90_000, idle=90_000)
    plane.assign(
        "agent", 1, msgspec.structs.replace(needs(cpu=10), pod=PodTraits(owner="DaemonSet"))
    )
    assert sum(plane.on("agent").values()) == 1
    (refused,) = plane.assign("web", 1, needs(cpu=10))
    assert isinstance(refused.data, ReplicasRefused)
    assert refused.data.explanation.refused == {"LoadTooHigh": 3}


def test_a_measurement_that_is_too_old_is_unknown_and_the_explanation_says_of_how_many_nodes() -> (
    None
):
    plane = a_plane()
    plane.measured(busy=90_000, calm=40_000)
    plane.assign("web", 6, needs(cpu=100))
    assert "busy" not in plane.on("web")
    (placed,) = plane.feed(plane.assigned(("late", 6, needs(cpu=100), 0)), seconds=361)
    assert isinstance(placed.data, ReplicasPlaced)
    assert "busy" in plane.on("late")
    assert f"{CPU} of 3 nodes" in placed.data.explanation.note


def test_where_the_unknown_is_refused_pods_wait_until_it_is_known() -> None:
    plane = a_plane(profile(DynamicArgs("closed")))
    (refused,) = plane.assign("web", 1, needs(cpu=10))
    assert isinstance(refused.data, ReplicasRefused)
    plane.measured(calm=40_000)
    plane.assign("web", 1, needs(cpu=10))
    assert plane.on("web") == {"calm": 1}


def test_what_stands_on_the_node_counts_like_a_measurement() -> None:
    plane = a_plane()
    at_s = plane.at // 1_000_000
    assert at_s == 10**9  # 2001-09-09T01:46:40Z
    told = {CPU: "0.90000,2001-09-09T01:46:00Z"}
    plane.nodes(
        *(
            msgspec.structs.replace(
                a_node(name, cpu=BIG, memory=2**38), measured=told if name == "busy" else {}
            )
            for name in ("busy", "calm", "idle")
        )
    )
    plane.assign("web", 12, needs(cpu=100))
    assert plane.on("web").keys() == {"calm", "idle"}


def test_without_the_policy_load_matters_no_more() -> None:
    plane = a_plane()
    plane.measured(busy=90_000, calm=40_000, idle=10_000)
    plane.feed(PolicyRemoved("DynamicSchedulerPolicy", "default"))
    plane.assign("web", 30, needs(cpu=100))
    assert plane.on("web").keys() == {"busy", "calm", "idle"}


@pytest.mark.parametrize(
    "args", [DynamicArgs(), DynamicArgs("closed"), DynamicArgs("crane", damped=False)]
)
def test_a_history_made_by_load_is_recovered_and_made_again(args: DynamicArgs) -> None:
    plane = a_plane(profile(args))
    plane.measured(busy=90_000, calm=40_000, idle=10_000)
    for i in range(4):
        plane.assign(f"web-{i}", 3, needs(cpu=100))
        plane.measured(seconds=40, busy=60_000 - 10_000 * i, calm=40_000, idle=20_000 * i)
    recovered = plane.decider.initial(STREAM)
    recover(plane.decider, recovered, plane.rounds)
    assert plane.decider.dump(recovered) == plane.decider.dump(plane.state)
    audit = Audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM))
    for recorded in plane.rounds:
        audit.replay(recorded)
    assert audit.result.divergences == []
    # A state that was stored goes on as one that never stopped.
    plane.state = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    plane.assign("next", 6, needs(cpu=100))
    audit.replay(plane.rounds[-1])
    assert audit.result.divergences == []
