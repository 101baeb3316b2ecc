"""Which container images are on which nodes, where they are reported apart from the nodes.

Images are most of a node's bytes and change while nothing else of it does. They matter for one
preference only (ImageLocality), so they are reported seldom, and by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wharfinger.events.cluster_state import ImageOnNodes, NodeImagesObserved

Images = Mapping[str, int]
"""Image -> its size in bytes."""


class NodeImages:
    """Holds the images of one cluster's nodes, as reported in buckets."""

    def __init__(self) -> None:
        self.buckets: dict[int, tuple[ImageOnNodes, ...]] = {}
        self.bucket_count = 0
        self._on: dict[int, dict[str, dict[str, int]]] = {}
        """Bucket -> node -> its images of this bucket."""

    def observe(self, event: NodeImagesObserved) -> set[str]:
        """Takes in the report of one bucket, which replaces what was known of it. Returns the nodes
        whose images changed.

        A report with another number of buckets replaces all buckets: what the others hold is then
        reported again. A report with an invalid bucket index is ignored.
        """
        if not 0 <= event.bucket < event.buckets:
            return set()
        changed: set[str] = set()
        if event.buckets != self.bucket_count:
            changed.update(node for on in self._on.values() for node in on)
            self.buckets, self._on, self.bucket_count = {}, {}, event.buckets
        if self.buckets.get(event.bucket, ()) == event.images:
            return changed
        before, now = self._on.get(event.bucket, {}), _by_node(event.images)
        if event.images:
            self.buckets[event.bucket], self._on[event.bucket] = event.images, now
        else:
            del self.buckets[event.bucket], self._on[event.bucket]
        changed.update(n for n in (*before, *now) if before.get(n) != now.get(n))
        return changed

    def on(self, node: str) -> dict[str, int]:
        """Returns the images of a node in order of name; empty if none were reported."""
        found = [item for images in self._of(node) for item in images.items()]
        return dict(sorted(found))

    def _of(self, node: str) -> Iterator[Images]:
        for on in self._on.values():
            if (images := on.get(node)) is not None:
                yield images


def _by_node(images: tuple[ImageOnNodes, ...]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for image in images:
        for node in image.nodes:
            found.setdefault(node, {})[image.name] = image.bytes
    return found
