"""An object of any API, as far as placement reads one whose kind has no model here: its name, its
labels, and its replicas.

Replicas are read where the shape has them: a whole number `spec.replicas` beside a pod template
`spec.template`, as in Argo Rollouts, OpenKruise's CloneSets and most workloads of operators. Of
such an object the pod template is checked as that of a Deployment. For all others the annotation
`wharfinger.io/replicas` says how many replicas there are to divide; without it the object goes to
its clusters as it is.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from wharfinger.manifests.kubernetes.pod import PodTemplate
from wharfinger.manifests.model import Count, ExpectedError, Model, NamedMetadata, Object, Resource

REPLICAS = "wharfinger.io/replicas"
"""Annotation of an object whose shape has no replicas: how many are to be divided."""
REPLICAS_MAX = 2**31 - 1

CLUSTER_SCOPED = frozenset(
    (
        ("", "ComponentStatus"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("certificates.k8s.io", "ClusterTrustBundle"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("gateway.networking.k8s.io", "GatewayClass"),
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy", "PodSecurityPolicy"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
        ("storagemigration.k8s.io", "StorageVersionMigration"),
    )
)
"""(group, kind) of Kubernetes' own kinds without a namespace, and of the Gateway API. The scope of
other kinds is that of their CustomResourceDefinition where it is applied together with them; else
an object without a namespace is one of the namespace `default`, as for kubectl."""

STEERS_KARMADA = frozenset(
    (
        "cluster.karmada.io",
        "config.karmada.io",
        "networking.karmada.io",
        "operator.karmada.io",
        "policy.karmada.io",
        "work.karmada.io",
    )
)
"""Groups whose objects say something to Karmada itself. Karmada never places them either."""


def group_of(api_version: str) -> str:
    """The API group of an apiVersion; empty: the core group."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""


def _path_segment(name: object) -> object:
    """Names of RBAC objects may hold `:` and capitals. What no API server takes is refused."""
    if isinstance(name, str) and (
        not name or len(name) > 253 or name in (".", "..") or "/" in name or "%" in name
    ):
        raise ExpectedError("a name of at most 253 characters without '/' and '%'")
    return name


class AnyMetadata(NamedMetadata):
    name: Annotated[str, BeforeValidator(_path_segment)] | None = None


class Replicated(Model):
    """The part `spec` of a kind that has replicas of one pod template."""

    replicas: Count
    template: PodTemplate


def _replicated(spec: object) -> object:
    """The fields that are read where the spec has the shape, else None."""
    if not isinstance(spec, dict):
        return None
    template, replicas = spec.get("template"), spec.get("replicas")
    if not isinstance(template, dict) or isinstance(replicas, bool):
        return None
    pod = template.get("spec")
    if not isinstance(replicas, int | float) or not isinstance(pod, dict):
        return None
    if not isinstance(pod.get("containers"), list):
        return None
    return {"replicas": replicas, "template": template}


class AnyObject(Object):
    """`spec`: None where the kind has not the shape of replicas with a pod template."""

    model_config = {"extra": "ignore"}

    metadata: AnyMetadata
    spec: Annotated[Replicated | None, BeforeValidator(_replicated)] = None

    @property
    def priority_class(self) -> str:
        return self.spec.template.spec.priority_class_name if self.spec is not None else ""


class Nameless(Resource):
    """A document for a tool (kustomize, kind): it has kind and apiVersion, and no name by which an
    API server could keep it."""

    model_config = {"extra": "ignore"}


def has_name(raw: dict[str, object]) -> bool:
    metadata = raw.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("name") or metadata.get("generateName"))


def annotated_replicas(found: Object) -> int | None:
    """What the annotation says; None: it is not there. Raises ExpectedError for what is no whole
    number, not negative and below 2^31."""
    said = found.annotations.get(REPLICAS)
    if said is None:
        return None
    if said.isascii() and said.isdigit() and len(said) <= 10 and int(said) <= REPLICAS_MAX:
        return int(said)
    raise ExpectedError(
        f"a whole number from 0 to {REPLICAS_MAX}", "metadata", "annotations", REPLICAS
    )
