"""One policy is shown, put or deleted as it was seen (`preconditions`).

The tag changes with what the policy says, and not with the bindings that it places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from fastapi import Request
from starlette.responses import Response

from wharfinger.answers import facts
from wharfinger.answers.changes import compiled, compiled_policy_removal
from wharfinger.answers.decisions import Plain
from wharfinger.domain.policy import Policy
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.parse import loaded_texts
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.database import Database
from wharfinger_api import lists
from wharfinger_api.access import Principal
from wharfinger_api.asked import Asked, etag_of
from wharfinger_api.changing import accepted_changes, changed, origin_of
from wharfinger_api.models import ManifestsBody, ManifestText, OneManifestBody
from wharfinger_api.preconditions import as_seen, hold, not_there
from wharfinger_api.problems import Problem

NO_NAMESPACE = "-"
"""In the path of a policy without a namespace."""


class NamedPolicy(NamedTuple):
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return "/".join(self)


def named(kind: str, namespace: str, name: str) -> NamedPolicy:
    """As the path says it."""
    return NamedPolicy(kind, "" if namespace == NO_NAMESPACE else namespace, name)


async def get(asked: Asked, name: NamedPolicy) -> Response:
    """Problem: there is none, or it is not theirs, which is not told apart."""
    found = await _policy(asked.ledger, asked.principal, name)
    if found is None:
        raise not_there("policy", name.key, asked.principal.changes(name.namespace))
    return asked.answer(_plain(found))


async def put(
    database: Database, request: Request, name: NamedPolicy, body: OneManifestBody
) -> Response:
    """Problem: the precondition is missing or does not hold, or the manifest is wrong."""
    if not request.state.principal.changes(name.namespace):
        raise Problem("forbidden", f"{name.key[:300]}: needs a grant for that namespace")
    text = ManifestText(name=name.key[:253], text=body.text)
    wanted = ManifestsBody(manifests=[text], reason=body.reason, revision=body.revision)
    read = await asyncio.to_thread(loaded_texts, [(text.name, text.text)])
    if len(read.manifests) > 1:
        raise Problem("invalid", f"text: expected one manifest, got {len(read.manifests)}")
    since = await Ledger(database).accepted_seq()
    hold(request, name.key, await _etag(database, request, name), may_be_new=True)
    with as_seen(name.key):
        return await changed(database, request, wanted, compiled, partial(_only, name), since)


async def delete(
    database: Database, request: Request, name: NamedPolicy, reason: str, revision: str
) -> Response:
    """Problem: there is none, or the precondition is missing or does not hold."""
    principal: Principal = request.state.principal
    since = await Ledger(database).accepted_seq()
    mine = principal.changes(name.namespace)
    etag = await _etag(database, request, name) if mine else None
    if etag is None:
        raise not_there("policy", name.key, mine)
    hold(request, name.key, etag)
    origin = origin_of(principal, reason, revision)
    removal = compiled_policy_removal(*name)
    with as_seen(name.key):
        return await accepted_changes(database, request, (), (), removal, origin, since=since)


def _only(name: NamedPolicy, found: Sequence[Accepted]) -> None:
    """Problem: the manifest says something else than this policy, and what follows for bindings."""
    policies = [fact for fact in found if isinstance(fact.data, PolicyApplied)]
    others = [f for f in found if not isinstance(f.data, PolicyApplied | BindingRequested)]
    if [fact.key for fact in policies] != [name.key] or others:
        said = ", ".join(fact.subject for fact in found[:3]) or "nothing"
        raise Problem("invalid", f"text: expected the policy {name.key[:300]}, got {said}")


async def _etag(database: Database, request: Request, name: NamedPolicy) -> str | None:
    """As `GET` would answer now; None: there is no such policy."""
    found = await _policy(Ledger(database), request.state.principal, name)
    return None if found is None else etag_of(msgspec.json.encode(_plain(found)))


async def _policy(ledger: Ledger, principal: Principal, name: NamedPolicy) -> Policy | None:
    found = await lists.policies_then(ledger, principal)
    return next((policy for policy, _ in found if policy.key == name.key), None)


def _plain(policy: Policy) -> Plain:
    return {**facts.plain(policy), "key": policy.key}
