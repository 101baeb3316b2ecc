"""The fleet stage: bindings to clusters and replicas.

`state` is what it remembers and how facts and decisions change that, `places` what a binding may use right now and how
its replicas would be divided, `decider` what is decided in which order, `explain` the recorded explanation, `saved` the
state as bytes.
"""

from __future__ import annotations

from wharfinger.stages.fleet.decider import FleetDecider
from wharfinger.stages.fleet.state import FleetState

__all__ = ["FleetDecider", "FleetState"]
