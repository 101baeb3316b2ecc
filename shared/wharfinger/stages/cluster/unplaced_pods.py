"""What is said of waiting pods that fit nowhere: one decision, and another one only when there is
something new to say.

The decision names the pods and gives the sentence of explain. It changes nothing: the pods wait on.
It is said of a pod in the round in which it first finds no node. After that its kind (pods of one
binding with equal requirements) is looked at every `AGAIN_US` at most, in a round that takes place
anyway, and said again where the sentence is another one. So a full cluster costs one diagnosis a
minute and kind.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wharfinger.domain.ids import PodUid
from wharfinger.events.decisions import PodsUnplaced
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.adoption import PODS_MAX
from wharfinger.stages.cluster.explain import cut, explained
from wharfinger.stages.cluster.pod_placing import AlikePods, alike, pods_to_place, why_unplaced
from wharfinger.stages.cluster.state import ClusterStageState, SaidUnplaced

AGAIN_US: Micros = 60 * 1_000_000
"""What was said of a pod is looked at again after this time."""


def say_unplaced(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Decides what is to be said of the pods that this round left without a node. A round that has
    reached its bound of work has not tried to place all of them, and says nothing."""
    if state.exhausted or not state.book.waiting.pods:
        return
    for kind in alike(state, pods_to_place(state)):
        if not any(_due(state.said.get(pod.uid), at) for pod in kind.pods):
            continue
        yield from _said_of(state, kind, at)


def _due(said: SaidUnplaced | None, at: Micros) -> bool:
    return said is None or at >= said.looked_us + AGAIN_US


def _said_of(state: ClusterStageState, kind: AlikePods, at: Micros) -> Iterator[Draft]:
    why = why_unplaced(state, kind.pods[0])
    if not why.sentence:  # it would be placed in the next round
        return
    message, diagnosis = cut(why.sentence), explained(why.diagnosis)
    uids = [pod.uid for pod in kind.pods if _is_news(state.said.get(pod.uid), message, at)]
    held = state.book.held.get(kind.binding)
    cause = uuid_of("" if held is None else held.assignment)
    for start in range(0, len(uids), PODS_MAX):
        part = tuple(uids[start : start + PODS_MAX])
        data = PodsUnplaced(state.cluster, kind.binding, part, why.reason, message, diagnosis)
        yield Draft(data, kind.binding, "unplaced", cause)


def _is_news(said: SaidUnplaced | None, message: str, at: Micros) -> bool:
    return said is None or (_due(said, at) and said.message != message)


def follow_said(state: ClusterStageState) -> None:
    """At the end of a round: forgets the pods that do not wait for a place any more, and records
    that the others were looked at."""
    if not state.said:
        return
    waiting = {pod.uid for pod in pods_to_place(state)}
    looked: dict[SaidUnplaced, SaidUnplaced] = {}
    kept: dict[PodUid, SaidUnplaced] = {}
    for uid, said in state.said.items():
        if uid not in waiting:
            continue
        if not state.unfinished and _due(said, state.at):
            if said not in looked:
                looked[said] = msgspec.structs.replace(said, looked_us=state.at)
            said = looked[said]
        kept[uid] = said
    state.said = kept


def fold_unplaced(state: ClusterStageState, data: PodsUnplaced, at: Micros) -> None:
    said = SaidUnplaced(data.binding, data.reason, data.message, at)
    for uid in data.pods:
        state.said[uid] = said
