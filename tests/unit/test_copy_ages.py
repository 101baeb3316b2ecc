"""Since when a copy is open, by the decisions about its workload and what the member has."""

from __future__ import annotations

import pytest
from tests.unit.test_copies import HUB, OSLO, a_binding, a_config_map, a_workload, of, the_copy

from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copies import copy_writes, decided_copies
from wharfinger.stages.actuator.copy_ages import (
    DecidedReplicas,
    MemberCopies,
    binding_of,
    open_since,
)
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects

WEB = "shop/web-statefulset"
SETTINGS = [{"name": "settings", "configMap": {"name": "settings"}}]


def decisions(*replicas: int | None) -> list[DecidedReplicas]:
    """About the cluster, one at 1, 2, 3 ...; None: it has none of them, another cluster has."""
    return [
        DecidedReplicas(at, {"bergen": 2} if number is None else {OSLO: number, "bergen": 1})
        for at, number in enumerate(replicas, 1)
    ]


def copies(
    templates: HubObjects, there: HubObjects, binding: Rendered | None = None
) -> MemberCopies:
    """`binding` None: none is decided to be there."""
    decided = decided_copies([] if binding is None else [binding], templates, HUB, OSLO)
    return MemberCopies(OSLO, HUB, decided, there)


def ages(found: MemberCopies, *replicas: int | None) -> dict[str, int]:
    """Of what is to be written -> since when."""
    writes = copy_writes(found.decided, found.there, HUB, (WEB,))
    assert {binding_of(write.object, found) for write in writes} <= {WEB}
    return {
        f"{write.what} {write.object.name}": open_since(write.object, found, decisions(*replicas))
        for write in writes
    }


@pytest.mark.parametrize(
    ("replicas", "since"),
    [((3,), 1), ((None, 3), 2), ((2, 5, 3), 1), ((3, None, 2, 3), 3), ((), 0)],
    ids=["one decision", "from another cluster", "other replicas", "away and back", "not known"],
)
def test_a_copy_that_is_not_there_is_open_since_the_cluster_has_it_decided(
    replicas: tuple[int | None, ...], since: int
) -> None:
    templates = of(a_workload(volumes=SETTINGS), a_config_map("settings"))
    found = copies(templates, of(), a_binding())
    assert ages(found, *replicas) == {"create settings": since, "create web": since}


def test_other_replicas_are_open_since_the_first_decision_that_is_not_in_place() -> None:
    template = a_workload()
    found = copies(of(template), of(the_copy(template)), a_binding(replicas=5))
    assert ages(found, 2, 3, 4, 5) == {"apply web": 3}


def test_a_template_that_has_changed_is_no_decision() -> None:
    copy = the_copy(a_workload())
    found = copies(of(a_workload(hostNetwork=True)), of(copy), a_binding())
    assert ages(found, 2, 3) == {"apply web": 0}


def test_what_others_have_changed_is_not_dated_by_the_decision() -> None:
    template = a_workload()
    copy = the_copy(template)
    copy["spec"]["replicas"] = 7
    assert ages(copies(of(template), of(copy), a_binding()), 2, 3) == {"apply web": 0}


def test_a_copy_that_is_to_go_is_open_since_its_cluster_has_none() -> None:
    template = a_workload(volumes=SETTINGS)
    templates = of(template, a_config_map("settings"))
    first = copies(templates, of(), a_binding())
    written = [write.request.body for write in copy_writes(first.decided, of(), HUB, ())]
    for body in written:
        body["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    found = copies(templates, of(*written))
    assert ages(found, 3, None, None) == {"delete web": 2, "delete settings": 2}


def test_what_cannot_be_copied_is_open_since_it_was_decided() -> None:
    found = copies(of(), of(), a_binding())
    object = EffectObject("StatefulSet", "shop", "web")
    assert found.decided.left_out[object].why == "its template is not in hub"
    assert binding_of(object, found) == WEB
    assert open_since(object, found, decisions(None, 3)) == 2


def test_an_object_of_others_in_its_place_is_no_copy() -> None:
    template = a_workload()
    theirs = the_copy(template)
    theirs["metadata"]["annotations"].clear()
    found = copies(of(template), of(theirs), a_binding())
    assert open_since(EffectObject("StatefulSet", "shop", "web"), found, decisions(None, 3)) == 2
