"""The fields that are read are fields of the server, with the types that are expected: asked of the
server's own OpenAPI."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from tests.kube.member import Member

from wharfinger.manifests.kubernetes.live import LiveNode, LivePod

Json = dict[str, Any]

OF_OTHER_RELEASES = {"Pod.spec.workloadRef: not there"}
"""Kubernetes 1.35 called `schedulingGroup` so; both are read."""

TYPES = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array"}


@pytest.fixture(scope="module")
def schemas(member: Member) -> Json:
    found: Json = json.loads(member.kubectl("get", "--raw", "/openapi/v3/api/v1"))
    return found["components"]["schemas"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("struct", "name"), [(LivePod, "io.k8s.api.core.v1.Pod"), (LiveNode, "io.k8s.api.core.v1.Node")]
)
def test_every_field_that_is_read_is_a_field_of_the_server(
    schemas: Json, struct: type[msgspec.Struct], name: str
) -> None:
    checked: list[str] = []
    wrong = set(_wrong(struct, schemas[name], schemas, name.rpartition(".")[2], checked))
    assert wrong - OF_OTHER_RELEASES == set()
    assert len(checked) > 10


def test_a_field_that_has_vanished_is_found(schemas: Json) -> None:
    changed = json.loads(json.dumps(schemas))
    spec = changed["io.k8s.api.core.v1.PodSpec"]["properties"]
    del spec["nodeName"]
    spec["priority"]["type"] = "string"
    pod = changed["io.k8s.api.core.v1.Pod"]
    assert set(_wrong(LivePod, pod, changed, "Pod", [])) - OF_OTHER_RELEASES == {
        "Pod.spec.nodeName: not there",
        "Pod.spec.priority: expected integer, got string",
    }


def _wrong(
    struct: type[msgspec.Struct], schema: Json, schemas: Json, path: str, checked: list[str]
) -> Any:
    hints = get_type_hints(struct)
    for attribute, name in zip(
        struct.__struct_fields__, struct.__struct_encode_fields__, strict=True
    ):
        here = f"{path}.{name}"
        found = schema["properties"].get(name)
        if found is None:
            yield f"{here}: not there"
            continue
        checked.append(here)
        found = _resolved(found, schemas)
        expected = _without_none(hints[attribute])
        if expected is msgspec.Raw:
            continue
        if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
            yield from _wrong(expected, found, schemas, here, checked)
            continue
        kind = get_origin(expected) or expected
        if found.get("type") != TYPES[kind]:
            yield f"{here}: expected {TYPES[kind]}, got {found.get('type')}"
        elif kind is list:
            (item,) = get_args(expected)
            if isinstance(item, type) and issubclass(item, msgspec.Struct):
                items = _resolved(found["items"], schemas)
                yield from _wrong(item, items, schemas, f"{here}[]", checked)


def _resolved(schema: Json, schemas: Json) -> Json:
    for one in (schema, *schema.get("allOf", ())):
        if "$ref" in one:
            found: Json = schemas[one["$ref"].rpartition("/")[2]]
            return found
    return schema


def _without_none(hint: Any) -> Any:
    kinds = [one for one in get_args(hint) if one is not type(None)]
    return kinds[0] if type(None) in get_args(hint) else hint
