"""The HTTP extender protocol of kube-scheduler, as pure functions between values and JSON, for both
sides: calling an extender, and being one.

The runtime does the IO. The JSON keys are Go field names with capitals; they are read
case-insensitively, as Go's decoder does. An invalid answer raises ValueError with one line.
[kube-scheduler, extender v1]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Extender
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.status import Status, unresolvable, unschedulable

SCORE_MAX = 10
"""The highest score that an extender gives a node; a plugin's scale ends at 100."""
LEFT_OUT = "node(s) were left out by an extender"

Json = Mapping[str, Any]
if TYPE_CHECKING:
    from wharfinger.manifests.model import Resource

M = TypeVar("M", bound="Resource")
T = TypeVar("T")


# What goes over the wire.


class Victims(Value, frozen=True):
    """Names the pods that preemption would evict from a node (`uids`), and how many disruption
    budget violations these evictions cause."""

    uids: tuple[str, ...]
    violations: int = 0


class ExtenderFilterResult(Value, frozen=True):
    """Holds the extender's answer to the filter verb. `nodes`: names of the accepted nodes; None:
    the extender accepts every node that it does not refuse. `failed`, `unresolvable`: node ->
    reason; preemption can help only with `failed`. `error`: why the extender could not answer."""

    nodes: tuple[str, ...] | None = None
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    error: str = ""


class ExtenderRequest(Value, frozen=True):
    """Holds what a kube-scheduler sends with the filter and prioritize verbs. `names`: all nodes,
    in order. `nodes`: the same nodes as objects; None where the request has names only
    (nodeCacheCapable)."""

    pod: Pod
    names: tuple[str, ...]
    nodes: tuple[Node, ...] | None = None


class AskedToPreempt(Value, frozen=True):
    """Holds what a kube-scheduler sends with the preempt verb. `victims`: node -> pods that it
    would evict. `full`: the request had the pods as objects, and not only their uids."""

    pod: Pod
    victims: dict[str, Victims]
    full: bool = False


class AskedToBind(Value, frozen=True):
    name: str
    namespace: str
    uid: str
    node: str


# Asking an extender.


def interested(extender: Extender, requirements: Requirements) -> bool:
    """Return whether the scheduler calls the extender for a pod with these requirements: the
    extender manages no particular resource, or it manages a resource that the pod requests."""
    managed = {resource.name for resource in extender.resources}
    asked = {*requirements.requests, *(device.kind for device in requirements.devices)}
    return not managed or not managed.isdisjoint(asked)


def url(extender: Extender, verb: str) -> str:
    return f"{extender.url.rstrip('/')}/{verb.lstrip('/')}"


def nodes_body(extender: Extender, pod: Pod, nodes: Iterable[Node]) -> bytes:
    """Build the JSON body of a request to a scheduler extender, for the filter and prioritize
    verbs: the pod and the nodes to filter or score. The body has only the names of the nodes where
    the extender is nodeCacheCapable (it keeps its own node cache), otherwise the node objects."""
    from wharfinger.manifests.kubernetes.serialize import node_manifest, pod_manifest

    if extender.node_cache_capable:
        return _body(
            {"Pod": pod_manifest(pod), "Nodes": None, "NodeNames": [node.name for node in nodes]}
        )
    items = [node_manifest(node) for node in nodes]
    return _body(
        {"Pod": pod_manifest(pod), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    )


def preempt_body(
    extender: Extender, pod: Pod, victims: Mapping[str, tuple[Sequence[Pod], int]]
) -> bytes:
    """Build the JSON body of a request to a scheduler extender, for the preempt verb: the pod that
    needs room, and for each node the pods that would be evicted.

    `victims`: node -> (pods to evict from the node, number of PodDisruptionBudget violations that
      these evictions cause).

    Where the extender is nodeCacheCapable (it keeps its own cache), the pods to evict are sent as
    uids, otherwise as objects.
    """
    from wharfinger.manifests.kubernetes.serialize import pod_manifest

    by_uid = extender.node_cache_capable
    told = {
        node: {
            "Pods": [{"UID": pod.uid} if by_uid else pod_manifest(pod) for pod in pods],
            "NumPDBViolations": violations,
        }
        for node, (pods, violations) in victims.items()
    }
    whole, meta = ({}, told) if by_uid else (told, {})
    return _body(
        {"Pod": pod_manifest(pod), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta}
    )


def bind_body(pod: Pod, node: str) -> bytes:
    namespace = pod.requirements.traits.home
    return _body({"PodName": pod.name, "PodNamespace": namespace, "PodUID": pod.uid, "Node": node})


# What it answered.


def filter_answer(body: str | bytes, extender: Extender) -> ExtenderFilterResult:
    """Parse the JSON answer of a scheduler extender to the filter verb. Return the names of the
    accepted nodes, the refused nodes with the reasons in two groups (preemption may help;
    preemption cannot help), and the error text.

    `NodeNames` is read only where the extender is nodeCacheCapable (it keeps its own node cache);
    without `NodeNames`, `Nodes` is read. An answer with neither list accepts no node, as in
    kube-scheduler. Raise ValueError for an invalid answer.
    """
    answer = _object(body, "an answer to filter")
    nodes: tuple[str, ...] = ()
    if extender.node_cache_capable and answer.get("nodenames") is not None:
        nodes = tuple(_list(answer, "nodenames", str))
    elif answer.get("nodes") is not None:
        nodes = tuple(_name_of(node) for node in _items(answer["nodes"]))
    return ExtenderFilterResult(
        nodes,
        _texts(answer, "failednodes"),
        _texts(answer, "failedandunresolvablenodes"),
        _text(answer, "error"),
    )


def priorities_answer(body: str | bytes) -> dict[str, int]:
    """Parse the JSON answer of a scheduler extender to the prioritize verb. Return node -> score,
    from 0 to 10.

    JSON null means no scores. An entry without a score has score 0. If a node has two entries, the
    last is used. Raise ValueError for an invalid answer, also for a score outside of 0..10.

    Example: [{"Host": "a", "Score": 7}] gives {"a": 7}.
    """
    found = _json(body)
    if found is None:
        return {}
    if not isinstance(found, list):
        raise ValueError("an answer to prioritize: expected a list of Host and Score")
    scores: dict[str, int] = {}
    for item in found:
        entry = _folded(item, "an answer to prioritize")
        host, score = _text(entry, "host"), entry.get("score", 0)
        if (
            not host
            or isinstance(score, bool)
            or not isinstance(score, int)
            or not 0 <= score <= SCORE_MAX
        ):
            raise ValueError(
                f"an answer to prioritize: expected a Host and a Score of 0 to {SCORE_MAX}, "
                f"got {host!r}, {score!r}"
            )
        scores[host] = score
    return scores


def preempt_answer(
    body: str | bytes, asked: Mapping[str, tuple[Sequence[Pod], int]]
) -> dict[str, Victims]:
    """Parse the JSON answer of a scheduler extender to the preempt verb. Return, for each node on
    which the extender accepts preemption, the pods to evict (uids) and the number of disruption
    budget violations.

    `asked`: what was sent to the extender: node -> (pods to evict, number of budget violations).

    Raise ValueError for an invalid answer, for a node that is not in `asked`, and for a pod that is
    not listed under its node in `asked`.
    """
    answer = _object(body, "an answer to preempt")
    left: dict[str, Victims] = {}
    for node, said in _mapping(answer, "nodenametometavictims").items():
        if node not in asked:
            raise ValueError(
                f"an answer to preempt: expected nodes that it was asked about, got {node!r}"
            )
        victims = _meta_victims(said)
        known = {pod.uid for pod in asked[node][0]}
        if foreign := [uid for uid in victims.uids if uid not in known]:
            raise ValueError(f"an answer to preempt: expected pods of {node}, got {foreign[0]!r}")
        left[node] = victims
    return left


def preempt_nodes(body: str | bytes) -> tuple[str, ...]:
    """Parse only the node names of an answer to the preempt verb, for a caller that keeps its own
    list of victims. The names are not compared with the request. Raise ValueError for an invalid
    answer."""
    return tuple(_mapping(_object(body, "an answer to preempt"), "nodenametometavictims"))


def bind_answer(body: str | bytes) -> str:
    """Parse the extender's answer to the bind verb. Return its error text, which is empty where the
    extender bound the pod. Raise ValueError for an invalid answer."""
    return _text(_object(body, "an answer to bind"), "error")


# What follows from it.


def filtered(
    feasible: Sequence[str], said: ExtenderFilterResult
) -> tuple[tuple[str, ...], dict[str, Status]]:
    """Apply the answer of a scheduler extender to the filter verb. Return two parts: the accepted
    nodes, in the order of `feasible`, and node -> refusal for every other node.

    `feasible`: the nodes that were sent to the extender.
    `said`: the answer of the extender, parsed.

    A refusal is unresolvable (preemption cannot help) if the answer lists the node as unresolvable,
    even if it also lists the node as failed, or if the answer has a node list and mentions the node
    nowhere. If the answer lists the node only as failed, preemption may help. An answer without a
    node list (None) accepts every node that it does not refuse. Raise ValueError where the answer
    accepts a node that is not in `feasible`.

    Example: `feasible` is a, b, c; the answer accepts a and lists b as failed. a is accepted, b is
    refused, c is refused as unresolvable.
    """
    asked = frozenset(feasible)
    passing = asked if said.nodes is None else frozenset(said.nodes)
    if said.nodes is not None and (foreign := [name for name in said.nodes if name not in asked]):
        raise ValueError(
            f"an answer to filter: expected nodes that it was asked about, got {foreign[0]!r}"
        )
    refused: dict[str, Status] = {}
    for name in feasible:
        if name in said.unresolvable:
            refused[name] = unresolvable(said.unresolvable[name])
        elif name in said.failed:
            refused[name] = unschedulable(said.failed[name])
        elif name not in passing:
            refused[name] = unresolvable(LEFT_OUT)
    return tuple(name for name in feasible if name not in refused), refused


def with_priorities(
    totals: Mapping[str, int], said: Iterable[tuple[int, Mapping[str, int]]]
) -> dict[str, int]:
    """Add the extenders' scores to the plugins' totals (node -> total). `said`: for each extender,
    (weight, node -> score 0..10). A score is multiplied by the extender's weight and by 10, because
    plugins score up to 100. Example: score 7 with weight 2 adds 140. A node without a score gets 0;
    scores of nodes outside `totals` are ignored."""
    found = dict(totals)
    for weight, scores in said:
        for name in found:
            found[name] += scores.get(name, 0) * weight * (100 // SCORE_MAX)
    return found


# Being asked as an extender.


def asked_about_nodes(body: str | bytes) -> ExtenderRequest:
    """Parse a filter or prioritize request that a kube-scheduler sends to this process as its
    extender. Return the pod, the names of the nodes in the order of the request, and the node
    objects if the request has any (otherwise None: the request has only names). Raise ValueError
    for an invalid request."""
    args = _object(body, "ExtenderArgs")
    pod = _pod(args)
    if args.get("nodes") is not None:
        from wharfinger.manifests.kubernetes import (
            core as kubernetes,  # its models take long to import, and few clusters have extenders
        )

        nodes = tuple(
            _read(item, "Node", kubernetes.NodeManifest).to_domain()
            for item in _items(args["nodes"])
        )
        return ExtenderRequest(pod, tuple(node.name for node in nodes), nodes)
    return ExtenderRequest(pod, tuple(_list(args, "nodenames", str)))


def asked_to_preempt(body: str | bytes) -> AskedToPreempt:
    """Parse a preempt request. Where it has victims as objects, victims given by uid are ignored.
    Raise ValueError for an invalid request."""
    args = _object(body, "ExtenderPreemptionArgs")
    whole = {
        node: _full_victims(said) for node, said in _mapping(args, "nodenametovictims").items()
    }
    meta = {
        node: _meta_victims(said) for node, said in _mapping(args, "nodenametometavictims").items()
    }
    return AskedToPreempt(_pod(args), whole or meta, bool(whole))


def asked_to_bind(body: str | bytes) -> AskedToBind:
    """Parse a bind request. Raise ValueError for an invalid request, and where the name of the pod
    or of the node is empty."""
    args = _object(body, "ExtenderBindingArgs")
    asked = AskedToBind(
        *(_text(args, key) for key in ("podname", "podnamespace", "poduid", "node"))
    )
    if not asked.name or not asked.node:
        raise ValueError("ExtenderBindingArgs: expected a PodName and a Node")
    return asked


def filter_reply(
    asked: ExtenderRequest,
    refused: Mapping[str, Status],
    nodes: Iterable[Json] = (),
    error: str = "",
) -> bytes:
    """Build the JSON answer to a filter request that a kube-scheduler has sent. It lists the
    accepted nodes and, with reasons, the refused nodes. The accepted nodes are listed by name or as
    objects, as in the request.

    `asked`: the request.
    `refused`: node -> refusal. Every node of the request without an entry is accepted. Unresolvable
      refusals (preemption cannot help) get a list of their own.
    `nodes`: the JSON node objects of the request, needed only where the request had objects.
    `error`: why the nodes could not be filtered; empty: no error.
    """
    left = [name for name in asked.names if name not in refused]
    whole = {_name_of(node): node for node in nodes}
    failed = {
        n: ", ".join(s.reasons)
        for n, s in refused.items()
        if s.code != "UnschedulableAndUnresolvable"
    }
    hopeless = {
        n: ", ".join(s.reasons)
        for n, s in refused.items()
        if s.code == "UnschedulableAndUnresolvable"
    }
    return _body(
        {
            "Nodes": {"metadata": {}, "items": [whole[n] for n in left]}
            if asked.nodes is not None
            else None,
            "NodeNames": left if asked.nodes is None else None,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": hopeless,
            "Error": error,
        }
    )


def full_nodes(body: str | bytes) -> tuple[Json, ...]:
    """Return the node objects of a filter or prioritize request, unchanged; empty where the request
    has only names. Raise ValueError for an invalid request."""
    args = _object(body, "ExtenderArgs")
    return tuple(_items(args["nodes"])) if args.get("nodes") is not None else ()


def priorities_reply(totals: Mapping[str, int]) -> bytes:
    """Build the answer to a prioritize request: scores 0..10, sorted by node name. `totals`: node
    -> total score. The highest total becomes 10, the others are scaled in proportion and rounded
    down: totals 300 and 100 become 10 and 3. All become 0 where the highest total is not positive.
    """
    highest = max(totals.values(), default=0)
    return _body(
        [
            {"Host": name, "Score": total * SCORE_MAX // highest if highest > 0 else 0}
            for name, total in sorted(totals.items())
        ]
    )


def preempt_reply(victims: Mapping[str, Victims]) -> bytes:
    told = {
        node: {"Pods": [{"UID": uid} for uid in found.uids], "NumPDBViolations": found.violations}
        for node, found in victims.items()
    }
    return _body({"NodeNameToMetaVictims": told})


def bind_reply(error: str = "") -> bytes:
    return _body({"Error": error})


# Reading and writing.


def _body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _json(body: str | bytes) -> Any:
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"expected JSON: {error}") from None


def _object(body: str | bytes, what: str) -> dict[str, Any]:
    return _folded(_json(body), what)


def _folded(found: object, what: str) -> dict[str, Any]:
    """Return the JSON object with its keys in lower case. Raise ValueError where `found` is not an
    object; `what` names it in the error."""
    if not isinstance(found, dict):
        raise ValueError(f"{what}: expected an object")
    return {str(key).lower(): value for key, value in found.items()}


def _text(found: Json, key: str) -> str:
    value = found.get(key) or ""
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, got {value!r}")
    return value


def _texts(found: Json, key: str) -> dict[str, str]:
    value = _mapping(found, key)
    if wrong := [name for name, text in value.items() if not isinstance(text, str)]:
        raise ValueError(f"{key}: expected a text for {wrong[0]}")
    return value


def _mapping(found: Json, key: str) -> dict[str, Any]:
    value = found.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected a mapping by node")
    return value


def _list(found: Json, key: str, kind: type[T]) -> list[T]:
    value = found.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ValueError(f"{key}: expected a list")
    return value


def _items(nodes: object) -> list[dict[str, Any]]:
    """Return the items of a v1 NodeList. Raise ValueError where `nodes` is not such a list."""
    if not isinstance(nodes, dict):
        raise ValueError("nodes: expected a list of nodes with items")
    return _list(nodes, "items", dict)


def _name_of(node: Json) -> str:
    metadata = node.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise ValueError("nodes: expected metadata.name")
    return name


def _pod(args: Json) -> Pod:
    if args.get("pod") is None:
        raise ValueError("expected a Pod")
    from wharfinger.manifests.kubernetes import core as kubernetes

    return _told(
        lambda: kubernetes.pod_of(_read(args["pod"], "Pod", kubernetes.PodManifest), pending=True)
    )


def _full_victims(said: object) -> Victims:
    from wharfinger.manifests.kubernetes import core as kubernetes

    found = _folded(said, "victims")
    pods = [
        kubernetes.pod_of(_read(pod, "Pod", kubernetes.PodManifest))
        for pod in _list(found, "pods", dict)
    ]
    return Victims(tuple(pod.uid for pod in pods), _violations(found))


def _meta_victims(said: object) -> Victims:
    found = _folded(said, "victims")
    pods = [_folded(pod, "victims") for pod in _list(found, "pods", dict)]
    return Victims(tuple(_text(pod, "uid") for pod in pods), _violations(found))


def _violations(found: Json) -> int:
    value = found.get("numpdbviolations") or 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("numPDBViolations: expected a number")
    return value


def _read(raw: object, kind: str, model: type[M]) -> M:
    from wharfinger.manifests.parse import read_object

    found = _told(lambda: read_object(raw, kind, kind.lower()))
    assert isinstance(found, model)
    return found


def _told(read: Callable[[], T]) -> T:
    """Call `read`, and shorten the text of a ValueError to its first line."""
    try:
        return read()
    except ValueError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
