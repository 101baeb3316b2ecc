"""Finds new nodes that replace removed ones, and tests whether they are cheaper however they are
launched.

Pods without another place are packed on new nodes by `provisioning.solve`. The price test compares
the price of the removed nodes with the highest price that the new nodes may have. Of the possible
instance types it keeps those that leave at least half of the best saving. If that fails, it keeps
those that leave any sufficient saving. So there is a choice when a type is sold out, and the real
saving is close to the promised one. [Karpenter keeps all types that are cheaper by any amount, and
allows one new node at most.]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Protocol

import msgspec

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import INSTANCE_TYPE_LABEL, ZONE_LABEL, NodePoolPolicy
from wharfinger.domain.text import dollars
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.disruption.removal import Attempt, Mover, RemovalSimulation
from wharfinger.engine.provisioning import launch
from wharfinger.engine.provisioning.catalogue import NO_PRICE, Mask, Types, mask_of
from wharfinger.engine.provisioning.problem import NewClaim, Problem, WantedPods
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.solve import solve
from wharfinger.engine.provisioning.type_index import InstanceTypeIndex

COMBINATIONS = 64
"""The maximum number of combinations of zones of the new nodes that are examined."""


class Planned(Protocol):
    """A replacement node as it was proposed."""

    @property
    def pool(self) -> str: ...
    @property
    def instance_types(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Seats:
    """New nodes for the pods in `Attempt.left`, and which pod goes to which of them. `of`: for each
    pod in `Attempt.left`, the index of its claim in `claims`. `refusal`: why the pods cannot get
    new nodes; empty if they can."""

    claims: tuple[NewClaim, ...] = ()
    of: tuple[int, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Priced:
    """The result of the price test. `claims`: the new nodes, restricted to the instance types that
    passed. `saving`: the saving in the worst case, billionths of a dollar an hour. `refusal`: why
    the test failed; empty if it passed."""

    claims: tuple[NewClaim, ...] = ()
    saving: int = 0
    refusal: str = ""


# --- the nodes


def seats(
    ground: RemovalSimulation,
    scene: ClusterSnapshot,
    attempt: Attempt,
    pools: Sequence[NodePoolPolicy],
    used: Mapping[str, Mapping[str, int]],
    type_index: InstanceTypeIndex,
    enough: int = 0,
) -> Seats:
    """Packs all pods in `attempt.left` (the pods that fit on no existing node) on new nodes of
    `pools`, and returns the new nodes and the index of each pod's new node.

    The result has a refusal instead in two cases: a pod fits on no new node; or the new nodes can
    get labels (for example zones) with which affinity or topology spread would be violated after
    all moves.

    `ground`: the simulation in which `attempt` was tried.
    `used`: pool -> resource -> amount that the pool uses already; it counts towards the limits of
      the pool.
    `type_index`: the index of the instance types.
    `enough`: if a first-fit packing costs at most this (billionths of a dollar an hour), no cheaper
      packing is searched.
    """
    minding = not all(ground.simple(mover.row) for mover in attempt.left)
    lots = _lots(ground, attempt.left, minding)
    wanted = [
        WantedPods(str(i), lot.requirements, len(lot.numbers), lot.priority)
        for i, lot in enumerate(lots)
    ]
    nodes, pods = _surroundings(ground, scene, attempt) if minding else ((), ())
    found = solve(
        Problem(
            wanted,
            pools,
            scene.types,
            scene.overlays,
            nodes,
            pods,
            scene.objects,
            avoid=frozenset(attempt.nodes),
            used=used,
            sold_out=scene.sold_out,
            options=replace(scene.options, reserved_strict=False),
        ),
        type_index,
        enough,
    )
    if found.unplaced:
        first = found.unplaced[0]
        return Seats(refusal=first.reason)
    if found.placed or found.joined:
        return Seats(refusal="a node that takes nothing new was given something")
    made = _seated(attempt.left, lots, found.claims)
    for labels in _labels_of(made.claims, scene, pools):
        spoilt = ground.conflict(attempt, labels, made.of)
        if spoilt is not None:
            return Seats(refusal=f"{spoilt.pod.name} would not be allowed beside the others")
    return made


def _labels_of(
    claims: Sequence[NewClaim], scene: ClusterSnapshot, pools: Sequence[NodePoolPolicy]
) -> Iterable[tuple[Mapping[str, str], ...]]:
    """Generates combinations of labels that the new nodes can have. Each combination has the labels
    of every new node. The labels of one node are those of the node's cheapest instance type, with
    one of the node's possible zones. A zone is possible if any instance type of the node is
    available there.

    If there are at most `COMBINATIONS` combinations of zones, all are generated. Otherwise the i-th
    combination has the i-th zone of every new node; after the last zone of a node its first zone
    comes again.

    `claims`: the new nodes with their possible instance types.

    Example of the second case: new nodes with the zones a, b, c and a, b give (a, a), (b, b), (c,
    a).
    """
    catalogues = {pool.name: pool.catalogue for pool in pools}
    known = {(catalogue, t.name): t for catalogue, types in scene.types.items() for t in types}
    each: list[list[dict[str, str]]] = []
    for claim in claims:
        wanted = LabelSet.of_pool(claim.requirements)
        types = [known[catalogues[claim.pool], name] for name in claim.instance_types]
        cheapest = types[0]
        labels = {key: value for key, said in wanted.items() if (value := said.only) is not None}
        for key, values in cheapest.labels.items():
            fitting = [value for value in values if wanted.of(key).allows(value)]
            labels.setdefault(key, fitting[0] if fitting else values[0])
        labels[INSTANCE_TYPE_LABEL] = cheapest.name
        zones = sorted(
            {
                o.zone
                for t in types
                for o in t.offerings
                if o.available and wanted.of(ZONE_LABEL).allows(o.zone)
            }
        )
        each.append([{**labels, ZONE_LABEL: zone} for zone in zones] or [labels])
    if math.prod(map(len, each)) <= COMBINATIONS:
        return product(*each)
    return (tuple(zones[i % len(zones)] for zones in each) for i in range(max(map(len, each))))


@dataclass(slots=True)
class _MoverGroup:
    """Pods that are equal for packing. `numbers`: their indices in `Attempt.left`."""

    requirements: Requirements
    priority: int
    numbers: list[int] = field(default_factory=list)


def _lots(ground: RemovalSimulation, left: Sequence[Mover], minding: bool) -> list[_MoverGroup]:
    """Groups the pods in `left` for packing on new nodes: pods of the same class and the same
    priority are one group. The pods of one group are interchangeable. Returns the groups, each with
    the indices of its pods in `left`.

    `minding`: whether constraints between pods (affinity, topology spread) apply to some of these
      pods. If not, pods that differ only in properties that do not decide on which nodes they fit,
      such as labels, are one group. This gives fewer groups.
    """
    found: dict[tuple[int, int], _MoverGroup] = {}
    for number, mover in enumerate(left):
        row, requirements = (
            (mover.row, mover.cls.requirements) if minding else ground.alone(mover.row)
        )
        key = row, mover.pod.priority
        if key not in found:
            found[key] = _MoverGroup(requirements, mover.pod.priority)
        found[key].numbers.append(number)
    return list(found.values())


def _seated(
    left: Sequence[Mover], lots: Sequence[_MoverGroup], claims: Sequence[NewClaim]
) -> Seats:
    """Assigns each pod in `left` to a new node. The packing (`solve`) only says how many pods of
    each group go to a new node, so the pods of a group are assigned in order.

    `lots`: the groups of equal pods, with indices into `left`. `claims`: the new nodes with the
      number of pods of each group.

    Returns the new nodes and, for each pod, the index of its new node. In `claims`, `pods` is group
    number -> number of pods. In the new nodes returned, it is name -> number of pods, where the
    name is the pod's binding, or the uid of a pod that is no replica of a binding.

    Example: a group has the pods 0, 1 and 2. The first new node gets 2 pods of the group and the
    second gets 1. The indices are 0, 0, 1.
    """
    of = [-1] * len(left)
    waiting = [iter(lot.numbers) for lot in lots]
    named = []
    for number, claim in enumerate(claims):
        pods: dict[str, int] = {}
        for key, count in claim.pods.items():
            for mover in islice(waiting[int(key)], count):
                of[mover] = number
                name = _name(left[mover].pod)
                pods[name] = pods.get(name, 0) + 1
        named.append(replace(claim, pods=dict(sorted(pods.items()))))
    return Seats(tuple(named), tuple(of))


def _name(pod: Pod) -> str:
    """Returns the name of the pod's binding if it is a replica of one, otherwise the uid of the
    pod."""
    return pod.binding if pod.binding and pod.ordinal >= 0 else pod.uid


def _surroundings(
    ground: RemovalSimulation, scene: ClusterSnapshot, attempt: Attempt
) -> tuple[Sequence[Node], Sequence[Pod]]:
    """Returns all nodes of the cluster, and the pods as they are after the simulated removal
    `attempt`. The packing of new nodes (`solve`) checks affinity and topology spread against these
    nodes and pods.

    Pods that the attempt moved are listed on the nodes that they moved to. Pods in `attempt.left`
    are not in the result. The removed nodes are still in the result; the caller excludes these
    nodes. All nodes are unschedulable: the pods that fit on existing nodes were placed there
    before, so the packing may only use new nodes.
    """
    nodes = [
        msgspec.structs.replace(node, unschedulable=True)
        for node in (*scene.nodes, *ground.expected)
    ]
    gone = {mover.pod.uid for mover, _ in attempt.placed} | {
        mover.pod.uid for mover in attempt.left
    }
    pods = [pod for pod in ground.pods() if pod.uid not in gone]
    pods += [
        Pod(mover.pod.uid, mover.pod.name, mover.pod.requirements, ground.name_of(slot))
        for mover, slot in attempt.placed
    ]
    return nodes, pods


# --- the price test


def priced(
    going: Sequence[CandidateNode],
    claims: Sequence[NewClaim],
    scene: ClusterSnapshot,
    prices: NodePrices,
    planned: Sequence[Planned] | None,
) -> Priced:
    """Tests whether new nodes are cheaper than the nodes that they replace, whichever instance type
    they are launched with. Restricts each new node to types so cheap that the saving is at least
    `scene.epsilon` (the minimum saving) in any case. The result has a refusal if that is not
    possible.

    The best saving is the price of the removed nodes less the price of the new nodes with their
    cheapest types. Each new node gets a price ceiling: the price of its cheapest type plus an
    allowed increase. The sum of all increases is at first half of the best saving. If that fails,
    it is the best saving less `epsilon`. The sum is divided among the new nodes in proportion to
    their cheapest prices.

    Example: the removed nodes cost $10 and the cheapest type of the one new node costs $6. The best
    saving is $4, half of it is $2. Types up to $8 are kept, and at least $2 is saved.

    `going`: the nodes to remove.
    `claims`: the new nodes with their possible instance types.
    `planned`: the new nodes of a command that was proposed before and is now checked again; None:
      the command is new. With `planned`, each new node is restricted to the types proposed for it,
      and all of these types must pass. The sum of all increases is then the best saving less
      `epsilon`.
    """
    pools = {pool.name: pool for pool in scene.pools}
    offers = [_Offer.of(claim, pools[claim.pool], prices) for claim in claims]
    if planned is not None:
        refusal = _as_planned(offers, planned)
        if refusal:
            return Priced(refusal=refusal)
    spent = sum(looked.price for looked in going)
    least = [offer.least for offer in offers]
    if not all(price < NO_PRICE for price in least):
        return Priced(refusal="what could hold it is not to be had")
    surplus = spent - scene.epsilon - sum(least)
    if surplus < 0:
        return Priced(refusal=_too_dear(going, sum(least), scene.epsilon))
    last = Priced()
    # What is proposed again is held against all that may be spent; what is found again first
    # against half the saving.
    for spare in (
        (surplus,) if planned is not None else (min(surplus, (spent - sum(least)) // 2), surplus)
    ):
        ceilings = [price + spare * price // max(1, sum(least)) + 1 for price in least]
        last = _below(going, offers, ceilings, scene, spent)
        if not last.refusal:
            break
    if planned is not None and not last.refusal:
        said = [set(() if p is None else p.instance_types) for p in _matched(offers, planned)]
        if any(
            not types <= set(claim.instance_types)
            for types, claim in zip(said, last.claims, strict=True)
        ):
            return Priced(
                refusal="some of the instance types that were proposed are not cheaper any more"
            )
    return last


@dataclass(slots=True)
class _Offer:
    """A claim with the instance types it may be launched with. `types`: the catalogue of its pool.
    `labels`: the labels of the new node. `among` bool[types]: the rows of the catalogue that are
    allowed."""

    claim: NewClaim
    types: Types
    labels: LabelSet
    among: Mask

    @classmethod
    def of(cls, claim: NewClaim, pool: NodePoolPolicy, prices: NodePrices) -> _Offer:
        template = prices.template(pool)
        labels = template.labels.intersect(LabelSet.of_pool(claim.requirements))
        return cls(
            claim,
            template.types,
            labels,
            mask_of(template.types, claim.instance_types) & template.able,
        )

    @property
    def least(self) -> int:
        found = self.types.cheapest(self.labels)[self.among]
        return int(found.min()) if len(found) else NO_PRICE


def _below(
    going: Sequence[CandidateNode],
    offers: Sequence[_Offer],
    ceilings: Sequence[int],
    scene: ClusterSnapshot,
    spent: int,
) -> Priced:
    """Restricts each new node to the instance types that cost less than its ceiling, in whatever
    zone they are launched. The result has a refusal, for example, if no type remains for a new
    node, or if the saving with the most expensive remaining prices is below `scene.epsilon`.

    Two cases have further limits. If several nodes are removed and a new node can have the instance
    type of one of them, this new node must also cost less than that removed node. If all removed
    nodes are spot nodes, `scene.options.spot_to_spot` decides whether spot nodes may replace them.

    `going`: the nodes to remove.
    `offers`: the new nodes with their possible instance types.
    `ceilings`: one price for each of `offers`, exclusive.
    `spent`: the price of the nodes to remove.

    All prices are in billionths of a dollar an hour. Example: the ceiling is $8. Types at $6 and $7
    are kept, a type at $8 is not.
    """
    kept, worst = [], 0
    all_spot = all(looked.bought.capacity_type == "spot" for looked in going)
    of_going = [(looked.bought.instance_type, looked.price) for looked in going]
    for offer, ceiling in zip(offers, ceilings, strict=True):
        if len(going) > 1:
            same = launch.same_type_ceiling(offer.types, offer.among, of_going)
            ceiling = ceiling if same is None else min(ceiling, same)
        minimum = scene.options.min_values
        if all_spot:
            found = launch.replacing_spot(
                offer.types,
                offer.among,
                offer.labels,
                ceiling,
                len(going),
                allowed=scene.options.spot_to_spot,
                min_values=minimum,
            )
        else:
            found = launch.cheaper_than(offer.types, offer.among, offer.labels, ceiling, minimum)
        if found.refusal or found.price is None:
            return Priced(refusal=found.refusal or "nothing cheaper is offered")
        launched = launch.truncated(offer.types, found.among, found.labels, minimum)
        if launched.refusal:
            return Priced(refusal=launched.refusal)
        worst += found.price.worst
        kept.append(
            replace(
                offer.claim,
                requirements=found.labels.requirements(),
                instance_types=launched.instance_types,
                price=found.price.least,
                worst_price=found.price.worst,
            )
        )
    saving = spent - worst
    if saving < scene.epsilon:
        return Priced(refusal=_too_dear(going, worst, scene.epsilon))
    return Priced(tuple(kept), saving)


def _as_planned(offers: list[_Offer], planned: Sequence[Planned]) -> str:
    """Restricts each claim to the types that were proposed for it. Returns why that is not
    possible; empty if it is."""
    if len(offers) > len(planned):
        return f"it takes {_count(len(offers), 'new node')} now, and {len(planned)} were proposed"
    for offer, said in zip(offers, _matched(offers, planned), strict=True):
        if said is None:
            return "what was proposed does not hold what has to move now"
        offer.among = offer.among & mask_of(offer.types, said.instance_types)
    return ""


def _matched(offers: Sequence[_Offer], planned: Sequence[Planned]) -> list[Planned | None]:
    """Matches the new nodes `offers` to the new nodes that were proposed earlier (`planned`), by
    first fit. Returns one entry for each of `offers`: the proposed node, or None if no proposed
    node matches.

    A proposed node matches if it has the same pool, each of its instance types can hold the pods of
    the new node, and no earlier entry of `offers` got it.

    Example: the new nodes A and B, both of pool p, can have the types {m, l} and {l}. The proposed
    nodes are P with {l} and Q with {m}, both of pool p. A gets P, and B gets None.
    """
    free = list(planned)
    found: list[Planned | None] = []
    for offer in offers:
        fits = set(offer.claim.instance_types)
        at = next(
            (
                i
                for i, p in enumerate(free)
                if p.pool == offer.claim.pool and fits.issuperset(p.instance_types)
            ),
            None,
        )
        found.append(None if at is None else free.pop(at))
    return found


# --- in words


def arithmetic(going: Sequence[CandidateNode], claims: Iterable[NewClaim], saving: int) -> str:
    """Describes the price of a command in words: the removed nodes, the new nodes, and the saving.
    If the highest possible price of a new node differs from its lowest price, both are given.

    `going`: the nodes to remove. `claims`: the new nodes. `saving`: billionths of a dollar an hour;
      a negative saving is an additional cost.

    Example: `3 nodes: 3 x m5.xlarge at 0.192 $/h = 0.576 $/h; 1 new node: m5.xlarge at 0.192 $/h;
    saves 0.384 $/h`.
    """
    spent = sum(looked.price for looked in going)
    parts = [_gone(going, spent)]
    new = list(claims)
    if new:
        parts.append(f"{_count(len(new), 'new node')}: " + ", ".join(_told(claim) for claim in new))
    parts.append(
        f"saves {dollars(saving)}" if saving >= 0 else f"costs up to {dollars(-saving)} more"
    )
    return "; ".join(parts)


def _gone(going: Sequence[CandidateNode], spent: int) -> str:
    by_kind: dict[tuple[str, int], int] = {}
    for looked in going:
        key = (looked.bought.instance_type or "a node of unknown type", looked.price)
        by_kind[key] = by_kind.get(key, 0) + 1
    told = [
        f"{count} x {kind} at {dollars(price)}" for (kind, price), count in sorted(by_kind.items())
    ]
    total = f" = {dollars(spent)}" if len(going) > 1 else ""
    return f"{_count(len(going), 'node')}: {', '.join(told)}{total}"


def _told(claim: NewClaim) -> str:
    kind = claim.instance_types[0] if claim.instance_types else "?"
    others = f" or {len(claim.instance_types) - 1} others" if len(claim.instance_types) > 1 else ""
    worst = f", {dollars(claim.worst_price)} at worst" if claim.worst_price != claim.price else ""
    return f"{kind}{others} at {dollars(claim.price)}{worst}"


def _too_dear(going: Sequence[CandidateNode], least: int, epsilon: int) -> str:
    spent = sum(looked.price for looked in going)
    return (
        f"it costs {dollars(spent)} and new nodes would cost {dollars(least)}, "
        f"which does not save {dollars(epsilon)}"
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
