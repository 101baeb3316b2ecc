"""Nodes to be made in the place of others, and whether that is cheaper however they are launched.

What found no place elsewhere is put on new nodes by `provisioning.solve`. Then the price test: what goes, by its very
offerings, against what comes, at the worst it may become. Of the types that would do those are kept which leave at
least half of the best saving: so there is a choice where a type is sold out, and what is promised is of the size of
what comes true. [Karpenter keeps all that are cheaper by any amount, and has one new node at most.]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import msgspec

from wharfinger.domain.instance_types import dollars
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.candidates import Looked
from wharfinger.engine.disruption.prices import Prices
from wharfinger.engine.disruption.removal import Attempt, Ground, Mover
from wharfinger.engine.disruption.scene import Scene
from wharfinger.engine.provisioning import launch
from wharfinger.engine.provisioning.catalogue import NO_PRICE, Mask, Types, mask_of
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Wanted
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.shop import Shop
from wharfinger.engine.provisioning.solve import solve


class Planned(Protocol):
    """A replacement as it was proposed."""

    @property
    def pool(self) -> str: ...
    @property
    def instance_types(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Seats:
    """New nodes, and who goes to which: the number of the claim for each mover, in the attempt's order of what was left.
    `refusal`: why there are none; empty when there are."""

    claims: tuple[NewClaim, ...] = ()
    of: tuple[int, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Priced:
    """`saving`: at the worst. `refusal`: why it does not pay; empty when it does."""

    claims: tuple[NewClaim, ...] = ()
    saving: int = 0
    refusal: str = ""


# --- the nodes


def seats(
    ground: Ground,
    scene: Scene,
    attempt: Attempt,
    pools: Sequence[NodePoolPolicy],
    used: Mapping[str, Mapping[str, int]],
    shop: Shop,
    enough: int = 0,
) -> Seats:
    """Nodes of `pools` for all that was left. `used`: of their limits. `enough`: see `solve`."""
    minding = not all(ground.simple(mover.row) for mover in attempt.left)
    lots = _lots(ground, attempt.left, minding)
    wanted = [Wanted(str(i), lot.requirements, len(lot.numbers), lot.priority) for i, lot in enumerate(lots)]
    nodes, pods = _surroundings(ground, scene, attempt) if minding else ((), ())
    found = solve(
        Problem(
            wanted, pools, scene.types, scene.overlays, nodes, pods, scene.objects, avoid=frozenset(attempt.nodes),
            used=used, sold_out=scene.sold_out, options=replace(scene.options, reserved_strict=False),
        ),
        shop, enough,
    )  # fmt: skip
    if found.unplaced:
        first = found.unplaced[0]
        return Seats(refusal=first.reason)
    if found.placed or found.joined:
        return Seats(refusal="a node that takes nothing new was given something")
    return _seated(attempt.left, lots, found.claims)


@dataclass(slots=True)
class _Lot:
    """Movers that are alike for any node, by their numbers."""

    requirements: Requirements
    priority: int
    numbers: list[int] = field(default_factory=list)


def _lots(ground: Ground, left: Sequence[Mover], minding: bool) -> list[_Lot]:
    """Where nobody is `minding` anybody, pods are told apart by no label."""
    found: dict[tuple[int, int], _Lot] = {}
    for number, mover in enumerate(left):
        row, requirements = (mover.row, mover.cls.requirements) if minding else ground.alone(mover.row)
        key = row, mover.pod.priority
        if key not in found:
            found[key] = _Lot(requirements, mover.pod.priority)
        found[key].numbers.append(number)
    return list(found.values())


def _seated(left: Sequence[Mover], lots: Sequence[_Lot], claims: Sequence[NewClaim]) -> Seats:
    """Each mover its claim; claims name bindings and pods instead of our numbers."""
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
    """Replicas of ours by their binding, pods of others by themselves."""
    return pod.binding if pod.binding and pod.ordinal >= 0 else pod.uid


def _surroundings(ground: Ground, scene: Scene, attempt: Attempt) -> tuple[Sequence[Node], Sequence[Pod]]:
    """Everybody who is there once the attempt is made, for those who mind others. Nodes take nothing here: whatever fits
    on one has been put there."""
    nodes = [msgspec.structs.replace(node, unschedulable=True) for node in (*scene.nodes, *ground.expected)]
    gone = {mover.pod.uid for mover, _ in attempt.placed} | {mover.pod.uid for mover in attempt.left}
    pods = [pod for pod in ground.pods() if pod.uid not in gone]
    pods += [
        Pod(mover.pod.uid, mover.pod.name, mover.pod.requirements, ground.name_of(slot))
        for mover, slot in attempt.placed
    ]
    return nodes, pods


# --- the price test


def priced(
    going: Sequence[Looked], claims: Sequence[NewClaim], scene: Scene, prices: Prices, planned: Sequence[Planned] | None
) -> Priced:
    """`planned`: each claim's instance types as they were proposed, which must all pass; None: those that pass are kept."""
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
    # What is proposed again is held against all that may be spent; what is found anew first against half the saving.
    for spare in (surplus,) if planned is not None else (min(surplus, (spent - sum(least)) // 2), surplus):
        ceilings = [price + spare * price // max(1, sum(least)) + 1 for price in least]
        last = _below(going, offers, ceilings, scene, spent)
        if not last.refusal:
            break
    if planned is not None and not last.refusal:
        said = [set(() if p is None else p.instance_types) for p in _matched(offers, planned)]
        if any(not types <= set(claim.instance_types) for types, claim in zip(said, last.claims, strict=True)):
            return Priced(refusal="some of the instance types that were proposed are not cheaper any more")
    return last


@dataclass(slots=True)
class _Offer:
    """A claim with the types it could be. `among` bool[types]."""

    claim: NewClaim
    types: Types
    labels: LabelSet
    among: Mask

    @classmethod
    def of(cls, claim: NewClaim, pool: NodePoolPolicy, prices: Prices) -> _Offer:
        template = prices.template(pool)
        labels = template.labels.intersect(LabelSet.of_pool(claim.requirements))
        return cls(claim, template.types, labels, mask_of(template.types, claim.instance_types) & template.able)

    @property
    def least(self) -> int:
        found = self.types.cheapest(self.labels)[self.among]
        return int(found.min()) if len(found) else NO_PRICE


def _below(
    going: Sequence[Looked], offers: Sequence[_Offer], ceilings: Sequence[int], scene: Scene, spent: int
) -> Priced:
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
                offer.types, offer.among, offer.labels, ceiling, len(going), allowed=scene.options.spot_to_spot,
                min_values=minimum,
            )  # fmt: skip
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
                offer.claim, requirements=found.labels.requirements(), instance_types=launched.instance_types,
                price=found.price.least, worst_price=found.price.worst,
            )
        )  # fmt: skip
    saving = spent - worst
    if saving < scene.epsilon:
        return Priced(refusal=_too_dear(going, worst, scene.epsilon))
    return Priced(tuple(kept), saving)


def _as_planned(offers: list[_Offer], planned: Sequence[Planned]) -> str:
    """Bounds each offer to what was proposed for it; why not, else empty."""
    if len(offers) > len(planned):
        return f"it takes {_count(len(offers), 'new node')} now, and {len(planned)} were proposed"
    for offer, said in zip(offers, _matched(offers, planned), strict=True):
        if said is None:
            return "what was proposed does not hold what has to move now"
        offer.among = offer.among & mask_of(offer.types, said.instance_types)
    return ""


def _matched(offers: Sequence[_Offer], planned: Sequence[Planned]) -> list[Planned | None]:
    """For each offer a proposed node of its pool whose types could all hold it, each used once, the first that will do."""
    free = list(planned)
    found: list[Planned | None] = []
    for offer in offers:
        fits = set(offer.claim.instance_types)
        at = next(
            (i for i, p in enumerate(free) if p.pool == offer.claim.pool and fits.issuperset(p.instance_types)), None
        )
        found.append(None if at is None else free.pop(at))
    return found


# --- in words


def arithmetic(going: Sequence[Looked], claims: Iterable[NewClaim], saving: int) -> str:
    """`3 nodes at 0.192 $/h = 0.576 $/h; 1 new node, m5.xlarge at 0.192 $/h; saves 0.384 $/h`. What a replacement may
    cost at worst is told where it differs."""
    spent = sum(looked.price for looked in going)
    parts = [_gone(going, spent)]
    new = list(claims)
    if new:
        parts.append(f"{_count(len(new), 'new node')}: " + ", ".join(_told(claim) for claim in new))
    parts.append(f"saves {dollars(saving)}" if saving >= 0 else f"costs up to {dollars(-saving)} more")
    return "; ".join(parts)


def _gone(going: Sequence[Looked], spent: int) -> str:
    by_kind: dict[tuple[str, int], int] = {}
    for looked in going:
        key = (looked.bought.instance_type or "a node of unknown type", looked.price)
        by_kind[key] = by_kind.get(key, 0) + 1
    told = [f"{count} x {kind} at {dollars(price)}" for (kind, price), count in sorted(by_kind.items())]
    total = f" = {dollars(spent)}" if len(going) > 1 else ""
    return f"{_count(len(going), 'node')}: {', '.join(told)}{total}"


def _told(claim: NewClaim) -> str:
    kind = claim.instance_types[0] if claim.instance_types else "?"
    others = f" or {len(claim.instance_types) - 1} others" if len(claim.instance_types) > 1 else ""
    worst = f", {dollars(claim.worst_price)} at worst" if claim.worst_price != claim.price else ""
    return f"{kind}{others} at {dollars(claim.price)}{worst}"


def _too_dear(going: Sequence[Looked], least: int, epsilon: int) -> str:
    spent = sum(looked.price for looked in going)
    return (
        f"it costs {dollars(spent)} and new nodes would cost {dollars(least)}, which does not save {dollars(epsilon)}"
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
