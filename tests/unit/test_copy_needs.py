"""Objects that copied workloads name, and that are not copied with them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_copies import (
    HUB,
    OSLO,
    a_binding,
    a_config_map,
    a_secret,
    a_workload,
    an_account,
    of,
    the_copy,
)

from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copies import decided_copies
from wharfinger.stages.actuator.copy_ages import MemberCopies
from wharfinger.stages.actuator.copy_needs import needed_objects
from wharfinger.stages.actuator.hub import HubObjects

NAMES: dict[str, Any] = {
    "volumes": [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "more", "configMap": {"name": "more", "optional": True}},
        {"name": "token", "secret": {"secretName": "token"}},
        {"name": "extra", "secret": {"secretName": "extra", "optional": True}},
    ],
    "imagePullSecrets": [{"name": "registry"}],
}


def needed(templates: HubObjects, there: HubObjects, *bindings: Rendered) -> dict[str, str]:
    decided = decided_copies(bindings or (a_binding(),), templates, HUB, OSLO)
    found = needed_objects(MemberCopies(OSLO, HUB, decided, there))
    return {f"{'missing' if one.missing else 'needs'} {one.object}": one.why for one in found}


def with_status(copy: Rendered, **status: int) -> Rendered:
    copy["metadata"]["generation"] = 4
    copy["status"] = {"observedGeneration": 4, "updatedReplicas": 3, "readyReplicas": 3, **status}
    return copy


def test_what_a_workload_names_is_listed_with_what_is_to_be_done() -> None:
    secrets = "named by StatefulSet shop/web: Secrets are not copied; create it in oslo"
    assert needed(of(a_workload(**NAMES)), of()) == {
        "missing ConfigMap shop/settings": "named by StatefulSet shop/web: neither hub nor oslo"
        " has it; create it in hub",
        "needs Secret shop/registry": f"{secrets}, if it is not there",
        "needs Secret shop/token": f"{secrets}, if it is not there",
    }


def test_a_config_map_that_is_in_hub_or_member_is_not_missing() -> None:
    secrets = ["needs Secret shop/registry", "needs Secret shop/token"]
    settings = a_config_map("settings")
    assert list(needed(of(a_workload(**NAMES), settings), of())) == secrets, "it is copied"
    assert list(needed(of(a_workload(**NAMES)), of(settings))) == secrets, "the member has its own"


def test_an_account_that_is_in_neither_is_missing() -> None:
    template = a_workload(serviceAccountName="seller")
    assert needed(of(template), of()) == {
        "missing ServiceAccount shop/seller": "named by StatefulSet shop/web: neither hub nor oslo"
        " has it; create it in hub"
    }
    for account in (an_account("seller"), an_account("seller", secrets=[])):
        assert needed(of(template, account), of()) == {}, "it is copied"
        assert needed(of(template), of(account)) == {}, "the member has its own"
    decided = decided_copies([a_binding()], of(template), HUB, OSLO, unread=["ServiceAccount"])
    assert needed_objects(MemberCopies(OSLO, HUB, decided, of())) == [], "it is not known"


def test_secrets_of_the_members_own_account_are_needed() -> None:
    template = a_workload(serviceAccountName="seller")
    account = an_account("seller", imagePullSecrets=[{"name": "registry"}])
    assert list(needed(of(template), of(account))) == ["needs Secret shop/registry"]


def test_a_workload_that_is_available_needs_nothing() -> None:
    template = a_workload(**NAMES)
    assert needed(of(template), of(with_status(the_copy(a_workload(**NAMES))))) == {}


@pytest.mark.parametrize(
    "status",
    [{"observedGeneration": 3}, {"updatedReplicas": 2}, {"readyReplicas": 2}],
    ids=["not seen yet", "older pods", "not ready"],
)
def test_a_workload_that_is_not_available_may_lack_its_secrets(status: dict[str, int]) -> None:
    copy = with_status(the_copy(a_workload(**NAMES)), **status)
    assert "needs Secret shop/token" in needed(of(a_workload(**NAMES)), of(copy))


def test_a_new_template_may_name_what_is_not_there() -> None:
    copy = with_status(the_copy(a_workload()))
    assert "needs Secret shop/token" in needed(of(a_workload(**NAMES)), of(copy))


def test_what_two_workloads_name_is_listed_once() -> None:
    bindings = a_binding(), a_binding(kind="Deployment")
    templates = of(a_workload(**NAMES), a_workload("Deployment", **NAMES))
    whys = needed(templates, of(), *bindings)
    assert len(whys) == 3
    assert all(why.startswith("named by Deployment shop/web: ") for why in whys.values())


def test_a_workload_that_is_decided_elsewhere_needs_nothing_here() -> None:
    elsewhere = a_binding()
    elsewhere["spec"]["clusters"] = [{"name": "bergen", "replicas": 3}]
    assert needed(of(a_workload(**NAMES)), of(), elsewhere) == {}


def test_where_secrets_are_copied_one_that_is_in_neither_is_missing() -> None:
    templates = of(a_workload(**NAMES), a_secret("token"))
    decided = decided_copies([a_binding()], templates, HUB, OSLO, ["shop"])

    def missing(there: HubObjects) -> list[tuple[str, str]]:
        found = needed_objects(MemberCopies(OSLO, HUB, decided, there, ["shop"]))
        assert all(one.missing for one in found)
        return [(str(one.object), one.remedy) for one in found if one.object.kind == "Secret"]

    remedy = "oslo has none, and hub none that can be copied; create it"
    assert missing(of()) == [("Secret shop/registry", remedy)]
    assert missing(of(a_secret("registry"))) == []
