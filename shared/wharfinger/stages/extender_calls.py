"""Calls to external services that a stage's decisions depend on: scheduler extenders.

Making a call is a decision, the open calls are a function of the state, and the answer is an input
(`ExtenderAnswered`). So calls are repeated after a restart and never made in a replay. The runtime
makes them (`runtime.extender_client`); the kernel does not know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from wharfinger.domain.scheduler import Extender
from wharfinger.domain.value import Value

S_contra = TypeVar("S_contra", contravariant=True)


class ExtenderCall(Value, frozen=True):
    """Describes one call: `body` (JSON text) is posted to the extender's `url`/`verb`. `id`: id of
    the decision to make the call, which tells apart the answers to two equal calls."""

    id: str
    extender: Extender
    verb: str
    body: str


@runtime_checkable
class CallsExtenders(Protocol[S_contra]):
    """A decider with calls to extenders."""

    def asks(self, state: S_contra) -> Sequence[ExtenderCall]:
        """Returns the open calls in a fixed order. The runtime makes them before the next
        decisions. The result stays the same until the answers are folded."""
        ...
