"""Topic `wharfinger.effects`: what API servers answered to the writes of actuators.

Each message is a fact about the past and replaces none. It is no proof that something is done: what
a cluster looks like is said by its collector. The cluster stage takes in only messages in which
something was not carried out as decided (`against_decision`): a node did not take a pod, or a pod
that was to make room was not evicted. The others are for readers.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.actuation import Verb
from wharfinger.domain.ids import (
    BindingName,
    Bounded,
    ClusterName,
    EventId,
    NamespaceName,
    NodeName,
    PodUid,
    Remark,
    StreamName,
    Token,
    Word,
)
from wharfinger.domain.value import Value

ITEMS_MAX = 100
"""Of one message."""

AnswerOutcome = Literal["done", "gone", "conflict", "blocked", "refused", "forbidden", "rejected"]
"""`done`: accepted, or it was so already. `gone`: the object is not there any more, or another one
has its name. `conflict`: it is bound already, or was changed under us. `blocked`: not now (a
budget, a scheduling gate), for longer than a short while. `refused`: the server will say the same
again. `forbidden`: a right is missing. `rejected`: the server bound the pod, and the kubelet of the
node did not admit it: the pod has failed without a container that ran."""


class EffectAnswer(Value, frozen=True):
    """The answer about one object. `stream`, `seq`, `decision`: of the decision that was carried
    out; empty where a decision has ended. `action`: such as `bind-pod`. `name`, `uid`: of the
    object; a node has no uid here. `binding`, `node`: of a pod that was to be bound. `code`: of
    HTTP; 0: there was no answer, or none was asked for. `reason`, `message`: in the words of the
    server or the kubelet. `attempts`: requests with this outcome in a row; `after_us`: time from
    the first of them to this answer. `preemptor`: of a pod that was to be evicted, the uid of the
    waiting pod for which."""

    stream: StreamName
    seq: int
    decision: EventId
    verb: Verb
    action: Word
    kind: Word
    namespace: NamespaceName
    name: Token
    uid: PodUid
    outcome: AnswerOutcome
    binding: BindingName = ""
    node: NodeName = ""
    code: int = 0
    reason: Word = ""
    message: Remark = ""
    attempts: int = 1
    after_us: int = 0
    preemptor: PodUid = ""

    @property
    def against_placement(self) -> bool:
        """Whether it says that a node did not take a pod that was placed there."""
        placed = self.verb == "bind" and bool(self.binding and self.node)
        return placed and self.outcome in ("refused", "rejected")

    @property
    def against_preemption(self) -> bool:
        """Whether it says that a pod which was to make room for another one is not evicted."""
        return bool(self.preemptor) and self.outcome in ("blocked", "refused", "forbidden")

    @property
    def against_decision(self) -> bool:
        """Whether the cluster stage decides about it."""
        return self.against_placement or self.against_preemption


class EffectsObserved(Value, frozen=True):
    """Answers of one cluster's API server, in the order in which they came."""

    cluster: Bounded[ClusterName]
    items: tuple[EffectAnswer, ...]

    @property
    def against_decision(self) -> bool:
        return any(item.against_decision for item in self.items)
