"""What a user wrote about a binding that is accepted and not acted on: in its workload, and in the
policy it falls under.

`apply` says it once, when few listen. Here it is said again where somebody asks why a binding is
where it is, as of the decision that is explained. Of the workload its binding says it; of the
policy it follows from the manifest that was kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.policy import Policy
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, causality


async def unacted_at(ledger: Ledger, binding: str, at: Micros) -> Mapping[str, tuple[str, ...]]:
    """The manifest (of the workload, of its policy) -> its unsupported fields, as applied by then.
    Empty if the request was retired, or never came through the intake."""
    base = (await ledger.bases()).get(INTAKE)
    if base is not None and at < base.at:
        return {}
    until = await ledger.round_at(INTAKE, at) + 1
    told = await causality.told_before(ledger.database, {(binding, until)})
    request = next((event.data for event, _ in told.values()), None)
    if not isinstance(request, BindingRequested):
        return {}
    spec = request.binding
    found = {f"{spec.resource.kind} {spec.resource.name}": spec.unacted}
    ruled = (
        await causality.told_before(ledger.database, {(spec.policy, until)}) if spec.policy else {}
    )
    for event, _ in ruled.values():
        if isinstance(event.data, PolicyApplied):
            policy = event.data.policy
            found[f"{policy.kind} {policy.name}"] = unacted_of(policy)
    return {whose: fields for whose, fields in found.items() if fields}


def unacted_of(policy: Policy) -> tuple[str, ...]:
    """The fields of its manifest that are not acted on; none where the manifest is not one that
    this version reads."""
    # with all kinds, which few explanations need
    from wharfinger.manifests.parse import load_manifests

    loaded = load_manifests(policy.manifest, policy.key)
    return tuple(field for manifest in loaded.manifests for field in manifest.unacted)
