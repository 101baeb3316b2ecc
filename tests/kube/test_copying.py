"""Workloads of a hub without Karmada and OCM are copied to the members that were decided: created
once, changed with their templates, removed when nothing is assigned any more, and what belongs to
others is left. The referees are kubectl and the servers' audit logs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.apps import a_context, running
from tests.kube.acting import Audit, asked_for, grant, join_for_writing, join_hub, run_command
from tests.kube.member import Json, Member, config_map, namespace
from tests.patience import eventually
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.actuation import COPIED_FOR, COPIED_FROM, Verb
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import EFFECTS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import actuator_rights, actuator_rules, own_rules, secret_rules
from wharfinger.runtime.settings import Settings
from wharfinger_actuator.app import ActuatorService
from wharfinger_cli.doctor_writes import OPEN_S_MAX, WriteState, write_states
from wharfinger_cli.effect_answers import latest_answers

HOME, REPLICAS = "shop", 8
COPY: tuple[Verb, ...] = ("copy",)
TEMPLATES: tuple[Verb, ...] = ("templates",)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    told = await ToldPlane.opened(database_url)
    yield told
    await told.ledger.close()


@pytest.fixture
def emptied(members: list[Member]) -> Iterator[None]:
    """The clusters are those of other tests too, whose planes would bind what is left here."""

    def empty() -> None:
        for member in members:
            member.empty()
            member.apply(namespace(HOME))
            kinds = "configmap,secret,serviceaccount,persistentvolumeclaim,role,rolebinding"
            member.kubectl("delete", kinds, "--all", "-n", HOME)

    empty()
    yield
    empty()


def a_stateful_set(name: str) -> Json:
    workload = a_workload(name, tier="gold")
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = {**workload["spec"], "serviceName": name, "volumeClaimTemplates": [claim]}
    spec["template"]["spec"]["volumes"] = [
        {"name": "settings", "configMap": {"name": f"settings-of-{name}"}},
        {"name": "token", "secret": {"secretName": f"token-of-{name}"}},
    ]
    return {**workload, "kind": "StatefulSet", "spec": spec}


def bound(kind: str, name: str, home: str, policy: PolicyApplied) -> BindingRequested:
    told = a_binding(name, REPLICAS, policy)
    named = f"{home}/{name}-{kind.lower()}"
    object = ObjectRef("apps/v1", kind, name, home)
    return BindingRequested(replace(told.binding, name=named, uid=named, resource=object))


def uid_of(member: Member, name: str) -> str:
    one = found(member, "statefulset", name)
    return str(one["metadata"]["uid"]) if one else ""


def annotations_of(one: Json) -> dict[str, str]:
    return dict(one["metadata"].get("annotations") or {})


def a_workload(name: str, image: str = "nginx:1", namespace: str = HOME, **labels: str) -> Json:
    container: Json = {"name": "main", "image": image}
    pod: Json = {"schedulerName": "wharfinger", "containers": [container]}
    if name == "web":
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
        pod["serviceAccountName"] = "seller"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def an_account(name: str, **fields: object) -> Json:
    metadata = {"name": name, "namespace": HOME}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **fields}


def in_clusters(*names: str) -> PolicyApplied:
    affinity = ClusterAffinity(cluster_names=names)
    return a_policy("p", Placement((affinity,), replicas=ReplicaScheduling("Divided", "Weighted")))


def found(member: Member, kind: str, name: str, home: str = HOME) -> Json:
    """Empty: it is not there."""
    arguments = ("-n", home, "--ignore-not-found", "--show-managed-fields", "-o", "json")
    text = member.kubectl("get", kind, name, *arguments)
    return dict(json.loads(text)) if text else {}


def replicas(member: Member, name: str = "web") -> int:
    return int(found(member, "deployment", name).get("spec", {}).get("replicas", -1))


def image(member: Member, name: str = "web", kind: str = "deployment") -> str:
    one = found(member, kind, name)
    return str(one["spec"]["template"]["spec"]["containers"][0]["image"]) if one else ""


def said(member: Member, name: str) -> dict[str, str]:
    return dict(found(member, "deployment", name)["metadata"].get("annotations", {}))


@pytest.mark.usefixtures("emptied")
async def test_workloads_are_copied_where_they_are_decided(
    members: list[Member], backend: Backend, topic_prefix: str, plane: ToldPlane, tmp_path: Path
) -> None:
    north, south, hub = members
    joined = tmp_path / "joined"
    joined.mkdir()
    for member in (north, south):
        grant(member, COPY)
        join_for_writing(joined, member, COPY)
    grant(hub, TEMPLATES)
    join_hub(joined, hub, TEMPLATES)
    hub.apply(config_map(HOME, "settings", colour="blue"), an_account("seller"), a_workload("web"))
    hub.apply(a_workload("api"))
    # There before us, applied by somebody else: one is left as it is, the other given to us.
    north.apply(a_workload("api", "nginx:theirs"))
    # Of a plane with another ledger.
    theirs = config_map(HOME, "theirs")
    theirs["metadata"]["annotations"] = {COPIED_FROM: "hub", COPIED_FOR: f"{HOME}/unknown"}
    south.apply(theirs)
    both = in_clusters(north.name, south.name)
    for member in (north, south):
        await plane.tell(a_cluster(member.name), *nodes(member.name, f"{member.name}-1", cpu=64000))
    await plane.tell(both, a_binding("web", REPLICAS, both), a_binding("api", REPLICAS, both))
    audits = [Audit(member) for member in (north, south)]
    of_hub = Audit(hub)
    context = await a_context(backend, plane.ledger, topic_prefix, clusters=joined)
    with capture_logs() as logs:
        async with running(ActuatorService(context)):
            await eventually(lambda: replicas(north) + replicas(south) == REPLICAS)
            await eventually(lambda: replicas(south, "api") > 0)
            assert found(south, "configmap", "settings")["data"] == {"colour": "blue"}
            await eventually(lambda: _owned(north) and _owned(south))
            # Their account is there, so the members make the pods.
            await eventually(lambda: _pods(north) + _pods(south) == REPLICAS)
            await eventually(lambda: [one for one in logs if one["event"] == "copy.not_ours"])
        assert image(north, "api") == "nginx:theirs"
        assert COPIED_FROM not in said(north, "api")
        before = [len(audit.writes()) for audit in audits]
        # Another one begins with nothing, and nothing is written again.
        north.kubectl("annotate", "deployment", "api", "-n", HOME, f"{COPIED_FROM}=hub")
        async with running(ActuatorService(context)):
            await eventually(lambda: _refused(logs, "api"))
            assert [len(audit.writes()) for audit in audits] == [before[0] + 1, before[1]]
            hub.apply(a_workload("web", "nginx:2", tier="gold"), config_map(HOME, "settings"))
            await eventually(lambda: image(north) == image(south) == "nginx:2")
            # A field that goes from the template goes from the copy.
            hub.apply(a_workload("web", "nginx:2"))
            await eventually(lambda: "labels" not in found(north, "deployment", "web")["metadata"])
            await eventually(lambda: "data" not in found(north, "configmap", "settings"))
            # Only in the north from now on.
            only = in_clusters(north.name)
            await plane.tell(only, a_binding("web", REPLICAS, only))
            await eventually(lambda: replicas(north) == REPLICAS)
            await eventually(lambda: not found(south, "deployment", "web"))
            await eventually(lambda: not found(south, "configmap", "settings"))
            await eventually(lambda: not found(south, "serviceaccount", "seller"))
    refused = _refused(logs, "api")
    assert '"kubectl":\n- .spec.replicas' in refused[0]["why"], "manager and field"
    assert image(north, "api") == "nginx:theirs", "what others have written is left"
    assert found(south, "configmap", "theirs")
    assert replicas(south, "api") > 0
    rules = [*actuator_rules(COPY), *own_rules()]
    unused = set.intersection(*(set(audit.unused(rules)) for audit in audits))
    assert unused == _UNUSED
    assert of_hub.writes() == []
    for audit in (*audits, of_hub):
        assert [call for call in audit.calls() if call["responseStatus"]["code"] == 403] == []


_UNUSED = {
    *(("apps", "statefulsets", verb) for verb in ("create", "delete", "patch")),
    *(("", "persistentvolumeclaims", verb) for verb in ("create", "patch")),
}
"""Neither StatefulSets nor claims are copied here."""


@pytest.mark.usefixtures("emptied")
async def test_a_copy_that_is_changed_or_cannot_be_made_stops_no_other(
    members: list[Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    plane: ToldPlane,
    tmp_path: Path,
) -> None:
    """A StatefulSet, and a Deployment whose namespace is not there, comes, and ends."""
    member, hub = members[0], members[-1]
    joined, late = tmp_path / "joined", f"late-{topic_prefix}".rstrip(".")
    joined.mkdir()
    grant(member, COPY)
    join_for_writing(joined, member, COPY)
    grant(hub, TEMPLATES)
    join_hub(joined, hub, TEMPLATES)
    hub.apply(namespace(late), a_stateful_set("db"), a_workload("api", namespace=late))
    only = in_clusters(member.name)
    await plane.tell(a_cluster(member.name), *nodes(member.name, "one", cpu=64000))
    await plane.tell(
        only, bound("StatefulSet", "db", HOME, only), bound("Deployment", "api", late, only)
    )
    audit = Audit(member)
    dry = await a_context(
        backend, plane.ledger, topic_prefix, clusters=joined, actuator_dry_run=True
    )
    with capture_logs() as logs:
        async with running(ActuatorService(dry)):
            await eventually(lambda: len([e for e in logs if e["event"] == "effect.not_sent"]) == 2)
    bodies = {e["body"]["kind"]: e["body"] for e in logs if e["event"] == "effect.not_sent"}
    assert bodies["StatefulSet"]["spec"]["replicas"] == REPLICAS
    assert audit.writes() == []
    shown = asked_for("effects", database_url, joined, member.name)
    needed = {one["object"]: one["why"] for one in shown if one["action"] in ("missing", "needs")}
    assert needed == {
        f"ConfigMap {HOME}/settings-of-db": f"named by StatefulSet {HOME}/db: neither hub nor"
        f" {member.name} has it; create it in hub",
        f"Secret {HOME}/token-of-db": f"named by StatefulSet {HOME}/db: Secrets are not copied;"
        f" create it in {member.name}, if it is not there",
    }
    hub.apply(config_map(HOME, "settings-of-db"))
    shown = asked_for("effects", database_url, joined, member.name)
    objects = [one["object"] for one in shown if one["action"] == "create-copy"]
    created = f"ConfigMap {HOME}/settings-of-db", f"Deployment {late}/api", f"StatefulSet {HOME}/db"
    assert objects == [*created]
    since = {one["since_us"] for one in shown if one["object"] in created}
    assert since == {plane.time.at}, "when it was decided"
    assert [one["object"] for one in shown if one["action"] == "missing"] == []
    context = await a_context(backend, plane.ledger, topic_prefix, clusters=joined)
    try:
        with capture_logs() as logs:
            async with running(ActuatorService(context)):
                await eventually(lambda: uid_of(member, "db"))
                await eventually(lambda: answers(logs, "blocked", f"Deployment {late}/api"))
                member.apply(namespace(late))
                await eventually(lambda: found(member, "deployment", "api", late))
                # Deleted: it is created again.
                first = uid_of(member, "db")
                member.kubectl("delete", "statefulset", "db", "-n", HOME, "--cascade=orphan")
                await eventually(lambda: uid_of(member, "db") not in ("", first))
                assert not applied(logs, f"StatefulSet {HOME}/db"), "it is as it was created"
                # Taken out: it comes back. Set otherwise: it is left, and said.
                member.kubectl("label", "statefulset", "db", "-n", HOME, "tier-")
                await eventually(lambda: "labels" in found(member, "statefulset", "db")["metadata"])
                member.kubectl("set", "image", "statefulset/db", "-n", HOME, "main=nginx:theirs")
                await eventually(lambda: answers(logs, "refused", f"StatefulSet {HOME}/db"))
                (changed,) = await asyncio.to_thread(
                    asked_for, "drift", database_url, joined, member.name, 1
                )
                field = "spec.template.spec.containers[main].image"
                assert changed["object"] == f"StatefulSet {HOME}/db"
                assert changed["decided"].startswith(f"{field} nginx:")
                assert changed["observed"].startswith("nginx:theirs by kubectl")
                # A namespace that ends keeps nothing from being copied into others.
                held = config_map(late, "held")
                held["metadata"]["finalizers"] = ["tests.wharfinger.io/held"]
                member.apply(held)
                said = len(answers(logs, "blocked", f"Deployment {late}/api"))
                member.kubectl("delete", "namespace", late, "--wait=false")
                await eventually(
                    lambda: len(answers(logs, "blocked", f"Deployment {late}/api")) > said
                )
                hub.apply(a_workload("other"))
                await plane.tell(bound("Deployment", "other", HOME, only))
                await eventually(lambda: replicas(member, "other") == REPLICAS)
            (one, *_) = answers(logs, "refused", f"StatefulSet {HOME}/db")
            assert "nginx:theirs" not in one["why"]
            assert '"kubectl' in one["why"], "the manager"
            assert "image" in one["why"], "the field"
        assert answers(logs, "forbidden", "") == []
        latest = await latest_answers(backend, context.wire(EFFECTS.name))
        key = member.name, "apply-copy", "StatefulSet", HOME, "db", uid_of(member, "db")
        assert (latest[key].outcome, latest[key].code) == ("refused", 409)
        (written,) = [
            one
            for one in await write_states(Settings(database=database_url, clusters=joined))
            if one.name == member.name
        ]
        assert written.copies >= 2, "what was changed, and what cannot be made"
        assert written.copies_oldest_s > OPEN_S_MAX, "the time of this plane is long ago"
        assert written.oldest_copy == f"create-copy Deployment {late}/api"
        assert written.ok is False
        (secret,) = written.needed
        assert secret.startswith(f"Secret {HOME}/token-of-db named by StatefulSet {HOME}/db: ")
        waiting = [
            (one["object"], one["since_us"] > 0)
            for one in json.loads(
                run_command(
                    database_url, joined, "effects", member.name, "--verb", "copy", "-o", "json"
                ).stdout
            )
        ]
        assert (f"StatefulSet {HOME}/db", False) in waiting, "changed by others since"
        # Given back: it stays, as an object like any other.
        back = json.loads(
            run_command(
                database_url, joined, "release", member.name, "--annotations", "-o", "json"
            ).stdout
        )
        assert {one["object"]: one["ok"] for one in back} == {
            f"ConfigMap {HOME}/settings-of-db": True,
            f"Deployment {HOME}/other": True,
            f"StatefulSet {HOME}/db": True,
        }
        kept = found(member, "statefulset", "db")
        assert not any(name.startswith("wharfinger.io/") for name in annotations_of(kept))
        assert kept["spec"]["replicas"] == REPLICAS
        assert image(member, "db", "statefulset") == "nginx:theirs"
    finally:
        member.kubectl(
            "patch", "configmap", "held", "-n", late, "--type=merge",
            "-p", '{"metadata":{"finalizers":null}}',
        )  # fmt: skip
        hub.kubectl("delete", "namespace", late, "--wait=false")


def a_secret(home: str, name: str, content: str) -> Json:
    metadata = {"name": name, "namespace": home}
    data = {"password": base64.b64encode(content.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def with_password(name: str, home: str) -> Json:
    """A workload that has the password of the Secret `token` in its environment."""
    workload = a_workload(name, namespace=home)
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    source = {"secretKeyRef": {"name": "token", "key": "password"}}
    container["env"] = [{"name": "PASSWORD", "valueFrom": source}]
    return workload


def unsent_secrets(logs: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The bodies that a dry run has shown."""
    bodies = [one["body"] for one in logs if one["event"] == "effect.not_sent"]
    return [body for body in bodies if body.get("kind") == "Secret"]


def password(member: Member, home: str = HOME) -> str:
    one = found(member, "secret", "token", home)
    return base64.b64decode(one["data"]["password"]).decode() if one else ""


@pytest.mark.usefixtures("emptied")
async def test_secrets_are_copied_where_both_clusters_allow_it_and_are_shown_nowhere(
    members: list[Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    plane: ToldPlane,
    tmp_path: Path,
) -> None:
    member, hub = members[0], members[-1]
    joined, closed = tmp_path / "joined", f"closed-{topic_prefix}".rstrip(".")
    joined.mkdir()
    allowed = (HOME,)
    grant(member, COPY)
    join_for_writing(joined, member, COPY, secret_namespaces=allowed)
    grant(hub, TEMPLATES, allowed)
    join_hub(joined, hub, TEMPLATES, allowed)
    first, second, theirs = (f"{word}-password-of-the-shop" for word in ("old", "new", "bad"))
    for one in (member, hub):
        one.apply(namespace(closed))
    for home in (HOME, closed):
        hub.apply(a_secret(home, "token", first), with_password("api", home))
    hub.apply(a_secret(HOME, "unnamed", first))
    only = in_clusters(member.name)
    await plane.tell(a_cluster(member.name), *nodes(member.name, "one", cpu=64000))
    await plane.tell(
        only, bound("Deployment", "api", HOME, only), bound("Deployment", "api", closed, only)
    )
    context = await a_context(backend, plane.ledger, topic_prefix, clusters=joined)
    dry = await a_context(
        backend, plane.ledger, topic_prefix, clusters=joined, actuator_dry_run=True
    )
    shown: list[object] = []
    try:
        with capture_logs() as logs:
            # Without the right everything else is copied, and doctor names the right.
            (state,) = [
                one
                for one in await write_states(Settings(database=database_url, clusters=joined))
                if one.name == member.name
            ]
            assert state.missing == tuple(
                f"{verb} secrets in {HOME}"
                for verb in ("create", "delete", "list", "patch", "watch")
            )
            async with running(ActuatorService(context)):
                await eventually(lambda: found(member, "deployment", "api"))
                await eventually(lambda: found(member, "deployment", "api", closed))
                assert not password(member)
            grant(member, COPY, allowed)
            audits = [Audit(one) for one in (member, hub)]
            async with running(ActuatorService(dry)):
                await eventually(lambda: unsent_secrets(logs))
            assert [one["data"] for one in unsent_secrets(logs)] == [{"password": "(not shown)"}]
            shown.append(asked_for("effects", database_url, joined, member.name))
            async with running(ActuatorService(context)):
                await eventually(lambda: password(member) == first)
                hub.apply(a_secret(HOME, "token", second))
                await eventually(lambda: password(member) == second)
                changed = json.dumps({"data": a_secret(HOME, "token", theirs)["data"]})
                member.kubectl("patch", "secret", "token", "-n", HOME, "-p", changed)
                await eventually(lambda: answers(logs, "refused", f"Secret {HOME}/token"))
                shown.append(
                    await asyncio.to_thread(
                        asked_for, "drift", database_url, joined, member.name, 1
                    )
                )
                assert password(member) == theirs, "what others have set is left"
                back = run_command(
                    database_url, joined, "release", member.name, "--dry-run", "-o", "json"
                ).stdout
                assert f"Secret {HOME}/token" in [one["object"] for one in json.loads(back)]
                # It goes with its workload.
                await plane.tell(BindingWithdrawn(f"{HOME}/api-deployment"))
                await eventually(lambda: not found(member, "secret", "token"))
            (refused, *_) = answers(logs, "refused", f"Secret {HOME}/token")
            assert ".data.password" in refused["why"], "the field"
        assert not found(member, "secret", "unnamed"), "no workload names it"
        assert not found(member, "secret", "token", closed), "it is not allowed there"
        effects, drift = shown
        assert isinstance(effects, list)
        assert isinstance(drift, list)
        needed = [one["object"] for one in effects if one["action"] == "needs"]
        assert needed == [f"Secret {closed}/token"]
        assert [one["object"] for one in drift] == [f"Secret {HOME}/token"]
        assert drift[0]["decided"] == "data.password"
        latest = await latest_answers(backend, context.wire(EFFECTS.name))
        assert "Secret" in {key[2] for key in latest}
        for content in (first, second, theirs):
            for hidden in (content, base64.b64encode(content.encode()).decode()):
                assert hidden not in f"{logs} {shown} {latest} {back}"
        for audit, verbs in zip(audits, (COPY, TEMPLATES), strict=True):
            assert audit.unused(secret_rules(verbs)) == []
            assert [call for call in audit.calls() if call["responseStatus"]["code"] == 403] == []
    finally:
        for one in (member, hub):
            one.kubectl("delete", "namespace", closed, "--wait=false")


# --- what pods name

DEPENDENCIES = {"configmap": "settings", "secret": "token", "serviceaccount": "seller"}


def naming_all(name: str) -> Json:
    """A workload that names one of each, and of which no two templates run at once."""
    workload = with_password(name, HOME)
    workload["spec"]["strategy"] = {"type": "Recreate"}
    pod = workload["spec"]["template"]["spec"]
    pod["serviceAccountName"] = "seller"
    pod["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return workload


def a_claim(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def a_volume(name: str, claim: str) -> Json:
    """For this claim alone."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": HOME, "name": claim},
            "hostPath": {"path": f"/{name}"},
        },
    }


def volume_of(member: Member, claim: str = "data") -> str:
    """That the claim is bound to."""
    one = found(member, "persistentvolumeclaim", claim)
    bound = one and one["status"].get("phase") == "Bound"
    return str(one["spec"]["volumeName"]) if bound else ""


def role_as_before() -> Json:
    """That of the writer as an earlier version has printed it: without accounts and claims."""
    (role,) = [one for one in actuator_rights(COPY) if one["kind"] == "ClusterRole"]
    rules: Any = role["rules"]
    later = {"serviceaccounts", "persistentvolumeclaims"}
    kept = [
        {**rule, "resources": resources}
        for rule in rules
        if (resources := [one for one in rule["resources"] if one not in later])
    ]
    assert kept != rules
    return {**role, "rules": kept}


@pytest.mark.usefixtures("emptied")
async def test_what_pods_name_goes_with_a_copy_and_all_but_the_claim_ends_with_it(
    members: list[Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    plane: ToldPlane,
    tmp_path: Path,
) -> None:
    member, hub = members[0], members[-1]
    joined, allowed = tmp_path / "joined", (HOME,)
    joined.mkdir()
    grant(member, COPY, allowed)
    join_for_writing(joined, member, COPY, secret_namespaces=allowed)
    grant(hub, TEMPLATES, allowed)
    join_hub(joined, hub, TEMPLATES, allowed)
    volumes = {one: f"{topic_prefix}{one.name}".rstrip(".") for one in (member, hub)}
    only = in_clusters(member.name)
    await plane.tell(a_cluster(member.name), *nodes(member.name, "one", cpu=64000))
    await plane.tell(only, bound("Deployment", "api", HOME, only))
    settings = Settings(database=database_url, clusters=joined)

    async def state() -> WriteState:
        (one,) = [one for one in await write_states(settings) if one.name == member.name]
        return one

    context = await a_context(backend, plane.ledger, topic_prefix, clusters=joined)
    try:
        hub.apply(a_claim("data"), a_volume(volumes[hub], "data"))
        await eventually(lambda: volume_of(hub) == volumes[hub])
        hub.apply(config_map(HOME, "settings"), a_secret(HOME, "token", "of the shop"))
        hub.apply(an_account("seller", automountServiceAccountToken=False), naming_all("api"))
        member.apply(role_as_before())
        assert (await state()).missing == (
            *(f"{verb} serviceaccounts" for verb in ("create", "delete", "list", "patch", "watch")),
            *(f"{verb} persistentvolumeclaims" for verb in ("create", "list", "patch", "watch")),
        )
        async with running(ActuatorService(context)):
            await eventually(lambda: replicas(member, "api") == REPLICAS)
            assert not found(member, "serviceaccount", "seller")
            grant(member, COPY, allowed)
            audit = Audit(member)
            # Now the account is copied, and the member makes the pods.
            await eventually(lambda: _pods(member, "api") == REPLICAS)
            assert (
                found(member, "serviceaccount", "seller")["automountServiceAccountToken"] is False
            )
            await eventually(lambda: found(member, "persistentvolumeclaim", "data"))
            assert not volume_of(member)
            claim = found(member, "persistentvolumeclaim", "data")
            assert "volumeName" not in claim["spec"]
            assert not any(name.startswith("pv.") for name in annotations_of(claim))
            member.apply(a_volume(volumes[member], "data"))
            await eventually(lambda: volume_of(member) == volumes[member])
        # The hub allows no Secrets any more: what its workload names stays.
        join_hub(joined, hub, TEMPLATES)
        async with running(ActuatorService(context)):
            await eventually(lambda: _pods(member, "api") == REPLICAS)
            kept = await state()
            assert kept.kept == (
                f"Secret {HOME}/token named by Deployment {HOME}/api,"
                " and no longer copied from hub",
            )
            assert kept.missing == ()
            # The template names nothing any more.
            hub.apply(naming_none("api"))
            for kind, name in DEPENDENCIES.items():
                await eventually(lambda kind=kind, name=name: not found(member, kind, name))
            assert volume_of(member) == volumes[member]
            await plane.tell(BindingWithdrawn(f"{HOME}/api-deployment"))
            await eventually(lambda: not found(member, "deployment", "api"))
        assert volume_of(member) == volumes[member], "it may hold data"
        (said,) = (await state()).kept
        assert said.startswith(f"PersistentVolumeClaim {HOME}/data no workload names it any more")
        shown = asked_for("effects", database_url, joined, member.name)
        assert [(one["action"], one["object"]) for one in shown] == [
            ("kept", f"PersistentVolumeClaim {HOME}/data")
        ]
        for kind, name in DEPENDENCIES.items():
            assert found(hub, kind, name), "that of the hub"
        claims = [verb for verb, _, _ in audit.writes("persistentvolumeclaims")]
        assert claims == ["create", "patch"], "and nothing since it was bound"
        deleted = {name for verb, name, _ in audit.writes() if verb == "delete"}
        assert deleted == {"api", *DEPENDENCIES.values()}
    finally:
        for one, volume in volumes.items():
            one.kubectl("delete", "persistentvolume", volume, "--ignore-not-found", "--wait=false")


def naming_none(name: str) -> Json:
    workload = a_workload(name)
    workload["spec"]["strategy"] = {"type": "Recreate"}
    # Without it the old name of the field would keep the account.
    workload["spec"]["template"]["spec"]["serviceAccountName"] = "default"
    return workload


def applied(logs: Sequence[Mapping[str, Any]], object: str) -> list[Mapping[str, Any]]:
    return [one for one in logs if one.get("action") == "apply" and one["object"] == object]


def answers(
    logs: Sequence[Mapping[str, Any]], outcome: str, object: str
) -> list[Mapping[str, Any]]:
    """`object`: "": of any."""
    return [
        one
        for one in logs
        if one["event"] == "effect.answered"
        and one["outcome"] == outcome
        and object in ("", one["object"])
    ]


def _owned(member: Member) -> bool:
    """By us alone, as applied; controllers have the status."""
    managers = found(member, "deployment", "web")["metadata"]["managedFields"]
    ours = [one["operation"] for one in managers if one["manager"] == "wharfinger"]
    return ours == ["Apply"]


def _pods(member: Member, name: str = "web") -> int:
    return len(member.items("pods", "-n", HOME, "-l", f"app={name}"))


def _refused(logs: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [
        one
        for one in logs
        if one["event"] == "effect.answered"
        and one["object"] == f"Deployment {HOME}/{name}"
        and one["outcome"] == "refused"
    ]
