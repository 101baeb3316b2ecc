"""Both forms of Dynamic refuse the same nodes for measured load, score them alike, and spread a
burst alike."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.hunting import examples
from tests.node_rules import Both, some_nodes, some_requirements
from tests.properties.test_load_columns import arguments, measurements, policies, times, writings

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Arguments, DynamicArgs
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import CycleOutcome
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.columns import LoadTable
from wharfinger.engine.load.node_loads import LoadBook, LoadView, Written
from wharfinger.events.node_load import NodeLoadObserved


class Loaded(Both):
    def __init__(self, nodes: Sequence[Node], load: LoadBook, now: int, args: DynamicArgs) -> None:
        self.args, self.load, self.now = args, load, now
        self.table = LoadTable(load)
        profile = structs.replace(default_profile(), arguments=Arguments(dynamic=args))
        super().__init__(nodes, ClusterObjects(), profile)
        self.tell()

    def tell(self) -> None:
        table = self.book.table
        names = ["" if row is None else row.name for row in table.by_slot]
        columns = self.table.columns(names, table.names, self.now, self.args)
        # Where no policy says anything of load, the stage has none to tell, and the plugin is
        # silent.
        self.placer.set_loads(None if self.load.idle else columns)

    def outcome(self, requirements: Requirements) -> CycleOutcome:
        snapshot = Snapshot.of(self.nodes, self.pods, self.objects)
        snapshot.load = LoadView(self.load, self.now)
        return self.framework.run(snapshot, Pod("new", "new", requirements))

    def agree(self, requirements: Requirements, sentence: bool = True) -> str | None:
        found = super().agree(requirements, sentence)
        if found is not None:
            self.load.placed(found, ("burst", len(self.pods)), self.now)
            self.tell()
        return found


@st.composite
def worlds(draw: st.DrawFn) -> Loaded:
    """Nodes with what is measured of them; the names are those that the nodes have."""
    nodes = draw(some_nodes())
    names = [node.name for node in nodes]
    load = LoadBook()
    load.policy_applied("p", draw(policies))
    for told in draw(st.lists(measurements, max_size=6)):
        loads = dict(zip(names, told.loads.values(), strict=False))
        load.observe(
            NodeLoadObserved(told.cluster, told.metric, told.period_s, told.measured_at_us, loads)
        )
    for name, written in draw(
        st.dictionaries(st.sampled_from(names), writings, max_size=2)
    ).items():
        load.written_on(name, Written(written.loads, None))
    return Loaded(nodes, load, draw(times), draw(arguments))


@settings(max_examples=examples(100), deadline=None)
@given(worlds(), st.lists(some_requirements(), min_size=1, max_size=3), st.integers(1, 4))
def test_both_ways_choose_the_same_by_load(
    world: Loaded, asked: list[Requirements], count: int
) -> None:
    for requirements in asked:
        for _ in range(count):
            world.agree(requirements)


@settings(max_examples=examples(60), deadline=None)
@given(worlds(), some_requirements(simple=True), st.integers(1, 8))
def test_a_burst_in_one_batch_is_spread_as_one_at_a_time(
    world: Loaded, requirements: Requirements, count: int
) -> None:
    """Each replica of a batch makes its node hotter for the next one."""
    (choices,) = world.placer.place_batch([(world.book.class_of(requirements), count)])
    alone = [name for _ in range(count) if (name := world.agree(requirements)) is not None]
    assert [choice.row.name for choice in choices] == alone
