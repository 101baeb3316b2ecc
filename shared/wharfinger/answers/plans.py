"""Plans in two steps, for the command line and for the HTTP API: what is wanted becomes a plan that
is kept, and a kept plan is carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from wharfinger.answers.changes import ChangeRefusedError, compiled, refuse
from wharfinger.answers.decisions import Plain
from wharfinger.answers.facts import known_facts
from wharfinger.domain.text import as_time
from wharfinger.domain.value import Value, canonical
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.decisions import PlannedOutcome
from wharfinger.events.intake import PolicyModel, SkippedKind
from wharfinger.history import plan as plans
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import Figures, Plan
from wharfinger.manifests.errors import ManifestError
from wharfinger.manifests.parse import Manifest, loaded_texts
from wharfinger.runtime.ledger import Ledger

MICRO = 1_000_000
STEPS = ("reading", "planning", "keeping")
"""Of making a plan."""

PlanKind = Literal["manifests", "scale", "drain"]
Text = tuple[str, str | ManifestError]
"""The name of a file, and what it holds or why it cannot be read."""


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """What a plan is to be of. `scale`: `replicas` of the binding `what`; `drain`: of the cluster
    or node `what`; `manifests`: of `manifests`, `policies` and `events` together. `strict`: an
    object that would be placed nowhere is wrong."""

    kind: PlanKind
    what: str = ""
    replicas: int = 0
    manifests: tuple[Text, ...] = ()
    policies: tuple[Text, ...] = ()
    events: tuple[Accepted, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class MadePlan:
    """`unacted`: one line a field that is read and has no effect."""

    plan: Plan
    unacted: tuple[str, ...] = ()
    skipped: tuple[SkippedKind, ...] = ()


async def make(
    ledger: Ledger,
    wanted: WantedPlan,
    *,
    made_by: str = "",
    said: Callable[[str], None] = lambda _: None,
) -> MadePlan:
    """The plan, which is kept where it can be carried out, and always where `made_by` says for
    whom. `said` is called with each of `STEPS` as it begins.

    ChangeRefusedError: manifests are wrong. LedgerError: one line, why there is no plan."""
    found = await _made(ledger, wanted, said)
    if found.plan.parts or found.plan.facts or made_by:
        said("keeping")
        await plans.save(ledger, found.plan, made_by)
    return found


async def _made(ledger: Ledger, wanted: WantedPlan, said: Callable[[str], None]) -> MadePlan:
    # It loads all stages: only for those who make a plan.
    from wharfinger.history import plan_making

    match wanted.kind:
        case "scale":
            return MadePlan(
                await plan_making.scale(ledger, wanted.what, wanted.replicas, said=said)
            )
        case "drain":
            return MadePlan(await plan_making.drain(ledger, wanted.what, said=said))
        case "manifests":
            manifests, policies = _read(wanted.manifests), _read(wanted.policies)
            require_policies(policies, "; other manifests go with -f")
            intake = compiled([*manifests, *policies], await known_facts(ledger))
            refuse(intake.refusals if wanted.strict else intake.errors)
            facts = [*wanted.events, *intake.facts]
            return MadePlan(
                await plan_making.make_plan(ledger, facts, said=said),
                tuple(str(field) for field in intake.unacted),
                intake.skipped_kinds,
            )


def _read(texts: Sequence[Text]) -> tuple[Manifest, ...]:
    found = loaded_texts(texts)
    refuse(found.errors)
    return found.manifests


def require_policies(manifests: Sequence[Manifest], hint: str = "") -> None:
    """ChangeRefusedError: one of them is something else. `hint`: where that belongs."""
    for manifest in manifests:
        if not isinstance(manifest.model, PolicyModel):
            said = f"expected a policy, got a {manifest.model.kind}{hint}"
            raise ChangeRefusedError([manifest.error(said, "kind")])


def fact_in(event: bytes) -> Accepted:
    """A fact from outside, of its CloudEvent. UndecodableError: it is none."""
    found = decode(event)
    if not isinstance(found.data, Fact):
        raise UndecodableError(f"type: expected a fact from outside, got {found.type}")
    return replace(accepted(found.data), version=found.version)


def digest(plan: Plan) -> str:
    """SHA-256 of the plan as it is kept, in hex: who carries it out says which one was seen."""
    return hashlib.sha256(canonical(plan)).hexdigest()


# --- for programs


def plan_plain(made: Plan) -> Plain:
    return {
        "id": str(made.id),
        "made_at": as_time(made.made_at),
        "expires": as_time(made.expires_at),
        "digest": digest(made),
        "changes": made.changes,
        "streams": [part.stream for part in made.parts],
        "moves": [_whole(move) for move in made.moves],
        "refusals": [_whole(refusal) for refusal in made.refusals],
        "placements": [_whole(selection) for selection in made.selections],
        "stuck": list(made.stuck),
        "unsure": list(made.unsure),
        "declined": list(made.declined),
        "within_s": made.within_us / MICRO,
        "horizon_s": made.horizon_us / MICRO,
        "before": _figures_plain(made.before),
        "after": _figures_plain(made.after),
    }


def answers_plain(made: Plan) -> Plain:
    """What each stream is expected to answer: stream -> its outcomes."""
    return {
        part.stream: [_outcome_plain(outcome) for outcome in part.expected] for part in made.parts
    }


def answer_plain(answer: Applied | PlanRefusal) -> Plain:
    match answer:
        case Applied():
            committed = {stream: str(id) for stream, id in answer.decisions.items()}
            return {
                "plan": str(answer.plan),
                "applied": True,
                "again": answer.again,
                "committed": committed,
            }
        case PlanRefusal():
            refusals = {
                stream: msgspec.to_builtins(refusal) for stream, refusal in answer.refusals.items()
            }
            return {
                "plan": str(answer.plan),
                "applied": False,
                "refused": refusals,
                "committed": list(answer.committed),
            }


def difference_plain(answer: PlanRefusal) -> list[Plain]:
    """Of each stream that refused: about what, what was planned, what is found now, and which
    inputs have changed."""
    return [
        {
            "stream": stream,
            "reason": end.reason,
            "subject": end.subject,
            "expected": None if end.expected is None else _outcome_plain(end.expected),
            "found": None if end.found is None else _outcome_plain(end.found),
            "changed": list(end.changed),
        }
        for stream, end in sorted(answer.refusals.items())
    ]


def _outcome_plain(outcome: PlannedOutcome) -> Plain:
    found = msgspec.to_builtins(outcome)
    assert isinstance(found, dict), "a struct"
    return found


def _whole(value: Value) -> Plain:
    """All fields, those that hold their default too: programs should not have to know the
    defaults."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _figures_plain(figures: Figures) -> Plain:
    return {
        "spread_permille": figures.spread,
        "node_cpu_milli": figures.node_cpu_milli,
        "cost_micro_per_hour": figures.cost_micro,
        "unplaced": figures.unplaced,
        "clusters": [{**_whole(use), "use_permille": use.permille} for use in figures.clusters],
    }
