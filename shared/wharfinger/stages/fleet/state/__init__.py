"""The state of the fleet stage. Nothing here imports what decides.

Recorded, and dumped by `saved.py`: `bindings`, `clusters`, `proposals`, `selections` and what
`quotas` and `moves` cannot derive. Derived, and rebuilt by `rebuild`: `indexes`, `waiting`,
`estimates`. `fleet` holds all of them together.
"""

from wharfinger.stages.fleet.state.bindings import BindingState
from wharfinger.stages.fleet.state.fleet import FleetState
from wharfinger.stages.fleet.state.proposals import Proposal
from wharfinger.stages.fleet.state.waiting import WaitingGroup

__all__ = ["BindingState", "FleetState", "Proposal", "WaitingGroup"]
