"""The settings that reach the decisions of a cluster stream. Their text is hashed with every round."""

from __future__ import annotations

from typing import Self, get_args

from wharfinger.domain.value import Value
from wharfinger.engine.nodes.score import Strategy


class ClusterProfile(Value, frozen=True):
    """`strategy`: spread replicas over emptier nodes (`least-allocated`) or fill nodes up (`most-allocated`)."""

    strategy: Strategy = "least-allocated"

    @property
    def text(self) -> str:
        return f"cluster(strategy={self.strategy})"

    @classmethod
    def of(cls, text: str) -> Self:
        """The profile with this text; the default one when there is none."""
        return next((p for p in map(cls, get_args(Strategy)) if p.text == text), cls())
