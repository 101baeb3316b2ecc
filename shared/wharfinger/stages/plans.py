"""Shared by both stages when a plan is committed: comparing the expected outcome with the present
one.

A plan is refused for one of two reasons: something that its steps replace was replaced since, so
that committing would undo it unseen (the outcome is not even computed then); or the same steps have
another outcome now. Other changes do not matter as long as the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import assert_never
from uuid import UUID

from wharfinger.domain.value import digest
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import PlanAnswer, PlanCommitted, PlannedOutcome, PlanRefused
from wharfinger.events.decisions.steps import differing_keys
from wharfinger.events.plans import PlanRequested, Step, StepData
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.kernel.decider import Decision, Draft, Micros, S
from wharfinger.kernel.folds import DecisionFolds

CHANGED_MAX = 12
"""Maximum number of changed inputs that a refusal names."""

NAME_LENGTH_MAX = 120
"""Maximum length of each name, because a decision has to fit into one message."""

TIME = "time"
"""Named as the change if no input has changed: only time has passed, so that a toleration or a
lease has ended."""

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
    """Returns the name of the input that one step of a plan replaces: the facts of a cluster, a
    bucket of nodes, or a binding. None for a proposal, because a proposal replaces no input."""
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
        case FailoverProposed() | EvictionProposed() | RescheduleProposed() | NodeRemovalProposed():
            return None
        case _:
            assert_never(data)


def answer_requests(
    requests: Mapping[UUID, PlanRequested],
    why_not: Callable[[PlanRequested], PlanAnswer | None],
    rules: Callable[[], Iterator[Draft]],
) -> Iterator[Draft]:
    """Answers each request to carry out a plan. Yields a refusal if the plan cannot be committed.
    Otherwise yields the commitment, followed by the decisions that result from the committed plan.

    `requests`: event id -> open request. `why_not`: returns the refusal of a request; None: the
    plan is committed. `rules`: makes the decisions of a round; it is called after each commitment.
    """
    for id, request in list(requests.items()):
        no = why_not(request)
        if no is not None:
            yield Draft(no, request.plan, "refused", id)
            continue
        yield Draft(PlanCommitted(request.plan, len(request.steps)), request.plan, "committed", id)
        yield from rules()


def plan_folds(
    requests: Callable[[S], dict[UUID, PlanRequested]],
    carry_out: Callable[[S, Sequence[Step], UUID, Micros], None],
) -> DecisionFolds[S]:
    """Builds the folds for the two answers to a plan request: commitment and refusal. Both remove
    the open request from the state. A commitment also applies the steps of the plan to the state.

    `requests`: returns the open requests of a state, as event id -> request. `carry_out`: applies
    steps to a state; its arguments are the state, the steps, the id of the commitment and the time.
    """
    folds = DecisionFolds[S]()

    def answered(state: S, decision: Decision) -> PlanRequested:
        assert decision.cause is not None, "an answer is caused by its request"
        return requests(state).pop(decision.cause)

    @folds.of(PlanCommitted)
    def committed(state: S, data: PlanCommitted, decision: Decision, at: Micros) -> None:
        carry_out(state, answered(state, decision).steps, decision.id, at)

    @folds.of(PlanRefused)
    def refused(state: S, data: PlanRefused, decision: Decision, at: Micros) -> None:
        answered(state, decision)

    return folds


def not_plannable(request: PlanRequested, what: str) -> PlanAnswer:
    """Returns the refusal of a plan with a step that this stream does not have or does not know.
    `what`: name of the step's class."""
    return PlanRefused(request.plan, "NotPlannable", what)


def refusal(
    request: PlanRequested,
    now: Mapping[str, str],
    found: Sequence[PlannedOutcome],
    decided_since: Iterable[str],
) -> PlanAnswer | None:
    """Returns why the plan cannot be committed, or None if it can. There are two reasons:

    - InputChanged: an input that a step replaces (such as a binding) changed after the plan was
      made.
    - OutcomeDiffers: the steps now have another outcome than the plan expects. If several subjects
      differ, the first one by name is reported, with its expected and its present outcome.

    If another input changed and the outcome is the same, the plan can be committed.

    `now`: input -> its present digest. `found`: the present outcomes of the steps. `decided_since`:
    names of placements that were decided after the plan was made, where known; they are listed as
    possible causes.
    """
    changed = [name for name, was in request.basis.items() if now.get(name, "") != was]
    own = {name for step in request.steps if (name := replaced(step.data)) is not None}
    lost = [name for name in changed if name in own]
    if lost:
        return PlanRefused(request.plan, "InputChanged", lost[0], changed=_named(lost, ()))
    one, two = _by_subject(request.expected), _by_subject(found)
    subject = min(differing_keys(one, two), default=None)
    if subject is None:
        return None
    expected, actual = _last(one.get(subject)), _last(two.get(subject))
    near = {subject, *_places(expected), *_places(actual)}
    names = _named([*changed, *decided_since], near)
    return PlanRefused(request.plan, "OutcomeDiffers", subject, expected, actual, names or (TIME,))


def _by_subject(outcomes: Iterable[PlannedOutcome]) -> dict[str, list[PlannedOutcome]]:
    found: dict[str, list[PlannedOutcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.subject, []).append(outcome)
    return found


def _last(outcomes: list[PlannedOutcome] | None) -> PlannedOutcome | None:
    return outcomes[-1] if outcomes else None


def _places(outcome: PlannedOutcome | None) -> Collection[str]:
    return () if outcome is None else outcome.places


def _named(names: Iterable[str], near: Collection[str]) -> tuple[str, ...]:
    """Returns the names of changed inputs that a refusal lists: at most `CHANGED_MAX` names. If
    there are more, a last entry says how many were left out. Example: 15 names and a maximum of 12
    give the first 12 names and "and 3 more".

    The list has two parts: facts from outside, then capacities, placements and nodes. Within each
    part, names about a subject in `near` come first. Duplicates are dropped. A name is cut to
    `NAME_LENGTH_MAX` characters. `near`: the subject of the refusal, and the clusters or
    nodes in its expected and its present outcome.
    """

    def distance(name: str) -> int:
        subject, _, what = name.partition("/")[2].partition(" ")
        outside = 0 if what not in ("capacity", "placement") and not name.startswith("node/") else 2
        return outside + (0 if subject in near else 1)

    ordered = sorted(dict.fromkeys(names), key=distance)
    shown = tuple([name[:NAME_LENGTH_MAX] for name in ordered[:CHANGED_MAX]])
    return (
        shown if len(ordered) <= CHANGED_MAX else (*shown, f"and {len(ordered) - CHANGED_MAX} more")
    )
