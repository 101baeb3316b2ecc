"""What one object of a hub states: the facts of a cluster, a policy or a binding, as `apply` would
hand them in, and what its deletion states.

A hub is an API server that holds the objects of a fleet (Karmada, Open Cluster Management,
Karpenter) and, as far as this is concerned, no nodes.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from pydantic import ValidationError

from wharfinger.domain.value import canonical
from wharfinger.events.accepted import Fact
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import WorkloadObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.intake import PolicyModel, first_few
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests import ocm
from wharfinger.manifests.errors import dotted
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.kinds import Kind
from wharfinger.manifests.kubernetes.live import UnreadableError, error_line
from wharfinger.manifests.model import LIVE, ExpectedError, micros

HUB_SOURCE = "/wharfinger/collector/hub"
"""Begins the source of each fact about a hub; its name follows."""


class HubObject(msgspec.Struct, frozen=True):
    """`facts`: what the object states, in the order in which they are sent. `unacted`: its fields
    that are set and not acted on, those of newer releases among them."""

    name: str
    facts: tuple[Fact, ...]
    unacted: tuple[str, ...] = ()


def read_hub_object(kind: Kind, document: object) -> HubObject:
    """UnreadableError: the object is there, and what it says cannot be turned into facts."""
    found = cast("dict[str, Any]", document)
    found = {**found, "apiVersion": kind.api_version, "kind": kind.kind}
    name = found["metadata"]["name"]
    try:
        model = kind.model.model_validate(found, context=LIVE)
        unacted = tuple([dotted(path) for path in model.unacted()])
        match model:
            case ocm.PlacementDecision():
                chosen = model.chosen()
                known = chosen.chosen is not None and chosen.chosen.placement
                return HubObject(name, (PolicyApplied(chosen),) if known else ())
            case karmada.ClusterManifest():
                facts: tuple[Fact, ...] = (ClusterObserved(model.to_domain()),)
            case ocm.ManagedCluster():
                facts = (ClusterObserved(model.to_domain(_json(found))),)
            case karmada.ClusterResourceBinding():
                facts = _binding(model, unacted)
            case _:
                assert isinstance(model, PolicyModel), "only these are watched"
                facts = (PolicyApplied(model.to_domain(_json(found))),)
        return HubObject(name, facts, unacted)
    except (ValidationError, ExpectedError) as error:
        raise UnreadableError(name, error_line(error)) from None


def _binding(model: karmada.ClusterResourceBinding, unacted: tuple[str, ...]) -> tuple[Fact, ...]:
    created = model.metadata.creation_timestamp
    binding = msgspec.structs.replace(
        model.to_domain(),
        unacted=first_few(unacted),
        created_us=0 if created is None else micros(created),
    )
    health = [
        WorkloadObserved(item.cluster_name, binding.name, item.health or "Unknown", item.ready)
        for item in model.status.aggregated_status
    ]
    return (BindingRequested(binding), *health)


def withdrawn(fact: Fact) -> Fact | None:
    """What states that the object of a fact is gone; None: nothing has to."""
    match fact:
        case ClusterObserved(cluster=cluster):
            return ClusterForgotten(cluster.name)
        case BindingRequested(binding=binding):
            return BindingWithdrawn(binding.name)
        case PolicyApplied(policy=policy):
            return PolicyRemoved(policy.kind, policy.name, policy.namespace)
        case _:
            return None


def _json(document: dict[str, Any]) -> str:
    """Without the times at which its parts were written, which change with each write."""
    metadata = {k: v for k, v in document["metadata"].items() if k in _KEPT}
    return canonical({**document, "metadata": metadata}).decode()


_KEPT = ("name", "namespace", "uid", "labels", "annotations", "generation", "creationTimestamp")
