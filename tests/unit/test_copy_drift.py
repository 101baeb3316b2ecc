"""What others have changed of copied workloads."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.test_copies import HUB, OSLO, a_binding, a_config_map, a_workload, of, the_copy

from wharfinger.domain.actuation import COPIED_FROM
from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copies import copy_writes, decided_copies
from wharfinger.stages.actuator.copy_drift import CopyDrift, copy_drift
from wharfinger.stages.actuator.hub import HubObjects

MAIN = "spec.template.spec.containers[main]"


def drift(templates: HubObjects, there: HubObjects) -> list[CopyDrift]:
    return copy_drift(decided_copies([a_binding()], templates, HUB, OSLO), there, HUB)


def container_of(copy: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = copy["spec"]["template"]["spec"]["containers"][0]
    return found


def owned(copy: Rendered, manager: str, fields: object) -> None:
    entry = {"manager": manager, "operation": "Update", "fieldsV1": fields}
    copy["metadata"]["managedFields"].append(entry)


def of_container(field: str, key: str = '{"name":"main"}') -> object:
    containers: object = {f"k:{key}": {".": {}, f"f:{field}": {}}}
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}}


def test_a_copy_as_it_was_written_has_no_drift() -> None:
    template = a_workload()
    copy = the_copy(template)
    container_of(copy)["terminationMessagePath"] = "/dev/termination-log"
    copy["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh", "image": "mesh:1"})
    owned(copy, "mesh", of_container("image", '{"name":"mesh"}'))
    assert drift(of(template), of(copy)) == []


def test_replicas_and_images_are_shown_with_who_has_set_them() -> None:
    template = a_workload()
    copy = the_copy(template)
    copy["spec"]["replicas"] = 5
    container_of(copy)["image"] = "nginx:theirs"
    owned(copy, "kubectl", {"f:spec": {"f:replicas": {}}})
    owned(copy, "deployer", of_container("image"))
    named = drift(of(template), of(copy))[0].object
    assert str(named) == "StatefulSet shop/web"
    assert drift(of(template), of(copy)) == [
        CopyDrift(named, "spec.replicas", "3", "5", ("kubectl",)),
        CopyDrift(named, f"{MAIN}.image", "nginx:1", "nginx:theirs", ("deployer",)),
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda copy: container_of(copy).update(args=["--password=x"]), f"{MAIN}.args"),
        (lambda copy: container_of(copy).pop("ports"), f"{MAIN}.ports"),
        (lambda copy: container_of(copy)["ports"][0].update(protocol="UDP"), f"{MAIN}.ports"),
        (lambda copy: container_of(copy).update(name="other"), MAIN),
        (lambda copy: copy["metadata"]["labels"].pop("app"), "metadata.labels.app"),
        (lambda copy: copy["spec"].pop("selector"), "spec.selector"),
    ],
)
def test_of_other_fields_no_value_is_shown(
    change: Callable[[Rendered], object], field: str
) -> None:
    template = a_workload()
    copy = the_copy(template)
    change(copy)
    (found,) = drift(of(template), of(copy))
    assert (found.field, found.decided, found.observed, found.managers) == (field, "", "", ())
    assert copy_writes(decided_copies([a_binding()], of(template), HUB, OSLO), of(copy), HUB, ())


def test_an_image_that_is_gone() -> None:
    template = a_workload()
    copy = the_copy(template)
    del container_of(copy)["image"]
    (found,) = drift(of(template), of(copy))
    assert (found.field, found.decided, found.observed) == (f"{MAIN}.image", "nginx:1", "none")


def test_data_of_a_config_map() -> None:
    volume = {"name": "settings", "configMap": {"name": "settings"}}
    templates = of(a_workload(volumes=[volume]), a_config_map("settings"))
    bodies = [
        deepcopy(write.request.body)
        for write in copy_writes(decided_copies([a_binding()], templates, HUB, OSLO), of(), HUB, ())
    ]
    for body in bodies:
        body["metadata"]["uid"] = "u-1"
    assert drift(templates, of(*bodies)) == []
    bodies[0]["data"]["colour"] = "red"
    (found,) = drift(templates, of(*bodies))
    assert (str(found.object), found.field) == ("ConfigMap shop/settings", "data.colour")
    assert (found.decided, found.observed) == ("", "")


def test_what_is_still_to_be_written_is_no_drift() -> None:
    template = a_workload()
    copy = the_copy(template)
    newer = a_workload(hostNetwork=True)
    assert drift(of(newer), of(copy)) == [], "another template than the one that was applied"
    assert drift(of(template), of()) == [], "not there"
    assert drift(of(), of(copy)) == [], "its template is away"


def test_an_object_of_others_where_a_copy_was_decided() -> None:
    template = a_workload()
    copy = the_copy(template)
    copy["metadata"]["annotations"][COPIED_FROM] = "another"
    (found,) = drift(of(template), of(copy))
    assert (str(found.object), found.field) == ("StatefulSet shop/web", "")


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_no_value_of_data_is_shown_under_any_key(kind: str) -> None:
    template = a_workload(
        volumes=[{"name": "c", "configMap": {"name": "x"}}], imagePullSecrets=[{"name": "x"}]
    )
    named = {**a_config_map("x"), "kind": kind, "data": {"image": "bXk=", "replicas": "Mw=="}}
    decided = decided_copies([a_binding()], of(template, named), HUB, OSLO, ["shop"])
    (body,) = [
        deepcopy(one.request.body)
        for one in copy_writes(decided, of(), HUB, ())
        if one.object.kind == kind
    ]
    body["metadata"]["uid"] = "u-1"
    body["data"] = {"image": "b3RoZXI=", "replicas": "NQ=="}
    found = copy_drift(decided, of(body), HUB)
    assert [one.field for one in found] == ["data.image", "data.replicas"]
    assert {(one.decided, one.observed) for one in found} == {("", "")}
