"""Which nodes can go, in what way, and why each of the others stays. [Karpenter's methods, without its limits]

`survey` looks at the whole cluster and finds commands; each is found after those before it, so they hold together, in
that order, within the budgets. `check` looks at one of them again, whenever it is to be decided, in the same way. In
turn:

1. *emptiness*: nothing on it would have to move, or only what may go for nothing, and that has a place;
2. *expiry*, *drift*, and the two of pools with a fixed number of nodes: it goes whatever it costs, and its pods have a
   place first;
3. *single-node*: what is on it has a place on others; or what is left over has one on new nodes that are cheaper;
4. *multi-node*: several go together for fewer or smaller ones, when no single one of them could.

What takes in the pods of one that goes is not to go itself in the same pass, or they would move twice. There is no
limit of nodes or of time: what cannot pay is ruled out by arithmetic before it is simulated (`floors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from wharfinger.domain.instance_types import dollars
from wharfinger.domain.node_pool import DisruptionReason, NodePoolPolicy
from wharfinger.domain.resources import quantity_of
from wharfinger.engine.disruption import balanced
from wharfinger.engine.disruption.budgets import Allowance, Standing, allowance
from wharfinger.engine.disruption.candidates import CONSOLIDATION, Looked, against, review
from wharfinger.engine.disruption.costs import UNIT
from wharfinger.engine.disruption.floors import Floors, floors
from wharfinger.engine.disruption.prices import Prices
from wharfinger.engine.disruption.removal import Attempt, Ground, Mover
from wharfinger.engine.disruption.replacement import Planned, Seats, arithmetic, priced, seats
from wharfinger.engine.disruption.scene import REASONS, UNBUDGETED, Command, Method, Move, Scene, Survey, Verdict
from wharfinger.engine.provisioning.catalogue import NO_PRICE
from wharfinger.engine.provisioning.problem import NewClaim

SET_SIZES = (2, 3, 4, 6, 8)
"""So many nodes are looked at together for a replacement, neighbours in the order of what they waste."""

GAIN = 32
"""Nodes are not replaced for less than one part in so many of their price: every pod of theirs would have to move, and the
next change of anything would make it worth it, or not, again."""

SLACK = 100
"""By one part in so many a real packing may be cheaper than a quick one; those that are worth it by so much are packed."""

ANY_PRICE: frozenset[Method] = frozenset({"expiry", "drift", "static-drift", "static-scale-down"})


def survey(scene: Scene) -> Survey:
    """Commands that hold in the order in which they stand, and a verdict on every node. The same scene gives the same
    bytes, everywhere."""
    found = _Pass(scene)
    found.empty()
    found.expired()
    found.static()
    found.drifted()
    found.consolidated()
    return Survey(tuple(found.commands), found.verdicts())


def check(
    scene: Scene, method: Method, nodes: Sequence[str], replacements: Sequence[Planned] = ()
) -> Command | Verdict:
    """What the proposal comes to as things stand: a command with its moves, or the verdict against it, on the first node
    that stays. The instance types that were proposed must all do for what has to move now; fewer new nodes than proposed
    are as well, more are not. An empty list of nodes is a proposal of nothing."""
    found = _Pass(scene)
    if not nodes:
        return Verdict("", "NothingToDo", "no nodes are named")
    going: list[Looked] = []
    for name in nodes:
        looked = found.review.nodes.get(name)
        if looked is None:
            return Verdict(name, "Changed", "it is not there any more, or belongs to no pool")
        going.append(looked)
    return found.checked(method, going, replacements)


@dataclass(slots=True)
class _Purse:
    """What budgets leave of one pool during a pass."""

    standing: Standing
    taken: int = 0


class _Pass:
    """One look at a scene. What is found is committed to the ground at once, so the next is found after it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.prices = Prices.of(scene)
        self.review = review(scene, self.prices)
        self.pools = {pool.name: pool for pool in scene.pools}
        self.buying = [pool for pool in scene.pools if pool.replicas is None and pool.catalogue in scene.types]
        self.floors = self._floors()
        self.ground = Ground(scene, self.review, self.floors.weights)
        self.used = {pool: dict(amounts) for pool, amounts in scene.used.items()}
        self.purses = self._purses()
        self.commands: list[Command] = []
        self.gone: dict[str, str] = {}
        self.receiving: dict[str, str] = {}
        self.said: dict[str, Verdict] = {}
        self.stuck: set[str] = set()
        self._allowed: dict[tuple[str, DisruptionReason], Allowance] = {}

    def _floors(self) -> Floors:
        asked = [looked.asks() for looked in self.review.nodes.values() if looked.pods]
        asked = asked or [(0, 0)]
        most = (max(cpu for cpu, _ in asked), max(memory for _, memory in asked))
        total = (sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked))
        return floors(self.buying, self.prices, (most[0] * 4, most[1] * 4), total)

    def _purses(self) -> dict[str, _Purse]:
        """Nodes count that are initialised; those of them that go already are out, and so are those that are not ready."""
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
        return {pool: _Purse(Standing(nodes, out)) for pool, (nodes, out) in counts.items()}

    # --- the methods

    def empty(self) -> None:
        for looked in self._open("emptiness"):
            if looked.cost <= UNIT:
                self._delete(looked, "emptiness")

    def expired(self) -> None:
        at = self.scene.at
        due = [looked for looked in self._open("expiry") if looked.expires and looked.expires <= at]
        for looked in sorted(due, key=lambda n: (n.expires, n.name)):
            self._replace_at_any_price(looked, "expiry")

    def static(self) -> None:
        drifted = [looked for looked in self._open("static-drift") if looked.drifted]
        for looked in sorted(drifted, key=_oldest):
            self._replace_at_any_price(looked, "static-drift")
        for pool in self.scene.pools:
            if pool.replicas is not None:
                self._scale_down(pool, pool.replicas)

    def _scale_down(self, pool: NodePoolPolicy, replicas: int) -> None:
        there = [n for n in self.review.nodes.values() if n.pool is pool and not self._leaves(n)]
        on_their_way = sum(claim.pool == pool.name for claim in self.scene.in_flight)
        too_many = len(there) + on_their_way - replicas
        candidates = [n for n in self._open("static-scale-down") if n.pool is pool]
        for looked in sorted(candidates, key=lambda n: (n.cost, n.name)):
            if too_many <= 0:
                return
            too_many -= self._replace_at_any_price(looked, "static-scale-down")

    def _leaves(self, looked: Looked) -> bool:
        return looked.name in self.gone or looked.name in self.scene.disrupting or looked.name in self.scene.closed

    def drifted(self) -> None:
        drifted = [looked for looked in self._open("drift") if looked.drifted]
        for looked in sorted(drifted, key=_oldest):
            self._replace_at_any_price(looked, "drift")

    def consolidated(self) -> None:
        """First whom nobody has to make a node for, the most dollars for the least disruption first; then the rest."""
        candidates = [n for n in self._open("single-node") if n.price >= self.scene.epsilon]
        candidates.sort(key=lambda n: (-n.worth, n.name))
        for looked in candidates:
            self._delete(looked, "single-node")
        for looked, _ in self._wasteful(candidates):
            self._replace(looked)
        self._sets(candidates)

    def _wasteful(self, candidates: Iterable[Looked]) -> list[tuple[Looked, int]]:
        """Those that are still there, and what each could save at most by the floor, in order of that by disruption."""
        found = []
        for looked in candidates:
            if looked.name not in self.gone and looked.name not in self.receiving:
                found.append((looked, looked.price - self.floors.least(*looked.asks())))
        found.sort(key=lambda pair: (-(pair[1] * 1000 // pair[0].cost), pair[0].name))
        return found

    def _open(self, method: Method) -> list[Looked]:
        """Nodes that the method may touch and no other has; what speaks against the others is kept."""
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

    # --- one node

    def _delete(self, looked: Looked, method: Method) -> None:
        """It goes when all that is on it has a place elsewhere."""
        if self._not_now(looked, method):
            return
        if looked.pods and not self._worth_it([looked], looked.price, method):
            return
        attempt = self.ground.without([looked.name], quiet=True, need_all=True)
        if attempt.waits:
            self._say(looked, "Waits", WAITS)
            return
        if attempt.left:
            self._say(looked, "NoRoom", self._no_room(attempt.left[0]))
            return
        self._take(method, [looked], attempt, Seats(), looked.price)

    def _replace(self, looked: Looked) -> None:
        """It goes when what is left of it after others took what they can is held by cheaper nodes."""
        if self._not_now(looked, "single-node") or not looked.pods:
            return
        attempt = self.ground.without([looked.name], quiet=True)
        self._replaced([looked], attempt, "single-node")

    def _replaced(self, going: list[Looked], attempt: Attempt, method: Method) -> bool:
        if attempt.waits:
            self._say_alone(going, "Waits", WAITS)
            return False
        spent = sum(looked.price for looked in going)
        least = self._least(attempt.left)
        if spent - least < self._gain(spent):
            if len(going) == 1:
                self._say(going[0], "NotCheaper", self._floor_sentence(going[0], attempt, least))
            return False
        if not self._worth_it(going, spent - least, method):
            return False
        about = self.floors.about([mover.pod.requirements.requests for mover in attempt.left])
        if spent - about * SLACK // (SLACK + 1) < self._gain(spent):
            self._say_alone(going, "NotCheaper", self._quick_sentence(going[0], attempt, about))
            return False
        # What is as cheap as a quick packing by cpu and memory alone need not be packed better.
        found = seats(self.ground, self.scene, attempt, self.buying, self.used, self.prices.shop, about)
        if found.refusal:
            self._say_alone(going, "NoRoom", f"{_pods(attempt.left)} would need a new node: {found.refusal}")
            return False
        judged = priced(going, found.claims, self.scene, self.prices, None)
        if judged.refusal:
            self._say_alone(going, "NotCheaper", f"{_pods(attempt.left)} would need a new node: {judged.refusal}")
            return False
        if spent - sum(claim.price for claim in judged.claims) < self._gain(spent):
            self._say_alone(
                going, "NotCheaper", f"{arithmetic(going, judged.claims, judged.saving)}, which is too little"
            )
            return False
        if not self._worth_it(going, judged.saving, method):
            return False
        self._take(method, going, attempt, replace(found, claims=judged.claims), judged.saving)
        return True

    def _gain(self, spent: int) -> int:
        """What a replacement must save at least."""
        return max(self.scene.epsilon, spent // GAIN)

    def _replace_at_any_price(self, looked: Looked, method: Method) -> bool:
        """It has to go: others take what they can, new nodes the rest."""
        if self._not_now(looked, method):
            return False
        found = self._forced(looked, method)
        if isinstance(found, Verdict):
            self.said[looked.name] = found
            self.stuck.add(looked.name)
            return False
        attempt, chairs = found
        self._take(method, [looked], attempt, chairs, looked.price - sum(c.worst_price for c in chairs.claims))
        return True

    def _forced(self, looked: Looked, method: Method) -> tuple[Attempt, Seats] | Verdict:
        buying: Sequence[NodePoolPolicy] = self.buying
        if method == "static-drift":
            # Its pool keeps its number: one of the same pool comes for it, with all that is on it.
            attempt = Attempt((looked.name,), left=list(self.ground.movers(looked.name)))
            buying = [msgspec.structs.replace(looked.pool, replicas=None)]
        else:
            attempt = self.ground.without([looked.name], quiet=False)
        if attempt.waits:
            return Verdict(looked.name, "Waits", WAITS)
        if not attempt.left:
            return attempt, Seats()
        found = seats(self.ground, self.scene, attempt, buying, self.used, self.prices.shop)
        if found.refusal:
            return Verdict(looked.name, "NoRoom", f"{_pods(attempt.left)} would need a new node: {found.refusal}")
        return attempt, found

    # --- several

    def _sets(self, candidates: Sequence[Looked]) -> None:
        """Neighbours in the order of what they waste, as many as promise the most for their disruption."""
        wasteful = [pair for pair in self._wasteful(candidates) if pair[0].pods]
        at = 0
        while at < len(wasteful):
            going = self._best_set(wasteful, at)
            if going is None:
                at += 1
                continue
            attempt = self.ground.without([n.name for n in going], quiet=True)
            self._replaced(going, attempt, "multi-node")
            at += len(going)  # those who failed together are not tried again with others: every node is looked at once

    def _best_set(self, wasteful: Sequence[tuple[Looked, int]], at: int) -> list[Looked] | None:
        """None: of no size is there enough to be saved."""
        best, going = 0, None
        for size in SET_SIZES:
            part = [looked for looked, _ in wasteful[at : at + size]]
            if len(part) < size or any(self._not_now(n, "multi-node") for n in part) or not self._within(part):
                break
            cpu, memory = (sum(amounts) for amounts in zip(*(n.asks() for n in part), strict=True))
            promise = sum(n.price for n in part) - self.floors.least(cpu, memory)
            score = promise * 1000 // sum(n.cost for n in part)
            if promise >= self._gain(sum(n.price for n in part)) and score > best:
                best, going = score, part
        return going

    # --- taking it

    def _take(self, method: Method, going: Sequence[Looked], attempt: Attempt, chairs: Seats, saving: int) -> None:
        command = self._command(method, going, attempt, chairs, saving)
        self.commands.append(command)
        self.ground.commit(attempt)
        for number, claim in enumerate(chairs.claims):
            there = [mover for mover, of in zip(attempt.left, chairs.of, strict=True) if of == number]
            self.ground.expect(f"{going[0].name} {number}", claim.requirements, there)
        for looked in going:
            self.gone[looked.name] = command.arithmetic
            self.purses[looked.pool.name].taken += 1
            self.said[looked.name] = Verdict(looked.name, "Goes", f"{method}: {command.arithmetic}")
        for move in command.moves:
            if not move.target.startswith("new:"):
                self.receiving.setdefault(move.target, move.source)
        for claim in chairs.claims:
            self._use(claim)

    def _command(
        self, method: Method, going: Sequence[Looked], attempt: Attempt, chairs: Seats, saving: int
    ) -> Command:
        targets = [(mover, self.ground.name_of(slot)) for mover, slot in attempt.placed]
        targets += [(mover, f"new:{number}") for mover, number in zip(attempt.left, chairs.of, strict=True)]
        moves = [Move(m.pod.uid, m.pod.binding, m.pod.ordinal, m.pod.node, target) for m, target in targets]
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
        """A claim takes of its pool's limits what the largest of its types has."""
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

    # --- what speaks against it now

    def _not_now(self, looked: Looked, method: Method) -> bool:
        if looked.name in self.receiving:
            source = self.receiving[looked.name]
            self._say(looked, "Receives", f"it takes pods of {source}, which goes")
            return True
        left = self._left(looked.pool, method)
        if left is not None and left.left <= self.purses[looked.pool.name].taken:
            taken = self.purses[looked.pool.name].taken
            more = f", and {taken} go by this pass" if taken else ""
            self.said[looked.name] = Verdict(looked.name, "BudgetSpent", f"{left.line}{more}", left.until)
            return True
        return False

    def _within(self, going: Sequence[Looked]) -> bool:
        """Whether budgets let all of them go together."""
        counts: dict[str, int] = {}
        for looked in going:
            counts[looked.pool.name] = counts.get(looked.pool.name, 0) + 1
        for pool, count in counts.items():
            left = self._left(self.pools[pool], "multi-node")
            if left is not None and left.left < self.purses[pool].taken + count:
                return False
        return True

    def _left(self, pool: NodePoolPolicy, method: Method) -> Allowance | None:
        if method in UNBUDGETED:
            return None
        reason = REASONS[method]
        found = self._allowed.get((pool.name, reason))
        if found is None:
            found = allowance(pool.budgets, reason, self.purses[pool.name].standing, self.scene.at)
            self._allowed[(pool.name, reason)] = found
        return found

    def _worth_it(self, going: Sequence[Looked], saving: int, method: Method) -> bool:
        verdict = self._unbalanced(going, saving, method)
        if verdict is not None:
            self.said[verdict.node] = verdict
        return verdict is None

    def _unbalanced(self, going: Sequence[Looked], saving: int, method: Method) -> Verdict | None:
        """Every pool involved that wants balance must have it."""
        if method not in ("single-node", "multi-node"):
            return None
        disruption = sum(looked.cost for looked in going)
        for looked in going:
            if looked.pool.consolidation != "Balanced":
                continue
            price, cost = self.review.totals[looked.pool.name]
            if not balanced.approves(saving, disruption, price, cost):
                sentence = balanced.sentence(looked.pool.name, saving, disruption, price, cost)
                return Verdict(looked.name, "Unbalanced", sentence)
        return None

    # --- in words

    def _say(self, looked: Looked, rule: str, sentence: str) -> None:
        self.said[looked.name] = Verdict(looked.name, rule, sentence)

    def _say_alone(self, going: Sequence[Looked], rule: str, sentence: str) -> None:
        """Of a node by itself; what fails for several together says nothing of one of them."""
        if len(going) == 1:
            self._say(going[0], rule, sentence)

    def _no_room(self, mover: Mover) -> str:
        if self.ground.simple(mover.row):
            return f"{_ask(mover)} fits on no other node that can be counted on"
        return f"{_ask(mover)} has no other node: {self.ground.why_not(mover)}"

    def _least(self, left: Sequence[Mover]) -> int:
        if not left:
            return 0
        requests = [mover.pod.requirements.requests for mover in left]
        return self.floors.least(sum(r.get("cpu", 0) for r in requests), sum(r.get("memory", 0) for r in requests))

    def _floor_sentence(self, looked: Looked, attempt: Attempt, least: int) -> str:
        if least >= NO_PRICE:
            return f"{_pods(attempt.left)} would need a new node, and no pool can make one"
        return (
            f"{_pods(attempt.left)} of {len(looked.pods)} would need new nodes, which cost at least {dollars(least)}; it costs "
            f"{dollars(looked.price)}, and less than {dollars(self._gain(looked.price))} would be saved"
        )

    def _quick_sentence(self, looked: Looked, attempt: Attempt, about: int) -> str:
        return (
            f"{_pods(attempt.left)} of {len(looked.pods)} would need new nodes, which cost about {dollars(about)}; it costs "
            f"{dollars(looked.price)}, and less than {dollars(self._gain(looked.price))} would be saved"
        )

    def verdicts(self) -> tuple[Verdict, ...]:
        """One for every node, in order of name."""
        found = {verdict.node: verdict for verdict in self.review.others}
        for name, looked in self.review.nodes.items():
            verdict = self.said.get(name) or self._stays(looked)
            found[name] = verdict if name in self.gone else self._expiring(looked, verdict)
        return tuple(found[name] for name in sorted(found))

    def _stays(self, looked: Looked) -> Verdict:
        if looked.price < self.scene.epsilon:
            return Verdict(looked.name, "NothingToSave", f"it costs {dollars(looked.price)}")
        return Verdict(looked.name, "Needed", "what is on it has no better place")

    def _expiring(self, looked: Looked, verdict: Verdict) -> Verdict:
        """It may be otherwise at the latest when the node expires."""
        if looked.expires <= self.scene.at or 0 < verdict.until <= looked.expires:
            return verdict
        return replace(verdict, until=looked.expires)

    # --- again, later

    def checked(self, method: Method, going: list[Looked], planned: Sequence[Planned]) -> Command | Verdict:
        verdict = self._refused(method, going)
        if verdict is not None:
            return verdict
        if method in ANY_PRICE:
            return self._forced_again(method, going, planned)
        spent = sum(looked.price for looked in going)
        attempt = self.ground.without([looked.name for looked in going], quiet=True)
        first = going[0]
        if attempt.waits:
            return Verdict(first.name, "Waits", WAITS)
        if not attempt.left:
            return self._unbalanced(going, spent, method) or self._command(method, going, attempt, Seats(), spent)
        if not planned:
            return Verdict(attempt.left[0].pod.node, "NoRoom", self._no_room(attempt.left[0]))
        # What was proposed may be the first packing that was cheap enough, or the best of several.
        refusal = ""
        for enough in (0, NO_PRICE):
            chairs = seats(self.ground, self.scene, attempt, self.buying, self.used, self.prices.shop, enough)
            if chairs.refusal:
                return Verdict(first.name, "NoRoom", f"{_pods(attempt.left)} would need a new node: {chairs.refusal}")
            judged = priced(going, chairs.claims, self.scene, self.prices, planned)
            if not judged.refusal:
                break
            refusal = refusal or judged.refusal
        else:
            return Verdict(first.name, "NotCheaper", refusal)
        unbalanced = self._unbalanced(going, judged.saving, method)
        return unbalanced or self._command(method, going, attempt, replace(chairs, claims=judged.claims), judged.saving)

    def _refused(self, method: Method, going: Sequence[Looked]) -> Verdict | None:
        counts: dict[str, int] = {}
        for looked in going:
            verdict = against(looked, method) or self._not_its_time(looked, method)
            if verdict is not None:
                return verdict
            name = looked.pool.name
            counts[name] = counts.get(name, 0) + 1
            left = self._left(looked.pool, method)
            if left is not None and left.left < counts[name]:
                return Verdict(looked.name, "BudgetSpent", left.line, left.until)
        return None

    def _not_its_time(self, looked: Looked, method: Method) -> Verdict | None:
        if method == "expiry" and not (looked.expires and looked.expires <= self.scene.at):
            return Verdict(looked.name, "NotExpired", "it has not expired", looked.expires)
        if method == "emptiness" and looked.cost > UNIT:
            return Verdict(looked.name, "NotEmpty", f"{len(looked.pods)} pods on it would have to move")
        if method == "static-scale-down":
            there = [n for n in self.review.nodes.values() if n.pool is looked.pool and not self._leaves(n)]
            if len(there) <= (looked.pool.replicas or 0):
                return Verdict(looked.name, "Needed", f"pool {looked.pool.name} has no node too many")
        return None

    def _forced_again(self, method: Method, going: list[Looked], planned: Sequence[Planned]) -> Command | Verdict:
        if len(going) > 1:
            return Verdict(going[1].name, "Changed", f"{method} takes one node at a time")
        found = self._forced(going[0], method)
        if isinstance(found, Verdict):
            return found
        attempt, chairs = found
        if len(chairs.claims) > len(planned):
            return Verdict(
                going[0].name, "NoRoom", f"{_pods(attempt.left)} would need a new node that was not proposed"
            )
        return self._command(method, going, attempt, chairs, going[0].price - sum(c.worst_price for c in chairs.claims))


WAITS = "pods on it mind who is near them, and nodes are on their way of which nobody knows where they will be"

_NOT_OF_IT = frozenset({"NotStatic", "Static", "NotDrifted"})
"""What speaks against a method that is not meant for the node says nothing of why it stays."""


def _oldest(looked: Looked) -> tuple[bool, int, str]:
    """The empty first, then the oldest."""
    return bool(looked.pods), looked.node.created_us, looked.name


def _ask(mover: Mover) -> str:
    requests: Mapping[str, int] = mover.pod.requirements.requests
    said = ", ".join(f"{name} {quantity_of(name, amount)}" for name, amount in requests.items())
    pod = mover.pod
    name = f"{pod.binding} #{pod.ordinal}" if pod.binding and pod.ordinal >= 0 else pod.name or pod.uid
    return f"pod {name} ({said or 'without requests'})"


def _pods(movers: Sequence[Mover]) -> str:
    return "1 pod" if len(movers) == 1 else f"{len(movers)} pods"
