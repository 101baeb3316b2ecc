"""`docs/kinds.md`: every kind that is read, what it becomes, and which of its fields are acted on.
Made from the models themselves, so that it cannot say anything else than they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from pydantic import BaseModel

from wharfinger.events.intake import ClusterModel, LevelModel, PolicyModel, SchedulerModel
from wharfinger.manifests import any_object, ocm
from wharfinger.manifests.cluster_fact import CLUSTER, ClusterFact
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.karmada import upkeep as karmada_upkeep
from wharfinger.manifests.karpenter import node_claims
from wharfinger.manifests.kinds import KINDS, Kind
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.model import Model, fields

HEAD = f"""# Kinds and fields

Written by `make docs` from the models in `wharfinger/manifests`; edits are lost.

**Any kind is placed.** An object of any apiVersion and kind goes to the clusters that a
PropagationPolicy or ClusterPropagationPolicy decides, once one of its `resourceSelectors` names it.
So does one with the annotation `wharfinger.io/placement: any`, to any cluster. Its replicas are

- `spec.replicas`, where `spec.template` is a pod template beside it (Argo Rollout, CloneSet);
- else what the annotation `{any_object.REPLICAS}` says (`"3"`);
- else none: each chosen cluster gets the object as it is.

What no policy selects is skipped: `apply` prints each kind once, with the number of its objects and
the reason. `--strict` refuses such files. Kinds of Karmada's own groups that are not in the table
(OverridePolicy) are never placed; documents without `metadata.name` (Kustomization) are no objects.
A kind in a group of the table whose name is nearly that of a kind there is taken for a mistake.
A kind outside the table is one of a namespace, `default` where it names none, unless
Kubernetes itself has it without a namespace, or its CustomResourceDefinition is applied with it.

| kind | apiVersions | what it becomes |
|---|---|---|
"""

TYPES = """
## Fields

Each type of the table and the types of its fields. *Read*: it steers placement, or its shape is
checked. *Not acted on*: accepted, and `apply` says so. *Carried*: it travels with the object and
says nothing about where it runs. Fields of newer releases are accepted and reported, but in our own
kinds and in schedulers' configurations; misspelt ones are refused.

| type | read | not acted on | carried |
|---|---|---|---|
"""


def kinds_markdown() -> str:
    """The whole page."""
    rows: dict[tuple[str, str, type[BaseModel]], list[str]] = {}
    for kind in KINDS:
        row = (kind.kind, becomes(kind), kind.model)
        rows.setdefault(row, []).append(kind.api_version)
    table = [
        f"| {name} | {', '.join(f'`{v}`' for v in versions)} | {what} |\n"
        for (name, what, _), versions in rows.items()
    ]
    roots: list[type[BaseModel]] = [*(model for _, _, model in rows), any_object.AnyObject]
    models = _reachable(roots)
    names = Counter(model.__name__ for model in models)
    several = frozenset(name for name, count in names.items() if count > 1)
    return HEAD + "".join(table) + TYPES + "".join(_row(model, several) for model in models)


def becomes(kind: Kind) -> str:
    """What an object of the kind is for the plane."""
    model = kind.model
    if issubclass(model, ClusterModel):
        return "a member cluster"
    if issubclass(model, kubernetes.NodeManifest):
        return f"a node of the cluster that `{CLUSTER}` names"
    if issubclass(model, SchedulerModel):
        return "how nodes are chosen"
    if issubclass(model, LevelModel):
        return "priorities and groups of workloads that name it"
    if issubclass(model, PolicyModel):
        return "a policy"
    if issubclass(model, karmada.ClusterResourceBinding):
        return "a binding, as it is written"
    if issubclass(model, karmada_upkeep.WorkloadRebalancer):
        return "a fresh decision for each workload that it lists"
    if issubclass(model, node_claims.NodeClass | ocm.PlacementDecision):
        return "accepted, not acted on"
    if issubclass(model, kubernetes.PodManifest):
        return "a workload; with a node, a pod of the cluster that it names"
    placed = "a workload" if issubclass(model, kubernetes.Workload) else "an object as it is"
    if issubclass(model, kubernetes.ResourceQuota):
        return f"{placed}; with `{CLUSTER}`, a quota there"
    if issubclass(model, ClusterFact):
        fact = f"with `{CLUSTER}`, a fact of that cluster"
        return f"{placed}; {fact}" if model.travels else f"only {fact}"
    return placed


def _reachable(roots: Sequence[type[BaseModel]]) -> list[type[Model]]:
    """The models of `roots` and of all their fields, each once, as they are first met."""
    found: dict[type[Model], None] = {}
    pending: list[type[BaseModel]] = list(reversed(roots))
    while pending:
        model = pending.pop()
        if not issubclass(model, Model) or model in found:
            continue
        found[model] = None
        inner = [m for info in model.model_fields.values() for m in _models(info.annotation)]
        pending += reversed(inner)
    return list(found)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _name(model: type[BaseModel], several: frozenset[str]) -> str:
    """With its module's, where another type has the same name."""
    module = model.__module__.rpartition(".")[2]
    return f"{module}.{model.__name__}" if model.__name__ in several else model.__name__


def _row(model: type[Model], several: frozenset[str]) -> str:
    read, carried, unacted = fields(model)
    typed = {
        info.alias: [_name(inner, several) for inner in _models(info.annotation)]
        for info in model.model_fields.values()
    }
    shown = [
        f"`{name}`" + (f" ({', '.join(typed[name])})" if typed.get(name) else "")
        for name in sorted(read - unacted - {"apiVersion", "kind"})
    ]
    return (
        f"| {_name(model, several)} | {', '.join(shown)} "
        f"| {', '.join(f'`{n}`' for n in sorted(unacted))} "
        f"| {', '.join(f'`{n}`' for n in sorted(carried))} |\n"
    )
