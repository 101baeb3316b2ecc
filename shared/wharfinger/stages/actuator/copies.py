"""The workloads of a hub that are decided to run in a member cluster: what is still to be written
there.

    found = copy_writes(decided bindings, templates in the hub, observed in the member, names)

Objects are as JSON has them. A copy is created once, and changed by server-side apply, which leaves
fields of other managers alone and is refused where they differ. A copy that somebody has changed is
applied again: a field that was taken out comes back, one that another manager has set is a refusal
that names both. What is there without our annotation is not touched; a ServiceAccount or claim of
others serves a workload as ours would. A claim is copied without its binding to a volume, so that
the member gives it one of its own. A workload is removed only when a binding of this ledger says
that its cluster has none: a template that is away, or a binding that is not known, removes nothing.
What of the rest is removed says `copy_remains`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wharfinger.domain.actuation import COPIED, COPIED_FOR, COPIED_FROM, Verb
from wharfinger.domain.value import digest
from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copied_objects import (
    CLAIM,
    ROOTS,
    USED_AS_IT_IS,
    WORKLOADS,
    DecidedCopies,
    LeftOut,
    ends,
    named,
    path_of,
    said_by,
    shown_body,
)
from wharfinger.stages.actuator.copy_remains import remaining_copies
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects, name_of
from wharfinger.stages.actuator.pod_references import DEFAULT_ACCOUNT, workload_references
from wharfinger.stages.actuator.requests import APPLY_PATCH, MANAGER, MERGE_PATCH, ApiRequest

_CONTENT = (
    "spec",
    "data",
    "binaryData",
    "immutable",
    "type",
    "automountServiceAccountToken",
    "imagePullSecrets",
)
"""Of a ServiceAccount not its `secrets`: they are tokens of one cluster."""

_NOT_COPIED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    # of a claim: its binding to a volume
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-resizer",
)
_OF_ONE_CLUSTER = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
"""Types of Secrets that mean nothing in another cluster."""

_FOREIGN = "belongs to others: it has no annotation"

FieldPath = tuple[str, ...]
"""Such as `spec`, `containers`, `[main]`, `image`: an item of a list is there by its name."""


@dataclass(frozen=True, slots=True)
class CopyWrite:
    """`said`: the digest of what is written, or the version that is changed."""

    object: EffectObject
    what: str
    said: str
    request: ApiRequest

    @property
    def verb(self) -> Verb:
        return "copy"

    @property
    def action(self) -> str:
        """As the actions of effects, such as `create-copy`."""
        return f"{self.what}-copy"

    @property
    def right(self) -> str:
        """Of one kind some may be allowed, and others not; Secrets by namespace."""
        within = f" in {self.object.namespace}" if self.object.kind == "Secret" else ""
        return f"copy {self.object.kind}{within}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds that must be known as they are. Whether something is used is seen in workloads."""
        kind = self.object.kind
        if self.what != "delete" or kind in WORKLOADS:
            return (kind,)
        return (kind, *WORKLOADS, "ServiceAccount") if kind == "Secret" else (kind, *WORKLOADS)

    @property
    def shown(self) -> Rendered:
        """The body, for a person."""
        return shown_body(self.request.body)

    @property
    def workload(self) -> str:
        return ""

    @property
    def key(self) -> tuple[str, EffectObject, str]:
        return self.what, self.object, self.said


def decided_copies(
    bindings: Iterable[Rendered],
    templates: HubObjects,
    hub: str,
    cluster: str,
    secrets: Collection[str] = (),
    unread: Collection[str] = (),
) -> DecidedCopies:
    """Workloads whose template is not in the hub are left out; their bindings are not. `secrets`:
    namespaces whose Secrets are copied with the workloads that name them. `unread`: kinds that are
    not copied, because one of the servers may not be asked for them."""
    accounts = {
        key: one
        for key, one in templates.of("ServiceAccount").items()
        if one["metadata"]["name"] != DEFAULT_ACCOUNT
    }
    wanted: dict[tuple[str, str], Rendered] = {}
    here: set[str] = set()
    left_out: dict[EffectObject, LeftOut] = {}
    for binding in bindings:
        replicas = _replicas(binding, cluster)
        if replicas is None:
            continue
        here.add(of := name_of(binding))
        resource = binding["spec"]["resource"]
        kind, key = resource["kind"], _key(resource)
        named = EffectObject(kind, resource.get("namespace", ""), resource["name"])
        if kind not in WORKLOADS or resource["apiVersion"] != ROOTS[kind][0]:
            why = f"{resource['apiVersion']} {kind} is no kind that is copied"
            left_out[named] = LeftOut(of, why)
            continue
        if (template := templates.of(kind).get(key)) is None:
            left_out[named] = LeftOut(of, f"its template is not in {hub}")
            continue
        wanted[kind, key] = _copy(template, hub, of, replicas)
        namespace = template["metadata"]["namespace"]
        for referred, name in sorted(workload_references(template, accounts)):
            place = f"{namespace}/{name}"
            found = templates.of(referred).get(place)
            if found is None or referred in unread:
                continue
            if referred == "Secret" and namespace not in secrets:
                continue
            if referred == "Secret" and found.get("type") in _OF_ONE_CLUSTER:
                continue
            # One that several workloads name is there for the first of them.
            wanted.setdefault((referred, place), _copy(found, hub, of, None))
    return DecidedCopies(wanted, frozenset(here), left_out, frozenset(unread))


def copy_writes(
    decided: DecidedCopies, observed: HubObjects, hub: str, ours: Collection[str]
) -> list[CopyWrite]:
    """What workloads name before the workloads, removals last. `ours`: the bindings that this
    ledger has decided about, whether they still stand or not."""
    found: list[CopyWrite] = []
    order = list(ROOTS)
    for (kind, key), wanted in sorted(
        decided.wanted.items(), key=lambda one: (order.index(one[0][0]), one[0][1])
    ):
        now = observed.of(kind).get(key)
        if now is None:
            path = path_of(wanted).rpartition("/")[0]
            request = ApiRequest("POST", path, wanted, strict=True)
            found.append(CopyWrite(named(wanted), "create", said_by(wanted, COPIED), request))
        elif said_by(now, COPIED_FROM) == hub and not ends(now):
            found += _changes(wanted, now)
    for one in remaining_copies(decided, observed, hub, ours):
        if not one.why:
            found.append(_removal(one.now))
    return found


def foreign(decided: DecidedCopies, observed: HubObjects, hub: str) -> dict[EffectObject, str]:
    """Objects that are wanted, are there, and are not ours to change -> why not. Without those that
    serve as they are."""
    return {
        named(now): f"{_FOREIGN} {COPIED_FROM}={hub}"
        for kind, key in sorted(decided.wanted)
        if kind not in USED_AS_IT_IS
        and (now := observed.of(kind).get(key)) is not None
        and said_by(now, COPIED_FROM) != hub
    }


def copied_for(observed: HubObjects, hub: str) -> set[str]:
    """The bindings by which copies are there."""
    return {
        said_by(now, COPIED_FOR)
        for kind in ROOTS
        for now in observed.of(kind).values()
        if said_by(now, COPIED_FROM) == hub
    } - {""}


# --- what is wanted


def _replicas(binding: Rendered, cluster: str) -> int | None:
    """None: the cluster shall not have it."""
    for target in binding["spec"].get("clusters", []):
        if target["name"] == cluster:
            return int(target.get("replicas", binding["spec"].get("replicas", 0)))
    return None


def _copy(template: Rendered, hub: str, binding: str, replicas: int | None) -> Rendered:
    metadata, kind = template["metadata"], template["kind"]
    content = {name: template[name] for name in _CONTENT if name in template}
    if replicas is not None:
        content["spec"] = {**content["spec"], "replicas": replicas}
    if kind == CLAIM:
        content["spec"] = {**content["spec"]}
        content["spec"].pop("volumeName", None)
    kept = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name not in _NOT_COPIED and not name.startswith("wharfinger.io/")
    }
    labels = metadata.get("labels") or {}
    said = {
        COPIED_FROM: hub,
        COPIED_FOR: binding,
        COPIED: digest(
            {
                "labels": labels,
                "annotations": kept,
                "for": binding,
                **(_version(metadata) if kind == "Secret" else content),
            }
        ),
    }
    about = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "annotations": {**kept, **said},
        **({"labels": labels} if labels else {}),
    }
    return {"apiVersion": ROOTS[kind][0], "kind": kind, "metadata": about, **content}


def _version(metadata: Mapping[str, Any]) -> Rendered:
    """Instead of the content of a Secret: who may see its annotations could try passwords by a
    digest of them."""
    return {name: metadata.get(name, "") for name in ("uid", "resourceVersion")}


# --- what is to be written


def _changes(wanted: Rendered, now: Rendered) -> Iterator[CopyWrite]:
    metadata = now["metadata"]
    if (entries := _as_applied(metadata.get("managedFields") or [])) is not None:
        body: Rendered = {
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "managedFields": entries,
            }
        }
        request = ApiRequest("PATCH", path_of(now), body, MERGE_PATCH, strict=True)
        yield CopyWrite(named(now), "own", metadata["resourceVersion"], request)
        return
    said = said_by(wanted, COPIED)
    # A list does not say kind and version of its objects.
    copied = {name: value for name, value in wanted.items() if name not in ("apiVersion", "kind")}
    if said_by(now, COPIED) == said and next(differences(now, copied), None) is None:
        return
    body = {**wanted, "metadata": {**wanted["metadata"], "uid": metadata["uid"]}}
    request = ApiRequest("PATCH", path_of(now), body, APPLY_PATCH, strict=True)
    yield CopyWrite(named(now), "apply", said, request)


def _as_applied(entries: list[Rendered]) -> list[Rendered] | None:
    """What was created by us belongs to us as if it had been applied, so that a field that goes
    from the template goes from the copy. None: it does already, or we did not create it."""
    if all(one.get("manager") != MANAGER or one.get("operation") != "Update" for one in entries):
        return None
    if any(one.get("manager") == MANAGER and one["operation"] == "Apply" for one in entries):
        return [
            one
            for one in entries
            if one.get("manager") != MANAGER or one.get("operation") != "Update"
        ]
    return [
        {**one, "operation": "Apply"} if one.get("manager") == MANAGER else one for one in entries
    ]


def _removal(now: Rendered) -> CopyWrite:
    metadata = now["metadata"]
    conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    body: Rendered = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": conditions,
        "propagationPolicy": "Background",
    }
    request = ApiRequest("DELETE", path_of(now), body)
    return CopyWrite(named(now), "delete", metadata["resourceVersion"], request)


def differences(now: object, wanted: object, at: FieldPath = ()) -> Iterator[FieldPath]:
    """Fields of what is wanted that are not there or are otherwise. There may be more: defaults,
    fields and list items of others. What is wanted without content may be missing."""
    if isinstance(wanted, Mapping):
        there = now if isinstance(now, Mapping) else {}
        for key, value in wanted.items():
            if key in there:
                yield from differences(there[key], value, (*at, key))
            elif not _is_empty(value):
                yield (*at, key)
    elif isinstance(wanted, list) and any(isinstance(item, Mapping) for item in wanted):
        yield from _of_items(now if isinstance(now, list) else [], wanted, at)
    elif now != wanted and not (_is_empty(now) and _is_empty(wanted)):
        yield at


def _of_items(now: list[Any], wanted: list[Any], at: FieldPath) -> Iterator[FieldPath]:
    """Items with a name are compared by it. Of others each has to be there; the list is named."""
    for one in wanted:
        name = one.get("name") if isinstance(one, Mapping) else None
        same = [
            item for item in now if name and isinstance(item, Mapping) and item.get("name") == name
        ]
        if same:
            yield from differences(same[0], one, (*at, f"[{name}]"))
        elif name:
            yield (*at, f"[{name}]")
        elif all(any(True for _ in differences(item, one)) for item in now):
            yield at
            return


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _key(resource: Mapping[str, Any]) -> str:
    return f"{resource.get('namespace', '')}/{resource['name']}"
