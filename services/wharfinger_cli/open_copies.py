"""What is open of workloads that are copied, and since when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from wharfinger.domain.actuation import Verb
from wharfinger.domain.time import Micros
from wharfinger.history.copied_bindings import decided_here, last_decisions
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.actuator.copies import CopyWrite, copied_for, copy_writes, foreign
from wharfinger.stages.actuator.copy_ages import MemberCopies, binding_of, open_since
from wharfinger.stages.actuator.copy_needs import needed_objects
from wharfinger.stages.actuator.copy_remains import remaining_copies
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger_cli.copies_read import read_copies
from wharfinger_cli.output import Plain


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """In the member `cluster`. `object`: such as `Deployment shop/web`; "": nothing is known.
    `write`: None where nothing can be sent, and `why` says so. `since`: when it was decided; 0:
    that is not known, or it is open for another reason than a decision. `needed`: it is not copied,
    but named by a workload that is: it is missing, or it may be. Or it is a copy that is no longer
    decided, and is kept."""

    cluster: str
    object: str
    write: CopyWrite | None = None
    why: str = ""
    since: Micros = 0
    needed: Literal["", "missing", "needs", "kept"] = ""

    @property
    def action(self) -> str:
        return self.write.action if self.write is not None else self.needed or "copy"

    @property
    def age_order(self) -> tuple[bool, Micros]:
        """The oldest first; those of which it is not known since when come last."""
        return not self.since, self.since

    @property
    def request(self) -> str:
        return (
            "" if self.write is None else f"{self.write.request.method} {self.write.request.path}"
        )

    @property
    def plain(self) -> Plain:
        write = self.write
        named = None if write is None else write.object
        return {
            "cluster": self.cluster,
            "verb": "copy",
            "action": self.action,
            "object": self.object,
            "uid": "" if named is None else named.uid,
            "method": "" if write is None else write.request.method,
            "path": "" if write is None else write.request.path,
            "body": {} if write is None else write.shown,
            "since_us": self.since,
            "why": self.why,
        }


async def open_copies(
    ledger: Ledger,
    joined: Mapping[str, JoinedCluster],
    members: Iterable[JoinedCluster],
    verbs: Collection[Verb] = (),
) -> list[OpenCopy]:
    """Of those of `members` that have the verb `copy`, or of all if it is one of `verbs`.
    LedgerError. A server that does not answer is a line of its own."""
    found: list[OpenCopy] = []
    for one in await read_copies(ledger, joined, members, verbs):
        if one.decided is None:
            found.append(OpenCopy(one.member, "", why=one.why))
            continue
        ours = await decided_here(ledger, copied_for(one.there, one.hub))
        writes = copy_writes(one.decided, one.there, one.hub, ours)
        others = foreign(one.decided, one.there, one.hub)
        open: list[tuple[EffectObject, CopyWrite | None, str]] = [
            *((write.object, write, "") for write in writes),
            *((object, None, left.why) for object, left in one.decided.left_out.items()),
            *((object, None, why) for object, why in others.items()),
        ]
        copies = MemberCopies(one.member, one.hub, one.decided, one.there, one.secrets)
        of = {object: binding_of(object, copies) for object, _, _ in open}
        decisions = await last_decisions(ledger, set(of.values()) - {""})
        for object, write, why in open:
            since = open_since(object, copies, decisions.get(of[object], ()))
            found.append(OpenCopy(one.member, str(object), write, why, since))
        for need in needed_objects(copies):
            state: Literal["missing", "needs"] = "missing" if need.missing else "needs"
            found.append(OpenCopy(one.member, str(need.object), why=need.why, needed=state))
        for kept in remaining_copies(one.decided, one.there, one.hub, ours):
            if kept.why:
                found.append(OpenCopy(one.member, str(kept.object), why=kept.why, needed="kept"))
    return found
