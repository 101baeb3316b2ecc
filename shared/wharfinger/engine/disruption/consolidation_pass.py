"""The state and the shared operations of one consolidation pass over a cluster. It tracks the
remaining budgets, which nodes are removed, which receive pods, and why each other node stays.

The pass is greedy: each command is committed to the simulation as soon as it is found, and the next
one is searched in the resulting state. The search itself is in `methods`, one file per method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wharfinger.domain.node_pool import DisruptionReason, NodePoolPolicy
from wharfinger.domain.resources import quantity_of
from wharfinger.domain.text import dollars
from wharfinger.engine.disruption import balanced
from wharfinger.engine.disruption.budgets import Allowance, PoolCounts, allowance
from wharfinger.engine.disruption.candidates import CONSOLIDATION, CandidateNode, against, review
from wharfinger.engine.disruption.cluster_snapshot import (
    REASONS,
    UNBUDGETED,
    ClusterSnapshot,
    Command,
    DisruptionVerdict,
    Method,
    PodMove,
)
from wharfinger.engine.disruption.price_bounds import PriceLowerBounds, floors
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.disruption.removal import Attempt, Mover, RemovalSimulation
from wharfinger.engine.disruption.replacement import Seats, arithmetic
from wharfinger.engine.provisioning.problem import NewClaim

GAIN = 32
"""A replacement must save at least 1/GAIN of the price of the nodes that it replaces. Every pod on
them has to move for it, and a smaller saving could be reversed by the next small change."""


@dataclass(slots=True)
class PoolBudget:
    """The disruption budget of one pool during a pass. `standing`: the node counts of the pool
    before the pass. `taken`: the number of its nodes that this pass has removed so far."""

    standing: PoolCounts
    taken: int = 0


class ConsolidationPass:
    """The mutable state of one consolidation pass over a snapshot. All methods share it.

    - `commands`: the commands found so far, in order.
    - `gone`: removed node -> the price arithmetic of its command, in words.
    - `receiving`: node that takes pods -> the node from which they come. A receiving node is not
      removed in the same pass.
    - `said`: node -> the latest verdict on it.
    - `stuck`: nodes that had to be removed but whose pods fit nowhere. Later methods skip them.
    - `used`: pool -> resource -> amount that counts against the pool's limits.
    - `buying`: the pools that can create nodes.
    - `floors`: the lower bound on the price of new nodes.
    """

    def __init__(self, scene: ClusterSnapshot) -> None:
        self.scene = scene
        self.prices = NodePrices.of(scene)
        self.review = review(scene, self.prices)
        self.pools = {pool.name: pool for pool in scene.pools}
        self.buying = [
            pool for pool in scene.pools if pool.replicas is None and pool.catalogue in scene.types
        ]
        self.floors = self._floors()
        self.simulation = RemovalSimulation(scene, self.review, self.floors.weights)
        self.used = {pool: dict(amounts) for pool, amounts in scene.used.items()}
        self.budgets = self._pool_budgets()
        self.commands: list[Command] = []
        self.gone: dict[str, str] = {}
        self.receiving: dict[str, str] = {}
        self.said: dict[str, DisruptionVerdict] = {}
        self.stuck: set[str] = set()
        self._allowed: dict[tuple[str, DisruptionReason], Allowance] = {}

    def _floors(self) -> PriceLowerBounds:
        asked = [looked.asks() for looked in self.review.nodes.values() if looked.pods]
        asked = asked or [(0, 0)]
        most = (max(cpu for cpu, _ in asked), max(memory for _, memory in asked))
        total = (sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked))
        return floors(self.buying, self.prices, (most[0] * 4, most[1] * 4), total)

    def _pool_budgets(self) -> dict[str, PoolBudget]:
        """Counts the nodes of each node pool for its disruption budgets. Returns pool -> counts.

        - `nodes`, of which percentages are taken: initialized nodes and nodes that are being
          removed.
        - `out`, which is subtracted from what a budget allows: nodes that are being removed, and
          nodes that are neither initialized nor ready.

        Example: 8 initialized nodes, 2 of them being removed, and 1 node that is neither
        initialized nor ready: `nodes` is 8 and `out` is 3.
        """
        counts = {pool: [0, 0] for pool in self.pools}
        for looked in self.review.nodes.values():
            count = counts[looked.pool.name]
            if looked.name in self.scene.disrupting or looked.name in self.scene.closed:
                count[0] += 1
                count[1] += 1
            elif looked.name in self.review.initialized:
                count[0] += 1
            elif not looked.node.ready:
                count[1] += 1
        return {pool: PoolBudget(PoolCounts(nodes, out)) for pool, (nodes, out) in counts.items()}

    def leaves(self, looked: CandidateNode) -> bool:
        return (
            looked.name in self.gone
            or looked.name in self.scene.disrupting
            or looked.name in self.scene.closed
        )

    def open(self, method: Method) -> list[CandidateNode]:
        """Returns the nodes that the method may disrupt, in order of name. Left out are nodes that
        this pass has removed, and nodes that had to be removed but whose pods fit nowhere.

        If a reason forbids the disruption of a node, the node is not returned and the verdict is
        recorded in `said`. There is one exception, for methods other than consolidation: a verdict
        that only says that the method does not apply to the node (such as "not drifted") is not
        recorded.
        """
        found = []
        for name, looked in self.review.nodes.items():
            if name in self.gone or name in self.stuck:
                continue
            verdict = against(looked, method)
            if verdict is None:
                found.append(looked)
            elif method in CONSOLIDATION or verdict.rule not in _NOT_OF_IT:
                self.said[name] = verdict
        return found

    @cached_property
    def consolidation_candidates(self) -> list[CandidateNode]:
        """Returns the nodes that single-node and multi-node consolidation may remove. Nodes that
        cost less than `epsilon`, the smallest saving of a command, are left out. The order is by
        price per disruption cost, highest first, then by name. Computed once, at the first use."""
        found = [n for n in self.open("single-node") if n.price >= self.scene.epsilon]
        return sorted(found, key=lambda n: (-n.worth, n.name))

    def gain(self, spent: int) -> int:
        """Returns the smallest saving for which nodes are replaced: 1/`GAIN` of their price, and at
        least `epsilon`. `spent`: the total price of these nodes. All in billionths of a dollar an
        hour."""
        return max(self.scene.epsilon, spent // GAIN)

    def take(
        self,
        method: Method,
        going: Sequence[CandidateNode],
        attempt: Attempt,
        chairs: Seats,
        saving: int,
    ) -> None:
        """Adds a command (nodes to remove, with their replacements) to the result of this pass, and
        carries it out in the simulation. Updates the used budgets, the usage of each pool against
        its limits, the verdicts on the removed nodes, and the nodes that receive pods.

        `method`: the disruption method that found the command.
        `going`: the nodes to remove.
        `attempt`: the simulated removal: which pods fit on existing nodes and which do not.
        `chairs`: the new nodes, and for each pod that does not fit on existing nodes its new node.
        `saving`: what the command saves, in billionths of a dollar an hour.
        """
        command = self.command(method, going, attempt, chairs, saving)
        self.commands.append(command)
        self.simulation.commit(attempt)
        for number, claim in enumerate(chairs.claims):
            there = [
                mover for mover, of in zip(attempt.left, chairs.of, strict=True) if of == number
            ]
            self.simulation.expect(f"{going[0].name} {number}", claim.requirements, there)
        for looked in going:
            self.gone[looked.name] = command.arithmetic
            self.budgets[looked.pool.name].taken += 1
            self.said[looked.name] = DisruptionVerdict(
                looked.name, "Goes", f"{method}: {command.arithmetic}"
            )
        for move in command.moves:
            if not move.target.startswith("new:"):
                self.receiving.setdefault(move.target, move.source)
        for claim in chairs.claims:
            self._use(claim)

    def command(
        self,
        method: Method,
        going: Sequence[CandidateNode],
        attempt: Attempt,
        chairs: Seats,
        saving: int,
    ) -> Command:
        targets = [(mover, self.simulation.name_of(slot)) for mover, slot in attempt.placed]
        targets += [
            (mover, f"new:{number}") for mover, number in zip(attempt.left, chairs.of, strict=True)
        ]
        moves = [
            PodMove(m.pod.uid, m.pod.binding, m.pod.ordinal, m.pod.node, target)
            for m, target in targets
        ]
        moves.sort(key=lambda move: (move.source, move.pod))
        return Command(
            method,
            tuple(looked.name for looked in going),
            chairs.claims,
            tuple(moves),
            saving,
            sum(looked.cost for looked in going),
            arithmetic(going, chairs.claims, saving),
        )

    def _use(self, claim: NewClaim) -> None:
        """Adds a planned new node to the usage that is compared with its pool's limits (`used`). It
        adds one node, and for each limited resource the largest amount that any possible instance
        type of the new node has. The largest amount is used because the type is not known before
        launch.

        `claim`: the new node with its possible instance types.

        Example: the pool has a cpu limit, and the new node may get 4 or 8 cores. 8 cores are added.
        """
        pool = self.pools.get(claim.pool)
        if pool is None or not pool.limits:
            return
        types = self.prices.types(pool)
        rows = [types.row[name] for name in claim.instance_types if name in types.row]
        used = self.used.setdefault(pool.name, {})
        used["nodes"] = used.get("nodes", 0) + 1
        for name in pool.limits:
            if name != "nodes" and rows:
                used[name] = used.get(name, 0) + int(types.capacity_of(name)[rows].max())

    def not_now(self, looked: CandidateNode, method: Method) -> bool:
        """Returns whether the method must skip this node in the present pass. If so, the reason is
        recorded in `said`.

        A node is skipped in two cases. One: this pass moves pods to the node. Two: the budget of
        its pool for the method is used up. The second case does not apply to methods without a
        budget (expiry, scale-down of a static pool).
        """
        if looked.name in self.receiving:
            source = self.receiving[looked.name]
            self.say(looked, "Receives", f"it takes pods of {source}, which goes")
            return True
        left = self.budget_left(looked.pool, method)
        if left is not None and left.left <= self.budgets[looked.pool.name].taken:
            taken = self.budgets[looked.pool.name].taken
            more = f", and {taken} go by this pass" if taken else ""
            self.said[looked.name] = DisruptionVerdict(
                looked.name, "BudgetSpent", f"{left.line}{more}", left.until
            )
            return True
        return False

    def within_budgets(self, going: Sequence[CandidateNode]) -> bool:
        """Returns whether the budgets of all pools allow multi-node consolidation to remove all
        these nodes together."""
        counts: dict[str, int] = {}
        for looked in going:
            counts[looked.pool.name] = counts.get(looked.pool.name, 0) + 1
        for pool, count in counts.items():
            left = self.budget_left(self.pools[pool], "multi-node")
            if left is not None and left.left < self.budgets[pool].taken + count:
                return False
        return True

    def budget_left(self, pool: NodePoolPolicy, method: Method) -> Allowance | None:
        if method in UNBUDGETED:
            return None
        reason = REASONS[method]
        found = self._allowed.get((pool.name, reason))
        if found is None:
            found = allowance(pool.budgets, reason, self.budgets[pool.name].standing, self.scene.at)
            self._allowed[(pool.name, reason)] = found
        return found

    def worth_it(self, going: Sequence[CandidateNode], saving: int, method: Method) -> bool:
        verdict = self.unbalanced(going, saving, method)
        if verdict is not None:
            self.said[verdict.node] = verdict
        return verdict is None

    def unbalanced(
        self, going: Sequence[CandidateNode], saving: int, method: Method
    ) -> DisruptionVerdict | None:
        """Checks whether the saving of a command (nodes to remove, with their replacements) is
        worth its disruption. Each pool of these nodes is checked. Returns None if the saving is
        large enough for all of them, otherwise a verdict on the first node whose pool fails.

        For one pool, the saving is large enough if (saving / price of all nodes of the pool) is at
        least (disruption cost of the command / disruption cost of all nodes of the pool) / 2. Only
        nodes whose pool has the policy `Balanced` are checked, and only for single-node and
        multi-node consolidation.

        `going`: the nodes to remove. `saving`: billionths of a dollar an hour.

        Example: a command that causes 20% of the pool's disruption cost must save at least 10% of
        the pool's price.
        """
        if method not in ("single-node", "multi-node"):
            return None
        disruption = sum(looked.cost for looked in going)
        for looked in going:
            if looked.pool.consolidation != "Balanced":
                continue
            price, cost = self.review.totals[looked.pool.name]
            if not balanced.approves(saving, disruption, price, cost):
                sentence = balanced.sentence(looked.pool.name, saving, disruption, price, cost)
                return DisruptionVerdict(looked.name, "Unbalanced", sentence)
        return None

    def say(self, looked: CandidateNode, rule: str, sentence: str) -> None:
        self.said[looked.name] = DisruptionVerdict(looked.name, rule, sentence)

    def say_alone(self, going: Sequence[CandidateNode], rule: str, sentence: str) -> None:
        """Records a verdict if `going` is a single node, and nothing otherwise. If several nodes
        cannot be removed together, one of them alone may still be removable."""
        if len(going) == 1:
            self.say(going[0], rule, sentence)

    def no_room(self, mover: Mover) -> str:
        if self.simulation.simple(mover.row):
            return f"{pod_in_words(mover)} fits on no other node that can be counted on"
        return f"{pod_in_words(mover)} has no other node: {self.simulation.why_not(mover)}"

    def verdicts(self) -> tuple[DisruptionVerdict, ...]:
        """Returns one verdict for every node of the snapshot, in order of name."""
        found = {verdict.node: verdict for verdict in self.review.others}
        for name, looked in self.review.nodes.items():
            verdict = self.said.get(name) or self._stays(looked)
            found[name] = verdict if name in self.gone else self._expiring(looked, verdict)
        return tuple(found[name] for name in sorted(found))

    def _stays(self, looked: CandidateNode) -> DisruptionVerdict:
        if looked.price < self.scene.epsilon:
            return DisruptionVerdict(
                looked.name, "NothingToSave", f"it costs {dollars(looked.price)}"
            )
        return DisruptionVerdict(looked.name, "Needed", "what is on it has no better place")

    def _expiring(self, looked: CandidateNode, verdict: DisruptionVerdict) -> DisruptionVerdict:
        """Returns the verdict with `until` set to the time at which the node expires. The verdict
        is unchanged if its `until` is earlier, or if the node has already expired or never expires.
        """
        if looked.expires <= self.scene.at or 0 < verdict.until <= looked.expires:
            return verdict
        return replace(verdict, until=looked.expires)


WAITS = (
    "pods on it mind who is near them, and nodes are on their way of which nobody knows where "
    "they will be"
)

_NOT_OF_IT = frozenset({"NotStatic", "Static", "NotDrifted"})
"""Rules which state that a method does not apply to a node at all. They do not explain why the node
stays, so they are not recorded for methods other than consolidation."""


def pod_in_words(mover: Mover) -> str:
    requests: Mapping[str, int] = mover.pod.requirements.requests
    said = ", ".join(f"{name} {quantity_of(name, amount)}" for name, amount in requests.items())
    pod = mover.pod
    name = (
        f"{pod.binding} #{pod.ordinal}" if pod.binding and pod.ordinal >= 0 else pod.name or pod.uid
    )
    return f"pod {name} ({said or 'without requests'})"


def pods_of(movers: Sequence[Mover]) -> str:
    return "1 pod" if len(movers) == 1 else f"{len(movers)} pods"
