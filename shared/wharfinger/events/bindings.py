"""Topic `wharfinger.bindings`: what is to be placed.

State model: key = binding name; each BindingRequested is the whole state of its key.
BindingWithdrawn ends it and lets its replicas go.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.ids import BindingName, Bounded
from wharfinger.domain.value import Value


class BindingRequested(Value, frozen=True):
    binding: Binding


class BindingWithdrawn(Value, frozen=True):
    name: Bounded[BindingName]
