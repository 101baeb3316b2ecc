"""Who may ask for what: one table of routes and roles, looked at in one place before a route runs.

A route that is not in the table is refused when the application is made. A principal with
namespaces sees only what is about them; `within` says of each route whether it can be filtered so.
Where it cannot, such a principal is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fastapi import FastAPI
from fastapi.routing import APIRoute

from wharfinger.domain.text import printable
from wharfinger_api.problems import Problem


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    SERVICE = "service"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `type`, `id`: as CloudEvents' auth context names them. `namespaces` empty: all.
    `sources`: of the facts that a service may post. `groups`: that its way in has proven."""

    type: str
    id: str
    roles: frozenset[Role]
    namespaces: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.type}:{self.id}"

    @property
    def authtype(self) -> str:
        """CloudEvents' type of the account."""
        if self.type == "token":
            return "api_key"
        service = self.type == "kubernetes" and self.id.startswith("system:serviceaccount:")
        return "service_account" if service else "user"

    @property
    def everywhere(self) -> bool:
        """Auditors see the rows of all namespaces."""
        return not self.namespaces or Role.AUDITOR in self.roles

    @property
    def scope(self) -> str:
        """Equal for principals that see the same."""
        return "" if self.everywhere else " ".join(sorted(self.namespaces))

    def changes(self, namespace: str) -> bool:
        """Whether it may change what is in a namespace. Auditors who are operators, too, see more
        than they may change."""
        return not self.namespaces or namespace in self.namespaces

    def sees(self, subject: str) -> bool:
        """Whether something named `<namespace>/<name>` is in its namespaces."""
        return self.everywhere or subject.partition("/")[0] in self.namespaces


@dataclass(frozen=True, slots=True)
class Rule:
    """`roles` empty: open to all. `within`: what is answered can be filtered by namespace.
    `recorded`: what is allowed stands in the access records: every write, and every read of what
    belongs to others."""

    roles: frozenset[Role] = frozenset()
    within: bool = False
    recorded: bool = False


def _roles(*roles: Role, within: bool = False, recorded: bool = False) -> Rule:
    return Rule(frozenset(roles), within, recorded)


_OPEN = Rule()
_READ = _roles(Role.VIEWER, Role.OPERATOR, Role.AUDITOR, within=True)
_READ_ALL = _roles(Role.VIEWER, Role.OPERATOR, Role.AUDITOR)
_ANYONE = _roles(*Role, within=True)
# what is changed is held against the namespaces of the principal by `changing.within`
_CHANGE = _roles(Role.OPERATOR, within=True, recorded=True)
# a plan writes nothing to any stream, and costs seconds of a core
_PLAN = _roles(Role.VIEWER, Role.OPERATOR, Role.AUDITOR, recorded=True)
_UPKEEP = _roles(Role.OPERATOR, recorded=True)
_TELL = _roles(Role.SERVICE, within=True, recorded=True)
_OWN = _roles(*Role, within=True, recorded=True)
_SUBSCRIBE = _roles(Role.VIEWER, Role.OPERATOR, Role.AUDITOR, within=True, recorded=True)
_SUBSCRIBED = _roles(
    Role.VIEWER, Role.OPERATOR, Role.AUDITOR, Role.ADMIN, within=True, recorded=True
)
_WATCH = _roles(Role.AUDITOR, Role.ADMIN, recorded=True)

RULES: Mapping[tuple[str, str], Rule] = {
    ("GET", "/healthz"): _OPEN,
    ("GET", "/readyz"): _OPEN,
    ("GET", "/metrics"): _OPEN,
    ("GET", "/v1/openapi.json"): _OPEN,
    ("POST", "/v1/login"): _OPEN,
    ("GET", "/v1/whoami"): _ANYONE,
    ("GET", "/v1/bindings"): _READ,
    ("GET", "/v1/bindings/{namespace}/{name}"): _READ,
    ("GET", "/v1/bindings/{namespace}/{name}/history"): _READ,
    ("GET", "/v1/bindings/{namespace}/{name}/lineage"): _READ,
    ("GET", "/v1/bindings/{namespace}/{name}/explain"): _READ,
    ("GET", "/v1/clusters"): _READ_ALL,
    ("GET", "/v1/nodes"): _READ_ALL,
    ("GET", "/v1/policies"): _READ,
    ("GET", "/v1/policies/{kind}/{namespace}/{name}"): _READ,
    ("GET", "/v1/decisions"): _READ,
    ("GET", "/v1/decisions/{decision}"): _READ,
    ("GET", "/v1/status"): _READ_ALL,
    ("GET", "/v1/streams"): _READ_ALL,
    ("GET", "/v1/events"): _READ,
    ("POST", "/v1/apply"): _CHANGE,
    ("POST", "/v1/delete"): _CHANGE,
    ("POST", "/v1/bindings/{namespace}/{name}/scale"): _CHANGE,
    ("PUT", "/v1/bindings/{namespace}/{name}"): _CHANGE,
    ("DELETE", "/v1/bindings/{namespace}/{name}"): _CHANGE,
    ("PUT", "/v1/policies/{kind}/{namespace}/{name}"): _CHANGE,
    ("DELETE", "/v1/policies/{kind}/{namespace}/{name}"): _CHANGE,
    ("POST", "/v1/drain"): _UPKEEP,
    ("POST", "/v1/undrain"): _UPKEEP,
    ("POST", "/v1/barrier"): _READ,
    ("POST", "/v1/plans"): _PLAN,
    ("GET", "/v1/plans/{plan}"): _READ_ALL,
    ("POST", "/v1/plans/{plan}/apply"): _UPKEEP,
    ("GET", "/v1/operations"): _READ_ALL,
    ("GET", "/v1/operations/{operation}"): _READ_ALL,
    ("POST", "/v1/operations/{operation}/cancel"): _PLAN,
    ("POST", "/v1/facts"): _TELL,
    ("GET", "/v1/tokens"): _OWN,
    ("POST", "/v1/tokens"): _OWN,
    ("DELETE", "/v1/tokens/{token}"): _OWN,
    ("GET", "/v1/webhooks"): _SUBSCRIBED,
    ("POST", "/v1/webhooks"): _SUBSCRIBE,
    ("GET", "/v1/webhooks/{webhook}"): _SUBSCRIBED,
    ("PUT", "/v1/webhooks/{webhook}"): _SUBSCRIBE,
    ("DELETE", "/v1/webhooks/{webhook}"): _SUBSCRIBED,
    ("POST", "/v1/webhooks/{webhook}/rotate"): _SUBSCRIBE,
    ("POST", "/v1/webhooks/{webhook}/redeliver"): _SUBSCRIBE,
    ("GET", "/v1/webhooks/{webhook}/deliveries"): _SUBSCRIBED,
    ("GET", "/v1/access"): _WATCH,
}


def check_table(app: FastAPI) -> None:
    """ValueError: a route without a rule, or a rule without a route."""
    routes = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    if routes != set(RULES):
        raise ValueError(f"routes and rules differ: {sorted(routes ^ set(RULES))}")


def allowed(method: str, path: str, principal: Principal | None) -> None:
    """Problem: it is not."""
    rule = RULES[method, path]
    if not rule.roles:
        return
    if principal is None:
        raise Problem(
            "unauthenticated",
            "expected an Authorization header with a valid bearer token",
            headers={"WWW-Authenticate": 'Bearer realm="wharfinger"'},
        )
    if not principal.roles:
        raise Problem("forbidden", f"no grant names {printable(principal.name)} or a group of it")
    if not rule.roles & principal.roles:
        wanted = ", ".join(sorted(rule.roles))
        raise Problem("forbidden", f"{method} {path} is for {wanted}")
    # an auditor reads what is outside of their namespaces, and changes nothing there
    bound = not principal.everywhere if method == "GET" else bool(principal.namespaces)
    if not rule.within and bound:
        raise Problem("forbidden", f"{method} {path} needs a grant for all namespaces")
