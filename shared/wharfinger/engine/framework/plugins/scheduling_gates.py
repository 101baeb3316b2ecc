"""SchedulingGates: a pod with gates is not tried until all of them are removed. [kube-scheduler]"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Hint
from wharfinger.engine.framework.status import Status, unresolvable


class SchedulingGates:
    name = "SchedulingGates"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_enqueue(self, pod: Pod) -> Status | None:
        gates = pod.requirements.traits.gates
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]") if gates else None

    def hints(self) -> tuple[Hint, ...]:
        """Return the event after which the pod is tried again: a change of the pod's own gates."""
        return (Hint("pod/gates", _ungated),)


def _ungated(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is not None and new.uid == pod.uid and not new.requirements.traits.gates
