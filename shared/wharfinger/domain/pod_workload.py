"""Which workload a pod belongs to, by the chain of its controllers, and which number it has there.

A ReplicaSet that a Deployment made has the name of the Deployment and the hash of its template,
which its pods have as a label; so no other object needs to be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.binding import bound_name
from wharfinger.domain.node import Pod
from wharfinger.domain.workload import ObjectRef

TEMPLATE_HASH = "pod-template-hash"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_MAX = 10_000_000
"""Greater numbers are not taken for an index. Kubernetes itself allows 100,000 completions of an
indexed Job."""

_OF_ITS_NODE = ("DaemonSet", "Node")


def binding_of(
    namespace: str, name: str, labels: Mapping[str, str], controller: tuple[str, str]
) -> str:
    """Returns the binding of a pod. `controller`: kind and name of the object that made it; empty
    texts: none did, and the pod is a workload of its own. Empty for pods that belong to their node
    (of a DaemonSet, or static). Example: `web-6b7-x2` of the ReplicaSet `web-6b7`, with the label
    `pod-template-hash: 6b7`, gives `shop/web-deployment`."""
    kind, owner = controller
    if kind in _OF_ITS_NODE:
        return ""
    if not kind:
        kind, owner = "Pod", name
    elif kind == "ReplicaSet":
        made_from = owner.removesuffix(f"-{labels.get(TEMPLATE_HASH, '')}")
        if labels.get(TEMPLATE_HASH) and made_from != owner:
            kind, owner = "Deployment", made_from
    return bound_name(ObjectRef("", kind, owner, namespace))


def index_of(name: str, labels: Mapping[str, str], controller: tuple[str, str]) -> int:
    """Returns the number that a StatefulSet or an indexed Job gave the pod; -1: it has none."""
    kind, owner = controller
    if kind == "StatefulSet":
        said = labels.get(POD_INDEX, name.removeprefix(f"{owner}-"))
    elif kind == "Job":
        said = labels.get(COMPLETION_INDEX, "")
    else:
        return -1
    return int(said) if said.isascii() and said.isdecimal() and int(said) <= INDEX_MAX else -1


def controller_of(pod: Pod) -> tuple[str, str] | None:
    """Returns kind and name of the object that made the observed pod; empty texts: none did. None:
    that is not known."""
    if pod.upkeep is None:
        return None
    kind = pod.requirements.traits.owner
    if not kind:
        return "", ""
    return next(((o.kind, o.name) for o in pod.upkeep.owners if o.kind == kind), None)


def workload_of(pod: Pod) -> str:
    """Returns the binding of an observed pod: the one that it reports, else by its controllers.
    Empty: it belongs to its node, or nothing is known of its controllers."""
    if pod.binding:
        return pod.binding
    controller = controller_of(pod)
    if controller is None:
        return ""
    traits = pod.requirements.traits
    return binding_of(traits.home, pod.name, traits.labels, controller)


def number_of(pod: Pod) -> int:
    """Returns the number that a StatefulSet or an indexed Job gave the observed pod; -1: it has
    none, or it is not known."""
    controller = controller_of(pod)
    if controller is None:
        return -1
    return index_of(pod.name, pod.requirements.traits.labels, controller)
