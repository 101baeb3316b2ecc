"""The protocol of HTTP extenders, as values: what a scheduler asks an extender, what it makes of the answer, and the
same from the other side, where a kube-scheduler asks us.

Pure: bodies of JSON go in and out, and who carries them is the shell's business. The keys are Go's field names,
capitalised; they are read without regard to case, as Go's decoder does. An answer that makes no sense is a ValueError
of one line. [kube-scheduler, extender v1]"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Extender
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.status import Status, unresolvable, unschedulable
from wharfinger.manifests import kubernetes
from wharfinger.manifests.model import Resource
from wharfinger.manifests.parse import read_object
from wharfinger.manifests.written import node_manifest, pod_manifest

SCORE_MAX = 10
"""What an extender gives a node at most; a plugin gives 100."""
LEFT_OUT = "node(s) were left out by an extender"

Json = Mapping[str, Any]
M = TypeVar("M", bound=Resource)
T = TypeVar("T")


# What goes over the wire.


class Victims(Value, frozen=True):
    """Who would have to go from a node: uids of pods, and how many disruption budgets that breaks."""

    uids: tuple[str, ...]
    violations: int = 0


class Filtered(Value, frozen=True):
    """`nodes`: the names that passed; None: all that are not refused. `failed`, `unresolvable`: node -> why; no
    eviction helps in the second. `error`: the extender could not answer."""

    nodes: tuple[str, ...] | None = None
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    error: str = ""


class Asked(Value, frozen=True):
    """What a kube-scheduler asks about a pod. `nodes`: in full, or None where it named them, since we know them
    (nodeCacheCapable): then `names`. Either way `names` is all of them, in order."""

    pod: Pod
    names: tuple[str, ...]
    nodes: tuple[Node, ...] | None = None


class AskedToPreempt(Value, frozen=True):
    """`victims`: node -> who would go. `full`: they were told in full, not by uid alone."""

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
    """Whether it is asked about such a pod: it manages nothing in particular, or something that the pod requests."""
    managed = {resource.name for resource in extender.resources}
    asked = {*requirements.requests, *(device.kind for device in requirements.devices)}
    return not managed or not managed.isdisjoint(asked)


def url(extender: Extender, verb: str) -> str:
    return f"{extender.url.rstrip('/')}/{verb.lstrip('/')}"


def nodes_body(extender: Extender, pod: Pod, nodes: Iterable[Node]) -> bytes:
    """The question of filter and prioritize: names where the extender knows the nodes itself, else all of them."""
    if extender.node_cache_capable:
        return _body({"Pod": pod_manifest(pod), "Nodes": None, "NodeNames": [node.name for node in nodes]})
    items = [node_manifest(node) for node in nodes]
    return _body({"Pod": pod_manifest(pod), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})


def preempt_body(extender: Extender, pod: Pod, victims: Mapping[str, tuple[Sequence[Pod], int]]) -> bytes:
    """`victims`: node -> who would go from there, and how many budgets that breaks."""
    by_uid = extender.node_cache_capable
    told = {
        node: {
            "Pods": [{"UID": pod.uid} if by_uid else pod_manifest(pod) for pod in pods],
            "NumPDBViolations": violations,
        }
        for node, (pods, violations) in victims.items()
    }
    whole, meta = ({}, told) if by_uid else (told, {})
    return _body({"Pod": pod_manifest(pod), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta})


def bind_body(pod: Pod, node: str) -> bytes:
    namespace = pod.requirements.traits.home
    return _body({"PodName": pod.name, "PodNamespace": namespace, "PodUID": pod.uid, "Node": node})


# What it answered.


def filter_answer(body: str | bytes, extender: Extender) -> Filtered:
    """Raises ValueError. An answer that names no nodes at all lets none pass, as a kube-scheduler reads it."""
    answer = _object(body, "an answer to filter")
    nodes: tuple[str, ...] = ()
    if extender.node_cache_capable and answer.get("nodenames") is not None:
        nodes = tuple(_list(answer, "nodenames", str))
    elif answer.get("nodes") is not None:
        nodes = tuple(_name_of(node) for node in _items(answer["nodes"]))
    return Filtered(
        nodes, _texts(answer, "failednodes"), _texts(answer, "failedandunresolvablenodes"), _text(answer, "error")
    )


def priorities_answer(body: str | bytes) -> dict[str, int]:
    """Node -> 0..10. Raises ValueError."""
    found = _json(body)
    if found is None:
        return {}
    if not isinstance(found, list):
        raise ValueError("an answer to prioritize: expected a list of Host and Score")
    scores: dict[str, int] = {}
    for item in found:
        entry = _folded(item, "an answer to prioritize")
        host, score = _text(entry, "host"), entry.get("score", 0)
        if not host or isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= SCORE_MAX:
            raise ValueError(
                f"an answer to prioritize: expected a Host and a Score of 0 to {SCORE_MAX}, got {host!r}, {score!r}"
            )
        scores[host] = score
    return scores


def preempt_answer(body: str | bytes, asked: Mapping[str, tuple[Sequence[Pod], int]]) -> dict[str, Victims]:
    """The nodes that are left, with who goes from each. Raises ValueError, also where it names a node or a pod that
    it was not asked about."""
    answer = _object(body, "an answer to preempt")
    left: dict[str, Victims] = {}
    for node, said in _mapping(answer, "nodenametometavictims").items():
        if node not in asked:
            raise ValueError(f"an answer to preempt: expected nodes that it was asked about, got {node!r}")
        victims = _meta_victims(said)
        known = {pod.uid for pod in asked[node][0]}
        if foreign := [uid for uid in victims.uids if uid not in known]:
            raise ValueError(f"an answer to preempt: expected pods of {node}, got {foreign[0]!r}")
        left[node] = victims
    return left


def preempt_nodes(body: str | bytes) -> tuple[str, ...]:
    """The nodes that are left, for who keeps to the victims it found itself. Raises ValueError."""
    return tuple(_mapping(_object(body, "an answer to preempt"), "nodenametometavictims"))


def bind_answer(body: str | bytes) -> str:
    """The error; empty: bound. Raises ValueError."""
    return _text(_object(body, "an answer to bind"), "error")


# What follows from it.


def filtered(feasible: Sequence[str], said: Filtered) -> tuple[tuple[str, ...], dict[str, Status]]:
    """The nodes that are left, in their order, and why each of the others is out. Where one is refused in both ways,
    nothing can be done about it. Raises ValueError where it lets a node pass that it was not asked about."""
    asked = frozenset(feasible)
    passing = asked if said.nodes is None else frozenset(said.nodes)
    if said.nodes is not None and (foreign := [name for name in said.nodes if name not in asked]):
        raise ValueError(f"an answer to filter: expected nodes that it was asked about, got {foreign[0]!r}")
    refused: dict[str, Status] = {}
    for name in feasible:
        if name in said.unresolvable:
            refused[name] = unresolvable(said.unresolvable[name])
        elif name in said.failed:
            refused[name] = unschedulable(said.failed[name])
        elif name not in passing:
            refused[name] = unresolvable(LEFT_OUT)
    return tuple(name for name in feasible if name not in refused), refused


def with_priorities(totals: Mapping[str, int], said: Iterable[tuple[int, Mapping[str, int]]]) -> dict[str, int]:
    """The plugins' totals with what the extenders add: (weight, node -> 0..10) each, on the plugins' scale. Nodes
    that one does not name get nothing from it."""
    found = dict(totals)
    for weight, scores in said:
        for name in found:
            found[name] += scores.get(name, 0) * weight * (100 // SCORE_MAX)
    return found


# Being asked as an extender.


def asked_about_nodes(body: str | bytes) -> Asked:
    """The question of filter and prioritize. Raises ValueError."""
    args = _object(body, "ExtenderArgs")
    pod = _pod(args)
    if args.get("nodes") is not None:
        nodes = tuple(_read(item, "Node", kubernetes.Node).to_domain() for item in _items(args["nodes"]))
        return Asked(pod, tuple(node.name for node in nodes), nodes)
    return Asked(pod, tuple(_list(args, "nodenames", str)))


def asked_to_preempt(body: str | bytes) -> AskedToPreempt:
    """Raises ValueError."""
    args = _object(body, "ExtenderPreemptionArgs")
    whole = {node: _full_victims(said) for node, said in _mapping(args, "nodenametovictims").items()}
    meta = {node: _meta_victims(said) for node, said in _mapping(args, "nodenametometavictims").items()}
    return AskedToPreempt(_pod(args), whole or meta, bool(whole))


def asked_to_bind(body: str | bytes) -> AskedToBind:
    """Raises ValueError."""
    args = _object(body, "ExtenderBindingArgs")
    asked = AskedToBind(*(_text(args, key) for key in ("podname", "podnamespace", "poduid", "node")))
    if not asked.name or not asked.node:
        raise ValueError("ExtenderBindingArgs: expected a PodName and a Node")
    return asked


def filter_reply(asked: Asked, refused: Mapping[str, Status], nodes: Iterable[Json] = (), error: str = "") -> bytes:
    """In the form in which it was asked: `nodes` are the objects as they came (`full_nodes`), where they came in full."""
    left = [name for name in asked.names if name not in refused]
    whole = {_name_of(node): node for node in nodes}
    failed = {n: ", ".join(s.reasons) for n, s in refused.items() if s.code != "UnschedulableAndUnresolvable"}
    hopeless = {n: ", ".join(s.reasons) for n, s in refused.items() if s.code == "UnschedulableAndUnresolvable"}
    return _body(
        {
            "Nodes": {"metadata": {}, "items": [whole[n] for n in left]} if asked.nodes is not None else None,
            "NodeNames": left if asked.nodes is None else None,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": hopeless,
            "Error": error,
        }
    )


def full_nodes(body: str | bytes) -> tuple[Json, ...]:
    """The node objects of a question as they came; none where it named them only. Raises ValueError."""
    args = _object(body, "ExtenderArgs")
    return tuple(_items(args["nodes"])) if args.get("nodes") is not None else ()


def priorities_reply(totals: Mapping[str, int]) -> bytes:
    """`totals` of any size, brought to 0..10: the best node gets 10, the rest their share of it."""
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
    """The fields by lower-case name."""
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
    """Those of a v1 NodeList."""
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
    return _told(lambda: kubernetes.pod_of(_read(args["pod"], "Pod", kubernetes.Pod), pending=True))


def _full_victims(said: object) -> Victims:
    found = _folded(said, "victims")
    pods = [kubernetes.pod_of(_read(pod, "Pod", kubernetes.Pod)) for pod in _list(found, "pods", dict)]
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
    found = _told(lambda: read_object(raw, kind, kind.lower()))
    assert isinstance(found, model)
    return found


def _told(read: Callable[[], T]) -> T:
    """With the first of several mistakes, as one line."""
    try:
        return read()
    except ValueError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
