"""Whether a subscription may still be delivered whose maker came without a token of the plane.

Such a maker is known by its way in, its name and the groups that it came with last
(`runtime.ledger.webhooks`). What it may do is asked of the grants as they are now: before each
delivery, as if it came again. So a grant that is taken away or narrowed ends the subscription.
"""

from __future__ import annotations

from wharfinger.domain.text import printable
from wharfinger.runtime.ledger.webhooks import Webhook, WebhookMaker
from wharfinger_api.access import RULES, Principal
from wharfinger_api.grants import Grants, ProvenIdentity

SUBSCRIBING = RULES["POST", "/v1/webhooks"].roles


def maker_of(principal: Principal) -> WebhookMaker | None:
    """None: it came with a token of the plane."""
    if principal.type == "token":
        return None
    return WebhookMaker(principal.type, principal.id, tuple(sorted(set(principal.groups))))


def ungranted(grants: Grants, of: Webhook) -> str:
    """Why its maker may not have it any more; "": it may, or a token decides."""
    maker = of.maker
    if maker is None:
        return ""
    principal = grants.principal(ProvenIdentity(maker.way, maker.name, maker.groups))
    name = printable(principal.name)
    if not principal.roles:
        return f"no grant names {name} or a group of it any more"
    if not principal.roles & SUBSCRIBING:
        return f"the grant of {name} has none of the roles {', '.join(sorted(SUBSCRIBING))}"
    if principal.everywhere:
        return ""
    if not of.filter.namespaces:
        return f"the grant of {name} is no longer for all namespaces"
    # the empty one stands for a filter that lets nothing through
    outside = sorted(set(of.filter.namespaces) - principal.namespaces - {""})
    return f"the grant of {name} is not for {', '.join(map(printable, outside))}" if outside else ""
