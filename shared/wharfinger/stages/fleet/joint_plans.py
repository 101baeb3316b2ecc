"""Plans that several fleet shards carry out together: all of them, or none.

The first shard of the plan, its *coordinator*, decides for all. Every other shard tries its part as
a plan of its own would be tried, and promises it (`PlanPromised`) or refuses it. A shard that has
promised takes nothing in and decides nothing else until it hears the coordinator's decision: what
it has promised then still comes out as planned. When all have promised, the coordinator tries its
own part, and commits or refuses it in one round. That round is the moment at which the plan is
carried out or not. The others hear of it and follow: each commits its part, or drops its promise.

- A shard that has refused, and one that has not promised after `PATIENCE_US`, ends the plan.
- The answers go over a topic that is made from the ledger, so that none is lost by the end of a
  process. No shard ends a promise by itself.
- The coordinator is the shard with the lowest number. So of several plans that wait for each
  other's shards the one with the lowest coordinator waits for nothing but time, and ends.

The parts are tried in the order of the shards. A later one deducts the room that the earlier ones
take (`PlanRequested.taken`), because it is not told of it before they have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from wharfinger.events.decisions import PlanAnswer, PlanCommitted, PlanPromised, PlanRefused
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.joint_plans import ShardAnswers

PATIENCE_US: Micros = 30_000_000
"""How long a coordinator waits for promises."""


def answer_joint(
    state: FleetState,
    id: UUID,
    request: PlanRequested,
    at: Micros,
    why_not: Callable[[PlanRequested], PlanAnswer | None],
    effects: Callable[[PlanRequested, Micros], Iterator[Draft]],
) -> Iterator[Draft]:
    """Yields what this shard answers now to its part; nothing, while the coordinator waits for
    promises.

    `id`: of the request. `why_not`: returns the refusal of the part, None: it would come out as
    planned. `effects`: yields the decisions that follow from the committed part, as they are at the
    given time.
    """
    if request.coordinator != state.stream:
        yield _promise(state, id, request, why_not)
        return
    others = request.others
    refused: PlanAnswer | None = _refused_elsewhere(state, request, at)
    if refused is None:
        answers = state.joint.heard[request.plan].answers
        if any(answers.get(shard) != "promised" for shard in others):
            return
        refused = why_not(request)
    if refused is not None:
        assert isinstance(refused, PlanRefused), "the answer that refuses"
        yield Draft(_telling(refused, others), request.plan, "refused", id)
        return
    commitment = PlanCommitted(request.plan, len(request.steps), others)
    yield Draft(commitment, request.plan, "committed", id)
    yield from effects(request, at)


def _promise(
    state: FleetState,
    id: UUID,
    request: PlanRequested,
    why_not: Callable[[PlanRequested], PlanAnswer | None],
) -> Draft:
    tell = (request.coordinator,)
    heard = state.joint.heard.get(request.plan)
    if heard is not None and heard.answers.get(request.coordinator) == "refused":
        return Draft(_elsewhere(request, request.coordinator), request.plan, "refused", id)
    refused = why_not(request)
    if refused is not None:
        assert isinstance(refused, PlanRefused), "the answer that refuses"
        return Draft(_telling(refused, tell), request.plan, "refused", id)
    return Draft(PlanPromised(request.plan, len(request.steps), tell), request.plan, "promised", id)


def settle(
    state: FleetState, effects: Callable[[PlanRequested, Micros], Iterator[Draft]]
) -> Iterator[Draft]:
    """Yields what follows for the promised part when the coordinator has decided; nothing
    before."""
    id = state.joint.promised
    assert id is not None, "asked where something is promised"
    request, at = state.proposals.plans[id], state.joint.promised_at
    heard = state.joint.heard.get(request.plan)
    match None if heard is None else heard.answers.get(request.coordinator):
        case "committed":
            commitment = PlanCommitted(request.plan, len(request.steps))
            yield Draft(commitment, request.plan, "committed", id)
            yield from effects(request, at)
        case "refused":
            yield Draft(_elsewhere(request, request.coordinator), request.plan, "refused", id)
        case _:
            return


def end_forgotten(state: FleetState, at: Micros) -> Iterator[Draft]:
    """Refuses plans of which shards have promised their parts to this one, but which were never
    requested here: they would wait without end."""
    for plan, heard in _forgotten(state):
        if at >= heard.since + PATIENCE_US:
            refused = PlanRefused(plan, "NoPromise", state.stream, tell=heard.promised())
            yield Draft(refused, plan, "refused")


def next_joint(state: FleetState) -> Micros | None:
    """Returns the next time at which a plan ends because promises are missing; None: there is no
    such time."""
    own = {
        request.plan
        for request in state.proposals.plans.values()
        if request.others and request.coordinator == state.stream
    }
    waits = [heard for plan, heard in state.joint.heard.items() if plan in own]
    waits += [heard for _, heard in _forgotten(state)]
    return min([heard.since + PATIENCE_US for heard in waits], default=None)


def _forgotten(state: FleetState) -> list[tuple[str, ShardAnswers]]:
    """Plans that other shards have promised, and that were not requested here. Those that this
    shard has committed are none of them: a promise was then heard twice."""
    if not state.joint.heard:
        return []
    requested = {request.plan for request in state.proposals.plans.values()}
    return [
        (plan, heard)
        for plan, heard in state.joint.heard.items()
        if heard.promised()
        and plan not in requested
        and state.joint.settled.get(plan) != "committed"
    ]


def forget_late(state: FleetState, at: Micros) -> None:
    """Drop what was heard about plans that were not requested here, and that no shard has promised
    to this one."""
    requested = {request.plan for request in state.proposals.plans.values()}
    heard = state.joint.heard
    for plan in [
        plan
        for plan, known in heard.items()
        if plan not in requested and not known.promised() and at >= known.since + 2 * PATIENCE_US
    ]:
        del heard[plan]


def _refused_elsewhere(state: FleetState, request: PlanRequested, at: Micros) -> PlanRefused | None:
    """The refusal of the whole plan because of the other shards: one has refused, or has not
    promised in time. None: neither."""
    heard = state.joint.heard[request.plan]
    for shard in request.others:
        if heard.answers.get(shard) == "refused":
            return _elsewhere(request, shard)
    missing = [shard for shard in request.others if shard not in heard.answers]
    if missing and at >= heard.since + PATIENCE_US:
        return PlanRefused(request.plan, "NoPromise", missing[0])
    return None


def _elsewhere(request: PlanRequested, shard: str) -> PlanRefused:
    return PlanRefused(request.plan, "RefusedElsewhere", shard)


def _telling(refused: PlanRefused, tell: tuple[str, ...]) -> PlanRefused:
    return PlanRefused(
        refused.plan,
        refused.reason,
        refused.subject,
        refused.expected,
        refused.found,
        refused.changed,
        tell,
    )


def joint_folds(
    carry_out: Callable[[FleetState, Sequence[Step], UUID, Micros], None],
) -> DecisionFolds[FleetState]:
    """Builds the folds of decisions about plans, of one shard or of several. `carry_out`: applies
    steps to a state, as in `stages.plans.plan_folds`."""
    folds = DecisionFolds[FleetState]()

    @folds.of(PlanPromised)
    def promised(state: FleetState, data: PlanPromised, decision: Decision, at: Micros) -> None:
        state.joint.promised, state.joint.promised_at = decision.cause, at

    @folds.of(PlanCommitted)
    def committed(state: FleetState, data: PlanCommitted, decision: Decision, at: Micros) -> None:
        request, since = answered_plan(state, decision, at)
        assert request is not None, "an answer is caused by its request"
        state.joint.committed_seq = decision.seq
        carry_out(state, request.steps, decision.id, since)

    @folds.of(PlanRefused)
    def refused(state: FleetState, data: PlanRefused, decision: Decision, at: Micros) -> None:
        answered_plan(state, decision, at)

    return folds


def answered_plan(
    state: FleetState, decision: Decision, at: Micros
) -> tuple[PlanRequested | None, Micros]:
    """Remove and return the open request for a plan that the decision answers, and the time as of
    which it is answered: that of the promise, where it was promised, else `at`. None: it was not
    requested here."""
    data = decision.data
    assert isinstance(data, PlanAnswer), "an answer to a plan"
    joint, since = state.joint, at
    cause = decision.cause
    request = None if cause is None else state.proposals.plans.pop(cause, None)
    joint.heard.pop(data.plan, None)
    if cause is not None and joint.promised == cause:
        joint.promised, since = None, joint.promised_at
    elif data.tell and (request is None or request.coordinator == state.stream):
        joint.settle(data.plan, "refused" if data.refusal() else "committed")
    return request, since
