"""Topic `wharfinger.policies`: what users applied.

State model: key = kind/namespace/name; each PolicyApplied is the whole state of its key. PolicyRemoved ends it.
"""

from __future__ import annotations

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value


class PolicyApplied(Value, frozen=True):
    policy: Policy


class PolicyRemoved(Value, frozen=True):
    kind: str
    name: str
    namespace: str = ""
