"""Topic `wharfinger.decisions`: the external contract, one CloudEvent a decision. No internal service reads it.

Each class here is the data of one decision as the ledger stores and hashes it; its event id is the decision's id. Fleet
streams write the Schedule*, Binding*, Cluster* and Failover* decisions, cluster streams the Replicas* and Node* ones,
both ProposalRefused and the Plan* ones. `explanation` is the recorded explanation: hashed, published, at most 2 KiB.
"""

from __future__ import annotations

from wharfinger.domain.binding import Component, TargetCluster
from wharfinger.domain.reasons import PlanRefusal, ProposalRefusal, Trigger
from wharfinger.domain.value import Name, Value
from wharfinger.domain.workload import Requirements


class Scored(Value, frozen=True, gc=False):
    """A candidate with its score (of a cluster 0..100, of a node the total of its profile), its estimate (how many
    more replicas fit), and where that number is from: `class` counted by the estimator, `totals` divided out of free
    totals, `grades` bounded by the sizes of nodes, too, `summary` the cluster's own, `quota` what a quota of its
    namespace leaves there, `pools` with nodes that would have to be made; empty when none was needed."""

    name: str
    score: int = 0
    estimate: int = 0
    estimated_by: str = ""


class FailoverSets(Value, frozen=True):
    """The four sets of a failover, a few names of each and how many there are: targets that stay as they are
    (`reserved`), other clusters that are heard and not tainted (`available`), those of them that pass the filters
    (`candidates`), and the targets that are replaced (`failed`)."""

    reserved: tuple[str, ...] = ()
    available: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)


class Explanation(Value, frozen=True):
    """`refused`: how many candidates fell for each reason. `chosen` and `runners_up`: best first, a few of each.
    `division`: cluster -> weight used. `failover`: where the decision replaces failed targets. `note`: one sentence for people.
    `why`: what made the decision necessary, in a few words."""

    candidates: int = 0
    feasible: int = 0
    refused: dict[str, int] = {}
    chosen: tuple[Scored, ...] = ()
    runners_up: tuple[Scored, ...] = ()
    division: dict[str, int] = {}
    note: str = ""
    failover: FailoverSets | None = None
    why: str = ""


class Leaving(Value, frozen=True):
    """A cluster that was to let the binding go and keeps it until what replaces it stands: until then, at the latest, in
    microseconds of the epoch (0: until somebody says so). `cause`: as in `EvictionProposed`."""

    cluster: Name
    until_us: int = 0
    cause: str = ""


class ScheduleDecided(Value, frozen=True):
    """The binding now has exactly `targets`; before it had `previous`. Fully placed: the targets hold all replicas.

    `suspect`: clusters among the targets that are silent, or on their way out, and whose replicas are also counted
    elsewhere meanwhile; `leaving`: those on their way out.
    `answers`: id of the proposal that this answers, where that is not the decision's cause: it then was made for a
    plan or a replay. `move`: where nobody asked and the policy's steadiness allows it, what kind of move this is
    (`failback`, `rebalance`). `components`: of a workload that has several, each target gets one whole set of them
    (its `replicas` are 0); `former`: names of components that clusters were told of before, which they get none of
    any more."""

    binding: str
    uid: str
    trigger: Trigger
    replicas: int
    targets: tuple[TargetCluster, ...]
    previous: tuple[TargetCluster, ...] = ()
    suspect: tuple[str, ...] = ()
    affinity: str = ""
    priority: int = 0
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()
    answers: str = ""
    move: str = ""
    components: tuple[Component, ...] = ()
    former: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()


class ScheduleRefused(Value, frozen=True):
    """No (further) place was found. What the binding holds stays as it is in `targets`; it waits until something
    changes.

    `answers`: as in `ScheduleDecided`. `former`: names of the components that clusters were told of, none of which
    they have any more where they are no target."""

    binding: str
    uid: str
    trigger: Trigger
    replicas: int
    reason: str
    targets: tuple[TargetCluster, ...] = ()
    previous: tuple[TargetCluster, ...] = ()
    affinity: str = ""
    priority: int = 0
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()
    answers: str = ""
    former: tuple[str, ...] = ()


class BindingReleased(Value, frozen=True):
    """The binding was withdrawn; all it held is let go. `former`: names of the components that clusters were told of."""

    binding: str
    uid: str
    previous: tuple[TargetCluster, ...] = ()
    former: tuple[str, ...] = ()


class ClusterSilenced(Value, frozen=True):
    """Nothing was heard from the cluster for longer than its lease. Silent is not dead: nothing is released."""

    cluster: str
    silent_since_us: int


class ClusterRecovered(Value, frozen=True):
    cluster: str


class FailoverHeld(Value, frozen=True):
    """Over half the fleet is silent: the fault is more likely ours. No failover until `silent` is at most half of
    `clusters`."""

    silent: int
    clusters: int


class FailoverResumed(Value, frozen=True):
    silent: int
    clusters: int


class ProposalRefused(Value, frozen=True):
    """`proposal`: the event id of what was proposed."""

    proposal: str
    kind: str
    target: str
    reason: ProposalRefusal
    detail: str = ""


class Outcome(Value, frozen=True):
    """What a stream decides about a subject, and where that leaves it.

    `outcome`: the decision's own word (`scheduled`, `placed`, `refused`, ...). `places`: of a binding, cluster -> replicas in a
    fleet stream, node -> replicas in a cluster stream. `reason`: of a refusal.
    """

    subject: Name
    outcome: str
    places: dict[str, int] = {}
    reason: str = ""


class PlanCommitted(Value, frozen=True):
    """All steps of the plan were taken in this round, and what was expected of them follows here as decisions of their own."""

    plan: str
    steps: int


class PlanRefused(Value, frozen=True):
    """The plan is out of date and nothing of it happened. `subject`: of the first difference; `expected` and `found`:
    what was to come of it and what would, None: nothing. `changed`: which inputs are not what the plan was made from,
    the nearest first."""

    plan: str
    reason: PlanRefusal
    subject: str = ""
    expected: Outcome | None = None
    found: Outcome | None = None
    changed: tuple[str, ...] = ()


class NodeShare(Value, frozen=True):
    """Replicas of one binding on one node: their ordinals and, one list a replica, (device index, thousandths)."""

    node: str
    ordinals: tuple[int, ...]
    devices: tuple[tuple[tuple[int, int], ...], ...] = ()


class ReplicasPlaced(Value, frozen=True):
    """Replicas newly bound to nodes. `assignment`: id of the fleet decision that asked for them."""

    cluster: str
    binding: str
    assignment: str
    placed: tuple[NodeShare, ...]
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()


class ReplicasRefused(Value, frozen=True):
    """`count` replicas do not fit and are given back to the fleet stage. `class_key`: their requirement class."""

    cluster: str
    binding: str
    assignment: str
    count: int
    class_key: str
    reason: str
    explanation: Explanation = Explanation()


class ReplicasReleased(Value, frozen=True):
    """Replicas let go: from nodes (`released`) and not yet bound ones (`unbound`)."""

    cluster: str
    binding: str
    assignment: str
    released: tuple[NodeShare, ...] = ()
    unbound: int = 0
    reason: str = ""


class ExtenderAsked(Value, frozen=True):
    """An extender is asked about one replica of the binding: `verb` is filter, prioritize, preempt or bind; `nodes`:
    those it is asked about, the best first by what the plugins say. The binding waits for the answer, which is
    recorded as an input."""

    cluster: str
    binding: str
    assignment: str
    extender: str
    verb: str
    nodes: tuple[str, ...]


class ReplicasNominated(Value, frozen=True):
    """Room is being made: `replicas` of the binding are to go to `node` once all that was released there for them has gone. The
    node is kept for them until then, and at `until_us` at the latest; then they are refused."""

    cluster: str
    binding: str
    assignment: str
    node: str
    replicas: int
    until_us: int


class NodeRemovalDecided(Value, frozen=True):
    """The node is closed to new replicas and may be taken away. Decided only while it holds none."""

    cluster: str
    node: str
    reason: str
    proposal: str = ""
