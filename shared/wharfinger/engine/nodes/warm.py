"""Every kernel once, over a cluster of one node: so they are compiled for the arrays that a `Placer` makes."""

from __future__ import annotations

from typing import Any

from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTerm, PodTraits
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import compile_class
from wharfinger.engine.nodes.columns import NodeTable


def place_everything(kernels: Any) -> None:
    from wharfinger.engine.nodes.place import Placer  # it imports this module's caller

    table = NodeTable()
    table.set_usage(table.put(Node("warm", {"cpu": 1000, "memory": 1000}, labels={"zone": "a"}), closed=False), {}, ())
    placer = Placer(table, "least-allocated")
    placer._kernels = lambda looks=1: kernels  # type: ignore[method-assign]
    plain = compile_class(table, Requirements({"cpu": 1}), "plain")
    together = PodTraits(labels={"app": "warm"}, affinity=(PodTerm("zone", LabelSelector({"app": "warm"})),))
    minding = compile_class(table, Requirements({"cpu": 1}, pod=together), "minding")
    placer.choose(plain)
    placer.choose(minding)
    placer.diagnose(plain)
    placer.ranked(plain, 2)
    placer.place_batch([(plain, 2), (minding, 2)])
    placer.place_batch_seen([(plain, 1), (minding, 1)], None, 2)
