"""What a plan is: what it would change, what each stream is asked for it, and the events that ask.

The simulation that makes one is in `planning`. Who reads plans or has them carried out does not
load the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from wharfinger.domain.ids import ClusterName
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.codec import decode_data, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Micros

HORIZON_US: Micros = 3600 * SECOND
"""How far ahead a plan looks: longer than most `tolerationSeconds`."""

KEPT_US: Micros = 24 * 3600 * SECOND
"""For how long a plan can be carried out after it was made."""

SOURCE = "/wharfinger/plan"

Proposed = FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed


class PlanFact(Value, frozen=True):
    """A fact as it is kept: its type, and its canonical JSON."""

    type: str
    body: str

    @property
    def accepted(self) -> Accepted:
        data = decode_data(self.type, self.body.encode())
        assert isinstance(data, Fact), "only facts are planned"
        return accepted(data)


class BindingMove(Value, frozen=True):
    """What becomes of one binding: cluster -> replicas, and `cluster/node` -> replicas, before and
    after."""

    binding: str
    before: dict[str, int]
    after: dict[str, int]
    nodes_before: dict[str, int] = {}
    nodes_after: dict[str, int] = {}


class SelectionMove(Value, frozen=True):
    """What becomes of the set of one Placement (Open Cluster Management). `placement`:
    `<namespace>/<name>`. `before`, `after`: the clusters of each decision group, in order of the
    groups, empty groups left out. `reason`: what is wrong afterwards, in the words of the
    Placement's condition; empty: nothing is wrong. A Placement that is removed has no groups and no
    reason."""

    placement: str
    before: tuple[tuple[ClusterName, ...], ...]
    after: tuple[tuple[ClusterName, ...], ...]
    reason: str = ""


class PlannedRefusal(Value, frozen=True):
    """A binding that would not get all it asks for: `missing` replicas, for `reason`. `before`: it
    lacked as many already."""

    binding: str
    reason: str
    missing: int
    before: bool = False


class ClusterUse(Value, frozen=True):
    """Of one cluster: the cpu that its replicas ask for and the cpu of its usable nodes, in
    milli-cores; how many nodes hold something, of how many, and the cpu of those that do; what a
    core costs an hour, in millionths, None: not known."""

    cluster: str
    cpu_milli: int
    cpu_milli_max: int
    replicas: int
    nodes: int
    nodes_max: int
    node_cpu_milli: int
    price_micro: int | None = None

    @property
    def permille(self) -> int:
        return self.cpu_milli * 1000 // self.cpu_milli_max if self.cpu_milli_max > 0 else 0


class Figures(Value, frozen=True):
    """`spread`: thousandths of use between the fullest and the emptiest cluster that may be used.
    `node_cpu_milli`: of all nodes that hold something. `cost_micro`: what these cost an hour, in
    millionths; None: some cluster in use has no price. `unplaced`: replicas that are asked for and
    lie nowhere."""

    clusters: tuple[ClusterUse, ...]
    spread: int
    node_cpu_milli: int
    cost_micro: int | None
    unplaced: int


class Plan(Value, frozen=True):
    """`facts`: what is handed in once the streams have committed. `parts`: what each stream is
    asked, and expects. `horizon_us`: how far ahead the plan looked; `within_us`: when the last of
    it happens, if all goes well. `stuck`: what stays on drained clusters and nodes. `declined`:
    proposals that would be refused. Both are lines for people. `unsure`: bindings that end
    elsewhere than the streams commit to, because a cluster gives something back or room becomes
    free later, and bindings that wait for room. Who gets it depends on moments, so that is shown as
    it looks now, and is not promised. `selections`: Placements that would select other clusters or
    have another condition."""

    id: UUID
    made_at: Micros
    facts: tuple[PlanFact, ...]
    parts: tuple[PlanRequested, ...]
    moves: tuple[BindingMove, ...]
    refusals: tuple[PlannedRefusal, ...]
    before: Figures
    after: Figures
    horizon_us: Micros = HORIZON_US
    within_us: Micros = 0
    stuck: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    selections: tuple[SelectionMove, ...] = ()

    @property
    def expires_at(self) -> Micros:
        """From when on it is not carried out any more."""
        return self.made_at + KEPT_US

    @property
    def changes(self) -> bool:
        """Whether it would change anything that a plan shows."""
        return self.moves_bindings or bool(self.selections)

    @property
    def moves_bindings(self) -> bool:
        """Whether it would change where anything lies, or leave something without a place."""
        return bool(self.moves) or any(not refusal.before for refusal in self.refusals)


def request_event(part: PlanRequested) -> Event[Value]:
    """The event that asks a stream for its part. Its id is the plan's and the stream's: asked twice
    is asked once."""
    id = derived_id("plan", part.plan, part.stream)
    return made(part, id=id, source=SOURCE, subject=part.plan, key=part.stream)


def fact_event(plan: UUID, fact: Accepted) -> Event[Value]:
    """A fact of a plan; handed in twice it is the same event."""
    id = derived_id("plan", str(plan), fact.topic.name, fact.key)
    return made(fact.data, id=id, source=SOURCE, subject=fact.subject, key=fact.partition_key)


def in_turn(parts: Sequence[PlanRequested]) -> list[tuple[PlanRequested, ...]]:
    """Who is asked at the same time: the fleet streams, which answer together, then clusters, which
    share nothing."""
    fleets = tuple([part for part in parts if part.stream.startswith(FLEET)])
    others = tuple([part for part in parts if not part.stream.startswith(FLEET)])
    return [asked for asked in (fleets, others) if asked]
