"""Laws of devices: none is given away twice, costs are what their definitions say, and arrays say
what plain values say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.framework_world import only
from tests.hunting import examples

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import DEVICE_MILLI, GPU, Device, DeviceRequest
from wharfinger.domain.scheduler import Arguments, DevicesArgs
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine import machine_code
from wharfinger.engine.devices import fit, kernels, strategies
from wharfinger.engine.devices.columns import CompiledNeed, DeviceScorer
from wharfinger.engine.devices.expected_use import Outlook
from wharfinger.engine.devices.placing import DeviceScores
from wharfinger.engine.devices.strategies import STRATEGIES, NodeDevices
from wharfinger.engine.devices.workload import (
    FADING,
    SORTS_MAX,
    STEP,
    ClusterDemand,
    DeviceAsk,
    DeviceWorkload,
    Weighted,
    ask_of,
)
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.classes import compile_class
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.place import Placer

MODELS = ("T4", "V100", "A10")
NPU = "example.com/npu"

devices = st.lists(
    st.builds(Device, st.sampled_from(MODELS), st.sampled_from([GPU, GPU, NPU])), max_size=6
)
shares = st.sampled_from([50, 110, 190, 320, 470, 500, 810, 999])
models = st.sampled_from([(), (), ("T4",), ("V100", "A10"), ("H100",)])
whole = st.builds(
    DeviceRequest,
    st.integers(1, 4),
    st.just(DEVICE_MILLI),
    models,
    st.sampled_from([GPU, GPU, NPU]),
)
shared = st.builds(DeviceRequest, st.just(1), shares, models, st.sampled_from([GPU, GPU, NPU]))
requests = st.lists(st.one_of(whole, shared), max_size=2).map(tuple)
asked_cpu = st.one_of(st.integers(0, 9000), st.just(2**53))
amounts = st.fixed_dictionaries({}, optional={"cpu": asked_cpu, "memory": st.integers(0, 2**34)})
requirements = st.builds(Requirements, amounts, requests)
workloads = st.lists(st.tuples(requirements, st.integers(1, 60)), max_size=8).map(DeviceWorkload.of)
left_of_cpu = st.one_of(st.integers(-50, 20_000), st.just(2**53))
left_of_memory = st.one_of(st.integers(-50, 2**36), st.just(2**53))
left_of_devices = st.sampled_from([0, 0, 190, 500, 530, 1000, 1000, 1000])


@st.composite
def some_node(draw: st.DrawFn) -> tuple[list[Device], list[int]]:
    there = draw(devices)
    return there, [draw(left_of_devices) for _ in there]


def table_of(there: Sequence[Device], free: Sequence[int]) -> NodeTable:
    table = NodeTable()
    row = table.put(Node("n", {"cpu": 64_000, "memory": 2**38}, tuple(there)), closed=False)
    table.set_usage(row, {}, [DEVICE_MILLI - left for left in free])
    return table


# --- fit


@given(some_node(), requests)
def test_what_is_taken_was_free_and_is_what_was_asked_for(
    node: tuple[list[Device], list[int]], asked: tuple[DeviceRequest, ...]
) -> None:
    there, free = node
    taken = fit.take(there, free, asked)
    if taken is None:
        return
    left = list(free)
    for index, milli in taken:
        left[index] -= milli
    assert all(rest >= 0 for rest in left)
    assert sorted(milli for _, milli in taken) == sorted(
        r.milli for r in asked for _ in range(r.count)
    )
    for request in asked:
        allowed = {i for i, device in enumerate(there) if fit.allows(request, device)}
        assert len({i for i, milli in taken if milli == request.milli} & allowed) >= request.count


@given(some_node(), st.one_of(whole, shared))
def test_one_request_fits_exactly_where_enough_devices_have_room(
    node: tuple[list[Device], list[int]], request: DeviceRequest
) -> None:
    there, free = node
    fitting = [
        i
        for i, device in enumerate(there)
        if device.kind == request.kind
        and (not request.models or device.model in request.models)
        and free[i] >= request.milli
    ]
    taken = fit.take(there, free, (request,))
    assert (taken is not None) == (len(fitting) >= request.count)
    if taken is not None and request.count == 1:
        assert free[taken[0][0]] == min(free[i] for i in fitting)  # the fullest that still has room


@given(st.lists(requirements, max_size=5), devices)
def test_devices_are_not_over_committed_by_pods_that_were_placed(
    arriving: list[Requirements], there: list[Device]
) -> None:
    pods: list[Pod] = []
    for i, asked in enumerate(arriving):
        taken = fit.take(there, fit.free_of(there, pods), asked.devices)
        if taken is not None:
            pods.append(Pod(f"p{i}", f"p{i}", asked, "n", devices=taken))
    held = [
        sum(milli for pod in pods for at, milli in pod.devices if at == i)
        for i in range(len(there))
    ]
    assert all(used <= DEVICE_MILLI for used in held)
    assert fit.free_of(there, pods) == [DEVICE_MILLI - used for used in held]


@given(some_node(), requirements)
def test_one_by_one_and_in_bulk_the_same_devices_are_taken(
    node: tuple[list[Device], list[int]], asked: Requirements
) -> None:
    there, free = node
    table = table_of(there, free)
    cls = compile_class(table, asked, "k")
    taken = take_devices(table.rows["n"], cls.needs)
    assert fit.take(there, free, asked.devices) == (None if taken is None else tuple(sorted(taken)))


# --- costs


def in_groups(there: Sequence[Device]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((d.kind, d.model) for d in there))


states = st.tuples(some_node(), st.integers(0, 30_000), st.integers(0, 2**26))


def the_state(
    said: tuple[tuple[list[Device], list[int]], int, int],
) -> tuple[NodeDevices, tuple[tuple[str, str], ...]]:
    (there, free), cpu, memory = said
    groups = in_groups(there)
    return NodeDevices(
        cpu, memory, tuple(free), tuple(groups.index((d.kind, d.model)) for d in there)
    ), groups


@given(states, workloads)
def test_fragmentation_is_what_a_pod_drawn_from_the_workload_cannot_use(
    said: tuple[tuple[list[Device], list[int]], int, int], workload: DeviceWorkload
) -> None:
    """By the paper's definition: every idle device is a fragment to a pod that the node cannot run
    or that asks for none; to one that it can run, those are that have less left than the pod takes
    of one."""
    (there, free), cpu, memory = said
    state, groups = the_state(said)
    expected = Fraction(0)
    for entry in workload.asks:
        request = entry.ask.device
        fragments = sum(free)
        if request is not None and entry.ask.cpu <= cpu and -(-entry.ask.memory // 1024) <= memory:
            usable = [
                left
                for device, left in zip(there, free, strict=True)
                if fit.allows(request, device) and left >= request.milli
            ]
            if len(usable) >= request.count:
                fragments -= sum(usable)
        expected += Fraction(entry.weight, workload.total) * fragments
    found = strategies.unusable(Outlook.of(workload, groups), state)
    assert not workload.total or Fraction(found, workload.total) == expected


def test_the_logistic_scale_is_the_papers() -> None:
    for gain in (-4_000_000, -1_000_000, -90_001, -1, 0, 1, 40_006, 500_000, 1_000_000, 3_000_000):
        level = sum(1 for start in strategies.LEVELS if start <= gain)
        assert level == math.floor(100 / (1 + math.exp(-gain / 1_000_000)))


@given(states, workloads)
def test_what_is_to_come_is_never_more_than_what_is_idle(
    said: tuple[tuple[list[Device], list[int]], int, int], workload: DeviceWorkload
) -> None:
    state, groups = the_state(said)
    to_come = strategies.to_come(Outlook.of(workload, groups), state)
    assert 0 <= to_come <= sum(state.free) * 1000


def test_a_device_is_filled_as_pods_drawn_one_after_another_would() -> None:
    """By hand: pods of a half and of 0.3, equally often. 300 left take a 0.3; 500 take either; 1000
    go on from there."""
    workload = DeviceWorkload(
        (Weighted(ask_of(asking(500)), 50), Weighted(ask_of(asking(300)), 50))
    )
    outlook = Outlook.of(workload, ((GPU, ""),))
    table, patience = outlook.fill[0], outlook.patience
    assert patience == 2
    at_300 = 50 * 300_000 // 52
    assert table[299] == 0
    assert table[300] == at_300
    assert table[500] == (50 * 500_000 + 50 * (300_000 + table[200])) // 102
    assert table[1000] == (50 * (500_000 + table[500]) + 50 * (300_000 + table[700])) // 102


def asking(milli: int, cpu: int = 0) -> Requirements:
    return Requirements({"cpu": cpu} if cpu else {}, (DeviceRequest(1, milli),))


@given(
    st.sampled_from(sorted(STRATEGIES)),
    workloads,
    requirements,
    st.lists(st.tuples(some_node(), left_of_cpu, left_of_memory), min_size=1, max_size=6),
)
@settings(max_examples=examples(80), deadline=None)
def test_columns_rows_and_machine_code_cost_the_same(
    strategy: str,
    workload: DeviceWorkload,
    asked: Requirements,
    nodes: list[tuple[tuple[list[Device], list[int]], int, int]],
) -> None:
    groups = in_groups([device for (there, _), _, _ in nodes for device in there])
    scorer = DeviceScorer(strategy, workload, groups, (1, 2**36, 6))
    need = scorer.need(asked)
    cpu, memory = np.array([n[1] for n in nodes]), np.array([n[2] for n in nodes])
    free, codes = np.full((2, len(nodes), 6), -1, dtype=np.int64)
    for n, ((there, left), _, _) in enumerate(nodes):
        free[n, : len(left)] = left
        codes[n, : len(left)] = [groups.index((d.kind, d.model)) for d in there]
    slots = np.arange(len(nodes))
    plain = scorer.costs(need, cpu, memory, free, codes, slots, kernels).tolist()
    assert plain == [one_row(scorer, need, node, groups) for node in nodes]
    assert machine_code.why_plain(kernels.__name__) == ""
    assert plain == scorer.costs(need, cpu, memory, free, codes, slots).tolist()


def one_row(
    scorer: DeviceScorer,
    need: CompiledNeed,
    node: tuple[tuple[list[Device], list[int]], int, int],
    groups: Sequence[tuple[str, str]],
) -> int:
    (there, left), cpu, memory = node
    return scorer.cost(need, cpu, memory, left, [groups.index((d.kind, d.model)) for d in there])


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(-(10**9), 10**9), max_size=6))
def test_the_cheapest_node_scores_100_and_the_order_is_kept(costs: dict[str, int]) -> None:
    scores = strategies.scores(costs)
    assert all(0 <= score <= 100 for score in scores.values())
    for a in costs:
        for b in costs:
            assert costs[a] >= costs[b] or scores[a] >= scores[b]
    assert all(scores[a] == 100 for a in costs if costs[a] == min(costs.values()))


a_node = st.tuples(some_node(), st.integers(0, 20_000), st.integers(0, 2**36))


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.lists(a_node, min_size=1, max_size=5),
    workloads,
    requirements,
    st.data(),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_table_scores_as_the_plugin_does_whatever_was_touched_between(
    strategy: str,
    nodes: list[tuple[tuple[list[Device], list[int]], int, int]],
    workload: DeviceWorkload,
    asked: Requirements,
    data: st.DataObject,
) -> None:
    profile = only("Devices", arguments=Arguments(devices=DevicesArgs(strategy))).profile
    table, pods = NodeTable(), {}
    there = [
        Node(f"n{i}", {"cpu": cpu, "memory": memory}, tuple(has))
        for i, ((has, _), cpu, memory) in enumerate(nodes)
    ]
    placer = Placer(table, profile)
    _, form = placer.rules.devices or ("", None)
    scores = DeviceScores(table, form, placer.rules.weight("Devices"), workload)
    placer.set_workload(workload)
    for node, ((_, free), _, _) in zip(there, nodes, strict=True):
        pods[node.name] = a_holder(node, [DEVICE_MILLI - left for left in free])
        table.set_usage(table.put(node, closed=False), {}, [DEVICE_MILLI - left for left in free])
        if data.draw(st.booleans()):  # costs of some are known already when the others come
            scores.add(
                compile_class(table, asked, "k"), *np.zeros((2, table.capacity), dtype=np.int64)
            )
    cls = compile_class(table, asked, "k")
    for _ in range(2):
        snapshot = Snapshot.of(there, pods.values())
        snapshot.demand = workload
        outcome = only("Devices", arguments=profile.arguments).run(
            snapshot, Pod("new", "new", asked)
        )
        said = outcome.scores.get("Devices")
        verdicts, column = (
            np.ones(table.capacity, dtype=np.int64),
            np.zeros(table.capacity, dtype=np.int64),
        )
        verdicts[[table.rows[name].slot for name in outcome.feasible]] = 0
        scores.add(cls, verdicts, column)
        found = {name: int(column[table.rows[name].slot]) for name in outcome.feasible}
        assert found == ({} if said is None else said.normalised)
        look = placer.look(cls)
        assert {name for name, row in table.rows.items() if look.verdicts[row.slot] == 0} == set(
            outcome.feasible
        )
        assert {
            name: int(look.scores[table.rows[name].slot]) for name in outcome.feasible
        } == outcome.totals
        touched = data.draw(st.sampled_from(there))
        free = [data.draw(left_of_devices) for _ in touched.devices]
        table.set_usage(table.rows[touched.name], {}, [DEVICE_MILLI - left for left in free])
        pods[touched.name] = a_holder(touched, [DEVICE_MILLI - left for left in free])


def a_holder(node: Node, held: list[int]) -> Pod:
    """A pod that holds so much of the node's devices, and nothing else."""
    taken = tuple((i, milli) for i, milli in enumerate(held) if milli)
    return Pod(f"on-{node.name}", f"on-{node.name}", Requirements(), node.name, devices=taken)


# --- what is typically asked for


@given(st.lists(st.tuples(requirements, st.integers(0, 5000)), max_size=30), st.integers(0, 30))
@settings(deadline=None)
def test_a_demand_that_was_kept_goes_on_as_if_nothing_had_happened(
    wanted: list[tuple[Requirements, int]], stopped: int
) -> None:
    through, halves = ClusterDemand(), ClusterDemand()
    for i, (asked, times) in enumerate(wanted):
        if i == stopped:
            halves = ClusterDemand(halves.seen())
        assert through.ask(asked, times) == halves.ask(asked, times)
    assert canonical(through.seen()) == canonical(halves.seen())


@given(st.lists(st.tuples(requirements, st.integers(1, 100)), min_size=1, max_size=60))
@settings(deadline=None)
def test_the_workload_changes_seldom_and_never_lags_far_behind(
    wanted: list[tuple[Requirements, int]],
) -> None:
    demand, changes, total = ClusterDemand(), 0, 0
    for asked, times in wanted:
        total += times
        changes += demand.ask(asked, times)
        assert demand.workload.total * (STEP + 1) >= total * STEP - STEP
    assert changes <= 2 * STEP * total.bit_length()


def test_what_was_asked_long_ago_fades() -> None:
    demand = ClusterDemand()
    demand.ask(asking(500), FADING)
    for _ in range(12):
        demand.ask(asking(300), FADING)
    weights = {
        entry.ask.device.milli: entry.weight for entry in demand.workload.asks if entry.ask.device
    }
    assert weights[300] > 50 * weights.get(500, 0)


def test_pods_that_all_ask_for_something_else_do_not_pile_up() -> None:
    demand = ClusterDemand()
    demand.ask(asking(500), 100)
    for cpu in range(1, 3 * SORTS_MAX):
        demand.ask(asking(300, cpu), 1)
    assert len(demand.seen().counts) <= 2 * SORTS_MAX
    assert demand.workload.asks[0].ask == ask_of(asking(500))


def test_a_workload_is_the_same_in_whatever_order_it_was_counted() -> None:
    a, b = asking(500, 100), asking(300)
    assert DeviceWorkload.of([(a, 1), (b, 1), (a, 1)]) == DeviceWorkload.of([(b, 1), (a, 2)])
    assert [entry.ask for entry in DeviceWorkload.of([(a, 2), (b, 1)]).asks] == [
        DeviceAsk(100, 0, a.devices[0]),
        DeviceAsk(0, 0, b.devices[0]),
    ]
