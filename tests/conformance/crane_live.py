"""crane-scheduler's suites, answered by what a plane runs.

Policies go through the loader of `apply`. Annotations are read from Node manifests into the cluster
stage, whose book of loads says what counts, whose plugin refuses and scores, and whose columns are
what the placing engine reads. Recent bindings are the book's records. One sync of crane's annotator
is a question of ours that is answered, folded, published and written; its timetable is the
annotator's.

Each answer raises `DepartureError` for an input about which a plane does otherwise on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from typing import Any
from uuid import uuid4

from tests.cluster_world import CLUSTER, Harness
from tests.conformance.crane_reference import annotator_cadence as timetables
from tests.conformance.crane_reference import heard_of, nanos, node_of, zone_of
from tests.reference.crane import judge
from tests.reference.crane_sync import patches, questions

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.policy import LoadPolicy, Policy
from wharfinger.domain.scheduler import Arguments, DynamicArgs, SchedulerConfig
from wharfinger.domain.value import Value
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.load.annotations import (
    NANOS,
    WrittenValue,
    annotated,
    parted,
    share_of,
    stamp,
    written_hot,
    written_of,
)
from wharfinger.engine.load.node_loads import HOT_VALUE, LOAD_MAX, WHOLE, LoadBook, LoadView, counts
from wharfinger.engine.load.policy import GRACE, active_us
from wharfinger.events.assignments import AssignmentsDecided, Placed
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.crane import DynamicSchedulerPolicy, DynamicSpec, read_policy
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.model import ExpectedError
from wharfinger.manifests.parse import load_manifests
from wharfinger.stages.annotator import AnnotatorObserver, QueryFailure, Series
from wharfinger.stages.cluster.framework_view import pictured

Json = dict[str, Any]

SECOND = 1_000_000
CRANES_WAY = DynamicArgs(stale="crane", damped=False)
ROOM = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
KIND = {"apiVersion": "scheduler.policy.crane.io/v1alpha1", "kind": "DynamicSchedulerPolicy"}


class DepartureError(Exception):
    """A plane does otherwise on purpose; the sentence says what."""


# Policies.


def policy(case: Json) -> Json:
    """The loader of `apply` must refuse and take the same texts, with a line for each mistake."""
    read = read_policy(case["input"])
    loaded = load_manifests(case["input"], "policy.yaml")
    taken = bool(loaded.manifests) and isinstance(loaded.manifests[0].model, DynamicSchedulerPolicy)
    if not isinstance(read, DynamicSchedulerPolicy):
        if taken and not loaded.errors:
            raise ValueError(f"apply takes what crane's loader refuses: {read}")
        return {"ok": False, "class": read}
    if not taken:
        raise ValueError(f"apply refuses what crane's loader takes: {loaded.errors[0]}")
    spec = read.spec
    return {
        "ok": True,
        "policy": {
            "apiVersion": read.api_version,
            "kind": "",  # its decoder leaves the kind out of what it has read
            "syncPolicy": [{"name": e.name, "periodNs": e.period} for e in spec.sync_policy],
            "predicate": [
                {"name": e.name, "maxLimitPecent": e.max_limit_pecent} for e in spec.predicate
            ],
            "priority": [{"name": e.name, "weight": e.weight} for e in spec.priority],
            "hotValue": [{"timeRangeNs": e.time_range, "count": e.count} for e in spec.hot_value],
        },
    }


def applied(spec: Json) -> Policy:
    """As `apply` makes a policy of it."""
    model = DynamicSchedulerPolicy.model_validate({**KIND, "spec": spec})
    for entry in model.spec.sync_policy:
        if entry.period % NANOS:
            raise DepartureError("a period is measured in whole seconds")
    try:
        return model.to_domain("")
    except ExpectedError as error:
        raise DepartureError("a policy that apply refuses") from error


def load_policy(spec: Json) -> LoadPolicy:
    load = applied(spec).load
    assert load is not None
    return load


# What is written on nodes.


def annotation(case: Json) -> Json:
    if case["op"] == "activeDuration":
        sync = [{"name": e["name"], "period": f"{e['periodNs']}ns"} for e in case["syncPolicy"]]
        spec = {"syncPolicy": [e for e in sync if e["period"] != "0ns"]}
        active = active_us(load_policy(spec), case["metric"])
        return {"ok": True, "activeNs": active * 1000} if active else {"ok": False}
    zone = zone_of(case["tz"])
    if zone is None:
        return {"refused": "no such zone"}
    now = nanos(case["now"])
    if case["op"] == "write":
        return {"ok": True, "stamp": stamp(now, zone)}
    return _usage(case["value"], case["activeNs"], now, zone)


def _usage(text: str, active_ns: int, now: int, zone: tzinfo) -> Json:
    """As the reader of a node's annotations takes it apart; whether it counts is the book's to
    say."""
    found = parted(text, zone)
    if isinstance(found, str):
        return {"ok": False, "class": found}
    share = share_of(found.number)
    plain(found, share if isinstance(share, float) else 0.0, now)
    if not counts(found.at_ns // 1000, active_ns // 1000, now // 1000):
        return {"ok": False, "class": "expired-or-bad-timestamp"}
    if isinstance(share, str):
        return {"ok": False, "class": share}
    written = written_of(_a_node("node", {"metric": in_utc(text, zone)}))
    if written is None or written.loads["metric"][0] != round(Fraction(share) * WHOLE):
        raise ValueError(f"a node with {text} is read as {written}")
    return {"ok": True, "usage": share}


def plain(found: WrittenValue, share: float, now: int) -> None:
    """Raises DepartureError for a value that a plane takes otherwise."""
    if not math.isfinite(share):
        raise DepartureError("NaN and infinity are no measurements")
    if share * WHOLE > LOAD_MAX:
        raise DepartureError("a load is cut off where it is none any more")
    if found.at_ns > now + GRACE * 1000:
        raise DepartureError("a stamp well ahead of the clock says nothing")


def in_utc(text: str, zone: tzinfo) -> str:
    """As an annotator that runs in UTC writes it; what is no annotation stays as it is."""
    found = parted(text, zone)
    if isinstance(found, str):
        return text
    at_s, rest = divmod(found.at_ns, NANOS)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
    return f"{found.number},{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _a_node(name: str, annotations: Mapping[str, str]) -> Node:
    metadata = {"name": name, "annotations": dict(annotations)}
    raw = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": ROOM}
    return kubernetes.NodeManifest.model_validate(raw).to_domain()


# The plugin.


def filter_score(case: Json) -> Json:
    zone = zone_of(case["tz"])
    if zone is None:
        return {"refused": "no such zone"}
    now, spec = nanos(case["now"]), case["spec"]
    if any(entry["name"] == "" for entry in spec["syncPolicy"]):
        raise DepartureError("a policy that apply refuses")
    # crane passes over a period of zero where apply names it
    sync = [e for e in spec["syncPolicy"] if e["period"] not in ("0s", "0")]
    policy = applied({**spec, "syncPolicy": sync, "hotValue": []})
    _plain_nodes(case, policy, now, zone)
    nodes = [
        _a_node(n["name"], {k: in_utc(text, zone) for k, text in (n["annotations"] or {}).items()})
        for n in case["nodes"]
    ]
    plane = Harness(at=now // 1000 - 1)
    plane.feed(PolicyApplied(policy), _cranes_way(), *into_buckets(CLUSTER, nodes, 4))
    state = plane.state
    snapshot, pod = pictured(state), _pod(case["podOwnerKinds"])
    outcome = state.profiles.framework("").run(snapshot, pod)
    refused = outcome.failures.get("Dynamic", {})
    view = snapshot.load or LoadView(state.load, state.at)
    columns = state.loads.columns(state.book.table, state.at, CRANES_WAY)
    slots = {row.name: slot for slot, row in enumerate(state.book.table.by_slot) if row}
    scores = outcome.scores.get("Dynamic")
    judged = []
    for name in [node["name"] for node in case["nodes"]]:
        verdict, score = view.judge(name, CRANES_WAY), int(columns.scores()[slots[name]])
        if verdict.load - cranes_load(case, name, now, zone) in (1, -1):
            raise DepartureError("scores are exact: crane cuts a sum of floats")
        if scores is not None and name in scores.raw and scores.raw[name] != score:
            raise ValueError(f"the columns score {score} where the plugin says {scores.raw[name]}")
        judged.append(
            {
                "node": name,
                "filter": refused[name].code if name in refused else "Success",
                "message": refused[name].reasons[0] if name in refused else "",
                "load": verdict.load,
                "hot": verdict.hot,
                "score": score,
            }
        )
    return {"answer": judged}


def _plain_nodes(case: Json, policy: Policy, now: int, zone: tzinfo) -> None:
    """Raises DepartureError for a value in use that a plane takes otherwise."""
    load = policy.load
    assert load is not None
    if load.weights and not any(weight.weight for weight in load.weights):
        raise DepartureError("where nothing is weighed there is no quotient")
    judged_by = [limit.metric for limit in load.limits] + [weight.metric for weight in load.weights]
    used = set(judged_by) & {entry.metric for entry in load.sync}
    for node in case["nodes"]:
        for key, text in (node["annotations"] or {}).items():
            found = parted(text, zone)
            if key not in used | {HOT_VALUE} or isinstance(found, str):
                continue
            share = share_of(found.number)
            if isinstance(share, str):
                continue
            plain(found, share, now)
            if key == HOT_VALUE and share != int(share):
                raise DepartureError("a hot value is a whole number")


def cranes_load(case: Json, node: str, now: int, zone: tzinfo) -> int:
    (annotations,) = [n["annotations"] for n in case["nodes"] if n["name"] == node]
    return judge(DynamicSpec.model_validate(case["spec"]), annotations or {}, (), now, zone).load


def _cranes_way() -> PolicyApplied:
    profile = default_profile()
    arguments = Arguments(dynamic=CRANES_WAY)
    config = SchedulerConfig((type(profile)(profile.name, profile.points, arguments=arguments),))
    return PolicyApplied(Policy("KubeSchedulerConfiguration", "default", scheduler=config))


def _pod(owners: list[str]) -> Pod:
    """The pod of a DaemonSet has it as its controller, whatever else owns it."""
    references = [
        {
            "apiVersion": "v1",
            "kind": kind,
            "name": "owner",
            "uid": f"u-{i}",
            "controller": kind == "DaemonSet",
        }
        for i, kind in enumerate(owners)
    ]
    metadata = {"name": "pod", "namespace": "default", "ownerReferences": references}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    spec = {"containers": [{"name": "c", "image": "c"}]}
    model = kubernetes.PodManifest.model_validate({**raw, "spec": spec})
    return kubernetes.pod_of(model, pending=True)


# Recent bindings.


def hot_value(case: Json) -> Json:
    if case.get("op") == "event":
        raise DepartureError("placements are known from decisions, not from a cluster's events")
    book, now, out = LoadBook(), nanos(case["start"]), list[Json]()
    for i, op in enumerate(case["ops"]):
        now += op.get("sleepMs", 0) * 1_000_000
        match op["op"]:
            case "add":
                if case["size"] >= 0 and len(_records(book)) >= case["size"]:
                    raise DepartureError("records are bounded for each node, not for the cluster")
                book.placed(op["node"], (f"pod-{i}", 0), op["ts"] * SECOND)
                out.append({"records": _records(book)})
            case "gc":
                if case["gcRangeNs"] != 0:
                    _windows(book, [{"timeRange": f"{case['gcRangeNs']}ns", "count": 1}])
                    book.tidy(now // 1000)
                out.append({"records": _records(book)})
            case "count":
                records = book.records.get(op["node"])
                since = now // 1000 - int(op["rangeNs"] / NANOS) * SECOND
                out.append({"count": 0 if records is None else records.since(since)})
            case _:
                _windows(book, op["hotValue"] or [])
                hot = book.hot_value(op["node"], now // 1000, damped=True)
                out.append({"annotation": written_hot(hot, now // 1000)})
    return {"answer": out}


def _records(book: LoadBook) -> list[list[Any]]:
    """Of all nodes, the oldest first."""
    found = [(at, node) for node, own in book.records.items() for at, _, _ in own.placed]
    return [[at // SECOND, node] for at, node in sorted(found)]


def _windows(book: LoadBook, windows: list[Json]) -> None:
    book.policy_applied("p", load_policy({"hotValue": windows}))


# The annotator.


class Annotator:
    """The observer of the annotator, asked by hand. `at`: microseconds."""

    def __init__(self, load: LoadPolicy, at: int) -> None:
        self.observer = AnnotatorObserver()
        self.state = self.observer.initial()
        self.fold(PolicyApplied(Policy("DynamicSchedulerPolicy", "p", load=load)), at)

    def fold(self, data: Value, at: int) -> None:
        self.observer.fold(self.state, made(data, id=uuid4(), source="/test", subject="x"), at)


def annotator_sync(case: Json) -> Json:
    """Crane's questions and its patches are its own; what a plane gives is the load and the hot
    value that are written."""
    zone, node, (name, _, metric) = zone_of(case["tz"]), case["node"], case["key"].partition("/")
    if zone is None:
        return {"refused": "no such zone"}
    if node is None or node["name"] != name or not metric or "/" in metric:
        raise DepartureError("a plane asks for all nodes at once, not by a key")
    load = load_policy(
        {"syncPolicy": [{"name": metric, "period": "1m"}], "hotValue": case["hotValue"] or []}
    )
    now = nanos(case["now"]) // 1000
    asked, samples = _series(case, metric)
    told = Annotator(load, now)
    seen = _a_node(name, {})
    for bucket in into_buckets(CLUSTER, [seen], 4):
        told.fold(bucket, now)
    for i, (at, on) in enumerate(case["bindings"]):
        placed = Placed(i + 1, "", f"pod-{i}", (NodeShare(on, (0,)),))
        told.fold(AssignmentsDecided(CLUSTER, "cluster/x", i + 1, (placed,)), at * SECOND)
    (query,) = told.observer.due_queries(told.state, now)
    series = [Series({"instance": name}, share * 100) for share in samples]
    matched = told.observer.match(told.state, CLUSTER, series)
    told.observer.fold_answer(told.state, query, matched.loads, now)
    texts = _written(told, load, case, name, now, zone)
    before = node["storedAnnotations"]
    if before is None:
        raise DepartureError("annotations are applied as an object, not patched one by one")
    return {
        "queries": asked,
        "patches": list(patches(texts, node["cachedAnnotations"] or ())),
        "annotations": {**before, **texts},
        "failed": False,
        "forget": True,
    }


def _series(case: Json, metric: str) -> tuple[list[str], tuple[float, ...]]:
    """Crane's questions up to the first that is answered, and the samples of the answer."""
    asked: list[str] = []
    node = node_of(case["node"])
    assert node is not None
    for question in questions(metric, node):
        asked.append(question)
        samples = heard_of(case["replies"].get(question, {"vector": []})).samples
        if samples:
            break
    else:
        raise DepartureError("a hot value does not wait for a measurement")
    if not all(map(math.isfinite, samples)):
        raise DepartureError("NaN and infinity are no measurements")
    if samples[-1] != max(samples):
        raise DepartureError("of several series of a node the largest counts")
    return asked, samples


def _written(
    told: Annotator, load: LoadPolicy, case: Json, name: str, now: int, zone: tzinfo
) -> dict[str, str]:
    """The annotations that a plane gives the node, by what the annotator has published."""
    book = LoadBook()
    book.policy_applied("p", load)
    for i, (at, on) in enumerate(case["bindings"]):
        book.placed(on, (f"pod-{i}", 0), at * SECOND)
    hot = 0
    for publication in told.observer.publish(told.state, now):
        if isinstance(publication.data, NodeLoadObserved | HotValueObserved):
            book.observe(publication.data)
        if isinstance(publication.data, HotValueObserved):
            hot = publication.data.hot.get(name, 0)
    if hot != book.hot_value(name, now, damped=True):
        raise ValueError("the annotator and the book count bindings differently")
    return annotated(book, [name], now, zone)[name]


def annotator_cadence(case: Json) -> Json:
    """Each node as a cluster of its own: a plane asks once for all nodes of a cluster."""
    metrics = [entry["name"] for entry in case["spec"]["syncPolicy"]]
    if len(set(metrics)) != len(metrics):
        raise DepartureError("a metric has one timetable: its shortest period")
    if any(e.period % NANOS for e in DynamicSpec.model_validate(case["spec"]).sync_policy):
        return timetables(case)  # periods that apply rounds up
    annotator = Annotator(load_policy(case["spec"]), 0)
    for name in case["nodes"]:
        for bucket in into_buckets(name, [_a_node("node", {})], 4):
            annotator.fold(bucket, 0)
    observer, state, tried = annotator.observer, annotator.state, list[list[Any]]()
    while (at := observer.next_due(state)) is not None and at <= case["horizonS"] * SECOND:
        for query in observer.due_queries(state, at):
            up = not any(
                outage["fromS"] * SECOND <= at < outage["toS"] * SECOND
                and outage["node"] in ("*", query.cluster)
                and outage["metric"] in ("*", query.metric)
                for outage in case["outages"]
            )
            answer = {"node": 1} if up else QueryFailure("unreachable", "an outage")
            observer.fold_answer(state, query, answer, at)
            tried.append([at / SECOND, query.cluster, query.metric, up])
    return {"answer": sorted(tried)}


ANSWERS: dict[str, Callable[[Json], Json]] = {
    "policy": policy,
    "annotation": annotation,
    "filter_score": filter_score,
    "hot_value": hot_value,
    "annotator_sync": annotator_sync,
    "annotator_cadence": annotator_cadence,
}
