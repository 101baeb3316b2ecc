"""What is still to be written of copied workloads, by decided bindings and what both servers
have."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest

from wharfinger.domain.actuation import COPIED, COPIED_FOR, COPIED_FROM
from wharfinger.events.rendering import Rendered
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.stages.actuator.answers import FIELD_MANAGER, NO_ANSWER, ApiAnswer
from wharfinger.stages.actuator.copied_objects import COPIED_PATHS, DecidedCopies
from wharfinger.stages.actuator.copies import CopyWrite, copy_writes, decided_copies, foreign
from wharfinger.stages.actuator.copy_remains import remaining_copies
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects, name_of
from wharfinger_actuator.copier import CopyWriter
from wharfinger_actuator.objects import ObjectMirror, ObjectWriter, said_of
from wharfinger_actuator.observed_effects import EffectSender

HUB, OSLO = "hub", "oslo"
KINDS = ("Deployment", "StatefulSet")


def a_binding(name: str = "web", kind: str = "StatefulSet", replicas: int = 3) -> Rendered:
    resource = {"apiVersion": "apps/v1", "kind": kind, "namespace": "shop", "name": name}
    return {
        "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": f"{name}-{kind.lower()}"},
        "spec": {"resource": resource, "clusters": [{"name": OSLO, "replicas": replicas}]},
    }


def a_workload(kind: str = "StatefulSet", **pod: Any) -> Rendered:
    container = {
        "name": "main",
        "image": "nginx:1",
        "args": ["-a", "-b"],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 8,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"creationTimestamp": None, "labels": {"app": "web"}},
                "spec": {"containers": [container], **pod},
            },
        },
    }


def a_config_map(name: str) -> Rendered:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": name},
        "data": {"colour": "blue"},
    }


def an_account(name: str, **fields: Any) -> Rendered:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": "shop", "name": name},
        **fields,
    }


def of(*objects: Rendered) -> HubObjects:
    found = HubObjects()
    for one in objects:
        found.of(one["kind"])[name_of(one)] = one
    return found


def observed(wanted: Rendered) -> Rendered:
    """As the member has it after it was written, with a default and the entry of an applier."""
    wanted = deepcopy(wanted)
    metadata = {
        **wanted["metadata"],
        "uid": "u-1",
        "resourceVersion": "7",
        "managedFields": [{"manager": "wharfinger", "operation": "Apply"}],
    }
    return {**wanted, "metadata": metadata, "status": {"replicas": 3}}


def open_writes(
    templates: HubObjects, there: HubObjects, *bindings: Rendered, ours: tuple[str, ...] = ()
) -> list[CopyWrite]:
    return copy_writes(decided_copies(bindings, templates, HUB, OSLO), there, HUB, ours)


def the_copy(template: Rendered) -> Rendered:
    (write,) = open_writes(of(template), of(), a_binding(kind=template["kind"]))
    assert write.what == "create"
    return observed(write.request.body)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_copy_as_it_was_written_is_left(kind: str) -> None:
    template = a_workload(kind)
    copy = the_copy(template)
    assert copy["spec"]["replicas"] == 3
    del copy["spec"]["template"]["metadata"]["creationTimestamp"]
    copy["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    sidecar = {"name": "mesh", "image": "mesh:1"}
    copy["spec"]["template"]["spec"]["containers"].insert(0, sidecar)
    assert open_writes(of(template), of(copy), a_binding(kind=kind)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: copy["spec"].update(replicas=5),
        lambda copy: container_of(copy).update(image="nginx:theirs"),
        lambda copy: container_of(copy).pop("args"),
        lambda copy: container_of(copy).update(args=["-a", "-b", "-c"]),
        lambda copy: copy["metadata"]["labels"].pop("app"),
        lambda copy: copy["spec"]["template"]["spec"]["containers"].clear(),
    ],
    ids=["replicas", "image", "no arguments", "more arguments", "label", "container"],
)
def test_a_copy_that_somebody_has_changed_is_applied_again(change: Any) -> None:
    template = a_workload()
    copy = the_copy(template)
    change(copy)
    (write,) = open_writes(of(a_workload()), of(copy), a_binding())
    assert (write.what, write.object.uid) == ("apply", "u-1")
    assert container_of(write.request.body)["image"] == "nginx:1"
    assert write.request.parameters == {
        "fieldManager": "wharfinger",
        "fieldValidation": "Strict",
    }, "without force"


def container_of(workload: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def test_a_copy_that_was_deleted_is_created_again() -> None:
    template = a_workload()
    copy = the_copy(template)
    copy["metadata"]["deletionTimestamp"] = "2025-06-15T15:06:40Z"
    assert open_writes(of(template), of(copy), a_binding()) == [], "it ends"
    (write,) = open_writes(of(template), of(), a_binding())
    assert (write.what, write.request.method) == ("create", "POST")


def test_an_object_without_our_annotation_is_left() -> None:
    template = a_workload()
    copy = the_copy(template)
    del copy["metadata"]["annotations"][COPIED_FROM]
    assert open_writes(of(template), of(copy), a_binding()) == []


def test_the_certificate_that_each_cluster_makes_is_not_copied() -> None:
    sources = [{"configMap": {"name": "kube-root-ca.crt"}}, {"configMap": {"name": "settings"}}]
    template = a_workload(volumes=[{"name": "all", "projected": {"sources": sources}}])
    templates = of(template, a_config_map("kube-root-ca.crt"), a_config_map("settings"))
    created = [write.object.name for write in open_writes(templates, of(), a_binding())]
    assert created == ["settings", "web"]


def test_every_config_map_that_a_pod_names_is_copied_and_no_secret() -> None:
    template = a_workload(
        initContainers=[{"name": "init", "envFrom": [{"configMapRef": {"name": "a"}}]}],
        volumes=[
            {"name": "b", "configMap": {"name": "b", "optional": True}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
            {"name": "d", "secret": {"secretName": "d"}},
        ],
    )
    key = {"configMapKeyRef": {"name": "e", "key": "k"}}
    container_of(template)["env"] = [{"name": "E", "valueFrom": key}]
    templates = of(template, *(a_config_map(name) for name in "abcdef"))
    created = [str(write.object) for write in open_writes(templates, of(), a_binding())]
    maps = [f"ConfigMap shop/{name}" for name in "abce"]
    assert created == [*maps, "StatefulSet shop/web"]


def test_what_cannot_be_copied_is_named() -> None:
    bindings = (a_binding("web"), a_binding("daily", "CronJob"))
    decided = decided_copies(bindings, of(), HUB, OSLO)
    assert {str(object): left.why for object, left in decided.left_out.items()} == {
        "StatefulSet shop/web": "its template is not in hub",
        "CronJob shop/daily": "apps/v1 CronJob is no kind that is copied",
    }
    assert decided.bindings == {"shop/web-statefulset", "shop/daily-cronjob"}


def test_only_copies_of_decided_bindings_are_removed() -> None:
    copy = the_copy(a_workload())
    assert copy["metadata"]["annotations"][COPIED_FOR] == "shop/web-statefulset"
    assert copy["metadata"]["annotations"][COPIED]
    assert open_writes(of(a_workload()), of(copy)) == []
    (write,) = open_writes(of(a_workload()), of(copy), ours=("shop/web-statefulset",))
    assert write.request.body["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}


def test_a_copy_waits_for_the_watches_of_its_kind_and_for_no_other() -> None:
    access = Access("https://oslo.test")
    joined = JoinedCluster("oslo", access, "act", verbs=("copy",))
    context = ServiceContext(Settings(), cast(Backend, None), cast(Ledger, None), {}, {})
    writer = ObjectWriter(joined, context, "test")
    deployments, others = (ObjectMirror(kind, {}, asyncio.Event()) for kind in KINDS)
    writer._mirrors = [deployments, others]
    templates = of(a_workload("Deployment"), a_workload("StatefulSet"))
    bindings = [a_binding(kind=kind) for kind in KINDS]
    writes = open_writes(templates, of(), *bindings)
    assert [write.object.kind for write in writer._sendable(writes)] == [*KINDS]
    deployments.broken("reset")
    assert [write.object.kind for write in writer._sendable(writes)] == ["StatefulSet"]
    assert writer.why == "reset"
    deployments.alive("8")
    assert len(writer._sendable(writes)) == 2


# --- ServiceAccounts


def test_the_account_of_a_workload_is_copied_before_it_and_without_its_tokens() -> None:
    account = an_account(
        "seller",
        automountServiceAccountToken=False,
        imagePullSecrets=[{"name": "registry"}],
        secrets=[{"name": "seller-token-x"}],
    )
    account["metadata"]["annotations"] = {"cloud.example/role": "seller"}
    templates = of(a_workload(serviceAccountName="seller"), account, an_account("default"))
    first, second = open_writes(templates, of(), a_binding())
    assert (str(first.object), first.request.method) == ("ServiceAccount shop/seller", "POST")
    assert str(second.object) == "StatefulSet shop/web"
    assert first.request.path == "/api/v1/namespaces/shop/serviceaccounts"
    body = first.request.body
    assert body["automountServiceAccountToken"] is False
    assert body["imagePullSecrets"] == [{"name": "registry"}]
    assert "secrets" not in body
    assert body["metadata"]["annotations"]["cloud.example/role"] == "seller"
    there = of(observed(body), observed(second.request.body))
    there.of("ServiceAccount")["shop/seller"]["secrets"] = [{"name": "seller-token-y"}]
    assert open_writes(templates, there, a_binding()) == []
    gone = open_writes(templates, there, ours=("shop/web-statefulset",))
    assert [f"{one.what} {one.object}" for one in gone] == [
        "delete StatefulSet shop/web",
        "delete ServiceAccount shop/seller",
    ]


def test_the_default_account_is_not_copied() -> None:
    templates = of(a_workload(serviceAccountName="default"), an_account("default"))
    (write,) = open_writes(templates, of(), a_binding())
    assert write.object.kind == "StatefulSet"
    pulls = an_account("default", imagePullSecrets=[{"name": "of-the-hub"}])
    writes = secret_writes(of(a_workload(), pulls, a_secret("of-the-hub")), of(), "shop")
    assert [one.object.kind for one in writes] == ["StatefulSet"], "nor what it names"


def test_an_account_of_others_serves_as_it_is() -> None:
    templates = of(a_workload(serviceAccountName="seller"), an_account("seller"))
    there = of(an_account("seller", automountServiceAccountToken=False))
    decided = decided_copies([a_binding()], templates, HUB, OSLO)
    assert [one.object.kind for one in copy_writes(decided, there, HUB, ())] == ["StatefulSet"]
    assert foreign(decided, there, HUB) == {}


def test_secrets_of_an_account_are_copied_where_they_are_allowed() -> None:
    account = an_account("seller", imagePullSecrets=[{"name": "named"}])
    templates = of(a_workload(serviceAccountName="seller"), account, a_secret("named"))
    kinds = [one.object.kind for one in secret_writes(templates, of(), "shop")]
    assert kinds == ["Secret", "ServiceAccount", "StatefulSet"]
    assert [one.object.kind for one in secret_writes(templates, of())] == kinds[1:]


def test_accounts_that_may_not_be_read_keep_nothing_else_from_being_copied() -> None:
    template = a_workload(serviceAccountName="seller")
    templates = of(template, an_account("seller"))
    decided = decided_copies([a_binding()], templates, HUB, OSLO, unread=["ServiceAccount"])
    (write,) = copy_writes(decided, of(), HUB, ())
    assert write.object.kind == "StatefulSet"


@pytest.mark.parametrize("side", ["hub", "member"])
def test_only_kinds_that_a_server_refuses_are_left_out(side: str) -> None:
    """What is only not known yet is waited for."""
    access = Access("https://oslo.test")
    joined = JoinedCluster(OSLO, access, "act", verbs=("copy",))
    hub = JoinedCluster(HUB, access, "fleet", hub=True, verbs=("templates",))
    context = ServiceContext(Settings(), cast(Backend, None), cast(Ledger, None), {}, {})
    writer = CopyWriter(joined, hub, context, "test", cast(EffectSender, None))
    writer._bindings = [a_binding()]
    servers = {"hub": writer._templates, "member": writer._observed}
    mirrors = {
        (where, kind): ObjectMirror(kind, objects.of(kind), asyncio.Event())
        for where, objects in servers.items()
        for kind in COPIED_PATHS
    }
    writer._mirrors = [*mirrors.values()]
    for place, mirror in mirrors.items():
        if place != (side, "ServiceAccount"):
            mirror.replace([], "1")
    template = a_workload(serviceAccountName="seller")
    mirrors["hub", "StatefulSet"].replace([template], "1")
    if side == "member":
        mirrors["hub", "ServiceAccount"].replace([an_account("seller")], "1")
    assert writer.open() == []
    mirrors[side, "ServiceAccount"].broken("403 Forbidden")
    assert [write.object.kind for write in writer.open()] == ["StatefulSet"]
    mirrors[side, "ServiceAccount"].replace([], "1")
    found = [write.object.kind for write in writer.open()]
    assert found == ["ServiceAccount", "StatefulSet"][side == "hub" :]
    mirrors[side, "Deployment"].listed = False
    mirrors[side, "Deployment"].broken("403 Forbidden")
    assert writer.open() == []


# --- PersistentVolumeClaims


def a_claim(name: str, **spec: Any) -> Rendered:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        | spec,
    }


def with_claim(name: str) -> Rendered:
    return a_workload(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])


def test_a_claim_is_copied_without_its_binding() -> None:
    claim = a_claim("data", volumeName="pv-of-the-hub", storageClassName="fast")
    claim["metadata"]["annotations"] = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/selected-node": "node-of-the-hub",
        "volume.kubernetes.io/storage-provisioner": "csi.example",
        "team": "shop",
    }
    claim["status"] = {"phase": "Bound"}
    templates = of(with_claim("data"), claim)
    first, second = open_writes(templates, of(), a_binding())
    assert str(first.object) == "PersistentVolumeClaim shop/data"
    assert str(second.object) == "StatefulSet shop/web", "after its claim"
    body = first.request.body
    assert body["spec"] == a_claim("data", storageClassName="fast")["spec"]
    assert "status" not in body
    kept = {*body["metadata"]["annotations"]}
    assert kept == {"team", COPIED_FROM, COPIED_FOR, COPIED}
    assert claim["spec"]["volumeName"] == "pv-of-the-hub", "the template is as it was"
    # Bound in the member, it is as it was copied, and so it is when the hub binds its own.
    there = observed(body)
    there["spec"]["volumeName"] = "pv-of-the-member"
    there["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    claim["spec"]["volumeName"] = "another"
    assert open_writes(templates, of(there, observed(second.request.body)), a_binding()) == []


def test_a_claim_is_never_deleted_and_it_is_said() -> None:
    templates = of(with_claim("data"), a_claim("data"))
    writes = open_writes(templates, of(), a_binding())
    there = of(*(observed(one.request.body) for one in writes))
    decided = decided_copies([], templates, HUB, OSLO)
    gone = copy_writes(decided, there, HUB, OURS)
    assert [f"{one.what} {one.object}" for one in gone] == ["delete StatefulSet shop/web"]
    del there.of("StatefulSet")["shop/web"]
    assert copy_writes(decided, there, HUB, OURS) == []
    assert kept(decided, there) == {
        "PersistentVolumeClaim shop/data": "no workload names it any more; it may hold data, so it"
        " is yours to delete"
    }
    # It is used again when the workload comes back.
    (again,) = open_writes(templates, there, a_binding())
    assert str(again.object) == "StatefulSet shop/web"


def test_claims_of_others_are_used_and_left() -> None:
    templates = of(with_claim("data"), a_claim("data"))
    there = of(a_claim("data", storageClassName="theirs"))
    decided = decided_copies([a_binding()], templates, HUB, OSLO)
    assert [one.object.kind for one in copy_writes(decided, there, HUB, ())] == ["StatefulSet"]
    assert foreign(decided, there, HUB) == {}
    assert kept(decided, there) == {}


# --- what is no longer used

OURS = ("shop/web-statefulset", "shop/web-deployment")


def kept(decided: DecidedCopies, there: HubObjects) -> dict[str, str]:
    found = remaining_copies(decided, there, HUB, OURS)
    return {str(one.object): one.why for one in found if one.why}


def rolled_out(copy: Rendered, **status: int) -> Rendered:
    copy["metadata"]["generation"] = 2
    copy["status"] = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, **status}
    return copy


def named_before() -> tuple[HubObjects, HubObjects]:
    """Hub and member: a workload named them, and names nothing any more."""
    names: Rendered = {
        "serviceAccountName": "seller",
        "volumes": [{"name": "m", "configMap": {"name": "settings"}}],
        "imagePullSecrets": [{"name": "token"}],
    }
    rest = a_config_map("settings"), an_account("seller"), a_secret("token")
    writes = secret_writes(of(a_workload(**names), *rest), of(), "shop")
    assert len(writes) == 4
    there = of(*(observed(one.request.body) for one in writes))
    templates = of(a_workload(), *rest)
    (applied,) = secret_writes(templates, there, "shop", ours=OURS)
    assert str(applied.object) == "StatefulSet shop/web", "the copy itself still names them"
    there.of("StatefulSet")["shop/web"] = rolled_out(observed(applied.request.body))
    return templates, there


def removed(templates: HubObjects, there: HubObjects, *secrets: str) -> list[str]:
    writes = secret_writes(templates, there, *secrets, ours=OURS)
    assert {one.what for one in writes} <= {"delete"}
    assert all(one.request.body["preconditions"]["uid"] == "u-1" for one in writes)
    return [str(one.object) for one in writes]


GONE = ["ServiceAccount shop/seller", "Secret shop/token", "ConfigMap shop/settings"]


def test_what_a_template_no_longer_names_is_removed() -> None:
    assert removed(*named_before(), "shop") == GONE


def test_secrets_of_a_namespace_that_the_hub_allows_no_more_go_as_well() -> None:
    """They are known in the member alone."""
    assert removed(*named_before()) == GONE


@pytest.mark.parametrize(
    "status",
    [{"observedGeneration": 1}, {"updatedReplicas": 2}],
    ids=["not seen yet", "pods of an earlier template"],
)
def test_nothing_is_removed_while_pods_may_need_it(status: dict[str, int]) -> None:
    templates, there = named_before()
    rolled_out(there.of("StatefulSet")["shop/web"], **status)
    assert removed(templates, there, "shop") == []
    decided = decided_copies([a_binding()], templates, HUB, OSLO, ["shop"])
    assert {*kept(decided, there).values()} == {
        "pods of an earlier template of StatefulSet shop/web may need it"
    }


def test_what_is_not_ours_is_not_removed() -> None:
    templates, there = named_before()
    for kind in ("ServiceAccount", "Secret", "ConfigMap"):
        (one,) = there.of(kind).values()
        del one["metadata"]["annotations"][COPIED_FROM]
    assert removed(templates, there, "shop") == []
    templates, there = named_before()
    assert secret_writes(templates, there, "shop", ours=()) == [], "of another ledger"


def test_what_a_workload_of_others_names_is_kept() -> None:
    templates, there = named_before()
    theirs = a_workload("Deployment", volumes=[{"name": "m", "configMap": {"name": "settings"}}])
    theirs["metadata"]["name"] = "theirs"
    there.of("Deployment")["shop/theirs"] = theirs
    assert removed(templates, there, "shop") == GONE[:2]
    decided = decided_copies([a_binding()], templates, HUB, OSLO, ["shop"])
    assert kept(decided, there) == {
        "ConfigMap shop/settings": "named by Deployment shop/theirs, and no longer copied from hub"
    }
    theirs["metadata"]["namespace"] = "elsewhere"
    assert removed(templates, there, "shop") == GONE


def test_a_template_that_is_away_removes_nothing() -> None:
    templates, there = named_before()
    del templates.of("StatefulSet")["shop/web"]
    assert removed(templates, there, "shop") == []


def test_an_object_that_is_away_from_the_hub_stays_with_the_workload_that_names_it() -> None:
    template = a_workload(volumes=[{"name": "m", "configMap": {"name": "settings"}}])
    writes = open_writes(of(template, a_config_map("settings")), of(), a_binding())
    there = of(*(observed(one.request.body) for one in writes))
    assert open_writes(of(template), there, a_binding(), ours=OURS) == []
    there = of(there.of("ConfigMap")["shop/settings"])
    (write,) = open_writes(of(template), there, a_binding(), ours=OURS)
    assert str(write.object) == "StatefulSet shop/web", "it is needed as soon as this is there"


def test_secrets_stay_while_accounts_may_not_be_read() -> None:
    templates, there = named_before()
    decided = decided_copies([a_binding()], templates, HUB, OSLO, ["shop"], ["ServiceAccount"])
    writes = copy_writes(decided, there, HUB, OURS)
    assert [str(one.object) for one in writes] == GONE[2:]
    assert kept(decided, there) == {
        "Secret shop/token": "a ServiceAccount may name it, and they may not be read"
    }


def test_a_removal_waits_for_the_watches_of_workloads() -> None:
    context = ServiceContext(Settings(), cast(Backend, None), cast(Ledger, None), {}, {})
    joined = JoinedCluster("oslo", Access("https://oslo.test"), "act", verbs=("copy",))
    writer = ObjectWriter(joined, context, "test")
    deployments = ObjectMirror("Deployment", {}, asyncio.Event())
    accounts = ObjectMirror("ServiceAccount", {}, asyncio.Event())
    writer._mirrors = [deployments, accounts]
    writes = secret_writes(*named_before(), "shop", ours=OURS)
    assert [str(one.object) for one in writer._sendable(writes)] == GONE
    accounts.broken("reset")
    assert [str(one.object) for one in writer._sendable(writes)] == GONE[2:]
    accounts.alive("8")
    deployments.broken("reset")
    assert writer._sendable(writes) == []


# --- Secrets


CONTENT = "cGFzc3dvcmQtb2Ytc2hvcA=="


def a_secret(name: str, version: str = "5", type: str = "Opaque") -> Rendered:
    last = "kubectl.kubernetes.io/last-applied-configuration"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            "annotations": {last: f'{{"data":{{"key":"{CONTENT}"}}}}'},
        },
        "type": type,
        "data": {"key": CONTENT},
    }


def with_secrets(*names: str) -> Rendered:
    """A workload that names them."""
    pulls = [{"name": name} for name in names]
    return a_workload(imagePullSecrets=pulls)


def secret_writes(
    templates: HubObjects, there: HubObjects, *secrets: str, ours: tuple[str, ...] = ()
) -> list[CopyWrite]:
    """`secrets`: namespaces whose Secrets are copied."""
    decided = decided_copies([a_binding()], templates, HUB, OSLO, secrets)
    return copy_writes(decided, there, HUB, ours)


def test_a_secret_is_copied_only_where_it_is_allowed_and_named() -> None:
    templates = of(with_secrets("named"), a_secret("named"), a_secret("other"))
    assert [str(one.object) for one in secret_writes(templates, of())] == ["StatefulSet shop/web"]
    elsewhere = secret_writes(templates, of(), "warehouse")
    assert [str(one.object) for one in elsewhere] == ["StatefulSet shop/web"]
    secret, workload = secret_writes(templates, of(), "shop")
    assert (str(secret.object), str(workload.object)) == (
        "Secret shop/named",
        "StatefulSet shop/web",
    ), "before the workload"
    assert secret.request.path == "/api/v1/namespaces/shop/secrets"
    assert secret.request.body["data"] == {"key": CONTENT}
    assert secret.request.body["type"] == "Opaque"
    assert secret.right == "copy Secret in shop"


@pytest.mark.parametrize(
    "type", ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"]
)
def test_a_secret_of_one_cluster_is_not_copied(type: str) -> None:
    templates = of(with_secrets("named"), a_secret("named", type=type))
    writes = secret_writes(templates, of(), "shop")
    assert [str(one.object) for one in writes] == ["StatefulSet shop/web"]


def test_nothing_of_what_a_secret_holds_is_shown_or_annotated() -> None:
    templates = of(with_secrets("named"), a_secret("named"))
    secret, workload = secret_writes(templates, of(), "shop")
    assert secret.shown["data"] == {"key": "(not shown)"}
    assert CONTENT not in str(secret.shown)
    assert CONTENT not in str(secret.request.body["metadata"])
    assert workload.shown == workload.request.body
    another = a_secret("named")
    another["data"] = {"key": "b3RoZXI="}
    same, _ = secret_writes(of(with_secrets("named"), another), of(), "shop")
    marks = [one.request.body["metadata"]["annotations"][COPIED] for one in (secret, same)]
    assert marks[0] == marks[1], "the annotation is no digest of the content"


def test_a_secret_is_written_again_when_it_has_changed_on_either_side() -> None:
    templates = of(with_secrets("named"), a_secret("named"))
    there = of(*(observed(one.request.body) for one in secret_writes(templates, of(), "shop")))
    assert secret_writes(templates, there, "shop") == []
    newer = a_secret("named", version="6")
    (changed,) = secret_writes(of(with_secrets("named"), newer), there, "shop")
    assert (changed.what, str(changed.object)) == ("apply", "Secret shop/named")
    assert CONTENT not in str(changed.shown)
    there.of("Secret")["shop/named"]["data"] = {"key": "b3RoZXI="}
    (taken,) = secret_writes(templates, there, "shop")
    assert taken.what == "apply"
    del there.of("Secret")["shop/named"]["metadata"]["annotations"][COPIED_FROM]
    assert secret_writes(templates, there, "shop") == [], "that of others"


def test_a_secret_goes_with_its_workload_and_stays_where_it_is_allowed_no_more() -> None:
    templates = of(with_secrets("named"), a_secret("named"))
    there = of(*(observed(one.request.body) for one in secret_writes(templates, of(), "shop")))
    ours = ("shop/web-statefulset",)
    assert secret_writes(templates, there, ours=ours) == []
    decided = decided_copies([], templates, HUB, OSLO, ("shop",))
    gone = copy_writes(decided, there, HUB, ours)
    assert [f"{one.what} {one.object}" for one in gone] == [
        "delete StatefulSet shop/web",
        "delete Secret shop/named",
    ]


def test_a_broken_watch_of_secrets_stops_those_of_its_namespace_alone() -> None:
    context = ServiceContext(Settings(), cast(Backend, None), cast(Ledger, None), {}, {})
    joined = JoinedCluster("oslo", Access("https://oslo.test"), "act", verbs=("copy",))
    writer = ObjectWriter(joined, context, "test")
    known: dict[str, Rendered] = {}
    wake = asyncio.Event()
    workloads = ObjectMirror("StatefulSet", {}, wake)
    shop, other = (ObjectMirror("Secret", known, wake, name) for name in ("shop", "shop-2"))
    writer._mirrors = [workloads, shop, other]
    second = a_secret("x")
    second["metadata"]["namespace"] = "shop-2"
    other.replace([second], "1")
    shop.replace([a_secret("named")], "1")
    assert sorted(known) == ["shop-2/x", "shop/named"]
    shop.replace([], "2")
    assert sorted(known) == ["shop-2/x"], "a list of one namespace says nothing of another"
    assert (shop.gone, other.gone) == ({"shop/named"}, set())
    writes = secret_writes(of(with_secrets("named"), a_secret("named")), of(), "shop")
    other.broken("reset")
    assert len(writer._sendable(writes)) == 2
    shop.broken("forbidden")
    assert [one.object.kind for one in writer._sendable(writes)] == ["StatefulSet"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ApiAnswer(403, "Forbidden", f"webhook: {CONTENT}"), "(not shown)"),
        (ApiAnswer(422, "Invalid", f"data: {CONTENT}"), "(not shown)"),
        (ApiAnswer(409, "Conflict", f"webhook: {CONTENT}"), "(not shown)"),
        (ApiAnswer(409, "Conflict", "by kubectl", (FIELD_MANAGER,)), "by kubectl"),
        (ApiAnswer(NO_ANSWER, message="reset"), "reset"),
        (ApiAnswer(200), ""),
    ],
)
def test_an_answer_about_a_secret_cannot_quote_it(answer: ApiAnswer, message: str) -> None:
    said = said_of(EffectObject("Secret", "shop", "named"), answer)
    assert said == replace(answer, message=message)
    assert said_of(EffectObject("ConfigMap", "shop", "named"), answer) == answer
