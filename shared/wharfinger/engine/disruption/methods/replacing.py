"""Replaces nodes by cheaper ones. The tests go from cheap to exact: the lower bound on the price, a
quick packing by cpu and memory, and last the exact packing with its price test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from wharfinger.domain.text import dollars
from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import Method
from wharfinger.engine.disruption.consolidation_pass import WAITS, ConsolidationPass, pods_of
from wharfinger.engine.disruption.removal import Attempt, Mover
from wharfinger.engine.disruption.replacement import arithmetic, priced, seats
from wharfinger.engine.provisioning.catalogue import NO_PRICE

SLACK = 100
"""The quick price estimate is lowered by one part in SLACK + 1 before it is tested, because the
exact packing may be a little cheaper. Only nodes that pass this test are packed exactly."""


def replaced(
    run: ConsolidationPass, going: list[CandidateNode], attempt: Attempt, method: Method
) -> bool:
    """Replaces nodes by cheaper new nodes if the saving is at least 1/32 of the price of the
    removed nodes, and at least `scene.epsilon` (`run.gain` computes this minimum). For the policy
    `Balanced`, the saving must also be worth the disruption. Returns whether the nodes were
    replaced. If not, and `going` is a single node, a verdict that says why is recorded.

    The tests go from cheap to exact: a lower bound on the price of new nodes, a quick approximation
    of this price, and last the exact packing of the pods with its price.

    `going`: the nodes to remove.
    `attempt`: the simulated removal; the pods in `attempt.left` fit on no existing node and need
      new nodes.

    Example: the removed nodes cost $3.20 an hour, so at least $0.10 must be saved. If new nodes
    cost at least $3.15, the first test fails.
    """
    if attempt.waits:
        run.say_alone(going, "Waits", WAITS)
        return False
    spent = sum(looked.price for looked in going)
    least = least_price(run, attempt.left)
    if spent - least < run.gain(spent):
        if len(going) == 1:
            run.say(going[0], "NotCheaper", _floor_sentence(run, going[0], attempt, least))
        return False
    if not run.worth_it(going, spent - least, method):
        return False
    about = run.floors.about([mover.pod.requirements.requests for mover in attempt.left])
    if spent - about * SLACK // (SLACK + 1) < run.gain(spent):
        run.say_alone(going, "NotCheaper", _quick_sentence(run, going[0], attempt, about))
        return False
    # What is as cheap as a quick packing by cpu and memory alone need not be packed better.
    found = seats(
        run.simulation, run.scene, attempt, run.buying, run.used, run.prices.type_index, about
    )
    if found.refusal:
        run.say_alone(
            going, "NoRoom", f"{pods_of(attempt.left)} would need a new node: {found.refusal}"
        )
        return False
    judged = priced(going, found.claims, run.scene, run.prices, None)
    if judged.refusal:
        run.say_alone(
            going, "NotCheaper", f"{pods_of(attempt.left)} would need a new node: {judged.refusal}"
        )
        return False
    if spent - sum(claim.price for claim in judged.claims) < run.gain(spent):
        run.say_alone(
            going,
            "NotCheaper",
            f"{arithmetic(going, judged.claims, judged.saving)}, which is too little",
        )
        return False
    if not run.worth_it(going, judged.saving, method):
        return False
    run.take(method, going, attempt, replace(found, claims=judged.claims), judged.saving)
    return True


def least_price(run: ConsolidationPass, left: Sequence[Mover]) -> int:
    if not left:
        return 0
    requests = [mover.pod.requirements.requests for mover in left]
    return run.floors.least(
        sum(r.get("cpu", 0) for r in requests), sum(r.get("memory", 0) for r in requests)
    )


def _floor_sentence(
    run: ConsolidationPass, looked: CandidateNode, attempt: Attempt, least: int
) -> str:
    if least >= NO_PRICE:
        return f"{pods_of(attempt.left)} would need a new node, and no pool can make one"
    return (
        f"{pods_of(attempt.left)} of {len(looked.pods)} would need new nodes, "
        f"which cost at least {dollars(least)}; it costs "
        f"{dollars(looked.price)}, and less than {dollars(run.gain(looked.price))} would be saved"
    )


def _quick_sentence(
    run: ConsolidationPass, looked: CandidateNode, attempt: Attempt, about: int
) -> str:
    return (
        f"{pods_of(attempt.left)} of {len(looked.pods)} would need new nodes, "
        f"which cost about {dollars(about)}; it costs "
        f"{dollars(looked.price)}, and less than {dollars(run.gain(looked.price))} would be saved"
    )


def wasteful(
    run: ConsolidationPass, candidates: Iterable[CandidateNode]
) -> list[tuple[CandidateNode, int]]:
    """Returns the candidates with an upper bound on the saving of each: its price less the lower
    bound on the price of nodes for its pods. Nodes that are removed or receive pods in this pass
    are left out. Sorted by this bound per disruption cost, highest first, then by name."""
    found = []
    for looked in candidates:
        if looked.name not in run.gone and looked.name not in run.receiving:
            found.append((looked, looked.price - run.floors.least(*looked.asks())))
    found.sort(key=lambda pair: (-(pair[1] * 1000 // pair[0].cost), pair[0].name))
    return found
