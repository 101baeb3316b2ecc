"""ImageLocality: rather where the pod's images lie already, the more bytes the better.

An image counts by the share of all nodes that have it (see `formulas.image_share`). Each container counts for itself, also
where two of them have the same image.
"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.formulas import image_share, images_score
from wharfinger.engine.framework.protocols import Cycle
from wharfinger.engine.framework.snapshot import NodeInfo


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
        """On how many nodes each image lies, whether they are feasible or not; counted once a cycle."""
        holding: dict[str, int] | None = cycle.data.get(self.name)
        if holding is None:
            everywhere = cycle.snapshot.nodes.values()
            holding = {image: sum(image in info.node.images for info in everywhere) for image in dict.fromkeys(images)}
            cycle.data[self.name] = holding
        return holding
