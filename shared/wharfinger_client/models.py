"""Shapes of answers. A member that is not named here may be there too: newer servers say more."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypedDict, TypeVar

T = TypeVar("T")

Role = Literal["viewer", "operator", "auditor", "service", "admin"]


class Page(TypedDict, Generic[T], total=False):
    """`next`: `after` of the next page, None on the last. With `group_by`: `groups`, no items."""

    items: list[T]
    groups: list[dict[str, Any]]
    total: int
    next: str | None


class Target(TypedDict):
    cluster: str
    replicas: int


class Binding(TypedDict, total=False):
    """`outcome`: of its latest request. `placed`: replicas on nodes."""

    name: str
    replicas: int
    outcome: str
    decision: str | None
    policy: str
    labels: dict[str, str]
    targets: list[Target]
    placed: int


class Cluster(TypedDict, total=False):
    """`nodes`: how many."""

    name: str
    labels: dict[str, str]
    provider: str
    region: str
    nodes: int
    silent: bool


class Node(TypedDict, total=False):
    """`allocatable`: thousandths of a core, bytes, counts. `replicas`: on it."""

    name: str
    cluster: str
    labels: dict[str, str]
    allocatable: dict[str, int]
    unschedulable: bool
    replicas: int


class Policy(TypedDict, total=False):
    """`bindings`: how many it places."""

    key: str
    kind: str
    namespace: str
    name: str
    bindings: int


class Decision(TypedDict):
    """`data`: as it was recorded; its shape follows from `type`."""

    id: str
    stream: str
    seq: int
    round: int
    type: str
    subject: str
    outcome: str
    time: str
    cause: str | None
    data: dict[str, Any]


class History(TypedDict):
    """`decisions`: each with `after_s` and `because`."""

    binding: str
    total: int
    decisions: list[dict[str, Any]]


class Lineage(TypedDict):
    """`roots`: first causes; each link has `id`, `kind` and `children`."""

    subject: str
    cut: bool
    roots: list[dict[str, Any]]


class Explanation(TypedDict):
    """Why it is where it is."""

    binding: str
    decision: dict[str, Any] | None
    undecided: dict[str, Any] | None
    steady: dict[str, Any] | None
    waiting: dict[str, Any] | None
    unacted: list[dict[str, Any]]
    history: list[Decision]
    total: int


class ObjectResult(TypedDict):
    type: str
    subject: str
    result: Literal["created", "changed", "unchanged", "deleted"]


class Changes(TypedDict):
    """`events`: type of fact -> how many. `position`: `min_position` of a read that shall see them;
    None: nothing was accepted, or the feed is behind."""

    events: dict[str, int]
    accepted: int
    unchanged: int
    outdated: int
    objects: list[ObjectResult]
    skipped: list[dict[str, Any]]
    unacted: list[str]
    dry_run: bool
    position: int | None


class Upkeep(TypedDict):
    """`position`: as of `Changes`."""

    subject: str
    result: Literal["changed", "unchanged"]
    position: int | None


class FactsAccepted(TypedDict):
    """Ids: of what is new, what was posted before, and what is older than the latest of its key."""

    accepted: list[str]
    known: list[str]
    outdated: list[str]
    position: int | None


class StreamHead(TypedDict):
    stream: str
    round: int
    seq: int
    time: str | None


class Items(TypedDict, Generic[T]):
    items: list[T]


class Who(TypedDict):
    type: str
    id: str
    roles: list[Role]
    namespaces: list[str]


class Secret(TypedDict):
    """`secret`: shown this once. `expires`: RFC 3339."""

    id: str
    secret: str
    name: str
    roles: list[Role]
    namespaces: list[str]
    expires: str | None


class Token(TypedDict):
    id: str
    name: str
    roles: list[Role]
    namespaces: list[str]
    made_by: str
    made: str
    expires: str | None
    revoked: str | None


class Access(TypedDict):
    """`count`: this one and those like it that have no record of their own."""

    seq: int
    time: str
    actor: str
    action: str
    target: str
    outcome: Literal["allowed", "refused"]
    reason: str
    request: str
    count: int


class AccessPage(TypedDict):
    items: list[Access]
    next: str | None


class Ready(TypedDict):
    ready: bool
    services: dict[str, Any]
