"""The protocol of deciders whose streams share resources and inform each other of what they used.

A round's events for the other streams are published on a topic. A process that owns several of
these streams steps them one after the other, and passes each the events of the earlier rounds
directly, without the broker. The copies that arrive from the broker later are recognised by their
ids. So within a process no stream decides on resources that another has just used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.round import Round

S_contra = TypeVar("S_contra", contravariant=True)


@runtime_checkable
class TellsPeers(Protocol[S_contra]):
    """A decider whose streams share resources. `has_peers`: whether there is more than one
    stream."""

    @property
    def has_peers(self) -> bool: ...

    def peer_events(self, state: S_contra, round_: Round) -> Sequence[Event[Value]]:
        """Returns the events that a round sends to the other streams: the same events as on the
        topic."""
        ...
