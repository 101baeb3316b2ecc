"""What was decided, to be fetched: `/placements`, `/placementdecisions` and `/resourcebindings`
beside the publisher's health; and what was measured, `/nodeannotations`.

Read only, each a Kubernetes List as JSON, made of the ledger when it is asked for. `?namespace=`,
`?name=` and, of decisions, `?placement=` choose among them, `?cluster=` among nodes. A set of
clusters is in it whole or, where its last part is still to come, as it was."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.history.object_kinds import DECISIONS, KINDS, LOADS
from wharfinger.runtime.health import Page
from wharfinger.runtime.ledger import Ledger

_PARAMETERS = {DECISIONS: ("name", "namespace", "placement"), LOADS: ("name", "cluster")}


def pages(ledger: Ledger) -> dict[str, Page]:
    return {f"/{what}": _page(ledger, what) for what in KINDS}


def _page(ledger: Ledger, what: str) -> Page:
    known = _PARAMETERS.get(what, ("name", "namespace"))

    async def page(asked: Mapping[str, str]) -> object:
        # few publishers are asked for them
        from wharfinger.history.objects import ObjectFilter, as_list, rendered

        for parameter in asked:
            if parameter not in known:
                raise ValueError(f"/{what}: expected {', '.join(known)}, got {parameter!r}")
        wanted = ObjectFilter(
            **{parameter: asked[parameter] for parameter in known if parameter in asked}
        )
        return as_list(await rendered(ledger, what, wanted))

    return page
