"""DefaultBinder: binds the pod to the chosen node. Here a binding is a decision in the ledger, so
it cannot fail."""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle
from wharfinger.engine.framework.status import Status


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def bind(self, cycle: Cycle, pod: Pod, node: str) -> Status | None:
        return None
