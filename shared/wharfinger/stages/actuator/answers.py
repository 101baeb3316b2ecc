"""What an API server's answer to a request means for the effect.

No answer makes an effect done: it is done when it is observed. An answer only says whether the same
request is to be sent again, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wharfinger.domain.actuation import Verb

NO_ANSWER = 0
"""Instead of a code of HTTP: no connection, broken in between, or not in time."""

DISRUPTION_BUDGET = "DisruptionBudget"
"""The cause that the server gives where a PodDisruptionBudget forbids an eviction."""


FIELD_MANAGER = "FieldManagerConflict"
"""The cause that the server gives where a field belongs to another manager. Its message names the
manager and the field."""

NAMESPACE_TERMINATING = "NamespaceTerminating"
"""The cause that the server gives, with a 403, where the namespace of the object is being
deleted."""

SCHEDULING_GATES = "schedulingGates"
"""In the message of the conflict where a pod with scheduling gates is to be bound."""


class Outcome(StrEnum):
    """`SENT`: accepted; the fact will follow. `REPEATED`: it was so already. `SUPERSEDED`: the
    object is gone or another one, and what is open is worked out from later facts. `BLOCKED`: not
    now (a budget). `REFUSED`: the server will say the same again. `FORBIDDEN`: a right is missing.
    `CHANGED`: somebody else changed the object; it is read and compared again. `SLOWED`: too many
    requests. `UNKNOWN`: it may have been carried out or not."""

    SENT = "sent"
    REPEATED = "repeated"
    SUPERSEDED = "superseded"
    BLOCKED = "blocked"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    CHANGED = "changed"
    SLOWED = "slowed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """`code`: of HTTP, or `NO_ANSWER`. `reason`: of the server's Status. `causes`: the reasons of
    its details. `retry_after_s`: the pause that the server asks for; 0: none."""

    code: int
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    retry_after_s: float = 0.0


_SAME: dict[int, Outcome] = {
    400: Outcome.REFUSED,
    401: Outcome.FORBIDDEN,
    403: Outcome.FORBIDDEN,
    405: Outcome.REFUSED,
    413: Outcome.REFUSED,
    415: Outcome.REFUSED,
    422: Outcome.REFUSED,
    429: Outcome.SLOWED,
    NO_ANSWER: Outcome.UNKNOWN,
}
"""Code -> what it means for every verb."""

_OF_VERB: dict[Verb, dict[int, Outcome]] = {
    # A conflict: another pod has the name now, or this one is bound already. Either way the next
    # fact says what is open.
    "bind": {404: Outcome.SUPERSEDED, 409: Outcome.SUPERSEDED},
    "evict": {404: Outcome.REPEATED, 409: Outcome.SUPERSEDED},
    # These objects are watched: the next version is compared.
    "claims": {404: Outcome.SUPERSEDED, 409: Outcome.SUPERSEDED},
    "karmada": {404: Outcome.SUPERSEDED, 409: Outcome.SUPERSEDED},
    "ocm": {404: Outcome.SUPERSEDED, 409: Outcome.SUPERSEDED},
    "nodes": {404: Outcome.SUPERSEDED, 409: Outcome.CHANGED},
    # 404: its namespace is not there, and may come.
    "copy": {404: Outcome.BLOCKED, 409: Outcome.SUPERSEDED},
    "templates": {},
}


def outcome_of(verb: Verb, answer: ApiAnswer) -> Outcome:
    """Total: every code has a meaning; of one that is not listed nothing is known."""
    if 200 <= answer.code < 300:
        return Outcome.SENT
    if answer.code == 429 and DISRUPTION_BUDGET in answer.causes:
        return Outcome.BLOCKED
    if answer.code == 409 and SCHEDULING_GATES in answer.message:
        return Outcome.BLOCKED
    if answer.code == 403 and NAMESPACE_TERMINATING in answer.causes:
        return Outcome.BLOCKED
    if answer.code in (401, 403) and _by_admission(answer.message):
        return Outcome.REFUSED
    if answer.code == 409 and FIELD_MANAGER in answer.causes:
        return Outcome.REFUSED
    found = _OF_VERB[verb].get(answer.code) or _SAME.get(answer.code)
    if found is not None:
        return found
    return Outcome.REFUSED if 400 <= answer.code < 500 else Outcome.UNKNOWN


def _by_admission(message: str) -> bool:
    """Whether it is about this object alone: a quota, a policy or a webhook refuses it. A webhook
    chooses its code, 401 as well. A right that is missing is said as `... is forbidden: User "oslo"
    cannot create resource ...`, and credentials that are not accepted as `Unauthorized`."""
    said = message.partition(" is forbidden: ")[2]
    return message.startswith("admission webhook ") or (said != "" and not said.startswith("User "))
