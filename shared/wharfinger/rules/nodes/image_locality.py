"""ImageLocality: the more bytes of the pod's images a node already has, the higher its score.
[kube-scheduler]

An image counts by the share of all nodes that have it (`formulas.image_share`). Each container
counts by itself, even where two containers have the same image.

In arrays the score is one column for all pods with the same images. It changes only when a node's
facts change.
"""

from __future__ import annotations

import numpy as np

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.formulas import image_share, images_score
from wharfinger.engine.framework.protocols import Cycle
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.nodes.columns import Column
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import NodeFacts


class ImageLocality:
    name = "ImageLocality"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        images = pod.requirements.traits.images
        if not images:
            return 0
        nodes = cycle.snapshot.nodes
        holding = self._holding(cycle, images)
        total = sum(
            image_share(size, holding[image], len(nodes))
            for image in images
            if (size := node.node.images.get(image)) is not None
        )
        return images_score(total, len(images))

    def _holding(self, cycle: Cycle, images: tuple[str, ...]) -> dict[str, int]:
        """Return image -> number of nodes that have it, over all nodes of the snapshot, feasible or
        not. Computed once per cycle."""
        holding: dict[str, int] | None = cycle.data.get(self.name)
        if holding is None:
            everywhere = cycle.snapshot.nodes.values()
            holding = {
                image: sum(image in info.node.images for info in everywhere)
                for image in dict.fromkeys(images)
            }
            cycle.data[self.name] = holding
        return holding

    def form(self) -> FactColumn:
        return FactColumn(scores=self.scores, reads=lambda asked: asked.traits.images)

    def scores(self, asked: Requirements, facts: NodeFacts) -> Column | None:
        images, table = asked.traits.images, facts.table
        totals: dict[int, int] = {}
        for image in images:
            on = table.image_nodes.get(image, {})
            for slot, size in on.items():
                totals[slot] = totals.get(slot, 0) + image_share(size, len(on), len(table.rows))
        if not totals:
            return None
        column = np.zeros(table.capacity, dtype=np.int64)
        for slot, total in totals.items():
            column[slot] = images_score(total, len(images))
        return column if facts.slots is None else column[facts.slots]
