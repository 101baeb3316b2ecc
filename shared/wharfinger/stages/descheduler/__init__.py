"""What should be moved, let go or taken away: proposals, never decisions.

`observer` folds what is known of clusters and bindings, and proposes; `emptiness` has the rule about nodes; `causes` keeps
why each proposal is made and when it may be made again; `facts` is what is known. The stage that owns the target decides.
"""

from wharfinger.stages.descheduler.facts import DeschedulerState
from wharfinger.stages.descheduler.observer import DeschedulerObserver

__all__ = ["DeschedulerObserver", "DeschedulerState"]
