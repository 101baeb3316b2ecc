"""Karpenter itself beside an API server, built from its own module: all of its controllers, and its
KWOK provider. That one creates Node objects, which KWOK keeps ready.

It calls the server as its own user, so the audit log tells its writes from ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.kube.programs import karpenter, karpenter_sources
from tests.kube.member import Json, Member
from tests.kube.program import program
from tests.patience import until

USER = "karpenter"
CLASS = "default"
"""Of the nodes that it creates."""


def instance_types() -> Path:
    """The file with the instance types of its KWOK provider."""
    return karpenter_sources() / "kwok" / "cloudprovider" / "instance_types.json"


def node_class(name: str = CLASS) -> Json:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {},
    }


@contextmanager
def karpenter_in(member: Member) -> Iterator[None]:
    """The server has its kinds and one class of nodes, and its controllers run. Afterwards neither
    those kinds nor its nodes are there. On the main thread."""
    kwok = karpenter_sources() / "kwok"
    kinds = [str(kwok / "charts" / "crds"), str(kwok / "apis" / "crds")]
    files = [argument for kind in kinds for argument in ("-f", kind)]
    member.kubectl("apply", "--server-side", "--force-conflicts", *files)
    member.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    member.apply(node_class())
    variables = {
        "KUBECONFIG": str(member.kubeconfig(USER)),
        "DISABLE_LEADER_ELECTION": "true",
        # Any free port. It has no setting for the address.
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
    }
    log = member.directory / "karpenter.log"
    try:
        with program(log, [str(karpenter())], variables):
            try:
                yield
            finally:
                # Its finalizers hold NodeClaims and nodes: they go only while it runs.
                member.kubectl("delete", "nodepools,nodeclaims", "--all", "--wait=false")
                until(lambda: not remains(member), lambda: remains(member))
    finally:
        member.kubectl("delete", *files)
        until(lambda: "karpenter" not in member.kubectl("api-versions"))


def remains(member: Member) -> list[str]:
    """NodeClaims, and the nodes that have its finalizer."""
    found = [*member.items("nodeclaims.karpenter.sh"), *member.items("nodes")]
    return [
        f"{one['kind']} {one['metadata']['name']}"
        for one in found
        if one["kind"] == "NodeClaim" or _holds(one)
    ]


def _holds(node: Json) -> bool:
    return "karpenter.sh/termination" in node["metadata"].get("finalizers", ())


def conditions(claim: Json) -> set[str]:
    """Types of those that are true."""
    said = claim.get("status", {}).get("conditions", ())
    return {one["type"] for one in said if one["status"] == "True"}
