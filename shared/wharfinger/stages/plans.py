"""What the two stages have in common when they are asked to carry out a plan: comparing what was expected with what is found.

A plan is refused for one of two reasons. Something that its steps replace was replaced by somebody else meanwhile: to go on would
undo that unseen, so the outcome is not even asked for. Or the same steps lead elsewhere now. Whatever else has changed does not
matter as long as the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from wharfinger.domain.value import digest
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import Outcome, PlanRefused
from wharfinger.events.plans import PlanRequested, StepData

CHANGED_MAX = 12
"""So many changed inputs are named."""

NAME_LENGTH_MAX = 120
"""Of each: a decision has to fit into one message."""

TIME = "time"
"""Named where nothing that was looked at has changed: a taint was borne for longer, a lease has ended."""

ENGINE_NAME = "engine"
DIGEST_LENGTH = 8


def short_digest(value: object) -> str:
    return digest(value, DIGEST_LENGTH)


def facts_name(cluster: str) -> str:
    return f"cluster/{cluster} facts"


def capacity_name(cluster: str) -> str:
    return f"cluster/{cluster} capacity"


def nodes_name(cluster: str, bucket: int) -> str:
    return f"cluster/{cluster} nodes/{bucket}"


def node_name(cluster: str, node: str) -> str:
    return f"node/{cluster}/{node}"


def binding_name(binding: str) -> str:
    return f"binding/{binding}"


def placement_name(binding: str) -> str:
    return f"binding/{binding} placement"


def replaced(data: StepData) -> str | None:
    """The name of what a step replaces; None: a proposal replaces nothing."""
    match data:
        case ClusterObserved(cluster=cluster):
            return facts_name(cluster.name)
        case ClusterForgotten(name=name):
            return facts_name(name)
        case NodesObserved():
            return nodes_name(data.cluster, data.bucket)
        case BindingRequested(binding=binding):
            return binding_name(binding.name)
        case BindingWithdrawn(name=name):
            return binding_name(name)
        case _:
            return None


def refusal(
    request: PlanRequested, now: Mapping[str, str], found: Sequence[Outcome], decided_since: Iterable[str]
) -> PlanRefused | None:
    """Why the plan cannot be carried out; None: it can. `now`: today's digests of what the plan looked at. `found`: what comes of
    the steps today. `decided_since`: names of placements that took room since, where that is known."""
    changed = [name for name, was in request.basis.items() if now.get(name, "") != was]
    own = {name for step in request.steps if (name := replaced(step.data)) is not None}
    lost = [name for name in changed if name in own]
    if lost:
        return PlanRefused(request.plan, "InputChanged", lost[0], changed=_named(lost, ()))
    difference = first_difference(request.expected, found)
    if difference is None:
        return None
    subject, expected, actual = difference
    near = {subject, *_places(expected), *_places(actual)}
    names = _named([*changed, *decided_since], near)
    return PlanRefused(request.plan, "OutcomeDiffers", subject, expected, actual, names or (TIME,))


def first_difference(
    expected: Iterable[Outcome], found: Iterable[Outcome]
) -> tuple[str, Outcome | None, Outcome | None] | None:
    """The first subject, in order of name, that fares otherwise than expected, and both outcomes."""
    one, two = _by_subject(expected), _by_subject(found)
    for subject in sorted({*one, *two}):
        if one.get(subject) != two.get(subject):
            return subject, _last(one.get(subject)), _last(two.get(subject))
    return None


def _by_subject(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.subject, []).append(outcome)
    return found


def _last(outcomes: list[Outcome] | None) -> Outcome | None:
    return outcomes[-1] if outcomes else None


def _places(outcome: Outcome | None) -> Collection[str]:
    return () if outcome is None else outcome.places


def _named(names: Iterable[str], near: Collection[str]) -> tuple[str, ...]:
    """What came from outside first, for the rest mostly follows from it; then what is near: about a place or the subject of
    the difference."""

    def distance(name: str) -> int:
        subject, _, what = name.partition("/")[2].partition(" ")
        outside = 0 if what not in ("capacity", "placement") and not name.startswith("node/") else 2
        return outside + (0 if subject in near else 1)

    ordered = sorted(dict.fromkeys(names), key=distance)
    shown = tuple([name[:NAME_LENGTH_MAX] for name in ordered[:CHANGED_MAX]])
    return shown if len(ordered) <= CHANGED_MAX else (*shown, f"and {len(ordered) - CHANGED_MAX} more")
