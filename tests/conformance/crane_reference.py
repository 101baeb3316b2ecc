"""crane-scheduler's suites, answered in crane's own arithmetic (`tests.reference`): all but the
policies, which only its loader reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from math import inf, isinf, isnan, nan
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tests.reference import crane
from tests.reference.crane import BindingRecords, CraneFault, LoadValue, usage
from tests.reference.crane_sync import CraneNode, Heard, sync

from wharfinger.domain.time import SECOND
from wharfinger.engine.load.annotations import NANOS, stamp, stamp_ns
from wharfinger.manifests.crane import DynamicSpec, HotValue
from wharfinger.stages.annotator.cadence import QueryTimetable

Json = dict[str, Any]

DEFAULT_ZONE = "Asia/Shanghai"


# Each suite.


def annotation(case: Json) -> Json:
    if case["op"] == "activeDuration":
        sync_policy = [
            {"name": e["name"], "period": f"{e['periodNs']}ns"} for e in case["syncPolicy"]
        ]
        active = crane.active_duration_ns(spec_of({"syncPolicy": sync_policy}), case["metric"])
        return {"ok": False} if active is None else {"ok": True, "activeNs": active}
    zone = zone_of(case["tz"])
    if zone is None:
        return {"refused": "no such zone"}
    if case["op"] == "write":
        return {"ok": True, "stamp": stamp(nanos(case["now"]), zone)}
    read = usage(case["value"], case["activeNs"], nanos(case["now"]), zone)
    return (
        {"ok": True, "usage": number_out(read.share)}
        if isinstance(read, LoadValue)
        else {"ok": False, "class": read}
    )


def filter_score(case: Json) -> Json:
    spec, now, zone = spec_of(case["spec"]), nanos(case["now"]), zone_of(case["tz"])
    if zone is None:
        return {"refused": "no such zone"}
    judged = []
    for node in case["nodes"]:
        name = node["name"]
        verdict = crane.judge(spec, node["annotations"] or {}, case["podOwnerKinds"], now, zone)
        refused = verdict.refused_by
        judged.append(
            {
                "node": name,
                "filter": "Unschedulable" if refused else "Success",
                "message": f"Load[{refused}] of node[{name}] is too high" if refused else "",
                "load": verdict.load,
                "hot": number_out(verdict.hot),
                "score": verdict.score,
            }
        )
    return {"answer": judged}


def hot_value(case: Json) -> Json:
    if case.get("op") == "event":
        bound = crane.bound(
            case["message"], case["count"], case["eventTime"], case["lastTimestamp"]
        )
        if bound is None:
            return {"ok": False}
        return {
            "ok": True,
            "namespace": bound.namespace,
            "pod": bound.pod,
            "node": bound.node,
            "ts": bound.at_s,
        }
    records, now, out = BindingRecords(case["size"]), nanos(case["start"]), list[Json]()
    for op in case["ops"]:
        now += op.get("sleepMs", 0) * 1_000_000
        try:
            out.append(recorded(records, op, now, case["gcRangeNs"]))
        except CraneFault as fault:
            out.append({"panic": str(fault)})
    return {"answer": out}


def recorded(records: BindingRecords, op: Json, now: int, range_ns: int) -> Json:
    now_s = now // NANOS
    match op["op"]:
        case "add":
            records.add(op["node"], op["ts"])
        case "gc":
            records.collect(range_ns, now_s)
        case "count":
            return {"count": records.count(op["node"], op["rangeNs"], now_s)}
        case "hot":
            hot = records.hot_value(op["node"], windows_of(op["hotValue"]), now_s)
            return {"annotation": f"{hot},{stamp(now, UTC)}"}
        case other:
            raise ValueError(f"{other}: no such op is known")
    return {"records": [list(record) for record in records.records]}


def annotator_sync(case: Json) -> Json:
    zone = zone_of(case["tz"])
    if zone is None:
        return {"refused": "no such zone"}
    records = BindingRecords(-1)
    for at, on in case["bindings"]:
        records.add(on, at)
    heard = {promql: heard_of(reply) for promql, reply in case["replies"].items()}
    done = sync(
        case["key"],
        node_of(case["node"]),
        heard,
        records,
        windows_of(case["hotValue"]),
        nanos(case["now"]),
        zone,
    )
    return {
        "queries": done.queries,
        "patches": done.patches,
        "annotations": done.annotations,
        "failed": done.failed,
        "forget": not done.again,
    }


def node_of(raw: Json | None) -> CraneNode | None:
    if raw is None:
        return None
    addresses = tuple((a["type"], a["address"]) for a in raw["addresses"] or ())
    return CraneNode(raw["name"], addresses, raw["cachedAnnotations"], raw["storedAnnotations"])


def heard_of(reply: Json) -> Heard:
    if "vector" not in reply or reply.get("warnings") or "error" in reply:
        return Heard(None)
    return Heard(tuple(number_in(sample) for sample in reply["vector"]))


def annotator_cadence(case: Json) -> Json:
    """Every node and metric by itself, as crane asks, each by the timetable of a plane's annotator;
    two entries of one metric are two timetables whose failures are counted together."""
    tried: list[list[Any]] = []
    periods: dict[str, list[int]] = {}
    for entry in spec_of(case["spec"]).sync_policy:
        periods.setdefault(entry.name, []).append(-(-entry.period // 1000))
    for node in case["nodes"]:
        for metric, spans in periods.items():
            tried += tries(
                case, node, metric, [QueryTimetable(period_us, 0) for period_us in spans]
            )
    return {"answer": sorted(tried)}


def tries(case: Json, node: str, metric: str, tables: list[QueryTimetable]) -> list[list[Any]]:
    found: list[list[Any]] = []
    while (at := min(table.due for table in tables)) <= case["horizonS"] * SECOND:
        up = not any(
            outage["fromS"] * SECOND <= at < outage["toS"] * SECOND
            and outage["node"] in ("*", node)
            and outage["metric"] in ("*", metric)
            for outage in case["outages"]
        )
        for table in tables:
            table.asked(at)
        if up:
            tables[0].answered()
        else:
            tables[0].failed(at)
        found.append([at / SECOND, node, metric, up])
    return found


ANSWERS = {
    "annotation": annotation,
    "filter_score": filter_score,
    "hot_value": hot_value,
    "annotator_sync": annotator_sync,
    "annotator_cadence": annotator_cadence,
}


# Reading.


def spec_of(raw: Json) -> DynamicSpec:
    return DynamicSpec.model_validate(raw)


def windows_of(raw: list[Json] | None) -> list[HotValue]:
    return [HotValue.model_validate(window) for window in raw or ()]


def zone_of(name: str) -> tzinfo | None:
    """None: no such zone. An unknown one ended crane; here whoever names it is told."""
    try:
        return ZoneInfo(name or DEFAULT_ZONE)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def nanos(text: str) -> int:
    """RFC 3339 in UTC, up to nanoseconds."""
    at = stamp_ns(text)
    if at is None:
        raise ValueError(f"{text}: no time in UTC")
    return at


_WORDS: Mapping[str, float] = {"NaN": nan, "+Inf": inf, "-Inf": -inf}


def number_in(value: float | str) -> float:
    return _WORDS[value] if isinstance(value, str) else float(value)


def number_out(value: float) -> float | str:
    """As JSON can hold it."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return value
