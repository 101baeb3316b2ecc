"""Every loop of Solve once, over a problem of a few pods: so they are compiled for the arrays that a `Yard` lays."""

from __future__ import annotations

from typing import Any

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import ZONE_LABEL, NodePoolPolicy
from wharfinger.domain.pod_traits import PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.kernels import FIRST_FIT, PRICED
from wharfinger.engine.provisioning.problem import Problem, Wanted


def pack_everything(kernels: Any) -> None:
    from wharfinger.engine.provisioning.packing import Yard  # it imports this module's caller

    spread = TopologySpread(ZONE_LABEL, 1, selector=LabelSelector({"app": "warm"}))
    minding = Requirements({"cpu": 1}, pod=PodTraits(labels={"app": "warm"}, spread=(spread,)))
    types = [
        InstanceType(f"t{n}", {"cpu": n, "memory": n, "pods": 9}, offerings=(Offering("a", "on-demand", n),))
        for n in (1, 2)
    ]
    problem = Problem(
        wanted=(Wanted("plain", Requirements({"cpu": 1}), 3), Wanted("minding", minding, 2)),
        pools=(NodePoolPolicy("warm"),),
        types={"default": types},
        nodes=(Node("warm", {"cpu": 1, "memory": 1}, labels={ZONE_LABEL: "a"}),),
    )
    yard = Yard(problem)
    yard.kernels = lambda pods: kernels  # type: ignore[method-assign]
    for order, mode in ((yard.queue(), FIRST_FIT), (yard.by_worth(True), PRICED)):
        yard.pack(order, mode).improve()
