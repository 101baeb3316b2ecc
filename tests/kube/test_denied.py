"""Policies of those who run a cluster deny what was decided, with every reason that a
ValidatingAdmissionPolicy may give: `effects --open` has the policy's words, the request is not sent
again, and all else of the same verb goes on. The referee is the server's audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.kube.acting import Audit, decided, grant, join_for_writing, propose
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.kube.test_act import a_deployment
from tests.kube.test_actuator import close_node, cordoned, finished
from tests.patience import eventually, until

from wharfinger.domain.actuation import Verb
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.runtime.ledger import Ledger

HOME = "denied"
NODES = ("denied-1", "denied-2", "denied-3")
CLOSED = NODES[2]
VERBS: tuple[Verb, ...] = ("bind", "evict", "nodes")
CODES = {"Invalid": 422, "Forbidden": 403, "RequestEntityTooLarge": 413}
"""Every reason of a validation, and the code with which the server then answers."""


def name_of(reason: str) -> str:
    return f"keeps-{reason.lower()}"


def denying(name: str, rule: Json, *validations: Json, cluster_wide: bool = False) -> list[Json]:
    """`rule`: to which requests it applies, in the namespace of this test alone."""
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": f"{HOME}-{name}"}}
    here = {"matchLabels": {"kubernetes.io/metadata.name": HOME}}
    constraints = {"resourceRules": [{"apiVersions": ["v1"], **rule}]}
    if not cluster_wide:
        constraints |= {"namespaceSelector": here}  # type: ignore[dict-item]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "validations": list(validations),
    }
    binding = {"policyName": f"{HOME}-{name}", "validationActions": ["Deny"]}
    return [
        {**kind, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def policies() -> list[Json]:
    def denied(expression: str, what: str, reason: str) -> Json:
        message = f"{what} is not wanted here ({reason})"
        return {"expression": expression, "message": message, "reason": reason}

    created = {"apiGroups": [""], "operations": ["CREATE"]}
    evictions = [
        denied(f"object.metadata.name != '{name_of(reason)}'", "an eviction", reason)
        for reason in CODES
    ]
    bindings = denied("object.target.name == 'no-such-node'", "a binding", "Forbidden")
    updated = {"apiGroups": [""], "operations": ["UPDATE"], "resourceNames": [CLOSED]}
    open_ = "!has(object.spec.unschedulable) || !object.spec.unschedulable"
    return [
        *denying("evictions", {**created, "resources": ["pods/eviction"]}, *evictions),
        *denying("bindings", {**created, "resources": ["pods/binding"]}, bindings),
        *denying(
            "cordons",
            {**updated, "resources": ["nodes"]},
            denied(open_, "a cordon", "Forbidden"),
            cluster_wide=True,
        ),
    ]


@pytest.fixture
def strict(member: Member) -> Iterator[Member]:
    """A cluster in which the policies are in force."""
    grant(member, VERBS)
    member.empty()
    member.apply(namespace(HOME), *(node(name, **{"for": HOME}) for name in NODES))
    member.await_nodes(NODES)
    member.apply(*policies())
    try:
        yield member
    finally:
        both = "validatingadmissionpolicybindings,validatingadmissionpolicies"
        named = [f"{HOME}-{name}" for name in ("evictions", "bindings", "cordons")]
        member.kubectl("delete", both, *named)
        member.kubectl("delete", "namespace", HOME, "--wait=false")
        member.kubectl("delete", "nodes", *NODES)


def in_force(member: Member, name: str) -> bool:
    """Whether the server denies the eviction of this pod, its binding, and the cordon."""
    metadata = {"name": name, "namespace": HOME}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    target = {"apiVersion": "v1", "kind": "Node", "name": NODES[0]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    cordon = json.dumps({"spec": {"unschedulable": True}})
    return (
        _denied(member, "an eviction", "create", *_raw(name, "eviction"), stdin=eviction)
        and _denied(member, "a binding", "create", *_raw(name, "binding"), stdin=binding)
        and _denied(member, "a cordon", "patch", "node", CLOSED, "-p", cordon, "--dry-run=server")
    )


def _raw(pod: str, subresource: str) -> tuple[str, ...]:
    path = f"/api/v1/namespaces/{HOME}/pods/{pod}/{subresource}?dryRun=All"
    return "--raw", path, "-f", "-"


def _denied(member: Member, what: str, *arguments: str, stdin: Json | None = None) -> bool:
    try:
        member.kubectl(*arguments, stdin=None if stdin is None else json.dumps(stdin))
    except RuntimeError as error:
        return f"{what} is not wanted here" in str(error)
    return False


def open_effects(plane: PlaneUnderTest, member: Member) -> dict[tuple[str, str], str]:
    """(action, name of the object) -> why it is open, as the command shows it."""
    found: list[dict[str, Any]] = plane.json("effects", member.name, "--open")
    return {(one["action"], one["name"]): one["why"] for one in found}


async def removed(ledger: Ledger, member: Member, *pods: FinishedPod) -> None:
    """Until it is decided: before their facts have come the stage refuses."""
    stream = f"cluster/{member.name}"
    unseatings = tuple(Unseating(NODES[0], finished=pod) for pod in pods)
    before = len(await decided(ledger, stream, "pods-removed"))
    tries = 0

    async def is_decided() -> bool:
        nonlocal tries
        tries += 1
        profile = f"tests {tries}"
        removal = DeschedulingProposed(stream, member.name, "RemoveFailedPods", profile, unseatings)
        await propose(ledger, removal, stream)
        await asyncio.sleep(0.5)
        return len(await decided(ledger, stream, "pods-removed")) > before

    await eventually(is_decided)


async def test_what_a_policy_denies_is_known_in_its_words_and_is_not_sent_again(
    strict: Member,
) -> None:
    keeps = [finished(strict, name_of(reason), NODES[0], HOME) for reason in CODES]
    goes = finished(strict, "goes", NODES[0], HOME)
    until(partial(in_force, strict, keeps[0].name))
    audit, stream = Audit(strict), f"cluster/{strict.name}"
    with a_plane() as plane:
        join_for_writing(plane.data_dir / "clusters", strict, VERBS)
        plane.up()
        ledger = await Ledger.open(plane.plane()["database_url"], "tests-denied")
        try:
            until(lambda: len(plane.json("get", "nodes")) == len(NODES))
            await removed(ledger, strict, *keeps)
            await close_node(ledger, strict, CLOSED)
            strict.apply(a_deployment(1, HOME))
            expected = {
                ("remove-pod", name_of(reason)): f"refused: {code} {reason}: "
                for reason, code in CODES.items()
            }
            expected["close-node", CLOSED] = "refused: 403 Forbidden: "
            expected |= {("barred", name): "" for name in NODES[:2]}

            def shown() -> dict[tuple[str, str], str]:
                return open_effects(plane, strict)

            until(lambda: all("not wanted here" in shown().get(key, "") for key in expected), shown)
            for key, why in shown().items():
                assert why.startswith(expected[key]), why
                assert f"ValidatingAdmissionPolicy '{HOME}-" in why
            # Nothing of it counts as a right that is missing: the next pod is removed.
            await removed(ledger, strict, goes)
            until(lambda: "goes" not in _pods(strict))
            placed = len(await decided(ledger, stream, "placed"))
        finally:
            await ledger.close()
        evictions = [one for one in audit.writes("pods/eviction") if one[1] != "goes"]
        assert sorted(evictions) == sorted(
            ("create", name_of(reason), code) for reason, code in CODES.items()
        )
        assert audit.writes("nodes") == [("patch", CLOSED, 403)]
        binds = audit.writes("pods/binding")
        assert {code for _, _, code in binds} == {403}
        assert 2 <= len(binds) <= placed, "each place that was decided is asked for once"
    assert not cordoned(strict, CLOSED)
    assert {pod.name for pod in keeps} <= set(_pods(strict))


def _pods(member: Member) -> list[str]:
    return [found["metadata"]["name"] for found in member.items("pods", "-n", HOME)]
