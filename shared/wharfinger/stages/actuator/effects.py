"""Effects: what has to be changed in a cluster so that it is as decided.

An effect names the object by all that identifies it, and the decision that asks for it. Two effects
are the same if they do the same to the same object: what was decided again, or read back from a
snapshot, is no second effect.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.actuation import Verb
from wharfinger.domain.ids import BindingName, ClusterName, NodeName, PodUid, Remark, Word
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value

Action = Literal["bind-pod", "mark-pod", "evict-pod", "remove-pod", "close-node", "reopen-node"]

VERB_OF: dict[Action, Verb] = {
    "bind-pod": "bind",
    "mark-pod": "bind",
    "evict-pod": "evict",
    "remove-pod": "evict",
    "close-node": "nodes",
    "reopen-node": "nodes",
}


class EffectObject(Value, frozen=True, order=True):
    """`uid`: "" where facts do not hold it. `created_us`: when the object was created, by which a
    node is told from a later one of the same name; 0: not known."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    created_us: Micros = 0

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}"


class Cause(Value, frozen=True):
    """The decision that asks for an effect. `until_us`: until when it stands; 0: no limit."""

    stream: str
    seq: int
    decision: str
    until_us: Micros = 0

    def __str__(self) -> str:
        return f"{self.stream}:{self.seq}"


_NODES, _NODES_AND_PODS = frozenset({"Node"}), frozenset({"Node", "Pod"})


class Effect(Value, frozen=True):
    """`cause`: None for the end of a decision (a node that no decision closes any more). `target`:
    the node that a pod is bound to, as replica `ordinal` of `binding`. `workload`: of a pod that is
    evicted, what it belongs to: one at a time is evicted of it. `preemptor`: uid of the waiting pod
    for which it is evicted; "": for none. `reason`, `message`: of the
    condition PodScheduled of a pod that fits nowhere."""

    cluster: ClusterName
    action: Action
    object: EffectObject
    cause: Cause | None = None
    target: NodeName = ""
    binding: BindingName = ""
    ordinal: int = -1
    priority: int = 0
    workload: str = ""
    reason: Word = ""
    message: Remark = ""
    preemptor: PodUid = ""

    @property
    def verb(self) -> Verb:
        return VERB_OF[self.action]

    @property
    def needs(self) -> frozenset[str]:
        """The kinds whose facts must be fresh for it."""
        return _NODES if self.object.kind == "Node" else _NODES_AND_PODS

    @property
    def right(self) -> str:
        """What is stopped where the right to it is missing: that a pod cannot be marked must not
        keep others from being bound."""
        return "pods/status" if self.action == "mark-pod" else self.verb

    @property
    def key(self) -> tuple[str, EffectObject, str]:
        """By which attempts at the same effect are known."""
        return self.action, self.object, self.target or self.message
