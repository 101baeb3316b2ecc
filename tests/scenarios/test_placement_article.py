"""The worked examples of Open Cluster Management's guide, told as their manifests."""

from __future__ import annotations

import pytest
from tests.placement_article import EXAMPLES, Example
from tests.scenarios.placement_plane import PlacementPlane

from wharfinger.events.decisions import PlacementDecided
from wharfinger.events.intake import compile_manifests
from wharfinger.manifests.parse import load_manifests


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_printed_decision_is_made(example: Example) -> None:
    plane = PlacementPlane()
    selected: list[str] = []
    for step in example.steps:
        loaded = load_manifests("---\n".join(step.files), "article.yaml")
        assert not loaded.errors
        intake = compile_manifests(loaded.manifests)
        assert not intake.errors
        decisions = plane.tell(*[fact.data for fact in intake.facts])
        scores = [
            g.scores
            for d in decisions
            if isinstance(d.data, PlacementDecided)
            for g in d.data.groups
        ]
        assert scores == ([] if step.totals is None else [step.totals]), step.says
        selected = selected if step.totals is None else list(step.totals)
        assert plane.selected(example.key) == selected
    assert plane.wait(3600) == []
