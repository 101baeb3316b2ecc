"""The descheduler service: proposals to move, release or remove; never decisions.

`observer` folds facts about clusters and bindings, and proposes; `emptiness` has the rule for empty
nodes; `proposal_causes` tracks why and when each proposal is made; `facts` is the state. The stage
that owns the target decides.
"""

from wharfinger.stages.descheduler.facts import DeschedulerState
from wharfinger.stages.descheduler.observer import DeschedulerObserver

__all__ = ["DeschedulerObserver", "DeschedulerState"]
